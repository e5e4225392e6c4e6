"""Encoders, word vectors, and the towers they begin."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from data_pipelines.text import SPECIAL
from keras_xmr.encoders import EncoderError, InputSpec, KerasApplications, SmallCNN
from keras_xmr.encoders.convolutional import _family
from keras_xmr.encoders.word_embedding import initial_vectors
from keras_xmr.experiments.config.model_section import TowerOptions
from keras_xmr.model.towers import image_tower, text_tower

VOCABULARY = [*SPECIAL, "dog", "t-shirt", "zebra", "'s"]


def tower(**parts):
    return TowerOptions.model_validate({"pooling": "mean", "head": "gaussian", **parts})


@pytest.fixture
def glove(tmp_path):
    """A file of vectors of three numbers, and one to write others."""

    def write(*lines):
        path = tmp_path / "glove.txt"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return write


def test_vectors_come_from_the_file_or_at_random(glove):
    path = glove(
        "the 9 9 9", "dog 1 2 3", "at name@domain.com 4 4 4", "tshirt 5 6 7", "s 7 7 7", "été 1 1 1"
    )
    found = initial_vectors(path, VOCABULARY, 3, seed=4)
    np.testing.assert_array_equal(found[4], [1, 2, 3])
    np.testing.assert_array_equal(found[5], [5, 6, 7])  # "t-shirt" without its hyphen
    np.testing.assert_array_equal(found[7], [7, 7, 7])  # "'s" without its apostrophe
    np.testing.assert_array_equal(found[0], 0)
    assert (np.abs(found[6]) <= 0.1).all()
    np.testing.assert_array_equal(initial_vectors(path, VOCABULARY, 3, seed=4), found)
    assert (initial_vectors(path, VOCABULARY, 3, seed=5)[6] != found[6]).all()


def test_header_of_word2vec_is_passed_over(glove):
    found = initial_vectors(glove("2 3", "dog 1 2 3", "cat 1 1 1"), VOCABULARY, 3, 0)
    np.testing.assert_array_equal(found[4], [1, 2, 3])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["the 1 2", "dog 1 2"], "glove.txt:1: a vector of 2 numbers, .* is 3"),
        (["the 1 2 3 4"], "a vector of 4 numbers"),
        (["the 1 2 3", "a 1 2 3", "dog 1 2"], "glove.txt:3: a vector of 2"),
        (["the 1 2 3", "a 1 2 3", "dog 1 x 3"], "glove.txt:3: not numbers"),
        (["the 1 2 3"], "no word of the vocabulary"),
    ],
)
def test_wrong_vectors_are_named(glove, lines, says):
    with pytest.raises(EncoderError, match=says):
        initial_vectors(glove(*lines), VOCABULARY, 3, 0)


def test_a_text_tower_starts_with_the_vectors(glove):
    path = glove("the 9 9 9", "dog 1 2 3")
    options = tower(encoder={"name": "word_embedding", "dimension": 3, "vectors": str(path)})
    built = text_tower(options, 4, InputSpec(vocabulary=VOCABULARY))
    np.testing.assert_array_equal(built.get_layer("encoder").get_weights()[0][4], [1, 2, 3])
    fresh = text_tower(options, 4, InputSpec(vocabulary=VOCABULARY, pretrained=False))
    assert (np.abs(fresh.get_layer("encoder").get_weights()[0]) <= 0.1).all()


@pytest.mark.slow
def test_padding_never_changes_a_caption(random):
    options = TowerOptions.model_validate(
        {"encoder": "word_embedding", "pooling": "bi_gru", "head": "gaussian"}
    )
    built = text_tower(options, 8, InputSpec(vocabulary=VOCABULARY))
    ids = random.integers(1, 8, size=(3, 6)).astype(np.int32)
    ids[1, 4:] = 0
    short, long = built(ids), built(np.pad(ids, ((0, 0), (0, 5))))
    alone = built(ids[1:2, :4])
    for key, values in short.items():
        np.testing.assert_allclose(long[key], values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(alone[key][0], values[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_networks_of_keras_give_their_last_feature_map(random):
    encoder = KerasApplications(architecture="ResNet50", weights=None)
    inputs = keras.Input((64, 64, 3), dtype="uint8")
    features, mask = encoder.features(inputs, InputSpec(image_size=64))
    assert features.shape == (None, 4, 2048)
    assert mask is None
    network = keras.Model(inputs, features)
    assert network.count_params() == 23_587_712
    pixels = random.integers(0, 256, (2, 64, 64, 3), np.uint8)
    np.testing.assert_array_equal(network(pixels), network(pixels.astype(np.float32)))
    plain = keras.applications.ResNet50(include_top=False, weights=None, input_shape=(64, 64, 3))
    plain.set_weights(network.get_layer("encoder").get_weights())
    prepared = keras.applications.resnet.preprocess_input(pixels.astype(np.float32))
    expected = np.asarray(plain(prepared)).reshape(2, 4, 2048)
    np.testing.assert_allclose(network(pixels), expected, rtol=1e-4, atol=1e-4)


def test_pixels_are_prepared_by_the_family_of_a_network():
    names = ("MobileNetV2", "MobileNetV3Small", "ResNet152")
    assert [_family(name) for name in names] == ["mobilenet_v2", "mobilenet_v3", "resnet"]


def test_weights_come_from_a_file(tmp_path, monkeypatch):
    for name, width in (("MobileNet", 2), ("VGG16", 3)):

        def small(width=width, *, input_shape, **_options):
            return keras.Sequential([keras.Input(input_shape), keras.layers.Conv2D(width, 32)])

        monkeypatch.setattr(keras.applications, name, small)
    network = keras.applications.MobileNet(input_shape=(32, 32, 3))
    inputs = keras.Input((32, 32, 3), dtype="uint8")
    spec = InputSpec(image_size=32)
    path = tmp_path / "m.weights.h5"
    network.save_weights(path)
    encoder = KerasApplications(architecture="MobileNet", weights=str(path))
    built = keras.Model(inputs, encoder.features(inputs, spec)[0]).get_layer("encoder")
    for ours, theirs in zip(built.get_weights(), network.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    wrong = KerasApplications(architecture="VGG16", weights=str(path))
    with pytest.raises(EncoderError, match=r"model\.image\.encoder\.weights: .* does not fit"):
        wrong.features(inputs, spec)
    missing = KerasApplications(architecture="MobileNet", weights=str(tmp_path / "no.h5"))
    with pytest.raises(EncoderError, match="does not exist"):
        missing.features(inputs, spec)
    # Weights that a checkpoint will replace are not looked for.
    missing.features(inputs, InputSpec(image_size=32, pretrained=False))


def test_weights_that_cannot_be_downloaded_say_what_to_do(monkeypatch):
    def offline(**options):
        if options["weights"] == "imagenet":
            raise Exception("URL fetch failure on https://storage/x.h5: None -- unknown host")

    monkeypatch.setattr(keras.applications, "ResNet50", offline)
    encoder = KerasApplications(architecture="ResNet50", weights="imagenet")
    with pytest.raises(EncoderError, match=r"cannot be downloaded .* path of the file here, or"):
        encoder.features(keras.Input((64, 64, 3), dtype="uint8"), InputSpec(image_size=64))


@pytest.mark.slow
def test_small_cnn_knows_its_place(random):
    encoder = SmallCNN(channels=(8, 16), patch=4)
    inputs = keras.Input((32, 32, 3), dtype="uint8")
    features, _ = encoder.features(inputs, InputSpec(image_size=32))
    assert features.shape == (None, 16, 16)
    grey = np.full((1, 32, 32, 3), 128, np.uint8)
    found = np.asarray(keras.Model(inputs, features)(grey))[0]
    inner = found.reshape(4, 4, 16)[1:3, 1:3]
    assert np.abs(inner[0, 0] - inner[0, 1]).max() > 1e-3
    with pytest.raises(EncoderError, match="multiples of 8"):
        SmallCNN(channels=(12,))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 7), (None, 7)])
def test_regions_pass_a_tower(random, shape):
    options = tower(
        encoder={"name": "regions", "dimension": 5, "normalize": True, "dropout": 0.1},
        pooling="attention",
    )
    built = image_tower(options, 6, InputSpec(regions=shape))
    regions = random.normal(size=(3, 4, 7)).astype(np.float32)
    found = built(regions)
    np.testing.assert_allclose(built(3 * regions)["mean"], found["mean"], rtol=1e-4, atol=1e-5)
    assert found["log_variance"].shape == (3, 6)
