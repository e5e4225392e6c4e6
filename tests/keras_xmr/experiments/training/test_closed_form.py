"""How much a part of an embedding in closed form counts beside what was learned."""

from __future__ import annotations

import logging

import numpy as np
import projected_runs
import pytest

from data_pipelines.batches import image_batches
from keras_xmr.commands._ensemble import scores_of_runs
from keras_xmr.experiments.build import build_tokenizer
from keras_xmr.experiments.training.cca_start import start_from_cca
from keras_xmr.experiments.training.closed_form_weight import (
    WEIGHTS,
    choose_weight,
    weighted_poolings,
)
from keras_xmr.judgements import judge
from keras_xmr.metrics import evaluate_scores
from keras_xmr.utils.errors import ConfigError

pytestmark = pytest.mark.usefixtures("eager")

CLOSED_FORM = (
    "model.image.pooling={name: projection, power: 0.5, closed_form: 2}",
    "model.text.pooling={name: projection, closed_form: 2}",
    "train.start=cca",
)


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    return projected_runs.prepared(tmp_path_factory.mktemp("regions"))


def recalls(run, model, tokenizer, weight):
    """The sum of recalls on the validation split with a weight, from pixels and words."""
    for pooling in weighted_poolings(model):
        pooling.closed_form_weight.assign(weight)
    split = run.records.split("val")
    images = next(iter(image_batches(split, run.config.data.image, 99)))
    embedded = model(
        {"image": images, "caption": tokenizer([caption.text for caption in split.captions])}
    )
    scores = np.asarray(model.score(embedded["image"], embedded["caption"]))
    truth = judge("pairs", split.caption_image, split.labels, len(split))
    return evaluate_scores(scores, truth).summary["rsum"]


