"""Draws figures of the papers from finished runs, and from files of relevance.

    python studies/paper_figures.py pairs captions-relevance.npz --output pairs.png
    python studies/paper_figures.py grid saved_models/f30k_dvse_regions_eta_* --output eta.png

*pairs* draws how many pairs have a CIDEr above a threshold (Li et al. 2022, Fig. 1b), of a file
that `keras-xmr relevance --captions=FILE` has written. *grid* draws a metric of evaluated runs
against the one option in which their configs differ (Wei et al. 2023, Fig. 8 and 9; Wang et al.
2023, Fig. 4 to 6). Further figures are pages of the program: Fig. 7 of Wei et al. is that of
`keras-xmr tune`, and first answers of two runs (Wei et al. 2023, Fig. 11 and 12; Wang et al. 2023,
Fig. 3) are in that of `keras-xmr compare`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from keras_xmr.experiments.reports.pictures import panel, save_plot
from keras_xmr.experiments.reports.result_tables import own_results
from keras_xmr.metrics.results import ANNOTATED, Results
from keras_xmr.utils.errors import UserError

PLACES = {"name", "output", "records", "fidelity", "paper"}
"""Keys of a config that say where a run is, and not what it is."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws one figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    pairs, grid = (kinds.add_parser(name) for name in ("pairs", "grid"))
    pairs.add_argument("file", type=Path, help="written by the command relevance")
    grid.add_argument("runs", type=Path, nargs="+", help="folders of evaluated runs")
    grid.add_argument("--split", default="test", help="default: test")
    grid.add_argument("--metrics", nargs="+", default=["i2t_recall_1", "t2i_recall_1"])
    for one in (pairs, grid):
        one.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    {"pairs": draw_pairs, "grid": draw_grid}[options.kind](options)
    print(options.output)


def draw_pairs(options: argparse.Namespace) -> None:
    """Draws the pairs above each threshold: all, and those that are annotated."""
    with np.load(options.file) as file:
        relevance, owners = file["relevance"], file["image_of_caption"]
    thresholds = np.linspace(0, 1, 51) * float(relevance.max())
    own = relevance[owners, np.arange(len(owners))]
    drawing, axis = panel("", "CIDEr above", "pairs of image and caption")
    for label, values in (("all", relevance.ravel()), ("annotated", own)):
        ordered = np.sort(values)
        above = len(ordered) - np.searchsorted(ordered, thresholds, side="right")
        axis.plot(thresholds, np.maximum(above, 0.5), label=label)
    axis.set_yscale("log")
    axis.legend()
    save_plot(drawing, options.output)


def draw_grid(options: argparse.Namespace) -> None:
    """Draws metrics against the option in which runs differ."""
    configs = [dict(flat(yaml.safe_load(_text(run / "config.yaml")))) for run in options.runs]
    name = differing_option(configs)
    values = [config.get(name) for config in configs]
    order = sorted(range(len(values)), key=lambda run: values[run])
    drawing, axis = panel("", name, "percent")
    for metric in options.metrics:
        found = [100 * _metrics(run, options.split)[metric] for run in options.runs]
        axis.plot([values[run] for run in order], [found[run] for run in order], "o-", label=metric)
    axis.legend()
    save_plot(drawing, options.output)


def differing_option(configs: Sequence[Mapping[str, Any]]) -> str:
    """Finds the one option that differs between configs, by its whole name.

    Raises:
        UserError: If none differs, several do, or its values are not numbers.
    """
    names = {name for config in configs for name in config}
    found = sorted(
        name
        for name in names
        if not PLACES & set(name.split("."))
        and len({json.dumps(config.get(name)) for config in configs}) > 1
    )
    # Weights that add up to 1, as those of Wei et al., Eq. 12, are one option.
    opposite = len(found) == 2 and all(
        np.isclose(sum(float(config.get(name) or 0) for name in found), 1) for config in configs
    )
    if len(found) != 1 and not opposite:
        raise UserError(
            f"the runs differ in {', '.join(found) or 'no option'}; give runs of a grid"
        )
    if not all(isinstance(config.get(found[0]), int | float) for config in configs):
        raise UserError(f"{found[0]} has no number in some of the runs")
    return found[0]


def flat(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the options of a config with whole names, such as `objective.0.weight`."""
    if isinstance(values, dict | list) and values:
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, value in items:
            yield from flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, values


_MISSING = "{} is missing; the run is not finished, or not evaluated"


def _metrics(run: Path, split: str) -> dict[str, float]:
    """The metrics of the matcher that a run was trained with."""
    path = run / "evaluation" / split / "results.csv"
    if not path.exists():
        raise UserError(_MISSING.format(path))
    return own_results(Results.read(path)).select(judgements=ANNOTATED).summary()


def _text(path: Path) -> str:
    if not path.exists():
        raise UserError(_MISSING.format(path))
    return path.read_text("utf-8")


if __name__ == "__main__":
    main()
