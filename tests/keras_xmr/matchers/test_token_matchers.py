"""SAF, SGR and SGRAF: parity, tiles, padding, training and saving."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import token_models
from sgraf_weights import golden_tokens, load, score
from torch_layout import Weights

from keras_xmr.heads import Tokens
from keras_xmr.layers import GlobalAttention
from keras_xmr.matchers import SAF, SGR, SGRAF

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
TINY = {"similarity_dimension": 8}


@pytest.fixture
def tokens(random):
    """Seven images and captions of 1 to 6 words."""
    words = random.normal(size=(7, 6, 5)).astype(np.float32)
    mask = (np.arange(6) < np.array([[4], [6], [1], [2], [6], [3], [2]])).astype(np.float32)
    image = random.normal(size=(7, 4, 5)).astype(np.float32)
    return (
        {"tokens": image, "mask": np.ones((7, 4), np.float32)},
        {"tokens": words * mask[..., None], "mask": mask},
    )


@pytest.mark.slow
def test_sgraf_is_the_mean_of_both(golden):
    case = golden("sgraf")
    image, caption = golden_tokens(case)
    matcher = SGRAF(**TINY)
    score(matcher, image, caption)
    load(matcher.saf, Weights(case, "param_saf."))
    load(matcher.sgr, Weights(case, "param_sgr."))
    np.testing.assert_allclose(score(matcher, image, caption), case["out_sgraf_sims"], **CLOSE)
    found = matcher.prepare(image, "image")
    np.testing.assert_allclose(found["saf_global"], case["out_saf_img_global"], **CLOSE)
    np.testing.assert_allclose(found["sgr_global"], case["out_sgr_img_global"], **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "training"), [(SAF, True), (SGR, False)])
def test_scores_and_gradients_do_not_depend_on_tiles_or_padding(tokens, make, training):
    image, caption = tokens
    keras.utils.set_random_seed(1)  # How small a gradient may be depends on the weights.
    matcher = make(**TINY)
    seed = tf.constant([3, 4]) if training else None

    def step(words, mask):
        with tf.GradientTape() as tape:
            tape.watch(words)
            caption = {"tokens": words, "mask": mask}
            scores = score(matcher, image, caption, training, seed)
            loss = tf.reduce_sum(scores**2)
        weight = matcher.local_similarity.kernel.value
        return scores, *tape.gradient(loss, [words, weight])

    matcher.dropout = matcher.caption_attention.dropout = 0.0  # as dropout sees the padded shape
    score(matcher, image, caption)
    matcher.captions_at_once = 100
    words, mask = tf.constant(caption["tokens"]), tf.constant(caption["mask"])
    whole, by_words, by_weight = step(words, mask)
    assert whole.shape == (7, 7)
    assert np.ptp(whole) > 1e-3
    matcher.captions_at_once = 3
    padded = tf.pad(words, ((0, 0), (0, 4), (0, 0))), tf.pad(mask, ((0, 0), (0, 4)))
    scores, by_padded, by_same = step(*padded)
    np.testing.assert_allclose(scores, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_padded[:, :6], by_words, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(by_padded[:, 6:], 0)
    np.testing.assert_allclose(by_same, by_weight, rtol=1e-3, atol=1e-5)
    assert np.abs(by_weight).max() > 1e-4
    matcher.captions_at_once = 1
    one = {k: v[2:3, :1] for k, v in caption.items()}
    if not training:
        np.testing.assert_allclose(
            score(matcher, {k: v[:2] for k, v in image.items()}, one), whole[:2, 2:3], **CLOSE
        )


@pytest.mark.slow
def test_recomputed_gradients_are_those_of_the_remembered(tokens):
    image, caption = tokens
    matcher = SGR(**TINY, dropout=0.0, captions_at_once=4)
    score(matcher, image, caption)
    prepared = matcher.prepare(image, "image"), matcher.prepare(caption, "text")
    weights = [weight.value for weight in matcher.trainable_weights]

    def gradients(training):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(matcher(*prepared, training=training) ** 2)
        return tape.gradient(loss, weights, unconnected_gradients="zero")

    for plain, recomputed in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_allclose(recomputed, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_saf_normalises_by_the_statistics_of_each_caption(tokens):
    image, caption = tokens
    matcher = SAF(**TINY, dropout=0.0, captions_at_once=2)
    score(matcher, image, caption)
    prepared = matcher.prepare(image, "image"), matcher.prepare(caption, "text")
    together = np.asarray(matcher(*prepared, training=True))
    moved = float(matcher.moving_mean.numpy()), float(matcher.moving_variance.numpy())
    assert moved != (0.0, 1.0)
    matcher.moving_mean.assign(0.0)
    matcher.moving_variance.assign(1.0)
    for number in range(7):
        one = {k: v[number : number + 1] for k, v in prepared[1].items()}
        alone = np.asarray(matcher(prepared[0], one, training=True))
        np.testing.assert_allclose(alone[:, 0], together[:, number], rtol=1e-4, atol=1e-6)
    kept = float(matcher.moving_mean.numpy()), float(matcher.moving_variance.numpy())
    np.testing.assert_allclose(kept, moved, rtol=1e-5)
    assert np.abs(together - np.asarray(matcher(*prepared))).max() > 1e-3


def test_attention_drops_in_training_by_the_seed(tokens):
    image, _ = tokens
    layer = GlobalAttention(dropout=0.5)
    plain = np.asarray(layer(image["tokens"], image["mask"]))
    one, other = (
        np.asarray(layer(image["tokens"], image["mask"], seed=tf.constant(seed), training=True))
        for seed in ([1, 2], [1, 3])
    )
    again = layer(image["tokens"], image["mask"], seed=tf.constant([1, 2]), training=True)
    np.testing.assert_array_equal(again, one)
    assert (one != other).any()
    assert (one != plain).any()


@pytest.mark.slow
def test_regions_of_another_number_are_refused(tokens):
    image, caption = tokens
    matcher = SAF(**TINY)
    score(matcher, image, caption)
    fewer = {k: v[:, :3] for k, v in image.items()}
    with pytest.raises(ValueError, match=r"each of 4 regions, but images have 3 regions; all"):
        matcher.prepare(fewer, "image")


def test_images_of_one_region_can_be_trained_on(random):
    # Keras's batch normalisation fails with a mask where what it normalises is one number.
    regions = tf.constant(random.normal(size=(5, 1, 6)), tf.float32)
    layer = GlobalAttention(dropout=0.0, batch_norm=True)
    layer(regions, tf.ones((5, 1)), seed=tf.constant([1, 2]), training=True)
    found = layer.local(regions)
    layer.local_norm.momentum = 0.0
    layer(regions, tf.ones((5, 1)), seed=tf.constant([1, 2]), training=True)
    np.testing.assert_allclose(layer.local_norm.moving_mean, [np.mean(found)], atol=1e-6)


@pytest.mark.parametrize("context", ["none", "bi_gru"])
def test_padding_never_changes_a_token(random, context):
    head = Tokens(4, context=context)
    words = random.normal(size=(2, 5, 3)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
    found = head(words, mask=mask)
    assert (np.asarray(found["tokens"])[1, 2:] == 0).all()
    np.testing.assert_array_equal(found["mask"], mask.astype(np.float32))
    alone = head(words[1:, :2])
    np.testing.assert_allclose(alone["tokens"][0], found["tokens"][1, :2], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(alone["mask"], 1)
    norms = np.linalg.norm(found["tokens"], axis=-1)
    np.testing.assert_allclose(norms[mask], 1.0, rtol=1e-5)


def test_a_word_knows_its_neighbours_on_both_sides(random):
    head = Tokens(4, context="bi_gru")
    words = random.normal(size=(1, 3, 3)).astype(np.float32)
    before = np.asarray(head(words)["tokens"])
    for place in (0, 2):
        changed = words.copy()
        changed[0, place] += 1.0
        assert np.abs(np.asarray(head(changed)["tokens"])[0, 1] - before[0, 1]).max() > 1e-4


@pytest.mark.slow
def test_models_train_save_and_load(tmp_path):
    x, y = token_models.batch(6)
    model = token_models.retriever(
        SGRAF(similarity_dimension=6, steps=2, dropout=0.1, captions_at_once=5)
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True)
    before = [weight.numpy() for weight in model.trainable_weights]
    losses = [float(model.train_on_batch(x, y, return_dict=True)["loss"]) for _ in range(2)]
    assert np.isfinite(losses).all()
    for weight, start in zip(model.trainable_weights, before, strict=True):
        same = "key_" in weight.path and "bias" in weight.path  # softmax does not see it
        same |= "common/bias" in weight.path or "common_" in weight.path
        assert same or (weight.numpy() != start).any(), weight.path
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    embedded, again = model(x), loaded(x)
    np.testing.assert_array_equal(
        loaded.score(again["image"], again["caption"]),
        model.score(embedded["image"], embedded["caption"]),
    )
