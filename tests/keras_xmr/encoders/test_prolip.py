"""ProLIP: its towers give what the published code gives, from files in the published layout."""

from __future__ import annotations

import json

import keras
import numpy as np
import presets
import pytest
import safetensors.numpy

from keras_xmr.encoders import EncoderError, InputSpec, ProlipImage, ProlipText
from keras_xmr.heads import HeadError, Prolip
from keras_xmr.matchers import ClosedFormSampled

SIZE, LENGTH, DIMENSION = 16, 6, 8
CONFIG = {
    "embed_dim": DIMENSION,
    "vision_cfg": {
        "image_size": SIZE, "patch_size": 8, "width": 12, "head_width": 6, "layers": 2,
        "mlp_ratio": 2.5, "embed_unc": True,
    },
    "text_cfg": {
        "context_length": LENGTH, "vocab_size": 20, "width": 8, "heads": 2, "layers": 2,
        "mlp_ratio": 2.5, "norm_kwargs": {"eps": 1e-6}, "embed_unc": True,
    },
}  # fmt: skip


@pytest.fixture
def case(golden):
    return golden("prolip")


@pytest.fixture
def folder(case, tmp_path):
    """A folder as it is published, with the weights of the reference."""
    weights = {key[6:]: case[key] for key in case if key.startswith("param_")}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    describe(tmp_path)
    return tmp_path


def describe(folder, **changes):
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))


def image_tower(folder, **options):
    """The image tower of a folder, with the head."""
    pixels = keras.Input((SIZE, SIZE, 3), dtype="uint8")
    features, _ = ProlipImage(folder=str(folder), **options).features(pixels, InputSpec(SIZE))
    return keras.Model(pixels, Prolip(DIMENSION, name="head")(features))


def text_tower(folder, **options):
    """The text tower of a folder, with the head."""
    ids = keras.Input((None,), dtype="int32")
    features, _ = ProlipText(folder=str(folder), **options).features(ids, InputSpec())
    return keras.Model(ids, Prolip(DIMENSION, name="head")(features))


def padded(ids):
    """Ids with -1 behind the end of a caption, whose id is 1, as our tokenizers pad."""
    behind = np.cumsum(ids == 1, axis=1) > 1
    return np.where(behind, -1, ids).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["", "quick_"])
def test_towers_match_the_published_code(case, folder, activation):
    describe(folder, quick_gelu=bool(activation))
    found = {
        "image": image_tower(folder)(case["in_pixels"]),
        "text": text_tower(folder)(padded(case["in_ids"])),
    }
    for side, embedding in found.items():
        for part, values in embedding.items():
            expected = case[f"out_{activation}{side}_{part}"]
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=2e-5, err_msg=side)
    if not activation:
        scale, bias = float(case["in_logit_scale"]), float(case["in_logit_bias"])
        matcher = ClosedFormSampled(scale=scale / 2, shift=scale + bias)
        scores = matcher(found["image"], found["text"])
        np.testing.assert_allclose(scores, case["out_logits"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_caption_is_read_alike_in_every_batch_and_file(case, folder, tmp_path):
    tower = text_tower(folder)
    ids = padded(case["in_ids"])
    expected = tower(ids)["log_variance"]
    longer = np.pad(ids, ((0, 0), (0, 3)), constant_values=-1)
    np.testing.assert_allclose(tower(longer)["log_variance"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tower(ids[1:2, :2])["log_variance"][0], expected[1], rtol=1e-5, atol=1e-6
    )
    tower.save(tmp_path / "text.keras")
    again = keras.models.load_model(tmp_path / "text.keras", safe_mode=True)
    np.testing.assert_array_equal(again(ids)["log_variance"], expected)


@pytest.mark.slow
def test_from_scratch_it_is_equally_sure_of_everything(folder):
    (folder / "model.safetensors").unlink()
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), np.uint8)
    ids = np.array([[3, 1], [4, 1]], np.int32)
    for embedding in (
        image_tower(folder, published=False)(pixels),
        text_tower(folder, published=False)(ids),
    ):
        assert abs(np.mean(embedding["log_variance"]) + 10) < 1.5
        np.testing.assert_allclose(np.linalg.norm(embedding["mean"], axis=1), 1, rtol=1e-5)


def without(folder, *names, **more):
    path = folder / "model.safetensors"
    weights = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({k: v for k, v in weights.items() if k not in names} | more, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "does not describe a ProLIP .*hf download"),
        (lambda f: (f / "config.json").write_text("[]"), "does not describe a ProLIP"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors cannot be read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 20), "cannot be read"),
        (lambda f: without(f, "visual.ln_pre.bias"), "it has no tensor ln_pre.bias"),
        (lambda f: without(f, **{"visual.more": np.zeros(2, np.float32)}), "holds visual.more"),
        (lambda f: describe(f, embed_dim=9), "does not fit"),
        (lambda f: describe(f, vision_cfg=CONFIG["vision_cfg"] | {"image_size": 32}), "sees 32 p"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(EncoderError, match=message) as error:
        image_tower(folder)
    assert str(error.value).startswith("model.image.encoder.folder: ")


def test_the_head_reads_two_positions_of_the_joint_space():
    with pytest.raises(HeadError, match=r"model.dimension: 9.*write 8"):
        Prolip(9)(np.zeros((1, 2, 8), np.float32))
    with pytest.raises(HeadError, match="the encoder makes 5"):
        Prolip(8)(np.zeros((1, 5, 8), np.float32))


def test_its_tokenizer_is_that_of_siglip(folder, tmp_path):
    encoder = ProlipText(folder=str(folder))
    with pytest.raises(EncoderError, match=r"spiece.model is missing, .*hf download google/siglip"):
        encoder.tokenizer(64)
    (folder / "spiece.model").write_bytes(presets.siglip_pieces())
    tokenizer = encoder.tokenizer(64)
    assert tokenizer.max_words == LENGTH - 1, "and the end"
    ids = tokenizer(["A red circle!", "a red circle", "two"]).numpy()
    assert ids.shape[1] <= LENGTH
    np.testing.assert_array_equal(ids[0], ids[1])
    assert ids[2][ids[2] >= 0][-1] == 1
    (tmp_path / "tokenizer").mkdir(exist_ok=True)
    for name, content in tokenizer.files().items():
        (tmp_path / name).write_bytes(content)
    again = encoder.restore_tokenizer(tmp_path, 64)
    np.testing.assert_array_equal(
        again(["two", "a red circle"]), tokenizer(["two", "a red circle"])
    )
