"""Every loss with every model: trained, or refused with the reason."""

from __future__ import annotations

import keras
import methods
import models
import numpy as np
import pytest

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.parts.registry import components
from keras_xmr.utils.errors import ConfigError

RATE = 3e-4
"""The length of a step: short, so that a loss falls along a straight line."""

POINTS = {"point", "mean_only", "p2rm"}
SETS = {"pvse", "dive", "dvse"}

LEARN_A_TEMPERATURE = {"info_nce", "supervised_contrastive", "mahalanobis_contrastive"}

LOG_ODDS = ((POINTS | SETS) - {"mean_only"}, "log-odds of a match")

REFUSED: dict[str, tuple[set[str], str]] = {
    "soft_contrastive": LOG_ODDS,
    "probabilistic_matching": LOG_ODDS,
    "mahalanobis_contrastive": (SETS, "works on gaussian and gaussian, point and point"),
    "hypergraph_contrastive": (SETS, "works on gaussian and gaussian, point and point"),
    "daa": (SETS, "write similarity: scores"),
    "kl_divergence": (POINTS | SETS, "works on gaussian embeddings"),
    "diversity": (POINTS | {"gaussian"}, "reads the residuals of an embedding"),
    "set_uniformity": (POINTS | {"gaussian"}, "reads the residuals of an embedding"),
    "mmd": ({"gaussian"}, "works on set or point embeddings"),
    "dynamic_orthogonality": (POINTS | {"gaussian"}, "heads that do: dynamic_sub"),
    "variance_aware_weighting": (
        {"gaussian", "pvse", "dive"},
        "works on set and point, point and set, point and point embeddings",
    ),
}


def is_refused(model: str, loss: str) -> bool:
    return model in REFUSED.get(loss, (set(), ""))[0]


def needs_a_reader(model: str, loss: str) -> bool:
    """Whether the matcher learns from scores, and the loss reads none."""
    matcher = components("matcher")[methods.MODELS[model]["matcher"]]
    options = methods.LOSSES[loss]
    contract = components("loss")[options.get("name", loss)].CONTRACT
    return matcher.CONTRACT.log_odds and not contract.with_options(options).reads_scores


PAIRS = [(model, loss) for model in methods.MODELS for loss in methods.LOSSES]


def trained_pairs():
    """Each loss with the first model that it fits; `triplet` with all."""
    for loss in methods.LOSSES:
        fit = [model for model in methods.MODELS if not is_refused(model, loss)]
        yield from ((model, loss) for model in (fit if loss == "triplet" else fit[:1]))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "loss"), [p for p in PAIRS if is_refused(*p)])
def test_pairs_that_make_no_sense_are_refused_with_the_reason(model, loss):
    with pytest.raises(ConfigError, match=r"objective\.0\.(name|similarity)") as caught:
        methods.config(model, [loss])
    assert REFUSED[loss][1] in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        (["model.image.head=pie_net"], "choose for model.image.head: gaussian, held_out_rank"),
        (["model.text.head=point"], "choose for model.text.head: gaussian, held_out_rank"),
        (
            ["model.image.head=pie_net", "model.text.head=point"],
            "choose for both heads: gaussian, held_out_rank",
        ),
    ],
)
def test_a_wrong_head_is_told_which_heads_fit(changes, remedy):
    with pytest.raises(ConfigError, match=remedy):
        load_config(find_config("scenes_pcme"), changes)


@pytest.fixture(scope="module")
def towers_of():
    """The towers of a model, built once and each time as they were then."""
    built: dict[str, tuple] = {}

    def towers_of(model, config):
        if model not in built:
            towers = methods.towers(config)
            built[model] = towers, [tower.get_weights() for tower in towers]
        towers, weights = built[model]
        for tower, values in zip(towers, weights, strict=True):
            tower.set_weights(values)
        return towers

    return towers_of


@pytest.mark.slow
@pytest.mark.parametrize(("model", "loss"), list(trained_pairs()))
def test_loss_trains_the_model(model, loss, towers_of):
    losses = [loss, *(["soft_contrastive"] if needs_a_reader(model, loss) else [])]
    config = methods.config(model, losses)
    retriever = methods.build(config, own=towers_of(model, config), clip_norm=1.0)
    retriever.compile(optimizer=keras.optimizers.SGD(RATE), run_eagerly=True)
    weights = retriever.trainable_weights
    before = [weight.numpy() for weight in weights]
    x, y = models.batch(8)
    if retriever.objective.needs_relevance:
        y["relevance"] = np.random.default_rng(0).random((8, 8), np.float32)
    retriever.train_on_batch(x, y)
    values = retriever.last_values.numpy()
    assert np.isfinite(values).all()
    assert int(retriever.first_nonfinite_step.numpy()) == 0
    # The gradient is right: the loss falls by its length along the way that was gone.
    retriever.global_step.assign(0)
    after = float(retriever.compute_loss(x, y, retriever(x, training=True)))
    begun, norm = float(values[0]), float(values[-1])
    rounding = 3e-7 * (1 + abs(begun))
    assert begun - after == pytest.approx(RATE * norm * min(norm, 1.0), rel=0.1, abs=rounding)
    moved = [np.abs(w.numpy() - b).max() for w, b in zip(weights, before, strict=True)]
    assert max(moved) > 0
    learned = [m for m, w in zip(moved, weights, strict=True) if "temperature" in w.path]
    assert all(m > 0 for m in learned)
    assert len(learned) == (loss in LEARN_A_TEMPERATURE)


@pytest.mark.slow
def test_whole_model_is_saved_and_loaded(tmp_path):
    retriever = methods.build(methods.config("pvse", ["info_nce", "diversity", "mmd"]))
    retriever.compile(optimizer=keras.optimizers.SGD(0.05), run_eagerly=True)
    x, y = models.batch(8)
    retriever.train_on_batch(x, y)
    retriever.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    before, after = retriever(x), loaded(x)
    for side in ("image", "caption"):
        for key, value in before[side].items():
            np.testing.assert_array_equal(after[side][key], value)
    np.testing.assert_array_equal(
        loaded.score(after["image"], after["caption"]),
        retriever.score(before["image"], before["caption"]),
    )
    for ours, theirs in zip(retriever.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_matcher_that_nothing_trains_is_refused():
    with pytest.raises(ConfigError, match="no loss of the objective reads its scores"):
        methods.config("gaussian", ["kl_divergence"])


@pytest.mark.slow
def test_warm_up_follows_the_steps_of_the_training():
    retriever = methods.build(methods.config("point", ["triplet"]))
    retriever.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    x, y = models.batch(8)
    values = []
    for _ in range(3):
        retriever.reset_metrics()
        values.append(retriever.train_on_batch(x, y, return_dict=True)["triplet"])
    assert values[0] > values[1] == values[2]
    # A model that is loaded in the middle goes on where it was.
    twin = retriever.without_optimizer()
    twin.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    assert float(twin.train_on_batch(x, y, return_dict=True)["triplet"]) == values[2]
