"""Plans every config with every seed, runs the missing experiments, and compares all."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_configs
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.reports.comparison.comparison_report import (
    SplitComparison,
    terminal_tables,
    write_report,
)
from keras_xmr.experiments.reports.comparison.run_results import (
    SEED,
    check_comparable,
    check_same_ids,
    read_runs,
)
from keras_xmr.experiments.runs.configs import check_config, is_evaluated
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import check_folder
from keras_xmr.utils.termination import EXIT_CODE, TerminationNotice

_LOGGER = logging.getLogger(__name__)

_POLL = 0.2
"""Seconds between looks at a running process."""


@dataclass(frozen=True)
class PlannedRun:
    """One config with one seed.

    Attributes:
        source: The YAML file.
        overrides: Changes of it, as `key=value`, including name and seed.
        config: The resulting config.
    """

    source: Path
    overrides: tuple[str, ...]
    config: Config

    @property
    def folder(self) -> RunFolder:
        """The folder of its outputs."""
        return RunFolder(self.config)

    def arguments(self, command: str) -> list[str]:
        """Arguments of the command line for a command that does one step of the run."""
        overrides = [f"--set={override}" for override in self.overrides]
        return [command, f"--config={self.source}", *overrides]


def plan_runs(
    patterns: Sequence[str], seeds: Sequence[int], overrides: Sequence[str] = ()
) -> list[PlannedRun]:
    """Returns the runs of configs and seeds, each with its folder: `<config>-seed<seed>`.

    Runs are in the order of the seeds, so that an interrupted comparison has all methods.

    Args:
        patterns: Files or names of configs, or patterns of them.
        seeds: The seeds.
        overrides: Changes of all configs, as `key=value`.

    Raises:
        ConfigError: If a config or an override is wrong, two configs have one name, their
            figures would not be comparable, or a folder holds another run.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in ("name", "seed"):
            way = "--seeds" if key == "seed" else "a file for each config"
            raise ConfigError(f"--set {override}: a comparison names its runs itself; use {way}")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: {', '.join(map(str, seeds))}: duplicate seed")
    sources: dict[str, Path] = {}
    for source in (path for pattern in patterns for path in find_configs(pattern, "--configs")):
        name = load_config(source, overrides).name
        if name in sources:
            raise ConfigError(
                f"--configs: {sources[name]} and {source} are both named {name!r}; give one of "
                "them another `name`, so that their runs and rows differ"
            )
        sources[name] = source
    runs = [_plan(n, path, seed, overrides) for seed in seeds for n, path in sources.items()]
    if runs:
        check_comparable({run.config.name: run.config.model_dump(mode="json") for run in runs})
    for run in runs:
        check_config(run.folder, run.config)
    return runs


def _plan(name: str, source: Path, seed: int, overrides: Sequence[str]) -> PlannedRun:
    changes = (*overrides, f"name={name}{SEED}{seed}", f"seed={seed}")
    return PlannedRun(source, changes, load_config(source, changes))


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
    if paths := [*done, *folders]:
        for split, methods in read_runs(paths).items():
            comparison = SplitComparison(split, methods)
            page = write_report(comparison, folder / split)
            print("\n" + "\n\n".join(terminal_tables(comparison)) + "\n", flush=True)
            _LOGGER.info("report: %s", page)
    if failed:
        lines = "\n  ".join(f"{name}: {why}" for name, why in failed.items())
        raise UserError(
            f"{len(failed)} of {len(planned)} runs failed, and are not in the tables:\n  {lines}\n"
            "Their messages are above. Run the same command again to resume"
        )


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
    missing = [run for run in runs if not is_evaluated(run.folder, run.config)]
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

    opened = {run.config.name: Records.open(path) for path, run in owners.items()}
    for split in set.intersection(*(set(run.config.evaluation.splits) for run in runs)):
        splits = ((name, records.split(split)) for name, records in opened.items())
        check_same_ids(
            split,
            (
                (name, {"image": opened_split.image_keys, "caption": opened_split.caption_keys})
                for name, opened_split in splits
            ),
        )


def _do(run: PlannedRun) -> str:
    """Trains and evaluates; returns the failure, or an empty text."""
    steps = ["evaluate"] if run.folder.done.exists() else ["train", "evaluate"]
    return next(filter(None, (_start(run, step) for step in steps)), "")


def _start(run: PlannedRun, step: str) -> str:
    """Runs one step as a command, and shows its progress and its report on the data.

    Returns:
        The failure, or an empty text.
    """
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "keras_xmr", *run.arguments(step)]
    # The tables of single runs are in their reports; here they would hide the others.
    output = None if step == "prepare" else subprocess.DEVNULL
    code = _run(command, stdout=output, env=environment)
    if code < 0:
        return f"`{step}` was killed by signal {-code}"
    return f"`{step}` ended with exit code {code}" if code else ""


def _run(command: Sequence[str], **options: Any) -> int:
    """Runs a command, which is ended before this process ends early.

    Returns:
        The exit code.

    Raises:
        SystemExit: If this process receives SIGTERM.
    """
    with TerminationNotice() as notice:
        process = subprocess.Popen(command, **options)
        try:
            while process.poll() is None and not notice.given:
                time.sleep(_POLL)
        finally:
            process.terminate()
            code = process.wait()
    if notice.given:
        _LOGGER.error("interrupted; run the same command again to resume")
        raise SystemExit(EXIT_CODE)
    return code
