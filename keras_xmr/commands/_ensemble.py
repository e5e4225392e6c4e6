"""Evaluates several finished runs as one, by the mean of their scores."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_pipelines.records import SplitRecords
from keras_xmr.experiments.config.loader import dump_config
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.evaluate import evaluate_matrices
from keras_xmr.experiments.evaluation.scoring import check_time
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.run_texts import print_paragraphs, report
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.metrics import ScoreMatrices, mean_scores
from keras_xmr.model.towers import ignore_hubness
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import atomic_write, check_folder

_LOGGER = logging.getLogger(__name__)
_MEMBERS = "ensemble.json"


def evaluate_ensemble(config: Config, runs: Sequence[Path], output: Path | None = None) -> Path:
    """Evaluates the mean of the scores of runs, with the metrics and re-rankers of one config.

    SGRAF as Diao et al. 2021 report it has a run with SAF and a run with SGR. Every run
    scores with its matcher; `evaluation.matchers` are ignored, since not every matcher applies to
    every run.

    Args:
        config: The config of a run, with the metrics and splits.
        runs: Folders of the runs.
        output: The folder of the reports, in the layout of a run, so that the command `compare`
            accepts it; default `ensemble-<run>-<run>` next to the first run.

    Returns:
        The folder of the reports.

    Raises:
        ConfigError: If there are fewer than two runs, or the folder holds something else.
        UserError: If a run is not trained or given twice, or has other images or captions.
    """
    if len(runs) < 2:
        raise ConfigError("--runs: an ensemble needs at least two runs, separated by commas")
    members = [Experiment(load_run(run)) for run in runs]
    _check_different(members)
    names = [str(member.folder.path) for member in members]
    if output is None:
        output = runs[0].parent / "-".join(["ensemble", *(m.config.name for m in members)])
    ensemble_config = config.model_copy(update={"name": output.name, "output": output.parent})
    folder = RunFolder(ensemble_config)
    _claim(folder, names)
    _warn_of_scales(members)
    main = Experiment(config)
    for split in config.evaluation.splits:
        main_split = main.records.split(split)
        limit = config.evaluation.time_limit
        scores = mean_scores(
            matrices for _, matrices in scores_of_runs(main, members, main_split, limit)
        )
        _LOGGER.info("== evaluate: %s, the mean of %d runs", split, len(members))
        evaluation = evaluate_matrices(
            [("ensemble", scores)], main.records, main_split, ensemble_config
        )
        atomic_write(folder.config, dump_config(ensemble_config).encode("utf-8"))
        print_paragraphs(report(evaluation, main_split, ensemble_config, folder.evaluation(split)))
    return folder.path


def scores_of_runs(
    main: Experiment,
    runs: Sequence[Experiment],
    split: SplitRecords,
    time_limit: float | None = None,
    *,
    hubness: bool = True,
) -> Iterator[tuple[str, ScoreMatrices]]:
    """Yields the scores of every run by its matcher, one after another.

    Args:
        main: The run with the records of the split.
        runs: The runs.
        split: The split.
        time_limit: Maximum hours of scoring with one run; None for no limit.
        hubness: Whether models that correct for hubness (CSLS) do so.

    Yields:
        The name of the run, or its folder where two have one name, and its scores.

    Raises:
        UserError: If a run is not trained or given twice, or has other images or captions.
    """
    names = [run.config.name for run in runs]
    _check_different(runs)
    for run in runs:
        _LOGGER.info("== scores of %s", run.folder.path)
        own_split = split if run is main else run.records.split(split.split)
        if own_split.image_keys != split.image_keys or own_split.captions != split.captions:
            raise UserError(
                f"{run.folder.path} has other images or captions in the split {split.split!r} "
                f"than {main.folder.path}; an ensemble needs the same pairs in all runs"
            )
        if not hubness:
            ignore_hubness(run.retriever.image_tower, run.retriever.text_tower)
        scores = run.score(split.split)
        unique = names.count(run.config.name) == 1
        name = run.config.name if unique else str(run.folder.path)
        check_time(name, scores, own_split.caption_image, False, time_limit)
        yield name, scores.dense()


def _check_different(runs: Sequence[Experiment]) -> None:
    """Checks that no run is given twice."""
    folders = [run.folder.path.resolve() for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise UserError(f"--runs: {run.folder.path} appears twice")


def _claim(folder: RunFolder, runs: list[str]) -> None:
    """Creates the folder of an ensemble, unless it holds something else."""
    check_folder(folder.path)
    path = folder.path / _MEMBERS
    content = json.dumps({"runs": runs}, indent=2)
    if folder.config.exists() and not path.exists():
        raise ConfigError(f"{folder.path} holds a run; choose another folder with --output")
    if path.exists() and json.loads(path.read_bytes()) != json.loads(content):
        raise ConfigError(
            f"{folder.path} holds the ensemble of other runs: {path.read_text('utf-8')}; choose "
            "another folder with --output"
        )
    folder.path.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content.encode("utf-8"))


def _warn_of_scales(members: Sequence[Experiment]) -> None:
    """Warns if the scores of some runs are log-odds and of others are not."""
    logits = {
        run.config.model.matcher.name: run.retriever.matcher.contract.log_odds for run in members
    }
    if len(set(logits.values())) > 1:
        odds = ", ".join(name for name, is_logit in logits.items() if is_logit)
        others = ", ".join(name for name, is_logit in logits.items() if not is_logit)
        _LOGGER.warning(
            "scores of %s are log-odds, which weigh more in the mean than the scores of %s",
            odds,
            others,
        )
