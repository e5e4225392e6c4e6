"""The scores of all images with all captions, in memory or in tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keras_xmr.metrics.score_tiles import ScoreTiles

Matrix = np.ndarray | ScoreTiles
"""Scores (images, captions), in memory or not."""


@dataclass(frozen=True, eq=False)
class ScoreMatrices:
    """Scores (images, captions), larger is better, for both directions.

    They are arrays, or tiles that are computed on demand: then `is_dense` is false, and code that
    needs a whole matrix computes it. Ranks need the tiles alone.

    Attributes:
        image_to_text: Its rows rank captions for an image.
        other: Scores (images, captions) whose columns rank images for a caption, if these differ,
            as with a matcher that scores by direction, or after re-ranking.
    """

    image_to_text: Matrix
    other: Matrix | None = None

    @classmethod
    def of(cls, scores: Scores) -> ScoreMatrices:
        """Score matrices of one matrix that ranks both, or of the output of a re-ranker."""
        if isinstance(scores, ScoreMatrices):
            return scores
        return cls(*scores) if isinstance(scores, tuple) else cls(scores)

    @property
    def text_to_image(self) -> Matrix:
        """Its columns rank images for a caption."""
        return self.image_to_text if self.other is None else self.other

    @property
    def by_query(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (queries, candidates), as arrays: of images as queries, and of captions."""
        dense = self.dense()
        return np.asarray(dense.image_to_text), np.asarray(dense.text_to_image).T

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        images, captions = self.image_to_text.shape
        return images, captions

    @property
    def is_dense(self) -> bool:
        """True if they are arrays."""
        return not isinstance(self.image_to_text, ScoreTiles)

    def dense(self) -> ScoreMatrices:
        """The same as arrays."""
        return self if self.is_dense else self._map(np.asarray)

    def tiles(self) -> tuple[ScoreTiles, ScoreTiles]:
        """The tiles that rank captions, and those that rank images."""
        rows, columns = self.image_to_text, self.text_to_image
        if not isinstance(rows, ScoreTiles) or not isinstance(columns, ScoreTiles):
            raise TypeError("these scores are arrays")
        return rows, columns

    def select(self, images: np.ndarray, captions: np.ndarray) -> ScoreMatrices:
        """The scores of some images with some captions, in their order."""
        members = np.ix_(images, captions)
        return self._map(
            lambda scores: (
                scores.select(images, captions)
                if isinstance(scores, ScoreTiles)
                else scores[members]
            )
        )

    def _map(self, change: Callable[[Matrix], Matrix]) -> ScoreMatrices:
        return ScoreMatrices(
            change(self.image_to_text), None if self.other is None else change(self.other)
        )


Scores = Matrix | tuple[np.ndarray, np.ndarray] | ScoreMatrices
"""One matrix (images, captions), the two of a re-ranker, or `ScoreMatrices`."""
