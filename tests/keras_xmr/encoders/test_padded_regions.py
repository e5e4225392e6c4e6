"""Images with different numbers of regions: zeros that fill a batch have no part in anything."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import token_models

from keras_xmr.encoders import InputSpec
from keras_xmr.experiments.config.model_section import TowerOptions
from keras_xmr.layers import MaskedBatchNormalization
from keras_xmr.matchers import SAF
from keras_xmr.model.towers import image_tower

COUNTS = (3, 6, 1, 4)
WIDTH = 5
TINY = {"similarity_dimension": 4, "captions_at_once": 2, "dropout": 0.0}


@pytest.fixture
def regions(random):
    """Four images of 3, 6, 1 and 4 regions, padded to 6."""
    values = random.normal(size=(4, 6, WIDTH)).astype(np.float32)
    return values * (np.arange(6) < np.array(COUNTS)[:, None])[..., None]


def tower(encoder, pooling="mean", head="point") -> keras.Model:
    keras.utils.set_random_seed(2)
    options = TowerOptions.model_validate({"encoder": encoder, "pooling": pooling, "head": head})
    return image_tower(options, 6, InputSpec(regions=(None, WIDTH)))


ENCODERS = {
    "plain": {"name": "regions", "dimension": 5},
    "normalized": {"name": "regions", "normalize": True, "batch_norm": True},
    "vsrn": {"name": "vsrn", "dimension": 5, "blocks": 1},
    "vsrn_over_regions": {"name": "vsrn", "dimension": 5, "blocks": 1, "normalize_over": "regions"},
}
PARTS = [
    ("plain", "attention", "gaussian"),
    ("normalized", "gpo", "pie_net"),
    ("normalized", "bi_gru", "dynamic_sub_embeddings"),
    ("vsrn", "gru", "point"),
    ("plain", "mean", "slot_attention"),
    ("vsrn_over_regions", None, "tokens"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "pooling", "head"), PARTS)
def test_padding_changes_no_embedding(regions, encoder, pooling, head):
    model = tower(ENCODERS[encoder], pooling, head)
    for weight in model.trainable_weights:
        if "gamma" in weight.path:
            weight.assign(np.full(weight.shape, 0.7))  # VSRN starts as the identity
    together = {name: value.numpy() for name, value in model(regions).items()}
    for image, count in enumerate(COUNTS):
        for name, value in model(regions[image : image + 1, :count]).items():
            found = together[name][image]
            if head == "tokens":
                assert not found[count:].any()
                found = found[:count]
            np.testing.assert_allclose(found, value[0], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["normalized", "vsrn_over_regions"])
def test_padding_has_no_part_in_what_is_learned(regions, encoder):
    wider = np.pad(regions, [(0, 0), (0, 5), (0, 0)])
    model = tower(ENCODERS[encoder])
    start = model.get_weights()
    found = []
    for batch in (regions, wider):
        model.set_weights(start)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch, training=True)["mean"] ** 3)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        statistics = [w.numpy() for w in model.weights if "moving" in w.path]
        assert statistics
        assert np.abs(statistics[0]).max() > 0
        found.append([*statistics, *(np.asarray(g) for g in gradients)])
    for left, right in zip(*found, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_batch_normalization_is_over_what_counts(random):
    norm = MaskedBatchNormalization(momentum=0.0)
    features = random.normal(size=(2, 3, 4)).astype(np.float32)
    mask = np.array([[True, False, True], [True, False, False]])
    found = norm(features, training=True, mask=mask).numpy()
    counted = features[mask]
    expected = (counted - counted.mean(axis=0)) / np.sqrt(counted.var(axis=0) + norm.epsilon)
    np.testing.assert_allclose(found[mask], expected, rtol=1e-4, atol=1e-5)
    assert not found[~mask].any()
    np.testing.assert_allclose(norm.moving_mean, counted.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.moving_variance, counted.var(axis=0), rtol=1e-5)


@pytest.mark.slow
def test_token_matchers_ignore_padding(regions):
    model = token_models.retriever(SAF(**TINY), tower(ENCODERS["plain"], None, "tokens"))
    x, y = token_models.batch(4)
    captions = model.text_tower(x["caption"])
    statistics = [w for w in model.matcher.weights if "moving" in w.path]
    for weight in statistics:
        weight.assign(np.full(weight.shape, 0.3))
    whole = model.score(model.image_tower(regions), captions).numpy()
    for image, count in enumerate(COUNTS):
        alone = model.score(model.image_tower(regions[image : image + 1, :count]), captions)
        np.testing.assert_allclose(whole[image], alone[0], rtol=1e-4, atol=1e-5)
    found = []
    for batch in (regions, np.pad(regions, [(0, 0), (0, 5), (0, 0)])):
        for weight in statistics:
            weight.assign(np.ones(weight.shape))
        embedded = model({"image": batch, "caption": x["caption"]}, training=True)
        loss = model.compute_loss(y=y, y_pred=embedded, training=True)
        found.append([loss, *(weight.numpy() for weight in statistics)])
    for left, right in zip(*found, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
