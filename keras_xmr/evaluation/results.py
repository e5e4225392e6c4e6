"""What an evaluation finds of one score matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keras_xmr.metrics import Measured, RetrievalMetrics


class _Result:
    """Something that was measured."""

    measured: Measured

    @property
    def metrics(self) -> RetrievalMetrics:
        """Metrics against the judgements of the data set."""
        return self.measured.metrics

    @property
    def folds(self) -> dict[str, float]:
        """Their means over folds; empty without folds."""
        return self.measured.folds

    @property
    def truth(self) -> RetrievalMetrics | None:
        """Metrics against the exhaustive truth, where the data set knows it."""
        return self.measured.further.get("truth")


@dataclass
class MatcherEvaluation(_Result):
    """What one matcher reaches on a split.

    Attributes:
        name: Its name in the config.
        scores: Scores (images, captions) by which captions are ranked for images.
        measured: What was measured of them.
        text_to_image: Scores (images, captions) by which images are ranked for captions, if not
            by `scores`.
    """

    name: str
    scores: np.ndarray
    measured: Measured
    text_to_image: np.ndarray | None = None


@dataclass
class RerankedEvaluation(_Result):
    """What a matcher reaches on a split once its scores are re-ranked.

    The re-ranker uses all queries at once (transductive), so these figures are not to be
    compared with plain ones.

    Attributes:
        matcher: The name of the matcher.
        reranker: The name of the re-ranker.
        measured: What was measured; each fold was re-ranked on its own.
    """

    matcher: str
    reranker: str
    measured: Measured

    @property
    def name(self) -> str:
        """The names of both."""
        return f"{self.matcher} + {self.reranker}"
