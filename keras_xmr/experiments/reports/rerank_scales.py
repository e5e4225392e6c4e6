"""Tables and pictures of the scales of fast re-ranking (Wei et al. 2023, Fig. 7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_xmr.experiments.evaluation.tuning import ScaleSearch, Setting
from keras_xmr.experiments.reports.pages import explain
from keras_xmr.experiments.reports.pictures import Picture, panel
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.utils.tables import Table

_SHOWN = 5
_SIDES = {"gamma": "image-to-text", "lambda": "text-to-image"}


def scale_pictures(search: ScaleSearch) -> Iterator[Picture]:
    """Yields a heat map per direction: the gain of each pair of scales over no re-ranking."""
    for name, direction in _SIDES.items():
        yield _heat_map(name, direction, search.settings[name], search.plain[name])


def _heat_map(name: str, direction: str, settings: list[Setting], plain: Setting) -> Picture:
    before = sum(plain.recalls)
    rows: list[tuple[Any, ...]] = [
        (s.sum_scale, s.own_scale, *s.recalls, 100 * (sum(s.recalls) - before)) for s in settings
    ]
    scales = sorted({sum_scale for sum_scale, *_ in rows})
    gain = np.reshape([row[-1] for row in sorted(rows)], (len(scales), len(scales)))
    drawing, axis = panel(direction, f"{name}2", f"{name}1")
    axis.grid(visible=False)
    most = max(float(np.abs(gain).max()), 0.1)
    shown = axis.imshow(gain, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
    drawing.colorbar(shown, label="gain in R@1 + R@5 + R@10")
    ticks = range(0, len(scales), 3)
    labels = [f"{scales[tick]:g}" for tick in ticks]
    axis.set_xticks(ticks, labels, fontsize=7)
    axis.set_yticks(ticks, labels, fontsize=7)
    header = (f"{name}1", f"{name}2", "recall_1", "recall_5", "recall_10", "gain")
    title, see = f"scales of fast re-ranking, {direction}", explain("rerank_scales", direction)
    return Picture(f"rerank_scales_{name}", title, see, drawing, header, rows)


def search_tables(search: ScaleSearch, title: str) -> list[Table]:
    """Returns a table per direction: the best settings, and the figures without re-ranking."""
    tables = []
    for name, direction in _SIDES.items():
        settings = search.settings[name]
        header = [f"{name}1", f"{name}2", *(f"R@{k}" for k in RECALL_AT), "sum", "MRR"]
        rows = [_row(setting) for setting in (*settings[:_SHOWN], search.plain[name])]
        heading = f"{title}, {direction}, the best of {len(settings)} settings (transductive)"
        tables.append(Table(heading, header, rows))
    return tables


def search_lines(search: ScaleSearch) -> list[str]:
    """Returns the options for a config, and remarks on the limits of the grid."""
    options, remarks = [], []
    for name in _SIDES:
        best = search.settings[name][0]
        grid = sorted(setting.sum_scale or 0 for setting in search.settings[name])
        for number, scale in ((1, best.sum_scale), (2, best.own_scale)):
            options.append(f"{name}{number}: {scale:g}")
            if scale in (grid[0], grid[-1]):
                remarks.append(f"{name}{number} = {scale:g} is an end of the grid.")
        if best.worth <= search.plain[name].worth:
            remarks.append(f"No {name}1 and {name}2 does better than no re-ranking.")
    lines = ["evaluation:", "  rerankers:", f"    - {{name: fast_reranking, {', '.join(options)}}}"]
    return ["in the config:", "", *lines, *(["", *remarks] if remarks else [])]


def _row(setting: Setting) -> list[str]:
    scales = [
        "none" if scale is None else f"{scale:g}"
        for scale in (setting.sum_scale, setting.own_scale)
    ]
    percent = [f"{100 * value:.1f}" for value in (*setting.recalls, sum(setting.recalls))]
    return [*scales, *percent, f"{setting.reciprocal_rank:.3f}"]
