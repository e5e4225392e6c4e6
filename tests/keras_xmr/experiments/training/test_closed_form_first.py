"""A model with a part in closed form: finished first, trained while validation gains, updated."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import datasets
import graphs
import projected_runs
import pytest
from interruptions import interrupted

from keras_xmr.experiments import experiment, run_evaluation, run_exports
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.runs.outcome import outcome_of_training
from keras_xmr.experiments.runs.summary import Summary
from keras_xmr.experiments.runs.weight_files import (
    remove_superfluous,
    superfluous,
    trained_weights,
    weights_checksum,
)
from keras_xmr.experiments.trained_model import TrainedModel
from keras_xmr.experiments.training import trainer
from keras_xmr.experiments.training.closed_form_weight import Weighing
from keras_xmr.utils.errors import UserError

pytestmark = [pytest.mark.usefixtures("eager", "undrawn"), pytest.mark.slow]

OPTIONS = (
    "model.image.pooling={name: projection, power: 0.5, closed_form: 2, local_scaling: 9}",
    "model.text.pooling={name: projection, closed_form: 2, local_scaling: 9}",
    "model.dimension=9",
    "train.start=cca",
    "train.cca.image_ridges=[10, 1]",
    "train.patience=2",
    "train.phases=[{epochs: 9, learning_rate: 1.0e-2, freeze: [text.encoder]}]",
)


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    return projected_runs.prepared(tmp_path_factory.mktemp("regions"))


def sums_of_validations(patch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """Gives validations the sums of recalls of a list, and counts them."""
    sums: list[float] = []
    seen: list[float] = []
    original = trainer.evaluate_split

    def evaluate(*args, brief=False, **kwargs):
        evaluation = original(*args, brief=brief, **kwargs)
        if brief:
            seen.append(sums[len(seen)])
            evaluation.matchers[0].metrics.summary["rsum"] = seen[-1]
        return evaluation

    patch.setattr(trainer, "evaluate_split", evaluate)
    return sums, seen


@pytest.fixture
def validated(monkeypatch):
    return sums_of_validations(monkeypatch)


@pytest.fixture(scope="module")
def fallen(regions, tmp_path_factory):
    """A run that did not gain by its training: its closed form is the model. Only to be read."""
    finished = run(regions, tmp_path_factory.mktemp("fallen"))
    with pytest.MonkeyPatch.context() as patch, graphs.eager():
        sums_of_validations(patch)[0].extend([100.0, 90, 80])
        finished.train()
    return finished


def run(folder, output, *overrides) -> Experiment:
    return projected_runs.run(folder, *OPTIONS, f"output={output}", *overrides)


def summary(run) -> dict:
    return json.loads(run.folder.done.read_text())


def test_it_trains_while_validation_gains(regions, tmp_path, validated, capsys):
    sums, seen = validated
    sums += [100.0, 90, 120, 110, 120]
    finished = run(regions, tmp_path)
    finished.train()
    assert len(seen) == 5, "before the first epoch, and after four"
    assert summary(finished)["best_step"] == summary(finished)["steps"] // 2 > 0
    assert summary(finished)["choices"]["is_trained"]
    assert finished.folder.is_trained
    lines = [line for line in capsys.readouterr().err.splitlines() if "pairs" in line]
    assert len(lines) == 1, "a log file has no line per epoch"
    assert lines[0].startswith("training, at most: ")
    assert "epoch=4/9" in lines[0]


def test_a_training_that_was_killed_waits_as_long(regions, tmp_path, validated, monkeypatch):
    sums, seen = validated
    sums += [100.0, 90, 110, 105]
    interrupted(run(regions, tmp_path), 7, monkeypatch)
    assert len(seen) == 4
    sums += [104.0, 200]
    resumed = run(regions, tmp_path)
    resumed.train()
    assert seen == [100, 90, 110, 105, 104]
    assert summary(resumed)["best"] == 110


def test_the_closed_form_is_a_finished_model_before_the_first_epoch(
    regions, tmp_path, validated, capsys, monkeypatch
):
    sums, seen = validated
    sums += [100.0, 90, 80]
    states = []
    original = Experiment._report_closed_form

    def report(self, model):
        original(self, model)
        names = {path.name for path in self.folder.path.iterdir()}
        states.append((self.folder.is_complete, self.folder.is_trained, names))

    monkeypatch.setattr(Experiment, "_report_closed_form", report)
    finished = run(regions, tmp_path)
    finished.run()
    ((is_complete, is_trained, names),) = states
    assert not is_complete
    assert not is_trained
    assert {"model.keras", "evaluation", "training.json"} <= names
    assert seen == [100, 90, 80]
    out = capsys.readouterr().out
    assert "its training goes on" in out
    assert "Nothing that was trained is used" in out
    names = {path.name for path in finished.folder.path.iterdir()}
    assert names >= {"model.keras", "serving", "evaluation", "config.yaml", "training.json"}
    assert not names & {"checkpoints", "best.weights.h5", "last.weights.h5", "choices.json"}
    # A finished run needs no file that its training began with.
    monkeypatch.setattr(experiment, "check_files", lambda _: pytest.fail("nothing is to be read"))
    again = run(regions, tmp_path)
    again.run()
    assert len(seen) == 3, "the same command does not train again"
    assert trained_weights(again.folder, again.config) == again.folder.model


def test_the_closed_form_reads_photos_and_words_while_features_are_stored(
    tmp_path, validated, monkeypatch
):
    sums, _ = validated
    sums += [100.0, 90, 80]
    source = datasets.csv_photos(tmp_path / "raw")
    photo, embedded = next((tmp_path / "raw" / "images").iterdir()), []
    original = Experiment._report_closed_form

    def report(self, model):
        one = TrainedModel(self.config, model, self.tokenizer)
        embedded.append((one.embed_images([photo]), one.embed_texts(["a red circle"])))
        original(self, model)

    monkeypatch.setattr(Experiment, "_report_closed_form", report)
    # As of any other run.
    monkeypatch.setattr(run_evaluation, "evaluate_splits", lambda *_, **__: ())
    monkeypatch.setattr(run_exports, "write_saved_model", lambda _: None)
    finished = run(
        tmp_path,
        tmp_path,
        f"data.source={source}",
        "model.image.encoder={name: small_cnn, channels: [8, 8]}",
        "train.precompute_features=true",
        "train.precompute_captions=true",
        "train.phases=[{epochs: 9, learning_rate: 1e-2, freeze: [image.encoder, text.encoder]}]",
        "train.batch_size=8",
        "data.image.crop=center",
        "data.image.flip=false",
        "data.image.cutout=0",
        "data.text.drop_words=0",
        f"data.records={tmp_path / 'photos'}",
    )
    finished.prepare()
    finished.run()
    ((images, captions),) = embedded
    assert images["mean"].shape == captions["mean"].shape == (1, 9)
    assert (tmp_path / "photos" / "features").is_dir(), "it was trained on these"


def test_weights_that_went_are_named(regions, fallen, tmp_path, validated, monkeypatch):
    monkeypatch.setattr(run_exports, "export_saved_model", lambda *_: None)
    sums, _ = validated
    exported = run(regions, tmp_path)
    shutil.copytree(fallen.folder.path, exported.folder.path)
    exported.export()
    last = run(regions, tmp_path, "export.weights=last")
    with pytest.raises(UserError, match="keep_training_files"):
        _ = last.retriever
    sums += [100.0, 90, 80]
    kept = run(regions, tmp_path / "kept", "export.keep_training_files=true")
    kept.train()
    kept.export()
    assert kept.folder.last_weights.exists()
    assert kept.folder.checkpoints.exists()
    assert set(superfluous(kept.folder)) == {
        kept.folder.checkpoints,
        kept.folder.best_weights,
        kept.folder.last_weights,
    }
    before = weights_checksum(kept.folder, kept.config)
    remove_superfluous(kept.folder)
    assert superfluous(kept.folder) == []
    assert weights_checksum(kept.folder, kept.config) == before, "an index of it stays valid"


@pytest.mark.parametrize("is_trained", [False, True])
def test_an_update_keeps_what_was_chosen(regions, fallen, tmp_path, validated, is_trained):
    sums, seen = validated
    first = fallen
    if is_trained:
        sums += [100.0, 110, 105, 104]
        first = run(regions, tmp_path / "first")
        first.train()
    choices = first.folder.summary().choices
    assert choices.is_trained is is_trained
    other = 1.0 if choices.cca.image_ridges == (10.0,) else 10.0
    choices.cca = choices.cca.model_copy(update={"image_ridges": (other,)})
    choices.local_scaling = not choices.local_scaling
    second = run(regions, tmp_path / "second")
    second.folder.keep_choices(choices)
    count = len(seen)
    sums += [100.0, 110, 105, 104]
    second.train()
    assert (len(seen) == count) is not is_trained
    found = second.folder.summary().choices
    assert found.cca == choices.cca
    assert found.local_scaling is choices.local_scaling
    assert found.is_trained is is_trained
    if not is_trained:
        assert (found.weight, second.folder.summary().steps) == (1.0, 0)
    else:  # As many epochs as the first had until its best validation, and no search of a weight.
        assert found.weight == choices.weight
        assert found.epochs == choices.epochs > 0
        assert second.folder.summary().steps == first.folder.summary().best_step
        assert len(seen) == count + 2, "before and after the training alone"


def test_labels_change_the_closed_form(regions, fallen, tmp_path, validated, caplog):
    sums, _ = validated
    kernels = []
    split = fallen.records.split("train")
    own = [
        (split.image_keys[row], split.caption_keys[n]) for n, row in enumerate(split.caption_image)
    ]
    lines = ["image,caption,grade"]
    lines += [f"{own[0][0]},{caption},0" for _, caption in own[:4]]  # Four of five are wrong.
    lines += [f"{own[-1][0]},{own[0][1]},1"]  # A caption of another image is right.
    lines += [f"{own[-1][0]},{own[1][1]},0"]  # Which no closed form knows.
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    labelled = run(
        regions, tmp_path / "labelled", f"data.training_judgements={tmp_path / 'labels.csv'}"
    )
    sums += [100.0, 90, 80]
    with caplog.at_level("INFO"):
        labelled.train()
    for each in (fallen, labelled):
        pooling = each.retriever.text_tower.get_layer("head").global_pooling
        kernels.append(pooling.closed_form_kernel.numpy())
    assert abs(kernels[0] - kernels[1]).max() > 1e-2
    assert "5 pairs for the closed form, 1 wrong pairs for losses alone" in caplog.text
    assert labelled.folder.summary().labels == (5, 1)
    said = outcome_of_training(labelled.folder.summary())
    assert "Of your labels 5 changed the closed form; 1 of wrong pairs did not change" in said


def test_the_end_says_whether_the_trained_part_is_used(regions):
    choices = {
        "cca": {"image_ridges": [1], "caption_ridges": [1], "exponents": [1]},
        "local_scaling": True,
        "weight": 0.9,
        "is_trained": True,
    }
    made = Summary.model_validate({"steps": 3, "choices": choices, "labels": [2, 5]})
    assert outcome_of_training(made).endswith(
        "90 % closed form and 10 % trained. Of your labels 2 changed the closed form, and 5 of "
        "wrong pairs the trained part."
    )
    alone = made.model_copy(update={"choices": made.choices.model_copy(update={"weight": 1.0})})
    assert "Nothing that was trained is used" in outcome_of_training(alone)
    assert outcome_of_training(Summary(steps=3)) is None
    words = str(Weighing(0.9, True, 300.0))
    assert words == "closed form 90 %, trained 10 %, with correction for hubs (CSLS)"
    assert "without" in str(replace(Weighing(0.9, True, 300.0), local_scaling=False))
