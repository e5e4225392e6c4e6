"""A picture of where a model looks (Wei et al. 2023, Fig. 10)."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.evaluation.results import Attention
from keras_xmr.reporting.heat import named_maps, overlay
from keras_xmr.reporting.pictures import Picture

_COLUMNS = 8


def attention_picture(found: Attention) -> Picture:
    """A row for each photo: what the model sees, and one overlay for each map."""
    photos = len(found.keys)
    maps = [named_maps({n: m[i] for n, m in found.maps.items()}) for i in range(photos)]
    names = list(maps[0])[: _COLUMNS - 1]
    size = (1.35 * (1 + len(names)), 1.42 * photos + 0.3)
    drawing, axes = plt.subplots(photos, 1 + len(names), figsize=size, squeeze=False)
    for row, pixels, own in zip(axes, found.pixels, maps, strict=True):
        shown = [pixels, *(overlay(pixels, own[name]) for name in names)]
        for axis, image in zip(row, shown, strict=True):
            axis.imshow(image)
            axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], ["photo", *names], strict=True):
        axis.set_title(title, fontsize=11)
    see = (
        "Where the head of the images looks: red counts most, blue least, each map by its own "
        "largest weight. Embeddings of a set that are worth having look at different places."
    )
    header = ("photo", "map", "row", "column", "weight")
    title = "where the model looks"
    return Picture("attention", title, see, drawing, header, _rows(found, maps))


def _rows(found: Attention, maps: list[dict[str, np.ndarray]]) -> Iterator[tuple[object, ...]]:
    for key, own in zip(found.keys, maps, strict=True):
        for name, weights in own.items():
            for (row, column), weight in np.ndenumerate(weights):
                yield key, name, row, column, float(weight)
