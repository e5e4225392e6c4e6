"""CLIP, SigLIP and SigLIP 2 in the files of transformers give what transformers gives."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import two_towers

from data_pipelines.image_decoding import decode_for_evaluation
from data_pipelines.options import ImageOptions
from keras_xmr.encoders import EncoderError, KerasHubText
from keras_xmr.encoders.pretrained.presets import Preset

pytestmark = pytest.mark.slow

FAMILIES = ("clip", "siglip", "siglip2")


@pytest.fixture(scope="module", params=FAMILIES)
def case(request, tmp_path_factory):
    """The reference of a family, its folder, and the encoders of that."""
    return two_towers.Case(request.param, tmp_path_factory.mktemp(request.param))


def test_pixels_are_those_of_transformers(case):
    fit = "center" if case.name == "clip" else "stretch"
    interpolation = "bilinear" if case.name == "siglip2" else "bicubic"
    options = ImageOptions(size=32, resize=32, fit=fit, interpolation=interpolation)
    converter = Preset(str(case.folder), "image").image_converter()
    assert converter.interpolation == interpolation
    assert converter.crop_to_aspect_ratio == (fit == "center")
    for number, expected in enumerate(case.pixels()):
        found = decode_for_evaluation(tf.constant(case.photo(number)), options).numpy()
        gap = np.abs(found.astype(int) - expected)
        assert gap.max() <= 1, "where a sum is near a half"
        assert np.mean(gap > 0) < 5e-3
        scaled = expected * np.array(converter.scale) + np.array(converter.offset)
        normalised = case.array("out_pixels")[number].transpose(1, 2, 0)
        np.testing.assert_allclose(scaled, normalised, atol=1e-5)


def test_tokens_are_those_of_transformers(case):
    ids = case.tokenizer(list(case.array("in_texts"))).numpy()
    expected = case.array("out_ids")
    end = {"clip": expected.max(), "siglip": 1, "siglip2": 1}[case.name]
    for found, whole in zip(ids, expected, strict=True):
        known = whole[: np.flatnonzero(whole == end)[0] + 1]
        np.testing.assert_array_equal(found[found >= 0], known)
    if case.name == "clip":
        ids = case.tokenizer(["The red dog!", "No"]).numpy()
        assert case.tokenizer.text(ids[0]) == "<|startoftext|> the red dog ! <|endoftext|>"
        assert case.tokenizer.text(ids[1]) == "<|startoftext|> no <|endoftext|>"


def test_embeddings_and_scores_are_those_of_transformers(case):
    image, text = case.image_model(), case.text_model()
    photos = keras.utils.normalize(np.asarray(image(case.pixels())[:, 0]))
    ids = case.tokenizer(list(case.array("in_texts")))
    captions = keras.utils.normalize(np.asarray(text(ids)[0][:, 0]))
    np.testing.assert_allclose(photos, case.array("out_image"), atol=1e-4)
    np.testing.assert_allclose(captions, case.array("out_text"), atol=1e-4)
    backbone = Preset(str(case.folder), "image").backbone("preset")
    head = backbone.clip_head if case.name == "clip" else backbone.siglip_head
    scores = np.exp(head.logit_scale) * photos @ captions.T
    scores += 0 if case.name == "clip" else np.asarray(head.logit_bias)
    np.testing.assert_allclose(scores, case.array("out_logits"), atol=1e-3)


def change(folder, name, **changes):
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "it holds no weights"),
        (lambda f: two_towers.without(f, "logit_scale"), "has no tensor logit_scale"),
        (lambda f: two_towers.without(f, more=np.zeros(2)), "holds more, which config.json"),
        (lambda f: change(f, "config.json", projection_dim=9), "image.*weights: .*shape"),
        (lambda f: change(f, "config.json", model_type="siglip2"), "NaFlex"),
        (lambda f: (f / "preprocessor_config.json").unlink(), "preprocessor_config.json"),
        (lambda f: change(f, "preprocessor_config.json", size=40), "a way that is not known"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(tmp_path, damage, message):
    case = two_towers.Case("clip", tmp_path)
    damage(case.folder)
    with pytest.raises(EncoderError, match=message):
        case.image_model()


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_tokenizer_that_is_not_there_is_named(tmp_path, name):
    case = two_towers.Case(name, tmp_path)
    (tmp_path / ("tokenizer.json" if name == "clip" else "spiece.model")).unlink()
    with pytest.raises(EncoderError, match=r"tokenizer\.json|spiece\.model of SigLIP, or"):
        KerasHubText(preset=str(case.folder)).tokenizer(64)
