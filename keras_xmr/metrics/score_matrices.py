"""The scores of all images with all captions, as all that measures them takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ScoreMatrices:
    """Scores (images, captions), larger is better, for both directions.

    Attributes:
        image_to_text: Its rows rank captions for an image.
        other: Scores (images, captions) whose columns rank images for a caption, if they are
            others, as those of a matcher that scores by direction, or after re-ranking.
    """

    image_to_text: np.ndarray
    other: np.ndarray | None = None

    @classmethod
    def of(cls, scores: Scores) -> ScoreMatrices:
        """Score matrices of one matrix that ranks both, or of what a re-ranker gives."""
        if isinstance(scores, ScoreMatrices):
            return scores
        return cls(*scores) if isinstance(scores, tuple) else cls(scores)

    @property
    def text_to_image(self) -> np.ndarray:
        """Its columns rank images for a caption."""
        return self.image_to_text if self.other is None else self.other

    @property
    def by_query(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (queries, candidates): of images as queries, and of captions."""
        return self.image_to_text, self.text_to_image.T

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        images, captions = self.image_to_text.shape
        return images, captions

    def select(self, images: np.ndarray, captions: np.ndarray) -> ScoreMatrices:
        """The scores of some images with some captions, in their order."""
        members = np.ix_(images, captions)
        return self._map(lambda scores: scores[members])

    def _map(self, change: Callable[[np.ndarray], np.ndarray]) -> ScoreMatrices:
        return ScoreMatrices(
            change(self.image_to_text), None if self.other is None else change(self.other)
        )


Scores = np.ndarray | tuple[np.ndarray, np.ndarray] | ScoreMatrices
"""What is measured: one matrix (images, captions), the two of a re-ranker, or `ScoreMatrices`."""
