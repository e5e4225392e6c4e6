"""Published models in ONNX: their embeddings, an index of them, and bad files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import published_models as published
import pytest
from onnx import TensorProto, helper
from PIL import Image
from small_index import photo

from keras_xmr.search import PhotoIndex, Query, Searcher
from keras_xmr.search.embedder import Embedder, EmbedderError
from keras_xmr.search.embedder.published import published_embedder
from keras_xmr.search.index_build import build_index
from keras_xmr.utils.errors import ConfigError

IDS = {"A RED dog": [3, 5, 8], "unheard of": [2, 2], "": [], "a a a a a a a a a a a": [3] * 11}


def expected_text(text: str, kind: str) -> np.ndarray:
    """The embedding of a text, computed in NumPy."""
    weights, length = published.weights(), published.LENGTH
    begin = [] if kind == "siglip" else [published.START]
    ids = [*begin, *IDS[text][: length - 1 - len(begin)], published.END]
    if kind == "siglip":
        ids += [published.END] * (length - len(ids))
    hidden = weights["words"][ids] + weights["positions"][: len(ids)]
    return hidden.sum(axis=0) @ weights["text"]


def expected_photo(pixels: np.ndarray) -> np.ndarray:
    """The embedding of pixels (SIDE, SIDE, 3), computed in NumPy."""
    weights, step = published.weights(), published.PATCH
    values = (pixels / 255 - published.MEAN) / published.DEVIATION
    corners = range(0, published.SIDE, step)
    patches = [values[y : y + step, x : x + step] for y in corners for x in corners]
    hidden = [np.einsum("oiyx,yxi->o", weights["patches"], patch) for patch in patches]
    return np.maximum(hidden, 0).mean(axis=0) @ weights["image"]


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, colour in enumerate(("red", "green", "blue")):
        (folder / f"{colour}.jpg").write_bytes(photo(colour, number))
    return folder


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_texts_and_photos_are_embedded_as_the_model_reads_them(kind, tmp_path):
    embedder = published_embedder(str(published.write(tmp_path / "model", kind)))
    texts = embedder.embed_texts(list(IDS))["mean"]
    assert texts.dtype == np.float32
    np.testing.assert_allclose(texts, [expected_text(text, kind) for text in IDS], atol=1e-4)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
    means = embedder.embed_pixels(pixels)["mean"]
    np.testing.assert_allclose(means, [expected_photo(each) for each in pixels], atol=1e-4)
    assert embedder.unknown_words("a Red cat") == ("cat",)


def test_many_texts_are_embedded_by_length_and_stay_in_order(tmp_path):
    embedder = published_embedder(str(published.write(tmp_path / "model", "clip")))
    texts = [*IDS, *(" ".join(["dog", "red", "a", "photo"][: n % 5]) for n in range(96))]
    tower, tokens = embedder._text_tower, []

    def run(inputs):
        tokens.append(inputs["input_ids"].size)
        return tower(inputs)

    embedder.__dict__["_text_tower"] = run
    together = embedder.embed_texts(texts)["mean"]
    needed = embedder.tokenizer(texts)[1].sum()
    assert needed <= sum(tokens) < 1.2 * needed
    alone = np.concatenate([embedder.embed_texts([text])["mean"] for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("clip", "center"), ("siglip", "stretch")])
def test_photos_are_scaled_as_the_processor_says(kind, expected, tmp_path):
    embedder = published_embedder(str(published.write(tmp_path / "model", kind)))
    assert embedder.pixel_options.fit == expected
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 40, 3)).astype(np.uint8))
    if expected == "center":
        scaled = np.asarray(wide.resize((16, 20), 3).resize((16, 8), 3))[:, 4:12]
    else:
        scaled = np.asarray(wide.resize((8, 20), 3).resize((8, 8), 3))
    path = tmp_path / "wide.jpg"
    wide.save(path, quality=100, subsampling=0)
    pixels = embedder.pixels(path.read_bytes(), "wide.jpg")
    assert np.abs(pixels.astype(int) - scaled).mean() < 3


def test_an_index_is_whole_without_the_model_and_searched_by_cosines(tmp_path, photos):
    model = published.write(tmp_path / "model")
    embedder = published_embedder(str(model))
    build_index(embedder, photos, tmp_path / "index")
    copied = embedder.embed_images([(photos / "red.jpg").read_bytes()])["mean"][0]
    query = embedder.embed_texts(["a red dog"])["mean"][0]
    shutil.rmtree(model)
    index = PhotoIndex.open(tmp_path / "index")
    result = Searcher(index).search(Query(texts=("a red dog",)))
    scores = {hit.path: hit.score for hit in result.hits}
    cosine = copied @ query / np.linalg.norm(copied) / np.linalg.norm(query)
    assert scores["red.jpg"] == pytest.approx(cosine, abs=1e-6)
    similar = Searcher(index).search(Query(images=((photos / "blue.jpg").read_bytes(),)))
    assert similar.hits[0].path == "blue.jpg"
    assert result.hits[0].probability is None


def test_files_are_linked_and_an_index_is_updated_by_its_own(tmp_path, photos):
    model = published.write(tmp_path / "model")
    embedder = published_embedder(str(model))
    report = build_index(embedder, photos, tmp_path / "index")
    tower = PhotoIndex.open(tmp_path / "index").embedder_path / "text_tower.onnx"
    assert tower.samefile(model / "onnx" / "text_model.onnx")
    (photos / "new.jpg").write_bytes(photo("yellow"))
    again = build_index(Embedder.open(tower.parent), photos, tmp_path / "index")
    assert (report.photos, again.photos, again.added) == (3, 4, 1)
    assert published_embedder(str(model)).fingerprint == embedder.fingerprint
    other = published.write(tmp_path / "other", seed=1)
    assert published_embedder(str(other)).fingerprint != embedder.fingerprint


@pytest.mark.parametrize("precision", ["float16", "quantized"])
def test_a_precision_names_the_files(precision, tmp_path):
    ends = {"float16": "_fp16", "quantized": "_quantized"}
    model = published.write(tmp_path / "model", end=ends[precision])
    embedder = published_embedder(str(model), precision)
    assert embedder.precision == precision
    with pytest.raises(EmbedderError, match=f"use --precision={precision}$"):
        published_embedder(str(model))
    with pytest.raises(ConfigError, match=r"--precision=flaot16.*float16"):
        published_embedder(str(model), "flaot16")


def to_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with inputs, weights and outputs in float16."""
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        if values.dtype == np.float32:
            weight.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), weight.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return model


