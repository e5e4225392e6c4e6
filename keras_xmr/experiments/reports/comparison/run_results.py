"""Reads the results of finished runs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.experiments.config.yaml_file import read_yaml
from keras_xmr.experiments.evaluation.evaluation_files import EXTERNAL, RESULTS
from keras_xmr.experiments.reports.result_tables import own_results
from keras_xmr.metrics.results import ANNOTATED, Results
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import NO_ARRAY, checksum

_AGAIN = "evaluate this run again (the command `evaluate`)"
_ARRAYS = ("image_ids", "caption_ids", "caption_image", "captions")

SEED = "-seed"
"""The part of the name of a run folder between the method and the seed."""

# Keys that decide the meaning of a figure; with other values, figures are not comparable.
_SPLITS, _ASP = "evaluation.splits", "evaluation.semantic_precision"
_MEANING = ("data.judgements", "evaluation.folds")
_MEANING_OF_ASP = ("relevance.measure", "relevance.tokenizer")


class ComparisonError(UserError):
    """Runs cannot be compared; the message says which, and why."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Metrics of every query with the matcher of a run's training.

    Attributes:
        values: For each kind of judgements the arrays by names such as `i2t_recall_1`.
        image_ids: The ids of the images, str (images,).
        caption_ids: The ids of the captions, str (captions,).
        notes: Texts by name, such as the `fidelity` of the run.
        caption_image: The image that each caption was written for, int (captions,); or None.
        captions: Texts of the captions, str (captions,); or None.
    """

    values: dict[str, dict[str, np.ndarray]]
    image_ids: np.ndarray
    caption_ids: np.ndarray
    notes: dict[str, str]
    caption_image: np.ndarray | None = None
    captions: np.ndarray | None = None

    @property
    def ids(self) -> dict[str, list[str]]:
        """The ids of the images and of the captions, as text."""
        both = {"image": self.image_ids, "caption": self.caption_ids}
        return {item: list(map(str, ids)) for item, ids in both.items()}


@dataclass(frozen=True)
class RunResult:
    """The results of one run on one split.

    Attributes:
        method: The method, which is the name of its row.
        seed: The seed.
        folder: The run folder.
        split: The split.
    """

    method: str
    seed: int
    folder: Path
    split: str

    @cached_property
    def results(self) -> Results:
        """The long table of the run, read on first use."""
        path = self._evaluation / RESULTS
        try:
            return Results.read(path)
        except (OSError, ValueError, csv.Error) as error:
            raise ComparisonError(f"{path} is damaged ({error}); {_AGAIN}") from None

    @cached_property
    def matcher(self) -> str:
        """The matcher that the model was trained with."""
        matcher: str = own_results(self.results)[0].matcher
        return matcher

    @property
    def fidelity(self) -> str:
        """The sentence of its `Fidelity`; empty for a run without one."""
        return self.queries.notes.get("fidelity_sentence", "")

    @property
    def title(self) -> str:
        """The method, and whether it is as published, adapted or changed."""
        label = self.queries.notes.get("fidelity")
        return f"{self.method} ({label})" if label else self.method

    @property
    def _evaluation(self) -> Path:
        return self.folder / "evaluation" / self.split

    @cached_property
    def queries(self) -> Queries:
        """The metrics of every query, read on first use."""
        path = self._evaluation / f"queries-{self.split}.npz"
        try:
            with np.load(path) as arrays:
                known = {name: arrays[name] for name in _ARRAYS if name in arrays}
                notes = {n: str(a) for n, a in arrays.items() if "/" not in n and n not in known}
                values: dict[str, dict[str, np.ndarray]] = {}
                for key in (key for key in arrays if "/" in key):
                    matrix, *judgements, metric = key.split("/")
                    if matrix == self.matcher:
                        of_judgements = values.setdefault(next(iter(judgements), ANNOTATED), {})
                        of_judgements[metric] = arrays[key]
            queries = Queries(values, notes=notes, **known)
            is_whole = notes["results_sha256"] == checksum(self._evaluation / RESULTS)
        except FileNotFoundError:
            raise ComparisonError(f"{path} does not exist; {_AGAIN}") from None
        except (*NO_ARRAY, KeyError, TypeError, AttributeError) as error:
            raise ComparisonError(f"{path} is damaged ({error}); {_AGAIN}") from None
        if not is_whole:
            raise ComparisonError(f"{self._evaluation / RESULTS} was changed; {_AGAIN}")
        return queries

    @cached_property
    def training_log(self) -> dict[str, np.ndarray]:
        """The columns `step` and `val_rsum` of its training log, of the epochs that were validated.

        Empty without a log.
        """
        path, names = self.folder / "logs" / "training.csv", ("step", "val_rsum")
        if not path.exists():
            return {}
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row.get("val_rsum")]
            return {n: np.array([float(row[n]) for row in rows]) for n in names} if rows else {}
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise ComparisonError(
                f"{path} is damaged ({error}); move it away to compare without its curve"
            ) from None


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
        ComparisonError: If they were tested on different images or captions, or figures are
            damaged or of an older version.
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
    evaluated = {f: {p.parent.name for p in f.glob(f"evaluation/*/{RESULTS}")} for f in folders}
    if missing := [str(folder) for folder, splits in evaluated.items() if not splits]:
        raise ConfigError(f"not evaluated yet (the command `evaluate`): {', '.join(missing)}")
    by_split: dict[str, Methods] = {}
    for split in sorted(_common_splits(evaluated)):
        methods = by_split.setdefault(split, {})
        for folder in folders:
            seed = int(configs[folder.name]["seed"])
            run = RunResult(folder.name.removesuffix(f"{SEED}{seed}"), seed, folder, split)
            methods.setdefault(run.method, []).append(run)
        runs = chain.from_iterable(methods.values())
        check_same_ids(split, ((str(run.folder), run.queries.ids) for run in runs))
    return by_split


def check_comparable(configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that the figures of some runs mean the same.

    Args:
        configs: The plain config of each run, by its name.

    Raises:
        ConfigError: If they have no split in common, measure in different ways, or a config lacks
            one of these keys.
    """
    types: dict[str, type] = {_SPLITS: list, "seed": int}
    for name, config in configs.items():
        for key in (_SPLITS, _ASP, *_MEANING, *_MEANING_OF_ASP, "seed"):
            try:
                is_known = isinstance(_at(config, key), types.get(key, object))
            except (KeyError, TypeError):
                is_known = False
            if not is_known:
                raise ConfigError(f"{name}: its config has no {key}; evaluate it again")
    _common_splits({name: set(_at(config, _SPLITS)) for name, config in configs.items()})
    first, *others = configs
    for other in others:
        both = configs[first], configs[other]
        has_asp = all(_at(config, _ASP) for config in both)
        for key in (*_MEANING, *(_MEANING_OF_ASP if has_asp else ())):
            old, new = (_at(config, key) for config in both)
            if old != new:
                raise ConfigError(
                    f"{first} and {other} cannot be compared: {key} is {old} in one, and {new} in "
                    f"the other. Evaluate all with the same (--set {key}=...)"
                )


