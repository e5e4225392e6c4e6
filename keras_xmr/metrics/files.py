"""Keeps the metrics of every query, so that two runs can be compared query by query."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from data_pipelines.files import atomic_write
from keras_xmr.judgements.ground_truth import GroundTruth
from keras_xmr.metrics.measure import Measured
from keras_xmr.metrics.ranking import QueryMetrics
from keras_xmr.metrics.retrieval import RetrievalMetrics


def write_queries(path: Path, measured: Mapping[str, Measured], truth: GroundTruth) -> None:
    """Writes the metrics and the number of relevant items of every query of some score matrices.

    The file holds `image_ids` and `caption_ids`, with `caption_image`, the image that each
    caption was written for, and the `captions` themselves, if they are known; and for each
    matrix and metric a float32 array in their order: `<matrix>/i2t_<metric>` (images,) and
    `<matrix>/t2i_<metric>` (captions,), and `<matrix>/<judgements>/...` for further judgements.
    NaN marks a query without a value. Among the metrics are `positives`, `<metric>_chance` of a
    random ranking if the number of relevant items does not determine it, and `judged`, the number
    of judged candidates, if some were not judged.

    Args:
        path: The `.npz` file.
        measured: The metrics, by the name of the matrix.
        truth: The images and captions.
    """
    arrays: dict[str, np.ndarray] = {
        "image_ids": np.array(truth.image_ids, np.str_),
        "caption_ids": np.array(truth.caption_ids, np.str_),
        "caption_image": np.asarray(truth.caption_image, np.int64),
    }
    if len(truth.texts):
        arrays["captions"] = np.array(truth.texts, np.str_)
    for name, result in measured.items():
        arrays |= _arrays(name, result.metrics)
        for kind, metrics in result.extra.items():
            arrays |= _arrays(f"{name}/{kind}", metrics)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    atomic_write(path, buffer.getvalue())


def _arrays(prefix: str, metrics: RetrievalMetrics) -> dict[str, np.ndarray]:
    directions = {"i2t": metrics.image_to_text, "t2i": metrics.text_to_image}
    return {
        f"{prefix}/{direction}_{name}": values.astype(np.float32)
        for direction, queries in directions.items()
        for name, values in _with_counts(queries)
    }


def _with_counts(queries: QueryMetrics) -> Iterator[tuple[str, np.ndarray]]:
    yield from queries.values.items()
    yield "positives", queries.positives
    yield from ((f"{name}_chance", values) for name, values in queries.chance.items())
    if queries.judged is not None:
        yield "judged", queries.judged