def test_towers_in_halves_and_weights_in_their_own_files(tmp_path, photos):
    plain = published_embedder(str(published.write(tmp_path / "plain")))
    model = published.write(tmp_path / "halves")
    vision = to_halves(published.vision_model("clip"))
    path = model / "onnx" / "vision_model.onnx"
    path.unlink()
    onnx.save(
        vision,
        str(path),
        save_as_external_data=True,
        location=f"{path.name}_data",
        size_threshold=0,
    )
    embedder = published_embedder(str(model))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    found, expected = (each.embed_pixels(pixels)["mean"] for each in (embedder, plain))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=0.02)
    build_index(embedder, photos, tmp_path / "index")
    shutil.rmtree(model)
    copied = Embedder.open(PhotoIndex.open(tmp_path / "index").embedder_path)
    np.testing.assert_array_equal(copied.embed_pixels(pixels)["mean"], found)
    data = copied.folder / "vision_model.onnx_data"
    data.write_bytes(data.read_bytes()[:-4] + b"oops")
    with pytest.raises(EmbedderError, match=r"vision_model.onnx_data is missing or damaged"):
        Embedder.open(copied.folder).embed_pixels(pixels)


def test_links_of_a_cache_are_followed(tmp_path, photos):
    """The cache of the Hub has links to files without suffixes."""
    model, cache = published.write(tmp_path / "model"), tmp_path / "cache"
    (cache / "onnx").mkdir(parents=True)
    for path in [path for path in model.rglob("*") if path.is_file()]:
        blob = tmp_path / "blobs" / f"{path.name}-blob"
        blob.parent.mkdir(exist_ok=True)
        shutil.copy(path, blob)
        (cache / path.relative_to(model)).symlink_to(os.path.relpath(blob, cache))
    for path in (cache / "onnx").iterdir():
        target = tmp_path / "blobs" / f"{path.name}-blob"
        path.unlink()
        path.symlink_to(target)
    build_index(published_embedder(str(cache)), photos, tmp_path / "index")
    shutil.rmtree(cache)
    shutil.rmtree(tmp_path / "blobs")
    index = PhotoIndex.open(tmp_path / "index")
    assert len(Searcher(index).search(Query(texts=("a dog",))).hits) == 3


