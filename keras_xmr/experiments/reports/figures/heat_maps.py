"""Heat maps of the regions that sub-embeddings are similar to (Wei et al. 2023, Fig. 10)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from data_pipelines.batches import image_batches
from data_pipelines.image_decoding import decode_for_evaluation
from keras_xmr.embeddings.kinds import points
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.evaluation.split_evaluation import Arrays
from keras_xmr.experiments.reports.figures.base import FigureOptions, Run
from keras_xmr.experiments.reports.pictures import panels
from keras_xmr.model.towers import features_of
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import unit_rows

_SIDE = 240
_COLUMNS = 4
_WIDTH = 30


def draw_heat_maps(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws the heat map of every sub-embedding of an image, with the caption nearest to it.

    The regions are the boxes of a detector, or the cells of a grid of features.
    """
    run = runs[0]
    split = run.records.split(options.split)
    if not 0 <= options.item < len(split):
        raise UserError(f"--item: the split has the images 0 to {len(split) - 1}")
    features, boxes = regions_of(run, split, options.item)
    head = run.retriever.image_tower.get_layer("head")
    if head.global_pooling is None:
        raise UserError(f"{run.config.name} pools no regions, so they have no vectors to compare")
    stored = run.embedded_records.split(options.split)
    embedded = embed_split(run.retriever, stored, run.tokenizer, run.config)
    members = _vectors(embedded.images, np.array([options.item]), run)[0]
    # A region alone, pooled as the image is: its vector in the space of the embeddings.
    vectors = unit_rows(np.asarray(head.global_pooling(features[:, None]), np.float64))
    own = np.flatnonzero(np.asarray(split.caption_image) == options.item)
    cosines = np.einsum("kd,njd->knj", members, _vectors(embedded.captions, own, run))
    best = [split.texts[int(own[place])] for place in cosines.max(axis=2).argmax(axis=1)]
    picture = _picture(run, split, options)
    cells = 1 + len(members)
    rows, columns = math.ceil(cells / _COLUMNS), min(cells, _COLUMNS)
    drawing, axes = panels(rows, columns, size=(3 * columns, 3.5 * rows), squeeze=False)
    for axis in axes.flat[cells:]:
        axis.axis("off")
    for number, axis in enumerate(axes.flat[:cells]):
        whole = axis.imshow(picture)
        axis.set(xticks=[], yticks=[])
        if number == 0:
            axis.set_title(split.image_keys[options.item], fontsize=8)
            continue
        heat = heat_map(vectors @ members[number - 1], boxes, picture.shape[:2])
        axis.imshow(heat, cmap="jet", alpha=0.5, extent=whole.get_extent())
        title = textwrap.fill(f"{number}: {best[number - 1]}", _WIDTH, max_lines=3)
        axis.set_title(title, fontsize=8)
    return drawing


def heat_map(similarity: np.ndarray, boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns the attention of every pixel: the sum over the boxes that it is in.

    A box has (R - r)^2 / R^2, where r is its place by similarity, the most similar being 1 (Wei et
    al. 2023, section IV-E1, where the factor is rho).

    Args:
        similarity: Of each region (R,).
        boxes: Left, top, right and bottom of each, from 0 to 1, (R, 4).
        size: Height and width of the map.

    Returns:
        Float64 (height, width).
    """
    count = len(similarity)
    place = np.empty(count)
    place[np.argsort(-similarity, kind="stable")] = np.arange(1, count + 1)
    weights = np.square((count - place) / count)
    height, width = size
    x, y = ((np.arange(length) + 0.5) / length for length in (width, height))
    left, top, right, bottom = (edge[:, None] for edge in np.asarray(boxes, np.float64).T)
    across = (left <= x) & (x < right)
    down = (top <= y) & (y < bottom)
    heat: np.ndarray = (weights[:, None] * down).T @ across
    return heat


def regions_of(run: Run, split: Any, item: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the local features (R, F) of an image, and their boxes from 0 to 1, (R, 4).

    Raises:
        UserError: If the regions have no boxes, or features of photos no places.
    """
    if split.holds == "regions":
        if not getattr(run.config.data.source, "boxes", False):
            raise UserError(
                f"the regions of {run.config.name} have no boxes; prepare and train it with "
                "--set data.source.boxes=true, which needs the files of boxes"
            )
        raw = split.regions(np.array([item]))[0]
        places = raw[:, -5:-1]
        tower = run.retriever.image_tower_input_model
        outputs = features_of(tower)(raw[None], training=False)
        features = outputs[0] if isinstance(outputs, list | tuple) else outputs
        return np.asarray(features)[0], places
    size = run.config.evaluation.batch_size
    batch = next(iter(image_batches(split, run.config.data.image, size).skip(item // size)))
    outputs = features_of(run.retriever.image_tower)(batch[item % size][None], training=False)
    features = np.asarray(outputs[0] if isinstance(outputs, list | tuple) else outputs)[0]
    side = math.isqrt(len(features))
    if side < 2:
        raise UserError(f"{run.config.name} has no features of places; take one with a grid")
    row, column = np.divmod(np.arange(side * side), side)
    boxes = np.stack([column, row, column + 1, row + 1], axis=1) / side
    # Tokens without a place, such as a class token, come first.
    return features[len(features) - side * side :], boxes


def _vectors(embedding: Arrays, items: np.ndarray, run: Run) -> np.ndarray:
    """Returns the unit vectors of some items, (N, K, D); K is 1 of points.

    Raises:
        UserError: If they are tokens.
    """
    if "points" not in embedding and "mean" not in embedding:
        raise UserError(
            f"{run.config.name} embeds each word and region; take a run with points or sets"
        )
    return unit_rows(np.asarray(points(dict(embedding))[items]))


def _picture(run: Run, split: Any, options: FigureOptions) -> np.ndarray:
    """Returns the pixels of the image: of the records, of the folder of photos, or grey."""
    if split.holds == "images":
        encoded = split.encoded(options.item)
        return np.asarray(decode_for_evaluation(encoded, run.config.data.image))
    key = Path(split.image_keys[options.item])
    if options.photos is not None:
        from PIL import Image

        names = (key, Path(key.name), Path(f"{key.name}.jpg"), Path(f"{key.stem}.jpg"))
        for path in (options.photos / name for name in names):
            if path.is_file() and path.resolve().is_relative_to(options.photos.resolve()):
                with Image.open(path) as image:
                    return np.asarray(image.convert("RGB"))
        raise UserError(f"{options.photos} has no photo called {key.name} or {key.stem}.jpg")
    return np.full((_SIDE, _SIDE, 3), 230, np.uint8)
