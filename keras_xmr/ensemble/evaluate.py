"""Evaluates several finished runs as one, by the mean of their scores."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from data_pipelines.files import atomic_write
from data_pipelines.folders import check_folder
from keras_xmr.config.loader import ConfigError, dump_config
from keras_xmr.config.schema import Config
from keras_xmr.ensemble.scores import scores_of_runs
from keras_xmr.evaluation.evaluate import evaluate_matrices
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.pipeline import Run, report
from keras_xmr.run_folder import RunFolder, load_run

_LOGGER = logging.getLogger(__name__)
_MEMBERS = "ensemble.json"


def evaluate_ensemble(config: Config, runs: Sequence[Path], output: Path | None = None) -> Path:
    """Evaluates the mean of the scores of runs, with the metrics and re-rankers of one config.

    SGRAF as Diao et al. 2021 report it is that of a run with SAF and a run with SGR. Every run
    scores with its own matcher; `evaluation.matchers` are not asked, as they could not all be
    asked of all runs.

    Args:
        config: The config that says what is measured, and on which splits; that of a run.
        runs: Folders of the runs.
        output: Where the reports go, in the layout of a run, so that the command `compare` takes
            the folder as one; `ensemble-<run>-<run>` beside the first run by default.

    Returns:
        The folder of the reports.

    Raises:
        ConfigError: If there are fewer than two runs, or the folder holds something else.
        UserError: If a run is not trained or given twice, or has other images or captions.
    """
    if len(runs) < 2:
        raise ConfigError("--runs: an ensemble has two runs or more; give them with commas between")
    members = [Run(load_run(run)) for run in runs]
    names = [str(member.folder.path) for member in members]
    if output is None:
        output = runs[0].parent / "-".join(["ensemble", *(m.config.name for m in members)])
    own = config.model_copy(update={"name": output.name, "output": output.parent})
    folder = RunFolder(own)
    _claim(folder, names)
    _warn_of_scales(members)
    main = Run(config)
    for split in config.evaluation.splits:
        part = main.records.split(split)
        limit = config.evaluation.time_limit
        scores = mean_scores(found for _, found in scores_of_runs(main, members, part, limit))
        _LOGGER.info("== evaluate: %s, the mean of %d runs", split, len(members))
        evaluation = evaluate_matrices([("ensemble", scores)], main.records, part, own)
        atomic_write(folder.config, dump_config(own).encode("utf-8"))
        print("\n" + report(evaluation, part, own, folder.evaluation(split)) + "\n", flush=True)
    return folder.path


def mean_scores(found: Iterable[ScoreMatrices]) -> ScoreMatrices:
    """The mean of scores of the same pairs. One matrix of them is held at a time, beside the sum.

    Args:
        found: Scores (images, captions).
    """
    total: np.ndarray | None = None
    total_t2i: np.ndarray | None = None
    count = 0
    for scores in found:
        if scores.other is not None and total_t2i is None and total is not None:
            total_t2i = total.copy()
        if total is None:
            total = np.array(scores.image_to_text)
            total_t2i = None if scores.other is None else np.array(scores.other)
        else:
            total += scores.image_to_text
            if total_t2i is not None:
                total_t2i += scores.text_to_image
        count += 1
    if total is None:
        raise ValueError("there are no scores to take the mean of")
    total /= count
    if total_t2i is not None:
        total_t2i /= count
    return ScoreMatrices(total, total_t2i)


def _claim(folder: RunFolder, runs: list[str]) -> None:
    """Makes the folder of an ensemble, unless it is that of something else."""
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


def _warn_of_scales(members: Sequence[Run]) -> None:
    """Says so where scores of some runs are log-odds and of others are not."""
    logits = {run.config.model.matcher.name: run.model.matcher.contract.log_odds for run in members}
    if len(set(logits.values())) > 1:
        odds = ", ".join(name for name, is_logit in logits.items() if is_logit)
        others = ", ".join(name for name, is_logit in logits.items() if not is_logit)
        _LOGGER.warning(
            "scores of %s are log-odds and larger than those of %s: they weigh more in the mean",
            odds,
            others,
        )