def test_other_folders_and_names_of_presets_are_not_published_models(tmp_path):
    assert published_embedder(str(tmp_path)) is None
    assert published_embedder("clip_vit_base_patch32") is None
    assert published_embedder("hf://openai/clip-vit-base-patch32") is None


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def another_output(folder: Path) -> None:
    model = published.text_model("clip")
    model.graph.node[-1].output[0] = model.graph.output[0].name = "logits"
    onnx.save(model, str(folder / "onnx" / "text_model.onnx"))


def another_dimension(folder: Path) -> None:
    model = published.text_model("clip")
    weight = next(each for each in model.graph.initializer if each.name == "text")
    narrow = onnx.numpy_helper.to_array(weight)[:, :5]
    weight.CopyFrom(onnx.numpy_helper.from_array(narrow, "text"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    onnx.save(model, str(folder / "onnx" / "text_model.onnx"))


def not_finite(folder: Path) -> None:
    model = published.vision_model("clip")
    weight = next(each for each in model.graph.initializer if each.name == "image")
    weight.CopyFrom(
        onnx.numpy_helper.from_array(np.full((published.WIDTH, 6), np.nan, np.float32), "image")
    )
    onnx.save(model, str(folder / "onnx" / "vision_model.onnx"))


def another_input(folder: Path) -> None:
    model = published.vision_model("clip")
    model.graph.input.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n"]))
    onnx.save(model, str(folder / "onnx" / "vision_model.onnx"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "tokenizer.json").unlink(), r"has no tokenizer.json: a published model"),
        (lambda f: (f / "config.json").unlink(), r"has no config.json: a published model has"),
        (lambda f: (f / "preprocessor_config.json").unlink(), r"has no preprocessor_config.json"),
        (
            lambda f: (f / "onnx" / "vision_model.onnx").unlink(),
            r"has no onnx/vision_model.onnx: a published model has",
        ),
        (lambda f: (f / "config.json").write_text("{"), r"config.json cannot be read as JSON"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), r"holds a tokenizer that cannot be"),
        (
            lambda f: (f / "onnx" / "text_model.onnx").write_bytes(b"no model"),
            r"text_model.onnx cannot be loaded by onnxruntime \(.*copy or download the model",
        ),
        (
            lambda f: change(f / "preprocessor_config.json", resample=0),
            r"scales photos by resample 0; models with 2",
        ),
        (
            lambda f: change(f / "preprocessor_config.json", size={"height": 8, "width": 9}),
            r"has a size that is not a square",
        ),
        (lambda f: change(f / "preprocessor_config.json", image_mean=[1]), r"has no image_mean"),
        (another_output, r"the outputs logits, and not input_ids and text_embeds; take a CLIP"),
        (another_input, r"has the inputs pixel_values, input_ids and the outputs image_embeds"),
        (another_dimension, r"embeds texts as \(5,\) and photos as \(6,\) numbers"),
        (not_finite, r"computes numbers that are not finite"),
    ],
)
def test_missing_damaged_and_foreign_files_are_one_sentence(spoil, message, tmp_path):
    folder = published.write(tmp_path / "model")
    spoil(folder)
    with pytest.raises(EmbedderError, match=message) as error:
        published_embedder(str(folder))
    assert "\n" not in str(error.value)
