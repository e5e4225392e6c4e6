"""A picture of the attention of a model (Wei et al. 2023, Fig. 10)."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.evaluation.results import Attention
from keras_xmr.reporting.heat import named_maps, overlay
from keras_xmr.reporting.pictures import Picture

_COLUMNS = 8


def attention_picture(attention: Attention) -> Picture:
    """A row per photo: its pixels, and an overlay per map."""
    photos = len(attention.keys)
    maps = [named_maps({n: m[i] for n, m in attention.maps.items()}) for i in range(photos)]
    names = list(maps[0])[: _COLUMNS - 1]
    size = (1.35 * (1 + len(names)), 1.42 * photos + 0.3)
    drawing, axes = plt.subplots(photos, 1 + len(names), figsize=size, squeeze=False)
    for row, pixels, weights in zip(axes, attention.pixels, maps, strict=True):
        shown = [pixels, *(overlay(pixels, weights[name]) for name in names)]
        for axis, image in zip(row, shown, strict=True):
            axis.imshow(image)
            axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], ["photo", *names], strict=True):
        axis.set_title(title, fontsize=11)
    see = (
        "Attention of the head of the images: red is the largest weight of a map, blue the "
        "smallest. The members of a good set attend to different places."
    )
    header = ("photo", "map", "row", "column", "weight")
    title = "attention of the model"
    return Picture("attention", title, see, drawing, header, _rows(attention, maps))


def _rows(attention: Attention, maps: list[dict[str, np.ndarray]]) -> Iterator[tuple[object, ...]]:
    for key, named in zip(attention.keys, maps, strict=True):
        for name, weights in named.items():
            for (row, column), weight in np.ndenumerate(weights):
                yield key, name, row, column, float(weight)
