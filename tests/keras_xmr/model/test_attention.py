"""Where models look in images."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.model_facts import attends
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.inspection import ImageAttention
from keras_xmr.experiments.evaluation.split_evaluation import Attention
from keras_xmr.experiments.reports.evaluation_plots import attention_picture
from keras_xmr.heads import (
    AttentivePoint,
    DynamicSubEmbeddings,
    Gaussian,
    PIENet,
    Point,
    SlotAttention,
)
from keras_xmr.heads.pooling import Attention as AttentionPooling
from keras_xmr.heads.pooling import Mean
from keras_xmr.parts.registry import components, options_of

SLOTS = {"set_size": 3, "heads": 2, "head_dimension": 4}
HEADS = {
    "pie_net": (PIENet, {"set_size": 3}, {"embedding": 3}),
    "dynamic_sub_embeddings": (DynamicSubEmbeddings, {"set_size": 2}, {"embedding": 2}),
    "slot_attention": (SlotAttention, SLOTS, {"embedding": 3}),
    "attentive_point": (AttentivePoint, {}, {"embedding": 1}),
    "gaussian": (Gaussian, {}, {"mean": 1, "sigma": 1}),
    "sigma alone": (Gaussian, {"keep_mean": True}, {"sigma": 1}),
    "no local branch": (Gaussian, {"local_attention": False}, {}),
    "point": (Point, {}, {}),
    "pooling alone": (Point, {"pooling": lambda: AttentionPooling(8)}, {"pooling": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_heads_say_where_they_look(random, name):
    make, options, expected = HEADS[name]
    features = tf.constant(random.normal(size=(2, 5, 8)), tf.float32)
    mask = tf.constant([[True] * 5, [True, True, False, True, False]])
    head = make(8, **({"pooling": lambda: Mean(8)} | options))
    head(features, mask=mask)
    maps = head.attention_maps(features, mask)
    assert {key: found.shape[1] for key, found in maps.items()} == expected
    for found in maps.values():
        np.testing.assert_allclose(np.sum(found, axis=2), 1, atol=1e-5)
        assert (np.asarray(found)[1][:, [2, 4]] == 0).all()


def test_what_is_looked_at_moves_the_embedding(random):
    """The weights are those that the embedding is made with, not others of the same shape."""
    features = random.normal(size=(1, 6, 8)).astype(np.float32)
    head = PIENet(8, lambda: Mean(8), set_size=2)
    before = np.asarray(head(features)["residuals"])
    weights = np.asarray(head.attention_maps(features)["embedding"])
    local = weights[0] @ features[0]
    np.testing.assert_allclose(head.residual.linear(local), before[0], rtol=1e-4, atol=1e-6)


def tower(classes: int, head: keras.Layer) -> keras.Model:
    """A tower whose features are brightnesses of 4 x 4 places, with tokens of no place before."""
    inputs = keras.Input((8, 8, 3), dtype="uint8", name="image")
    places = keras.layers.AveragePooling2D(2)(keras.ops.cast(inputs, "float32"))
    features = keras.layers.Reshape((-1, 3))(places)
    if classes:
        features = keras.layers.ZeroPadding1D((classes, 0))(features)
    return keras.Model(inputs, head(features))


@pytest.mark.parametrize("classes", [0, 1, 5])
def test_maps_lie_over_the_image(random, classes):
    head = PIENet(4, lambda: Mean(4), set_size=2, name="head")
    model = tower(classes, head)
    # Attention by the red channel alone: w1 takes it, w2 passes it on to both embeddings.
    head.residual.attention.set_weights([np.array([[0.02], [0], [0]]), np.full((1, 2), 9.0)])
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    pixels[0, :2, 6:] = 255
    maps = ImageAttention(model)(pixels)["embedding"]
    assert maps.shape == (1, 2, 4, 4)
    assert np.unravel_index(maps[0, 1].argmax(), (4, 4)) == (0, 3)


def test_features_of_no_places_have_no_maps():
    inputs = keras.Input((8, 8, 3), dtype="uint8", name="image")
    pooled = keras.ops.mean(keras.ops.cast(inputs, "float32"), axis=(1, 2))[:, None]
    model = keras.Model(inputs, PIENet(4, lambda: Mean(4), name="head")(pooled))
    assert ImageAttention(model)(np.zeros((1, 8, 8, 3), np.uint8)) == {}


@pytest.mark.parametrize(
    ("config", "overrides", "expected"),
    [
        ("scenes_pcme", [], True),
        ("scenes_pcme", ["model.image.head.local_attention=false"], False),
        ("scenes_pvse", [], True),
        ("scenes_vsepp", [], False),
        ("scenes_vsepp", ["model.image.pooling=attention"], True),
        ("csv_pretrained_dvse", [], True),
        ("csv_pretrained_dvse", ["model.image.encoder.output=pooled"], False),
    ],
)
def test_the_config_says_whether_there_is_something_to_see(config, overrides, expected):
    assert attends(load_config(find_config(config), overrides)) is expected


def test_every_head_that_attends_says_so():
    says = {
        name
        for name, head in components("head").items()
        if options_of(head)(name=name).contract.attends
    }
    assert says == set(HEADS) - {"sigma alone", "no local branch", "point", "pooling alone"}


def test_the_picture_has_every_weight(random):
    maps = {"embedding": random.random((2, 3, 4, 4)), "pooling": random.random((2, 1, 4, 4))}
    pixels = random.integers(0, 255, (2, 16, 16, 3)).astype(np.uint8)
    picture = attention_picture(Attention(["a.jpg", "b.jpg"], pixels, maps))
    rows = list(picture.rows)
    assert len(rows) == 2 * 4 * 16
    assert ("b.jpg", "embedding 2", 1, 3, maps["embedding"][1, 1, 1, 3]) in rows
    titles = [axis.get_title() for axis in picture.drawing.axes[:5]]
    assert titles == ["photo", *(f"embedding {number}" for number in (1, 2, 3)), "pooling"]
    photo, heat = picture.drawing.axes[1].images
    assert photo.get_extent() == heat.get_extent()
    hottest, coldest = (heat.cmap(heat.norm(value)) for value in (heat.get_array().max(), 0))
    assert hottest[0] > hottest[2]
    assert coldest[0] < coldest[2]
