"""Backbones of KerasHub as encoders: what they give, and what is said when they cannot be had."""

from __future__ import annotations

import functools
import json
import shutil
from collections import Counter

import h5py
import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
import tiny_presets

from keras_xmr.encoders import EncoderError, InputSpec, KerasHubImage, KerasHubText
from keras_xmr.encoders.pretrained.weights import WeightsError, load_weights
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.utils.errors import UserError

pytestmark = pytest.mark.slow

CAPTIONS = ["A red circle!! left of a dog", "Two", "", "zebra 🦓 x"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Makes a tiny preset by its name, once."""
    root = tmp_path_factory.mktemp("presets")

    def make(name):
        path = root / name
        return path if path.exists() else getattr(tiny_presets, name)(path)

    return make


@pytest.fixture(scope="module")
def tokenizer_of(folder):
    """The tokenizer of a preset; tracing one takes seconds."""
    return functools.cache(lambda name: KerasHubText(preset=str(folder(name))).tokenizer(64))


def text_model(encoder, tokenizer=None, **spec):
    inputs = keras.Input((None,), dtype="int32")
    vocabulary = tokenizer.vocabulary if tokenizer else ()
    return keras.Model(inputs, encoder.features(inputs, InputSpec(vocabulary=vocabulary, **spec)))


def image_model(encoder, size, **spec):
    inputs = keras.Input((size, size, 3), dtype="uint8")
    features, mask = encoder.features(inputs, InputSpec(image_size=size, **spec))
    assert mask is None
    return keras.Model(inputs, features)


def packed(path, texts, length):
    """Ids as a preprocessor of KerasHub makes them."""
    tokenizer = keras_hub.tokenizers.Tokenizer.from_preset(str(path))
    packer = keras_hub.layers.StartEndPacker(
        length,
        start_value=getattr(tokenizer, "start_token_id", None),
        end_value=tokenizer.end_token_id,
        pad_value=tokenizer.pad_token_id,
    )
    return np.asarray(packer(tokenizer(texts)))


def pixels(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (2, size, size, 3), np.uint8)


def loaded_again(model, path):
    model.save(path)
    return keras.models.load_model(path, safe_mode=True)


@pytest.fixture(scope="module")
def bert(folder, tokenizer_of):
    """The model of ids with the features of the last layer. Only to be read."""
    return text_model(KerasHubText(preset=str(folder("bert"))), tokenizer_of("bert"))


def test_bert_gives_what_its_backbone_makes_of_its_own_ids(folder, tokenizer_of, bert):
    path, tokenizer = folder("bert"), tokenizer_of("bert")
    features, mask = bert(tokenizer(CAPTIONS))
    own = keras_hub.models.Backbone.from_preset(str(path))
    ids = packed(path, CAPTIONS, 20)
    real = ids != 0
    given = {"token_ids": ids, "padding_mask": real, "segment_ids": np.zeros_like(ids)}
    expected = own(given)["sequence_output"]
    np.testing.assert_array_equal(mask, real[:, : mask.shape[1]])
    assert 0 < mask.numpy().sum() == real.sum()
    np.testing.assert_allclose(features[mask], expected[real], rtol=1e-4, atol=1e-5)
    pooled, _ = text_model(KerasHubText(preset=str(path), output="pooled"))(tokenizer(CAPTIONS))
    np.testing.assert_allclose(pooled[:, 0], expected[:, 0], rtol=1e-4, atol=1e-5)


def test_layers_stand_side_by_side(folder, tokenizer_of, bert):
    path, tokenizer = str(folder("bert")), tokenizer_of("bert")
    ids = tokenizer(CAPTIONS)
    last, mask = bert(ids)
    model = text_model(KerasHubText(preset=path, layers=(1, 2)), tokenizer)
    both, _ = model(ids)
    assert both.shape[-1] == 2 * last.shape[-1]
    first, _ = text_model(KerasHubText(preset=path, layers=(1,)), tokenizer)(ids)
    expected = np.concatenate([first, last], axis=-1)
    np.testing.assert_allclose(both[mask], expected[mask], rtol=1e-5, atol=1e-6)
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(ids)[0], both)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {"layers": (1, 3)}, r"\[1, 3\] does not fit .*, which has 2 layers; write null"),
        ("clip", {"layers": (1,)}, "has no layers with numbered names"),
        ("bert", {"layers": (1,), "output": "pooled"}, "pooled takes no features of layers"),
        ("bert", {"bag_of_words": 3}, "bag_of_words: it needs output: average"),
    ],
)
def test_layers_that_there_are_not(folder, name, options, message):
    with pytest.raises(EncoderError, match=message):
        text_model(KerasHubText(preset=str(folder(name)), **options))


def test_averages_of_layers_stand_beside_the_words_of_a_caption(folder, tokenizer_of, tmp_path):
    path, tokenizer = str(folder("bert")), tokenizer_of("bert")
    ids = tokenizer(CAPTIONS)
    encoder = KerasHubText(preset=path, layers=(1, 2), output="average", bag_of_words=4)
    model = text_model(encoder, tokenizer)
    tokens, mask = text_model(KerasHubText(preset=path, layers=(1, 2)), tokenizer)(ids)
    expected = []
    for row, real in zip(tokens.numpy(), mask.numpy(), strict=True):
        layers = np.split(row[real].mean(axis=0), 2)
        expected.append(np.concatenate([layer / np.linalg.norm(layer) for layer in layers]))
    features, one = model(ids)
    assert features.shape[1] == one.shape[1] == 1
    np.testing.assert_allclose(features[:, 0, :-4], expected, rtol=1e-4, atol=1e-5)
    assert not np.any(features[:, 0, -4:])  # it knows no word yet
    bag = model.get_layer("bag_of_words")
    bag.adapt(ids.numpy())
    words = tokenizer.vocabulary
    learned = {words[i]: column for i, column in enumerate(bag.columns.numpy()) if column >= 0}
    # "of" and "a" are in one caption as "red" is; all captions have [CLS] and [SEP].
    assert sorted(learned.values()) == [0, 1, 2, 3]
    assert not {"[CLS]", "[SEP]"} & set(learned)
    found = loaded_again(model, tmp_path / "m.keras")(ids)[0].numpy()[:, 0, -4:]
    for row, caption in zip(found, ids.numpy(), strict=True):
        here = [words[i] in learned for i in np.unique(caption[caption >= 0])]
        norm = 0.5 if any(here) else 0
        assert np.linalg.norm(row) == pytest.approx(norm, abs=1e-6)
        assert (row > 0).sum() == sum(here)


@pytest.mark.parametrize("name", ["bert", "clip", "siglip"])
def test_padding_never_changes_a_caption(folder, tmp_path, name):
    model = text_model(KerasHubText(preset=str(folder(name))))
    ids = np.random.default_rng(0).integers(3, 30, (3, 8)).astype(np.int32)
    ids[1, 5:] = ids[2, 1:] = -1
    features, mask = model(ids)
    np.testing.assert_array_equal(mask, ids >= 0)
    longer, longer_mask = model(np.pad(ids, ((0, 0), (0, 2)), constant_values=-1))
    alone, _ = model(ids[1:2, :5])
    np.testing.assert_array_equal(longer_mask[:, :8], mask)
    np.testing.assert_allclose(longer[longer_mask], features[mask], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone[0], features[1, :5], rtol=1e-4, atol=1e-5)
    if name in ("bert", "siglip"):
        again = loaded_again(model, tmp_path / "m.keras")
        np.testing.assert_allclose(again(ids)[0], features, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "clip", "siglip"])
def test_a_tokenizer_is_rebuilt_from_its_files(folder, tokenizer_of, tmp_path, name):
    tokenizer = tokenizer_of(name)
    (tmp_path / "tokenizer").mkdir()
    for key, content in tokenizer.files().items():
        (tmp_path / key).write_bytes(content)
    restored = KerasHubText(preset=str(folder(name))).restore_tokenizer(tmp_path, 64)
    assert restored.vocabulary == tokenizer.vocabulary
    for key in ("max_words", "mask_id", "unknown"):
        assert getattr(restored, key) == getattr(tokenizer, key)
    assert restored.files() == tokenizer.files()
    if name != "clip":  # seconds more
        np.testing.assert_array_equal(restored(CAPTIONS), tokenizer(CAPTIONS))


def test_tokenizers_tell_captions_and_blanks(tokenizer_of):
    bert, clip = tokenizer_of("bert"), tokenizer_of("clip")
    assert bert.text(bert(["The red circle."]).numpy()[0]) == "[CLS] the red circle . [SEP]"
    assert bert.vocabulary[bert.mask_id] == "[MASK]"
    assert bert.vocabulary[bert.unknown] == "[UNK]"
    assert clip.mask_id is None  # its unknown token would be the end of the caption
    assert clip.unknown is None


def test_a_tokenizer_is_inside_of_a_saved_model(tokenizer_of, tmp_path):
    tokenizer = tokenizer_of("siglip")
    expected = tokenizer(CAPTIONS).numpy()

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def ids(self, texts):
            return self.tokenizer(texts)

    tf.saved_model.save(Served(), str(tmp_path / "served"))
    keras.utils.set_random_seed(0)
    served = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_array_equal(served.ids(tf.constant(CAPTIONS)), expected)


def test_captions_are_cut_to_what_the_encoder_reads(folder, tokenizer_of):
    long = " ".join(["red"] * 50)
    ids = tokenizer_of("bert")([long, "red"]).numpy()
    assert ids.shape == (2, 24)
    assert ids[0, -1] == ids[1, 2]  # the end is there
    assert KerasHubText(preset=str(folder("bert"))).tokenizer(5)([long]).shape == (1, 7)


def test_wrong_tokenizers_are_refused(folder, tmp_path):
    encoder = KerasHubText(preset=str(folder("bert")))
    with pytest.raises(UserError, match=r"does not hold the tokenizer .* train again"):
        encoder.restore_tokenizer(tmp_path, 64)
    encoder = KerasHubText(preset=str(tiny_presets.bert(tmp_path / "wrong", vocabulary_size=20)))
    with pytest.raises(
        EncoderError, match=r"tokenizer has 74 tokens, but the backbone .* knows 20"
    ):
        text_model(encoder, encoder.tokenizer(64))


@pytest.mark.parametrize(
    ("name", "positions", "width"), [("resnet", 16, 64), ("vit", 17, 16), ("clip", 17, 16)]
)
def test_images_are_scaled_and_seen_as_the_preset_says(folder, tmp_path, name, positions, width):
    path = folder(name)
    model = image_model(KerasHubImage(preset=str(path)), 32)
    own = keras_hub.models.Backbone.from_preset(str(path))
    converter = keras_hub.layers.ImageConverter.from_preset(str(path))
    converter.image_size = None
    prepared = converter(pixels(32).astype(np.float32))
    backbone = own.vision_encoder if name == "clip" else own
    expected = np.asarray(backbone({"images": prepared} if name == "clip" else prepared)).reshape(
        2, positions, width
    )
    found = model(pixels(32))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    if name == "vit":
        again = loaded_again(model, tmp_path / "m.keras")
        np.testing.assert_allclose(again(pixels(32)), found, rtol=1e-5, atol=1e-5)
    pooled = image_model(KerasHubImage(preset=str(path), output="pooled"), 32)(pixels(32))[:, 0]
    if name == "clip":
        expected = own.get_vision_embeddings(prepared)
    else:
        expected = expected.mean(axis=1) if name == "resnet" else expected[:, 0]
    np.testing.assert_allclose(pooled, expected, rtol=1e-3, atol=1e-4)


def test_levels_of_a_pyramid_stand_side_by_side_for_a_photo_and_its_mirror_image(folder, tmp_path):
    path = str(folder("resnet"))
    levels = sorted(keras_hub.models.Backbone.from_preset(path).pyramid_outputs)
    numbers = tuple(int(level[1:]) for level in levels)
    encoder = KerasHubImage(preset=path, levels=numbers, mirror=True)
    model = image_model(encoder, 32)
    own = keras_hub.models.Backbone.from_preset(path)
    maps = keras.Model(own.inputs, [own.pyramid_outputs[level] for level in levels])
    given = pixels(32)
    for view, seen in enumerate((given, given[:, :, ::-1])):
        means = [np.asarray(m).mean(axis=(1, 2)) for m in maps(seen.astype(np.float32) / 255)]
        scaled = [m / np.abs(m).mean(axis=1, keepdims=True) for m in means]
        expected = np.concatenate(scaled, axis=1)
        np.testing.assert_allclose(model(given)[:, view], expected, rtol=1e-3, atol=1e-4)
    again = loaded_again(model, tmp_path / "m.keras")
    np.testing.assert_allclose(again(given), model(given), rtol=1e-5, atol=1e-5)


def test_a_training_encoder_draws_one_of_both_views(folder):
    options = {"grid": 1, "mirror": True, "frozen_batch_normalization": True}
    model = image_model(KerasHubImage(preset=str(folder("resnet")), **options), 32)
    given = np.repeat(pixels(32)[:1], 16, axis=0)
    both, drawn = np.asarray(model(given)), np.asarray(model(given, training=True))
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
    distances = np.abs(drawn[:, :1] - both).max(axis=-1)
    np.testing.assert_allclose(distances.min(axis=1), 0, atol=1e-4)
    assert set(distances.argmin(axis=1)) == {0, 1}


def test_frozen_levels_and_batch_normalization_stay_as_pretrained(folder):
    encoder = KerasHubImage(
        preset=str(folder("resnet")), frozen_levels=2, frozen_batch_normalization=True
    )
    model = image_model(encoder, 32)
    layer = model.get_layer("encoder")
    for trainable in (False, True):
        model.trainable = trainable
    own = keras_hub.models.Backbone.from_preset(str(folder("resnet")))
    below = keras.Model(own.inputs, own.pyramid_outputs["P2"])

    def convolutions(model):
        layers = (one for one in all_layers(model) if isinstance(one, keras.layers.Conv2D))
        return Counter(tuple(w.shape) for one in layers for w in one.weights)

    trained = Counter(tuple(w.shape) for w in layer.trainable_weights)
    assert trained == convolutions(own) - convolutions(below)
    assert trained.total()
    statistics = [w.numpy() for w in layer.non_trainable_weights]
    model(pixels(32), training=True)
    for before, weight in zip(statistics, layer.non_trainable_weights, strict=True):
        np.testing.assert_array_equal(before, weight)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet", {"levels": (9,), "grid": 1}, r"\[9\] does not fit .*, which has the levels P"),
        ("vit", {"grid": 2}, r"model\.image\.encoder\.grid: .*no feature map"),
        ("resnet", {"mirror": True, "output": "pooled"}, "only output: tokens"),
        ("resnet", {"frozen_levels": 7}, r"frozen_levels: 7 does not fit .*; write 0 to train"),
    ],
)
def test_maps_that_there_are_not(folder, name, options, message):
    with pytest.raises(EncoderError, match=message):
        image_model(KerasHubImage(preset=str(folder(name)), **options), 32)


@pytest.mark.parametrize(("name", "classes"), [("vit", 1), ("siglip", 0)])
def test_positions_are_interpolated_at_another_resolution(folder, name, classes):
    encoder = KerasHubImage(preset=str(folder(name)))
    small, large = (image_model(encoder, size).get_layer("encoder") for size in (32, 64))

    def positions(layer):
        (found,) = (
            v for v in layer.weights if "position_embedding" in v.path and len(v.shape) == 2
        )
        return found.numpy()

    before, after = positions(small), positions(large)
    assert len(before) == 16 + classes
    assert len(after) == 64 + classes
    np.testing.assert_array_equal(after[:classes], before[:classes])
    grid = after[classes:].reshape(8, 8, -1)
    # Where the two grids agree best: the mean of each block is about that of its origin.
    blocks = grid.reshape(4, 2, 4, 2, -1).mean(axis=(1, 3)).reshape(16, -1)
    assert np.corrcoef(blocks.ravel(), before[classes:].ravel())[0, 1] > 0.95
    for old, new in zip(small.weights, large.weights, strict=True):
        if old.shape == new.shape:
            np.testing.assert_array_equal(old, new)
    if name != "vit":
        (ids,) = (v for v in large.weights if v.name == "position_ids")
        np.testing.assert_array_equal(ids[0], np.arange(64 + classes))


def test_sizes_that_a_backbone_cannot_see_are_told(folder):
    with pytest.raises(
        EncoderError, match=r"sees images of 32 x 32, not of 36 x 36; set data.image"
    ):
        image_model(KerasHubImage(preset=str(folder("vit"))), 36)


def test_frozen_backbones_work_as_in_inference(folder):
    vit, resnet = (image_model(KerasHubImage(preset=str(folder(n))), 32) for n in ("vit", "resnet"))
    for model in (vit, resnet):
        before = model.get_weights()
        resting = model(pixels(32), training=False)
        assert np.abs(model(pixels(32), training=True) - resting).max() > 1e-3
        moved = [not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)]
        assert any(moved) == (model is resnet)
        before = model.get_weights()
        resting = model(pixels(32), training=False)
        model.get_layer("encoder").trainable = False
        np.testing.assert_array_equal(model(pixels(32), training=True), resting)
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)
        assert not model.trainable_weights


def test_what_is_not_used_is_not_trained(folder, bert):
    assert not [v.path for v in bert.weights if "pooled_dense" in v.path]
    clip = text_model(KerasHubText(preset=str(folder("clip"))))
    assert not [v.path for v in clip.weights if "vision" in v.path or "projection" in v.path]


def test_mixed_precision_computes_in_it(folder):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        text = text_model(KerasHubText(preset=str(folder("clip")), output="pooled"))
        image = image_model(KerasHubImage(preset=str(folder("clip"))), 32)
    finally:
        keras.config.set_dtype_policy("float32")
    assert text.output[0].dtype == image.output.dtype == "bfloat16"
    assert {w.dtype for w in text.trainable_weights + image.trainable_weights} == {"float32"}


def test_weights_are_read_only_where_they_are_wanted(folder, tmp_path):
    path = shutil.copytree(folder("bert"), tmp_path / "bert")
    (path / "model.weights.h5").unlink()
    encoder = KerasHubText(preset=str(path))
    text_model(encoder, pretrained=False)  # a checkpoint will bring the weights
    text_model(KerasHubText(preset=str(path), weights=None))
    with pytest.raises(
        EncoderError, match=r"encoder\.weights: .*holds no weights .* weights: null"
    ):
        text_model(encoder)
    other = keras_hub.models.Backbone.from_preset(str(folder("bert")))
    other.save_weights(tmp_path / "own.weights.h5")
    named = KerasHubText(preset=str(path), weights=str(tmp_path / "own.weights.h5"))
    ours = text_model(named).get_layer("encoder").network.get_layer("token_embedding")
    np.testing.assert_array_equal(ours.embeddings, other.token_embedding.embeddings)
    missing = KerasHubText(preset=str(path), weights=str(tmp_path / "no.weights.h5"))
    with pytest.raises(EncoderError, match=r"encoder\.weights: .* does not exist"):
        text_model(missing)


def test_weights_that_do_not_fit_name_their_layers(folder, tmp_path):
    path = shutil.copytree(folder("bert"), tmp_path / "bert")
    config = json.loads((path / "config.json").read_text())
    config["config"] |= {"max_sequence_length": 30, "num_layers": 3}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError) as caught:
        text_model(KerasHubText(preset=str(path)))
    said = str(caught.value)
    assert "model.weights.h5 does not fit config.json: 20 of 29 layers with weights match" in said
    assert "position_embedding (its weights are [24, 32] there, [30, 32] here)" in said
    assert "not in the file: transformer_layer_2/" in said
    wrong = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, name="only")])
    right = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5, name="other")])
    wrong.save_weights(tmp_path / "w.weights.h5")
    wrong.save(tmp_path / "w.keras")
    with h5py.File(tmp_path / "w.h5", "w") as file:  # as Keras 2 wrote it
        file.attrs["layer_names"] = ["only"]
        layer = file.create_group("only")
        layer.attrs["weight_names"] = ["only/kernel:0", "only/bias:0"]
        layer["only/kernel:0"], layer["only/bias:0"] = np.zeros((3, 4)), np.zeros(4)
    for name in ("w.weights.h5", "w.keras", "w.h5"):
        with pytest.raises(
            WeightsError, match=r"0 of 1 .* \(its weights are \[3, 4\], \[4\] there"
        ):
            load_weights(right, tmp_path / name)


def test_unknown_presets_name_the_nearest(tmp_path):
    with pytest.raises(EncoderError, match=r"text\.encoder\.preset: .*bert_base_en_uncased"):
        KerasHubText(preset="bert_base_en_uncase").tokenizer(64)
    with pytest.raises(EncoderError, match=r"image\.encoder\.preset: .*resnet_50_imagenet"):
        image_model(KerasHubImage(preset="resnet50_imagenet"), 32)
    with pytest.raises(EncoderError, match=r"has no config.json"):
        image_model(KerasHubImage(preset=str(tmp_path)), 32)


def test_presets_for_the_other_side_are_refused(folder):
    with pytest.raises(EncoderError, match="is a ViTBackbone, which takes images"):
        text_model(KerasHubText(preset=str(folder("vit"))))
    with pytest.raises(EncoderError, match="is a RobertaBackbone, which does not make one feature"):
        image_model(KerasHubImage(preset=str(folder("roberta"))), 32)


def test_without_tensorflow_text_a_tokenizer_says_what_else_there_is(folder, monkeypatch):
    encoder = KerasHubText(preset=str(folder("bert")))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EncoderError, match=r"needs tensorflow-text.*word_embedding"):
        encoder.tokenizer(20)


def test_a_folder_of_transformers_is_converted(tmp_path):
    weights = tiny_presets.transformers_bert(tmp_path / "bert")
    encoder = KerasHubText(preset=str(tmp_path / "bert"))
    tokenizer = encoder.tokenizer(64)
    assert tokenizer.max_words == 10
    assert tokenizer(["Dogs"]).numpy().tolist() == [[2, 6, 7, 3]]
    network = text_model(encoder, tokenizer).get_layer("encoder").network
    np.testing.assert_array_equal(
        network.get_layer("token_embedding").embeddings,
        weights["bert.embeddings.word_embeddings.weight"],
    )
    (kernel,) = (w for w in network.weights if w.path.endswith("query/kernel"))
    expected = weights["bert.encoder.layer.0.attention.self.query.weight"].T.reshape(8, 2, 4)
    np.testing.assert_array_equal(kernel, expected)
    tiny_presets.transformers_bert(tmp_path / "less", leave_out="encoder.layer.0.output.dense.bias")
    with pytest.raises(EncoderError, match=r"weights: .*less: .*layer\.0\.output\.dense\.bias"):
        text_model(KerasHubText(preset=str(tmp_path / "less")))


def shares_of_area(size: int, grid: int) -> np.ndarray:
    """The part of each cell that each position makes, from a ruler of fine marks."""
    marks = (np.arange(size * grid * 10) + 0.5) / (grid * 10)  # in positions
    shares = np.zeros((grid, size))
    for mark in marks:
        shares[int(mark * grid / size), int(mark)] += 1
    return shares / shares.sum(axis=1, keepdims=True)


def test_a_feature_map_is_averaged_by_area_in_a_tower(folder):
    preset = str(folder("resnet"))
    whole = image_model(KerasHubImage(preset=preset), 28)
    averaged = image_model(KerasHubImage(preset=preset, grid=3), 28)
    found = averaged(pixels(28))
    side = int(whole.output.shape[1] ** 0.5)
    assert side > 3
    features, shares = np.reshape(whole(pixels(28)), (2, side, side, 64)), shares_of_area(side, 3)
    expected = np.einsum("gh,bhwf,kw->bgkf", shares, features, shares).reshape(2, 9, 64)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    layer = averaged.get_layer("encoder")
    again = type(layer).from_config(layer.get_config())
    assert again.get_config()["grid"] == 3
    assert again(pixels(28)).shape == (2, 9, 64)
