"""Metrics of a whole split whose embeddings come batch by batch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from keras_xmr.judgements import Judgements, check_image_ids
from keras_xmr.metrics.retrieval import retrieval
from keras_xmr.metrics.score_matrices import real_numbers
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array
from keras_xmr.utils.vectors import unit_rows

_ROUNDING = 0.02
"""The relative distance up to which embeddings are one: half precision rounds in each batch."""


class Retrieval:
    """All metrics of a split, over all batches together: every caption is ranked for every image.

    The ids of images are of the whole split, in contrast to the `image_ids` of losses, which are
    rows of a batch: `update_state` takes these as `rows`.

    A recall within batches grows as batches get smaller; this one does not depend on them. It keeps
    the embeddings of the split in memory, as float32, and its scores while they are ranked.

    For other similarities, score the split in tiles by any matcher and pass the scores to
    `retrieval`: docs/integrations/embeddings.md.

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
        self._images: dict[str | float, np.ndarray] = {}
        self._captions: list[np.ndarray] = []
        self._image_ids: list[str | float] = []

    def update_state(
        self, images: Any, captions: Any, image_ids: ArrayLike, rows: Any = None
    ) -> None:
        """Adds a batch.

        Args:
            images: Embeddings of images, float (N, D), as a tensor of any framework.
            captions: Embeddings of captions, float (M, D).
            image_ids: The id of each image in the whole split (N,), numbers or texts. An image that
                occurs again, with other captions, is one image; its embedding is then the same.
            rows: The row of each caption's image in the batch, int (M,); None if caption i is of
                image i.

        Raises:
            ArgumentError: If shapes do not fit, an id is NaN, some ids are numbers and others
                texts, or an id occurs again with another embedding. The batch is then not added.
        """
        images, captions = real_numbers(images, "images"), real_numbers(captions, "captions")
        ids = _ids(image_ids)
        if images.ndim != 2 or captions.ndim != 2 or images.shape[1] != captions.shape[1]:
            raise ArgumentError(
                "embeddings are matrices (items, D) of one width, not of shapes "
                f"{images.shape} and {captions.shape}"
            )
        if len(ids) != len(images):
            raise ArgumentError(f"{len(images)} images, but {len(ids)} image_ids")
        rows = check_image_ids(rows, len(images), len(captions))
        self._images = self._joined(ids, self._prepare(images))
        self._captions.append(self._prepare(captions))
        self._image_ids += [ids[row] for row in rows.tolist()]

    def result(self, judgements: object = None) -> dict[str, float]:
        """Returns the metrics of `retrieval`: `i2t_recall_1` and so on, and `rsum`.

        Args:
            judgements: The relevant pairs, as `recall` takes them: of images in the order in which
                their ids came first, and of captions in the order in which they came. None if a
                caption matches its own image alone.

        Raises:
            ArgumentError: Without a batch, or if shapes do not fit.
        """
        if not self._images:
            raise ArgumentError("there are no batches yet: call update_state first")
        number = {id_: row for row, id_ in enumerate(self._images)}
        scores = np.stack(list(self._images.values())) @ np.concatenate(self._captions).T
        if judgements is None:
            owner = np.array([number[id_] for id_ in self._image_ids])
            judgements = Judgements.from_pairs(owner, len(number))
        return retrieval(scores, judgements)

    def _joined(self, ids: list[str | float], vectors: np.ndarray) -> dict[Any, np.ndarray]:
        """Returns the images so far and the images of a batch."""
        joined = dict(self._images)
        for row, (id_, vector) in enumerate(zip(ids, vectors, strict=True)):
            first = joined.setdefault(id_, vector)
            if first is vector:
                continue
            size = max(np.linalg.norm(first), np.linalg.norm(vector))
            if np.linalg.norm(first - vector) > _ROUNDING * size:
                raise ArgumentError(
                    f"the image id {id_!r} occurs again with another embedding, in row {row}: two "
                    "images have one id. Ids are of the whole split: count on from batch to batch; "
                    "rows of the batch are `rows`"
                )
        if len({isinstance(id_, str) for id_ in joined}) > 1:
            raise ArgumentError("some image_ids are numbers and others texts; use one of both")
        return joined

    def _prepare(self, embeddings: np.ndarray) -> np.ndarray:
        vectors = embeddings if self.similarity == "dot" else unit_rows(embeddings)
        return vectors.astype(np.float32)


def _ids(given: Any) -> list[str | float]:
    """Ids as texts or numbers; texts of TensorFlow come as bytes.

    Raises:
        ArgumentError: If an id is neither, or NaN, or they are not a list.
    """
    try:
        # NumPy makes texts of a list of numbers and texts.
        mixed = isinstance(given, list | tuple)
        ids = list(given) if mixed else as_array(given, "image_ids").tolist()
        ids = [id_.decode() if isinstance(id_, bytes) else id_ for id_ in ids]
        ids = [id_ if isinstance(id_, str) else as_array(id_, "image_ids").item() for id_ in ids]
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"image_ids are a list of numbers or of texts: {error}") from None
    for id_ in ids:
        if not isinstance(id_, str | int | float) or id_ != id_:
            raise ArgumentError(f"an image id is a number or a text, not {id_!r}")
    return ids
