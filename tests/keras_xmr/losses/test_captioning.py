"""The loss by which captions are told from the regions of their images."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch_layout

from keras_xmr.embeddings.kinds import for_matching
from keras_xmr.encoders import VSRN, InputSpec
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.heads import Point, PointWithFeatures
from keras_xmr.heads.pooling import Mean
from keras_xmr.losses import Captioning
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import ArgumentError, ConfigError


class Weights:
    """Names the golden weights without their prefix."""

    def __init__(self, golden) -> None:
        self.golden = golden

    def f32(self, key):
        return self.golden.f32(f"param_{key}")


def reference_loss(case):
    """The loss with the weights of the reference."""
    weights = Weights(case)
    words, width = case["param_decoder.embedding.weight"].shape
    loss = Captioning(words, 0, units=6, word_dimension=width)
    loss.build(image_shape={"features": case["in_features"].shape})
    decoder = loss.decoder
    torch_layout.dense(decoder.region_linear, weights, "encoder.vid2hid")
    torch_layout.gru(decoder.region_gru, weights, "encoder.rnn", "")
    torch_layout.gru(decoder.word_cell, weights, "decoder.rnn", "")
    torch_layout.dense(decoder.word_linear, weights, "decoder.out")
    decoder.embedding.set_weights([weights.f32("decoder.embedding.weight")])
    of_both = weights.f32("decoder.attention.linear1.weight").T
    bias = weights.f32("decoder.attention.linear1.bias")
    decoder.attention_regions.set_weights([of_both[:6], bias])
    decoder.attention_state.set_weights([of_both[6:]])
    torch_layout.dense(decoder.attention_scores, weights, "decoder.attention.linear2", bias=False)
    return loss


def call(loss, features, ids, positives=None):
    """The loss where caption i is of image i."""
    positives = np.eye(len(features), dtype=bool) if positives is None else positives
    image = {"mean": features[:, 0], "features": features}
    caption = {"word_ids": tf.cast(ids, tf.float32)}
    scores = np.zeros(positives.shape, np.float32)
    return loss.terms(scores, image, caption, {"positives": positives})["captioning"]


@pytest.mark.slow
def test_captioning_matches_golden(golden):
    case = golden("vsrn_captions")
    loss = reference_loss(case)
    features = tf.constant(case.f32("in_features"))
    decoder = loss.decoder
    kernels = [decoder.region_linear.kernel.value, decoder.word_linear.kernel.value]
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = call(loss, features, case["in_ids"])
    by_features, by_first, by_last = tape.gradient(value, [features, *kernels])
    np.testing.assert_allclose(value, case["out_loss"], rtol=1e-5)
    for ours, key in (
        (by_features, "features"),
        (tf.transpose(by_first), "encoder.vid2hid.weight"),
        (tf.transpose(by_last), "decoder.out.weight"),
    ):
        np.testing.assert_allclose(ours, case[f"grad_{key}"], rtol=1e-4, atol=2e-5, err_msg=key)


def test_padding_of_words_and_of_regions_changes_nothing(golden):
    case = golden("vsrn_captions")
    loss = reference_loss(case)
    features = np.pad(case.f32("in_features"), ((0, 0), (0, 2), (0, 0)))
    ids = np.pad(case["in_ids"], ((0, 0), (0, 3)), constant_values=-1)
    np.testing.assert_allclose(call(loss, tf.constant(features), ids), case["out_loss"], rtol=1e-5)


def test_a_caption_is_told_from_its_own_image(golden):
    case = golden("vsrn_captions")
    loss = reference_loss(case)
    features, ids = tf.constant(case.f32("in_features")), case["in_ids"]
    image_ids = np.array([2, 0, 0, 1])
    positives = np.arange(3)[:, None] == image_ids[None]
    found = call(loss, features, ids[[0, 1, 2, 0]], positives)
    expected = call(loss, tf.gather(features, image_ids), ids[[0, 1, 2, 0]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def vsrn(*losses, head=PointWithFeatures):
    """A tiny VSRN; its encoder is the layer "encoder" of the image tower."""
    keras.utils.set_random_seed(0)
    regions, ids = keras.Input((3, 5), name="image"), keras.Input((None,), dtype="int32")
    features, _ = VSRN(dimension=4, blocks=1).features(regions, InputSpec(regions=(3, 5)))
    image = keras.Model(regions, head(4, lambda: Mean(4), name="head")(features))
    words = keras.layers.Embedding(9, 4)(ids)
    text = keras.Model(ids, Point(4, lambda: Mean(4), name="head")(words))
    return Retriever(image, text, Cosine(), list(losses))


def batch():
    random = np.random.default_rng(1)
    ids = np.array([[2, 5, 3, 0], [2, 6, 7, 3]], np.int32)
    return {"image": random.normal(size=(2, 3, 5)).astype(np.float32), "caption": ids}


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_it_moves_the_region_encoder_and_itself_in_training(tmp_path):
    model = vsrn(Captioning(9, 0, units=4, word_dimension=3))
    model.compile(keras.optimizers.Adam(0.05))
    encoder = model.image_tower.get_layer("encoder")
    begin = [weight.numpy() for weight in encoder.trainable_weights]
    first = model.train_on_batch(batch(), np.arange(2), return_dict=True)
    moved = [np.abs(w - b).max() for w, b in zip(encoder.trainable_weights, begin, strict=True)]
    assert min(moved[:2]) > 0.01, "the linear layer, the first of the encoder"
    for _ in range(5):
        last = model.train_on_batch(batch(), np.arange(2), return_dict=True)
    assert last["captioning"] < 0.9 * first["captioning"]
    # Nothing of it is stored or exported.
    assert set(for_matching(model.image_tower(batch()["image"]))) == {"mean"}
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    kept, written = (m.objective.losses_[0].get_weights() for m in (model, again))
    for one, other in zip(kept, written, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_what_it_needs_is_asked_for():
    with pytest.raises(ArgumentError, match="reads the features of an embedding"):
        vsrn(Captioning(9, 0), head=Point)
    embedding = {"mean": np.ones((2, 4)), "features": np.ones((2, 3, 4))}
    with pytest.raises(ArgumentError, match="reads the words of captions"):
        Captioning(9, 0)(embedding, embedding)
    path = find_config("coco_vsrn")
    with pytest.raises(ConfigError, match=r"'captioning' reads the features .*point_with_features"):
        load_config(path, ["model.image.head=point"])
    with pytest.raises(ConfigError, match="'captioning' reads the words of captions"):
        load_config(path, ["train.precompute_captions=true"])


def test_rows_of_others_leave_the_decoder_out():
    published, other = (
        load_config(find_config(name)) for name in ("coco_vsrn", "coco_vsrn_hardest")
    )
    assert [loss.name for loss in published.objective] == ["triplet", "captioning"]
    assert published.objective[:1] == other.objective
    assert published.model.image.encoder == other.model.image.encoder
    assert published.train == other.train
