"""Runs the missing experiments, and compares all."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.files import check_folder
from keras_xmr.comparison.execute import execute
from keras_xmr.comparison.pairs import compare_pairs, wins
from keras_xmr.comparison.plan import PlannedRun
from keras_xmr.comparison.report import Comparison, terminal_tables, write_report
from keras_xmr.comparison.resampling import resample
from keras_xmr.comparison.results import Methods, read_runs
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
        raise UserError(_failures(failed, len(planned)))


def _report(split: str, methods: Methods, folder: Path) -> None:
    several = len(methods) > 1
    resampled = resample(methods)
    comparison = Comparison(
        split,
        methods,
        summary_tables(methods),
        resampled,
        compare_pairs(resampled) if several else [],
        wins(methods) if several else [],
    )
    page = write_report(comparison, folder)
    print("\n" + "\n\n".join(terminal_tables(comparison)) + "\n", flush=True)
    _LOGGER.info("report: %s", page)


def _failures(failed: Mapping[str, str], count: int) -> str:
    lines = "\n  ".join(f"{name}: {why}" for name, why in failed.items())
    return (
        f"{len(failed)} of {count} runs failed, and are not in the tables:\n  {lines}\n"
        "Their messages are above. Run the same command again to resume"
    )
