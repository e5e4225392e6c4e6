"""Runs the missing experiments, and compares all."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_pipelines.errors import UserError
from data_pipelines.files import check_folder
from keras_xmr.comparison.pairs import compare_pairs, wins
from keras_xmr.comparison.plan import PlannedRun
from keras_xmr.comparison.report import Comparison, terminal_tables, write_report
from keras_xmr.comparison.resampling import resample
from keras_xmr.comparison.results import Methods, check_same_ids, read_runs
from keras_xmr.comparison.summary_tables import summary_tables
from keras_xmr.config.loader import ConfigError

_LOGGER = logging.getLogger(__name__)


def compare(
    planned: Sequence[PlannedRun], folders: Sequence[Path], output: Path | None = None
) -> None:
    """Trains and evaluates missing runs, compares all runs, and writes reports.

    Args:
        planned: The planned runs.
        folders: Folders of finished runs.
        output: The folder of the report, with a folder per split; by default `comparison` in the
            folder of the runs.

    Raises:
        ConfigError: If there is nothing to compare, or the runs are not comparable.
        UserError: If a run failed; the others have been compared then. Or if the report cannot be
            written, before anything is trained.
    """
    if not planned and not folders:
        raise ConfigError("there is nothing to compare; give --configs, or --runs")
    runs = [*(run.folder.path for run in planned), *folders]
    folder = output or runs[0].parent / "comparison"
    check_folder(folder)
    if folders:
        read_runs(folders)  # Mistakes in them are reported before anything is trained.
    failed = execute(planned)
    done = [run.folder.path for run in planned if run.config.name not in failed]
    paths = [*done, *folders]
    if paths:
        for split, methods in read_runs(paths).items():
            _report(split, methods, folder / split)
    if failed:
        lines = "\n  ".join(f"{name}: {why}" for name, why in failed.items())
        raise UserError(
            f"{len(failed)} of {len(planned)} runs failed, and are not in the tables:\n  {lines}\n"
            "Their messages are above. Run the same command again to resume"
        )


def _report(split: str, methods: Methods, folder: Path) -> None:
    resampled = resample(methods)
    comparison = Comparison(
        split, methods, summary_tables(methods), resampled, compare_pairs(resampled), wins(methods)
    )
    page = write_report(comparison, folder)
    print("\n" + "\n\n".join(terminal_tables(comparison)) + "\n", flush=True)
    _LOGGER.info("report: %s", page)


def execute(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Prepares, trains and evaluates the runs that are not finished.

    Every step is a separate process, so that neither seeds nor memory of one run reach another.
    A run that fails does not stop the others.

    Args:
        runs: The runs.

    Returns:
        The reasons of failed runs, by name. Each process reports more on standard error.

    Raises:
        ComparisonError: If the runs would be tested on different data.
    """
    missing = [run for run in runs if not run.folder.is_evaluated(run.config)]
    failed = _prepare(missing)
    _check_same_data([run for run in missing if run.config.name not in failed])
    for number, run in enumerate(runs, 1):
        name = run.config.name
        _LOGGER.info("[%d/%d] %s", number, len(runs), name)
        if run not in missing:
            _LOGGER.info("  trained and evaluated before")
        elif name not in failed and (why := _do(run)):
            failed[name] = why
            _LOGGER.error("  %s: %s", name, why)
    return failed


def _prepare(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Writes the shared records once; returns the runs without records, and the reasons."""
    why: dict[Path, str] = {}
    for run in runs:
        data = run.config.data
        if data.records not in why and not data.is_prepared:
            why[data.records] = _start(run, "prepare")
    return {run.config.name: text for run in runs if (text := why.get(run.config.data.records))}


def _check_same_data(runs: Sequence[PlannedRun]) -> None:
    """Checks before hours of training that runs on different records have the same test sets."""
    owners = {run.config.data.records.resolve(): run for run in runs}
    if len(owners) < 2:
        return
    from data_pipelines.records import Records  # It imports TensorFlow.

    opened = {path: Records.open(path) for path in owners}
    splits = set.intersection(*(set(run.config.evaluation.splits) for run in runs))
    (first, mine), *others = opened.items()
    for other, theirs in others:
        for split in splits:
            left, right = mine.split(split), theirs.split(split)
            names = owners[first].config.name, owners[other].config.name
            check_same_ids(names, split, "image", left.image_keys, right.image_keys)
            captions = [[c.key for c in part.captions] for part in (left, right)]
            check_same_ids(names, split, "caption", *captions)


def _do(run: PlannedRun) -> str:
    """Trains and evaluates; returns the failure, or an empty text."""
    steps = ["evaluate"] if run.folder.done.exists() else ["train", "evaluate"]
    return next(filter(None, (_start(run, step) for step in steps)), "")


def _start(run: PlannedRun, step: str) -> str:
    """Runs one step as a command, whose progress, and report on the data, are seen.

    Returns:
        The failure, or an empty text.
    """
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "keras_xmr", *run.arguments(step)]
    # The tables of single runs are in their reports; here they would hide those of all runs.
    output = None if step == "prepare" else subprocess.DEVNULL
    code = _run(command, stdout=output, env=environment)
    if code < 0:
        return f"`{step}` was killed by signal {-code}"
    return f"`{step}` ended with exit code {code}" if code else ""


def _run(command: Sequence[str], **options: Any) -> int:
    """Runs a command, which is ended before this process ends early.

    Returns:
        Its exit code.

    Raises:
        SystemExit: If this process receives SIGTERM.
    """
    signals: list[int] = []
    processes: list[subprocess.Popen] = []

    def stop(number: int, frame: object) -> None:
        signals.append(number)
        for process in processes:
            process.terminate()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        processes.append(subprocess.Popen(command, **options))
        if signals:  # Before it was in the list.
            processes[0].terminate()
        code = processes[0].wait()
    except BaseException:
        for process in processes:
            process.terminate()
            process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if signals:
        _LOGGER.error("interrupted; run the same command again to resume")
        raise SystemExit(128 + signals[0])
    return code
