"""Reads the results of finished runs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import NO_ARRAY
from keras_xmr.comparison.plan import check_comparable, method_name
from keras_xmr.config.loader import ConfigError
from keras_xmr.config.yaml_file import read_yaml
from keras_xmr.evaluation.files import EXTERNAL, read_figures_file

_AGAIN = "evaluate this run again (the command `evaluate`)"
_ARRAYS = ("image_ids", "caption_ids", "caption_image", "captions")


class ComparisonError(UserError):
    """Runs cannot be compared; the message says which, and why."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Metrics of every query with the matcher of a run's training.

    Attributes:
        values: For each kind of judgements ("metrics" for the annotated ones) the arrays by
            names such as `i2t_recall_1`.
        image_ids: The ids of the images, str (images,).
        caption_ids: The ids of the captions, str (captions,).
        caption_image: The image that each caption was written for, int (captions,); or None.
        captions: Their texts, str (captions,); or None.
    """

    values: dict[str, dict[str, np.ndarray]]
    image_ids: np.ndarray
    caption_ids: np.ndarray
    caption_image: np.ndarray | None = None
    captions: np.ndarray | None = None


@dataclass(frozen=True)
class RunResult:
    """The results of one run on one split.

    Attributes:
        method: The method, which is the name of its row.
        seed: The seed.
        folder: The run folder.
        split: The split.
        figures: The content of `metrics.json`.
    """

    method: str
    seed: int
    folder: Path
    split: str
    figures: Mapping[str, Any]

    @property
    def matcher(self) -> str:
        """The matcher that the model was trained with."""
        return next(iter(self.figures["matchers"]))

    @cached_property
    def queries(self) -> Queries:
        """The metrics of every query, read on first use."""
        path = self.folder / "evaluation" / self.split / f"queries-{self.split}.npz"
        try:
            with np.load(path) as arrays:
                known = {name: arrays[name] for name in _ARRAYS if name in arrays}
                values: dict[str, dict[str, np.ndarray]] = {}
                for key in [key for key in arrays if key not in known]:
                    matrix, *kind, metric = key.split("/")
                    if matrix == self.matcher:
                        values.setdefault(kind[0] if kind else "metrics", {})[metric] = arrays[key]
            return Queries(values, **known)
        except FileNotFoundError:
            raise ComparisonError(f"{path} does not exist; {_AGAIN}") from None
        except (*NO_ARRAY, KeyError, TypeError, AttributeError) as error:
            raise ComparisonError(f"{path} is damaged ({error}); {_AGAIN}") from None

    @cached_property
    def training_log(self) -> dict[str, np.ndarray]:
        """The columns of its training log that have validation metrics, by name, and `step`.

        Only epochs that were validated are among the rows. Empty without a log.
        """
        path = self.folder / "logs" / "training.csv"
        if not path.exists():
            return {}
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row.get("val_rsum")]
            names = [name for name in (rows[0] if rows else ()) if (name or "").startswith("val_")]
            log = {n: np.array([float(row[n]) for row in rows]) for n in ["step", *names]}
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise ComparisonError(
                f"{path} is damaged ({error}); move it away to compare without its curve"
            ) from None
        return log if rows else {}


Methods = dict[str, list[RunResult]]
"""The runs of each method."""


def read_runs(folders: Sequence[Path]) -> dict[str, Methods]:
    """Reads runs, and groups them by method.

    Folders that differ in nothing but `-seed<seed>` at the end of their names are runs of one
    method.

    Args:
        folders: The run folders.

    Returns:
        For each split that all runs were evaluated on: the runs of each method.

    Raises:
        ConfigError: If a folder holds no run or is given twice, or the runs have no split in
            common or were measured in different ways.
        ComparisonError: If they were tested on different images or captions, or figures are of
            an older version.
    """
    configs = {}
    for folder in folders:
        files = [folder / name for name in ("config.yaml", EXTERNAL)]
        config = next((file for file in files if file.exists()), None)
        if config is None:
            raise ConfigError(f"{folder} holds no run: it has no config.yaml")
        if folder.name in configs:
            raise ConfigError(f"two runs are named {folder.name}; rename a folder")
        configs[folder.name] = read_yaml(config).data
    check_comparable(configs)
    evaluated = {f: {p.parent.name for p in f.glob("evaluation/*/metrics.json")} for f in folders}
    if missing := [str(folder) for folder, splits in evaluated.items() if not splits]:
        raise ConfigError(f"not evaluated yet (the command `evaluate`): {', '.join(missing)}")
    common = set.intersection(*evaluated.values())
    if not common:
        listed = "\n  ".join(f"{f}: {', '.join(sorted(s))}" for f, s in evaluated.items())
        raise ConfigError(f"these runs have no evaluated split in common:\n  {listed}")
    by_split: dict[str, Methods] = {}
    for split in sorted(common):
        methods = by_split.setdefault(split, {})
        for folder in folders:
            seed = int(configs[folder.name]["seed"])
            figures = _figures(folder / "evaluation" / split / "metrics.json")
            run = RunResult(method_name(folder.name, seed), seed, folder, split, figures)
            methods.setdefault(run.method, []).append(run)
        _check_same_queries([run for runs in methods.values() for run in runs])
    return by_split


def _figures(path: Path) -> dict[str, Any]:
    """The figures of an evaluation. Older versions lost some judgements."""
    try:
        figures = read_figures_file(path)
        matchers = list(figures["matchers"].values())
        is_old = not all("judgements" in matcher for matcher in matchers)
        measured = [(m["metrics"], *m.get("judgements", {}).values()) for m in matchers]
        is_whole = bool(matchers) and all(map(_are_figures, chain.from_iterable(measured)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_whole = is_old = False
    if is_old:
        raise ComparisonError(f"{path} was written by an older version; {_AGAIN}")
    if not is_whole:
        raise ComparisonError(f"{path} is damaged; {_AGAIN}")
    return figures


def _are_figures(metrics: Any) -> bool:
    kinds = {type(value) for value in metrics.values()}
    return bool(kinds) and kinds <= {int, float}


def _check_same_queries(runs: Sequence[RunResult]) -> None:
    first = runs[0]
    for run in runs[1:]:
        names = str(first.folder), str(run.folder)
        mine, theirs = first.queries, run.queries
        check_same_ids(names, run.split, "image", mine.image_ids, theirs.image_ids)
        check_same_ids(names, run.split, "caption", mine.caption_ids, theirs.caption_ids)


def check_same_ids(
    names: tuple[str, str], split: str, kind: str, left: Iterable[str], right: Iterable[str]
) -> None:
    """Checks that two runs are tested on the same images, or captions, in the same order.

    Args:
        names: The names of both runs.
        split: The split.
        kind: "image" or "caption".
        left: The ids of the first run.
        right: The ids of the second.

    Raises:
        ComparisonError: If the ids differ.
    """
    mine, theirs = list(map(str, left)), list(map(str, right))
    if mine == theirs:
        return
    odd = sorted(set(mine) ^ set(theirs))
    why = f"the {kind} ids are in another order"
    if odd:
        why = f"{len(odd)} {kind} ids are in only one of them, such as {odd[0]!r}"
    raise ComparisonError(
        f"{names[0]} and {names[1]} have different {split} sets: {why}. "
        "Only runs on the same data can be compared"
    )
