"""The model: its loss, its randomness, and saving."""

from __future__ import annotations

import h5py
import keras
import models
import numpy as np
import pytest
from keras import ops

from keras_xmr.losses import InfoNCE, Loss, SoftContrastive
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.contracts import LossContract

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("eager")
def test_clipping_is_by_the_global_norm():
    x, y = models.batch(8)
    model = models.pcme(clip_norm=0.5)
    model.compile(optimizer=keras.optimizers.SGD(0.05))
    start = [w.numpy() for w in model.trainable_weights]
    model.train_on_batch(x, y)
    assert model.last_values.numpy()[-1] > 0.5
    step = [w.numpy() - s for w, s in zip(model.trainable_weights, start, strict=True)]
    norm = np.sqrt(sum((s**2).sum() for s in step))
    np.testing.assert_allclose(norm, 0.05 * 0.5, rtol=1e-3)


def test_samples_are_drawn_anew_each_step_and_repeat_with_the_seed():
    x, y = models.batch(8)
    model = models.gaussian_model(models.probabilities(), [SoftContrastive()], [1.0])
    embedded = model(x)

    def loss(seed: int, step: int) -> float:
        model.seed = seed
        model.global_step.assign(step)
        return float(model._objective(embedded, x, y, training=True)[0])

    first = [loss(0, step) for step in range(2)]
    assert len(set(first)) == 2
    assert [loss(0, step) for step in range(2)] == first
    assert loss(1, 0) not in first


def test_evaluation_draws_the_same_whatever_the_batch():
    x, _ = models.batch(8)
    model = models.pcme()
    embedded = model(x)
    whole = model.score(embedded["image"], embedded["caption"]).numpy()
    assert (model.score(embedded["image"], embedded["caption"]).numpy() == whole).all()
    part = {k: v[2:5] for k, v in embedded["image"].items()}
    other = {k: v[6:] for k, v in embedded["caption"].items()}
    np.testing.assert_allclose(model.score(part, other), whole[2:5, 6:], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("eager")
def test_saved_model_loads_in_safe_mode(tmp_path):
    x, y = models.batch(8)
    model = models.pcme(clip_norm=1.0, seed=5, gradient_caching=3)
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    model.train_on_batch(x, y)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    assert isinstance(loaded, Retriever)
    assert (loaded.clip_norm, loaded.seed, loaded.judgements) == (1.0, 5, "pairs")
    assert loaded.gradient_caching == model.without_optimizer().gradient_caching == 3
    before, after = model(x), loaded(x)
    for side in ("image", "caption"):
        for key, value in before[side].items():
            np.testing.assert_array_equal(after[side][key], value)
    np.testing.assert_array_equal(
        loaded.score(after["image"], after["caption"]),
        model.score(before["image"], before["caption"]),
    )


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "precision", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.heavy)]
)
def test_half_precision_trains_with_finite_losses(precision):
    norms, (x, y) = [], models.batch(8)
    for policy, steps in ((precision, 5), ("float32", 1)):
        keras.config.set_dtype_policy(policy)
        try:
            model = models.points(clip_norm=2.0)
            model.compile(optimizer=keras.optimizers.Adam(1e-2))
        finally:
            keras.config.set_dtype_policy("float32")
        losses = []
        for _ in range(steps):
            losses.append(float(model.train_on_batch(x, y, return_dict=True)["loss"]))
            norms.append(float(model.last_values.numpy()[-1]))
        assert np.isfinite(losses).all()
        assert steps == 1 or losses[-1] < losses[0]
        assert int(model.first_nonfinite_step.numpy()) == 0
    *_, norm, first = norms
    assert 0.01 * first < norm < 100 * first  # Not scaled, so of the same size.


@keras.saving.register_keras_serializable(package="test_retriever")
class GivesNan(Loss):
    """One of its terms is NaN."""

    CONTRACT = LossContract(terms=("first", "second"))

    def compute(self, scores, image, caption, relations):
        return {"first": ops.mean(scores), "second": ops.mean(scores) * np.nan}


@pytest.mark.usefixtures("eager")
def test_the_first_number_that_is_not_finite_is_noted():
    x, y = models.batch(8)
    broken = {**x, "image": np.full_like(x["image"], np.nan)}
    towers = (models.tower(4, "image"), models.tower(3, "caption"))
    model = Retriever(*towers, Cosine(), [InfoNCE(), GivesNan()])
    model.compile(optimizer=keras.optimizers.SGD(0.0))
    model.train_on_batch(x, y)
    # Of all that is not finite, what the embeddings give all losses is named, or one term of one.
    for step, name in ((1, "gives_nan/second"), (2, "loss")):
        assert int(model.first_nonfinite_step.numpy()) == step
        assert model.watched[int(model.bad_number.numpy())] == name
        if step == 1:
            model.first_nonfinite_step.assign(0)
            model.train_on_batch(broken, y)
            model.train_on_batch(broken, y)


def test_saved_weights_keep_their_names(tmp_path):
    models.pcme().save_weights(tmp_path / "model.weights.h5")
    with h5py.File(tmp_path / "model.weights.h5") as file:
        holders = {name for name, group in file.items() if group.get("layers")}
    # A run that was trained before would not load if they had others.
    assert holders == {"caption_tower_input_model", "image_tower"}