def _at(config: Mapping[str, Any], key: str) -> Any:
    return reduce(getitem, key.split("."), config)


def _common_splits(evaluated: Mapping[Any, set[str]]) -> set[str]:
    """Returns the splits that all runs have."""
    common = set.intersection(*evaluated.values())
    if not common:
        listed = "\n  ".join(f"{run}: {', '.join(sorted(s))}" for run, s in evaluated.items())
        raise ConfigError(f"these runs have no evaluated split in common:\n  {listed}")
    return common


def check_same_ids(split: str, tested: Iterable[tuple[str, Mapping[str, Sequence[str]]]]) -> None:
    """Checks that runs are tested on the same images and captions, in the same order.

    Args:
        split: The split.
        tested: The name of each run, with its ids of each item: "image" and "caption".

    Raises:
        ComparisonError: If ids differ.
    """
    runs = iter(tested)
    first, own = next(runs)
    for other, theirs in runs:
        for item in own:
            if own[item] == theirs[item]:
                continue
            why = f"the {item} ids are in another order"
            if odd := sorted(set(own[item]) ^ set(theirs[item])):
                why = f"{len(odd)} {item} ids are in only one of them, such as {odd[0]!r}"
            raise ComparisonError(
                f"{first} and {other} have different {split} sets: {why}. "
                "Only runs on the same data can be compared"
            )
