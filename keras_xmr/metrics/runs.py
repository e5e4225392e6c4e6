"""Scores to and from runs of other programs: `{query: {document: score}}`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_xmr.judgements.exchange import Direction, entries, is_turned, numbers_of_ids
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores
from keras_xmr.utils.errors import ArgumentError

DEPTH = 1000
"""Default number of documents per query in a run, as at TREC."""


def to_run(
    scores: Scores,
    image_ids: Sequence[object],
    caption_ids: Sequence[object],
    direction: Direction = "text_to_image",
    depth: int = DEPTH,
) -> dict[str, dict[str, float]]:
    """Converts scores to the best documents of every query, as ranx and ir_measures take them.

    Args:
        scores: Scores (images, captions), as `recall` takes them. Minus infinity leaves a pair out.
        image_ids: The id of each image.
        caption_ids: The id of each caption.
        direction: "text_to_image" if captions are queries, "image_to_text" if images are.
        depth: Number of documents per query, the best first.

    Raises:
        ArgumentError: If ids do not fit the scores, an id occurs twice, the direction is another,
            or a score is NaN or infinity.
    """
    turned = is_turned(direction)
    images, captions = numbers_of_ids(image_ids, "image"), numbers_of_ids(caption_ids, "caption")
    matrices = ScoreMatrices.of(scores)
    if (found := (len(images), len(captions))) != matrices.image_to_text.shape:
        raise ArgumentError(f"scores of shape {matrices.image_to_text.shape}, but ids of {found}")
    queries, documents = (captions, list(images)) if turned else (images, list(captions))
    run = {}
    for query, row in zip(queries, np.asarray(matrices.by_query[turned]), strict=True):
        if np.isnan(row).any() or np.isposinf(row).any():
            raise ArgumentError(f"a score of {query!r} is NaN or infinity, which runs do not have")
        order = np.argsort(-row, kind="stable")[:depth]
        known = order[np.isfinite(row[order])].tolist()
        run[query] = {documents[column]: float(row[column]) for column in known}
    return run


def from_run(
    run: object,
    image_ids: Sequence[object],
    caption_ids: Sequence[object],
    direction: Direction = "text_to_image",
) -> np.ndarray:
    """Makes a score matrix of a run.

    Args:
        run: `{query: {document: score}}`; an object with `to_dict()`, such as `ranx.Run`; or
            `ScoredDoc`s of ir_measures.
        image_ids: The id of each image; numbers are compared as texts.
        caption_ids: The id of each caption.
        direction: "text_to_image" if captions are queries, "image_to_text" if images are.

    Returns:
        Float64 (images, captions); minus infinity where the run leaves a pair out.

    Raises:
        ArgumentError: If an id is unknown, a score is not a finite number, or a pair occurs twice.
    """
    turned = is_turned(direction)
    images, captions = numbers_of_ids(image_ids, "image"), numbers_of_ids(caption_ids, "caption")
    scores = np.full((len(images), len(captions)), -np.inf)
    for query, document, score in entries(run, "score"):
        ids = (document, query) if turned else (query, document)
        for item, id_, known in zip(("image", "caption"), ids, (images, captions), strict=True):
            if id_ not in known:
                raise ArgumentError(
                    f"unknown {item} {id_!r}: queries are {'captions' if turned else 'images'}; "
                    "see `direction`"
                )
        place = images[ids[0]], captions[ids[1]]
        if scores[place] != -np.inf:
            raise ArgumentError(f"{document!r} occurs twice for {query!r}")
        scores[place] = score
    return scores
