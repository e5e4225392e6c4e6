"""Draws figures of the papers from finished runs, and from files of relevance.

    python studies/paper_figures.py pairs captions-relevance.npz --output pairs.png
    python studies/paper_figures.py grid saved_models/f30k_dvse_regions_eta_* --output eta.png
    python studies/paper_figures.py answers saved_models/coco_dvse saved_models/coco_pvse_k2 \\
        --side t2i --queries 3 17 --output answers.html

*pairs* draws how many pairs have a CIDEr above a threshold (Li et al. 2022, Fig. 1b), of a file
that `keras-xmr relevance --captions=FILE` has written. *grid* draws a metric of evaluated runs
against the one option in which their configs differ (Wei et al. 2023, Fig. 8 and 9; Wang et al.
2023, Fig. 4 to 6); Fig. 7 of Wei et al. is a page of `keras-xmr tune`. *answers* writes a page with
the first answers of evaluated runs below one another (Wei et al. 2023, Fig. 11 and 12; Wang et al.
2023, Fig. 3): green is annotated, blue true by other judgements, red everything else.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from keras_xmr.evaluation.reporting.pictures import panel, save_plot
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write

PLACES = {"name", "output", "records", "fidelity", "paper"}
"""Keys of a config that say where a run is, and not what it is."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws one figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    pairs, grid, answers = (kinds.add_parser(name) for name in ("pairs", "grid", "answers"))
    pairs.add_argument("file", type=Path, help="written by the command relevance")
    for one in (grid, answers):
        one.add_argument("runs", type=Path, nargs="+", help="folders of evaluated runs")
        one.add_argument("--split", default="test", help="default: test")
    grid.add_argument("--metrics", nargs="+", default=["i2t_recall_1", "t2i_recall_1"])
    answers.add_argument("--side", choices=["i2t", "t2i"], default="t2i")
    answers.add_argument("--queries", type=int, nargs="+", required=True, help="their numbers")
    answers.add_argument("--count", type=int, default=6, help="answers a query; default: 6")
    for one in (pairs, grid, answers):
        one.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    {"pairs": draw_pairs, "grid": draw_grid, "answers": write_answers}[options.kind](options)
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


def write_answers(options: argparse.Namespace) -> None:
    """Writes a page with the first answers of runs."""
    from data_pipelines.records import Records
    from keras_xmr.runs.folder import load_run

    split = Records.open(load_run(options.runs[0]).data.records).split(options.split)
    texts, asks_images = [caption.text for caption in split.captions], options.side == "t2i"
    shown = (texts.__getitem__, split.encoded)
    query, answer = shown if asks_images else shown[::-1]
    parts = []
    for number in options.queries:
        parts.append(f"<h2>{_element(query(number))}</h2>")
        for run in options.runs:
            with np.load(_answers(run, options.split)) as file:
                found = file[options.side][number, : options.count]
                kinds = file[f"{options.side}_kind"][number, : options.count]
            items = (
                f'<div class="kind{int(kind)}">{_element(answer(int(one)))}</div>'
                for one, kind in zip(found, kinds, strict=True)
            )
            parts.append(f"<h3>{html.escape(run.name)}</h3><section>{''.join(items)}</section>")
    page = f"<!doctype html><meta charset=utf-8><title>Answers</title>{STYLE}{''.join(parts)}"
    atomic_write(options.output, page.encode())


STYLE = """<style>body{font:14px sans-serif} section{display:flex;flex-wrap:wrap;gap:8px}
section div{border:4px solid;padding:2px;max-width:180px} img{max-width:170px;max-height:130px}
.kind0{border-color:#c33} .kind1{border-color:#36c} .kind2{border-color:#393}</style>"""


def _element(shown: str | bytes) -> str:
    if isinstance(shown, str):
        return html.escape(shown)
    return f'<img src="data:image/jpeg;base64,{base64.b64encode(shown).decode()}">'


def _metrics(run: Path, split: str) -> dict[str, float]:
    """The metrics of the matcher that a run was trained with."""
    path = run / "evaluation" / split / "metrics.json"
    return next(iter(json.loads(_text(path))["matchers"].values()))["metrics"]


def _answers(run: Path, split: str) -> Path:
    path = run / "evaluation" / split / f"answers-{split}.npz"
    if not path.exists():
        raise UserError(f"{path} is missing; evaluate that run: keras-xmr evaluate --run={run}")
    return path


def _text(path: Path) -> str:
    if not path.exists():
        raise UserError(f"{path} is missing; the run is not finished, or not evaluated")
    return path.read_text("utf-8")


if __name__ == "__main__":
    main()
