"""A picture of the scales of fast re-ranking (Wei et al. 2023, Fig. 7)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_xmr.evaluation.tuning import ScaleSearch, Setting
from keras_xmr.reporting.pictures import Picture, panel

_SIDES = {"gamma": "image-to-text", "lambda": "text-to-image"}


def scale_pictures(search: ScaleSearch) -> Iterator[Picture]:
    """A heat map for each direction: the gain of each pair of scales over no re-ranking."""
    for name, direction in _SIDES.items():
        yield _heat_map(name, direction, search.settings[name], search.plain[name])


def _heat_map(name: str, direction: str, settings: list[Setting], plain: Setting) -> Picture:
    scales = sorted({setting.sum_scale for setting in settings if setting.sum_scale is not None})
    place = {scale: number for number, scale in enumerate(scales)}
    gain = np.full((len(scales), len(scales)), np.nan)
    rows = []
    for setting in settings:
        value = 100 * (sum(setting.recalls) - sum(plain.recalls))
        if setting.sum_scale is not None and setting.own_scale is not None:
            gain[place[setting.sum_scale], place[setting.own_scale]] = value
        rows.append((setting.sum_scale, setting.own_scale, *setting.recalls, value))
    drawing, axis = panel(direction, f"{name}2", f"{name}1")
    axis.grid(visible=False)
    most = max(float(np.nanmax(np.abs(gain))), 0.1)
    shown = axis.imshow(gain, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
    drawing.colorbar(shown, label="gain in R@1 + R@5 + R@10")
    ticks = range(0, len(scales), 3)
    labels = [f"{scales[tick]:g}" for tick in ticks]
    axis.set_xticks(ticks, labels, fontsize=7)
    axis.set_yticks(ticks, labels, fontsize=7)
    see = (
        f"Scales of fast re-ranking, {direction}: red gains over no re-ranking, blue loses "
        "(transductive, on validation). A broad red field is a choice that will hold elsewhere; a "
        "single red spot is chance."
    )
    header = (f"{name}1", f"{name}2", "recall_1", "recall_5", "recall_10", "gain")
    title = f"scales of fast re-ranking, {direction}"
    return Picture(f"rerank_scales_{name}", title, see, drawing, header, rows)