@pytest.mark.slow
def test_weight_and_local_scaling_are_chosen_on_the_validation_split(regions, caplog):
    every = 3  # Of 8 training images at most 3 are kept.
    scaled = "closed_form: 2, local_scaling: 3"
    overrides = [option.replace("closed_form: 2", scaled) for option in CLOSED_FORM]
    run = projected_runs.run(regions, *overrides, "model.dimension=9")
    model, tokenizer = projected_runs.model_of(run), build_tokenizer(run.config, run.records)
    start_from_cca(model, run.records, tokenizer, run.config)
    image, text = weighted_poolings(model)
    split = run.records.split("train")
    # Training sees halved cosines from its first step on.
    inputs = next(iter(image_batches(split, run.config.data.image, 5)))
    ids = tokenizer(split.texts[:3])
    seen = [
        np.asarray(tower(each, training=True)["mean"])
        for tower, each in ((model.image_tower, inputs), (model.text_tower, ids))
    ]
    learned = [rows[:, 2:5] / np.linalg.norm(rows[:, 2:5], axis=1, keepdims=True) for rows in seen]
    np.testing.assert_allclose(seen[0] @ seen[1].T, learned[0] @ learned[1].T / 2, atol=1e-5)
    with caplog.at_level(logging.INFO):
        choose_weight(model, run.records, tokenizer, run.config)
    counts = [int(pooling.local_scaling.count) for pooling in (image, text)]
    assert counts == [-(-len(split) // every)] * 2
    # Both sides keep the training items of the other one, as the towers embed them.
    images = np.concatenate(list(image_batches(split, run.config.data.image, 5)))[::every]
    firsts = [split.texts[caption] for caption in split.first_caption[:-1:every]]
    embedded = model({"image": images, "caption": tokenizer(firsts)})
    for pooling, other in (image, "caption"), (text, "image"):
        joined = np.asarray(embedded[other]["mean"])[:, :5] * 2**0.5
        kept = pooling.local_scaling.neighbours[: len(joined)]
        np.testing.assert_allclose(kept, joined, atol=1e-4)
    weights = [float(pooling.closed_form_weight.numpy()) for pooling in (image, text)]
    sums = []
    for strength in (1.0, 0.0):
        for pooling in (image, text):
            pooling.local_scaling.weight.assign(strength)
        sums.append(recalls(run, model, tokenizer, weights[0]))
    of_weights = [recalls(run, model, tokenizer, weight) for weight in WEIGHTS]
    assert len(set(of_weights)) > 1
    assert weights == pytest.approx([WEIGHTS[int(np.argmax(of_weights))]] * 2)
    chosen = choose_weight(model, run.records, tokenizer, run.config)
    used = sums[0] >= sums[1]
    assert [float(p.local_scaling.weight) for p in (image, text)] == [float(used)] * 2
    assert (chosen.weight, chosen.local_scaling) == (pytest.approx(weights[0]), used)
    assert chosen.rsum == pytest.approx(max(sums))
    assert f"validation RSUM {max(sums):.1f}: closed form {100 * weights[0]:.0f} %" in caplog.text
    # What an update keeps is not chosen again.
    for kept in (True, False):
        again = choose_weight(model, run.records, tokenizer, run.config, (1.0,), kept)
        assert (again.weight, again.local_scaling) == (1.0, kept)
        assert float(image.closed_form_weight) == 1
        assert float(image.local_scaling.weight) == float(kept)


@pytest.mark.slow
def test_training_leaves_the_closed_form_as_it_is(regions, tmp_path):
    scaled = [
        *(option.replace("2}", "2, local_scaling: 9}") for option in CLOSED_FORM),
        "model.dimension=9",
        "train.phases.0.epochs=1",
    ]
    run = projected_runs.run(regions, *scaled, f"output={tmp_path}")
    begun, tokenizer = projected_runs.model_of(run), build_tokenizer(run.config, run.records)
    start_from_cca(begun, run.records, tokenizer, run.config)
    run.train()
    finished = projected_runs.run(regions, *scaled, f"output={tmp_path}")
    poolings = weighted_poolings(finished.retriever)
    for before, after in zip(weighted_poolings(begun), poolings, strict=True):
        np.testing.assert_allclose(after.closed_form_kernel, before.closed_form_kernel, rtol=1e-6)
        assert np.abs(after.kernel - before.kernel).max() > 1e-3
        assert np.isclose(WEIGHTS, float(after.closed_form_weight.numpy())).any()
        assert after.local_scaling.count == 8
        after.local_scaling.weight.assign(1)
    # An audit asks how well pairs match, not which of them is the first.
    split, scores = finished.records.split("val"), {}
    for hubness in (True, False):
        ((_, found),) = scores_of_runs(finished, [finished], split, hubness=hubness)
        scores[hubness] = np.asarray(found.image_to_text)
    shift = scores[True] - scores[False]
    np.testing.assert_allclose(shift, shift[:1] + shift[:, :1] - shift[0, 0], atol=1e-5)
    assert np.ptp(shift) > 1e-3
    assert not any(float(pooling.local_scaling.weight) for pooling in poolings)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (CLOSED_FORM[:2], "nothing sets the closed form; write train.start: cca"),
        ((CLOSED_FORM[0], CLOSED_FORM[2]), "both towers need the same number"),
        ((*CLOSED_FORM, "model.dimension=2"), "2 leaves none of the 2 numbers"),
        (
            (CLOSED_FORM[0].replace("2}", "2, local_scaling: 9}"), *CLOSED_FORM[1:]),
            "model.image.pooling.local_scaling: both towers need the same number",
        ),
        (
            (*CLOSED_FORM[:2], CLOSED_FORM[2], "model.text.pooling.local_scaling=9"),
            "both towers need the same number",
        ),
        (
            (
                *(option.replace("2}", "2, local_scaling: 9}") for option in CLOSED_FORM),
                "model.dimension=9",
                "model.image.head={name: gaussian, rezero: true}",
                "model.text.head=gaussian",
                "model.matcher=mean_only",
            ),
            "model.image.head: its attention would be added",
        ),
    ],
)
def test_a_closed_form_that_nothing_sets_or_reads_is_refused(tmp_path, overrides, says):
    with pytest.raises(ConfigError, match=says):
        projected_runs.config(tmp_path, *overrides)
