"""Metrics of a whole split whose embeddings come batch by batch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from keras_xmr.judgements import Judgements, check_image_ids
from keras_xmr.judgements.relation import as_array
from keras_xmr.metrics.retrieval import retrieval
from keras_xmr.metrics.score_matrices import real_numbers
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.vectors import unit_rows


class Retrieval:
    """All metrics of a split, over all batches together: every caption is ranked for every image.

    A recall within batches grows as batches get smaller; this one does not depend on them. It keeps
    the embeddings of the split in memory, as float32, and its scores while they are ranked.

    Args:
        similarity: Cosine, or the inner product of the embeddings.
    """

    def __init__(self, similarity: Literal["cosine", "dot"] = "cosine") -> None:
        if similarity not in ("cosine", "dot"):
            raise ArgumentError(f'similarity is "cosine" or "dot", not {similarity!r}')
        self.similarity = similarity
        self.reset_state()

    def reset_state(self) -> None:
        """Forgets all batches."""
        self._images: dict[Any, np.ndarray] = {}
        self._captions: list[np.ndarray] = []
        self._image_ids: list[Any] = []

    def update_state(self, images: Any, captions: Any, image_ids: Any, rows: Any = None) -> None:
        """Adds a batch.

        Args:
            images: Embeddings of images, float (N, D), as a tensor of any framework.
            captions: Embeddings of captions, float (M, D).
            image_ids: The id of each image in the split (N,), numbers or texts. An image that
                occurs again, with other captions, is one image.
            rows: The row of each caption's image in the batch, int (M,); None if caption i is of
                image i.

        Raises:
            ArgumentError: If shapes do not fit.
        """
        images, captions = real_numbers(images, "images"), real_numbers(captions, "captions")
        ids = as_array(image_ids, "image_ids")
        if images.ndim != 2 or captions.ndim != 2 or images.shape[1] != captions.shape[1]:
            raise ArgumentError(
                "embeddings are matrices (items, D) of one width, not of shapes "
                f"{images.shape} and {captions.shape}"
            )
        if ids.shape != images.shape[:1]:
            raise ArgumentError(f"{len(images)} images, but image_ids of shape {ids.shape}")
        rows = check_image_ids(rows, len(images), len(captions))
        of_batch = ids.tolist()
        self._images.update(zip(of_batch, self._prepare(images), strict=True))
        self._captions.append(self._prepare(captions))
        self._image_ids += [of_batch[row] for row in rows.tolist()]

    def result(self) -> dict[str, float]:
        """Returns the metrics of `retrieval`: `i2t_recall_1` and so on, and `rsum`.

        Raises:
            ArgumentError: Without a batch.
        """
        if not self._images:
            raise ArgumentError("there are no batches yet: call update_state first")
        number = {id_: row for row, id_ in enumerate(self._images)}
        scores = np.stack(list(self._images.values())) @ np.concatenate(self._captions).T
        owner = np.array([number[id_] for id_ in self._image_ids])
        return retrieval(scores, Judgements.from_pairs(owner, len(number)))

    def _prepare(self, embeddings: np.ndarray) -> np.ndarray:
        vectors = embeddings if self.similarity == "dot" else unit_rows(embeddings)
        return vectors.astype(np.float32)
