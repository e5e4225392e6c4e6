"""The model: its loss, its randomness, and saving."""

from __future__ import annotations

import h5py
import keras
import models
import numpy as np
import pytest
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.losses import Loss, NTXent, SoftContrastive
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever

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


@pytest.mark.usefixtures("eager")
def test_loss_sees_siblings_as_positives():
    x, y = models.batch(6)
    model = models.pcme()
    model.compile(optimizer=keras.optimizers.SGD(0.0))
    losses = []
    for ids in (y["image_id"], np.arange(6)):
        model.global_step.assign(0)
        logs = model.train_on_batch(x, {**y, "image_id": ids}, return_dict=True)
        losses.append(logs["soft_contrastive/positive"])
    assert losses[0] > losses[1]


@pytest.mark.usefixtures("eager")
def test_judgements_by_class_make_more_positives():
    x, y = models.batch(6)
    y["labels"] = np.array([[0], [0], [1], [1], [1], [2]])
    model = models.pcme(judgements="classes")
    model.compile(optimizer=keras.optimizers.SGD(0.0))
    by_class = model.train_on_batch(x, y, return_dict=True)["soft_contrastive/positive"]
    y["labels"] = np.arange(6)[:, None]
    model.reset_metrics()
    model.global_step.assign(0)
    alone = model.train_on_batch(x, y, return_dict=True)["soft_contrastive/positive"]
    assert by_class > alone


@pytest.mark.usefixtures("eager")
def test_samples_are_drawn_anew_each_step_and_repeat_with_the_seed():
    x, y = models.batch(8)

    def losses(seed):
        parts = models.probabilities(), [SoftContrastive()], [1.0]
        model = models.gaussian_model(*parts, seed=seed)
        model.compile(optimizer=keras.optimizers.SGD(0.0))
        found = []
        for _ in range(2):
            model.reset_metrics()
            found.append(float(model.train_on_batch(x, y, return_dict=True)["loss"]))
        return found

    first = losses(0)
    assert len(set(first)) == 2
    assert losses(0) == first
    assert losses(1) != first


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
    model = models.pcme(clip_norm=1.0, seed=5)
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    model.train_on_batch(x, y)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    assert isinstance(loaded, Retriever)
    assert (loaded.clip_norm, loaded.seed, loaded.judgements) == (1.0, 5, "pairs")
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
    keras.config.set_dtype_policy(precision)
    try:
        model = models.pcme(clip_norm=2.0)
        model.compile(optimizer=keras.optimizers.Adam(1e-2))
    finally:
        keras.config.set_dtype_policy("float32")
    x, y = models.batch(8)
    losses = [float(model.train_on_batch(x, y, return_dict=True)["loss"]) for _ in range(8)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert int(model.first_nonfinite_step.numpy()) == 0
    norm = float(model.last_values.numpy()[-1])
    plain = models.pcme(clip_norm=2.0)
    plain.compile(optimizer=keras.optimizers.Adam(1e-2), run_eagerly=True)
    plain.train_on_batch(x, y)
    first = float(plain.last_values.numpy()[-1])
    assert 0.01 * first < norm < 100 * first  # unscaled, so of the same size


@pytest.mark.usefixtures("eager")
def test_the_first_number_that_is_not_finite_is_noted():
    x, y = models.batch(8)
    model = models.pcme()
    model.compile(optimizer=keras.optimizers.SGD(0.0))
    model.train_on_batch(x, y)
    assert int(model.first_nonfinite_step.numpy()) == 0
    broken = {**x, "image": np.full_like(x["image"], np.nan)}
    model.train_on_batch(broken, y)
    model.train_on_batch(broken, y)
    assert int(model.first_nonfinite_step.numpy()) == 2
    assert model.watched[int(model.bad_part.numpy())] == "loss"


@keras.saving.register_keras_serializable(package="test_retriever")
class GivesNan(Loss):
    """One of its parts is NaN."""

    CONTRACT = LossContract(parts=("first", "second"))

    def call(self, scores, image, caption, relations):
        return {"first": ops.mean(scores), "second": ops.mean(scores) * np.nan}


@pytest.mark.usefixtures("eager")
def test_the_loss_that_is_not_finite_is_named():
    x, y = models.batch(8)
    towers = (models.tower(4, "image"), models.tower(3, "caption"))
    model = Retriever(*towers, Cosine(), [NTXent(), GivesNan()])
    model.compile(optimizer=keras.optimizers.SGD(0.0))
    model.train_on_batch(x, y)
    assert model.watched[int(model.bad_part.numpy())] == "gives_nan/second"


def test_saved_weights_keep_their_names(tmp_path):
    models.pcme().save_weights(tmp_path / "model.weights.h5")
    with h5py.File(tmp_path / "model.weights.h5") as file:
        holders = {name for name, group in file.items() if group.get("layers")}
    # A run that was trained before would not load if they had others.
    assert holders == {"caption_tower_input_model", "image_tower"}
