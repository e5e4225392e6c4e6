"""Coverage of prediction sets by what people call right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from intervals import Figure, mean
from judged import Judged
from model_answers import ModelAnswers

from keras_xmr.search.answer_sets import AnswerSets, calibrate, standardise


def answer_sets(answers: ModelAnswers) -> tuple[AnswerSets, np.ndarray]:
    """Answer sets that the annotated pairs of val calibrate, and the test scores that they cut.

    Returns:
        The cut-offs; and standardised scores (captions, images) of test.
    """
    val, test = answers.val, answers.test
    right = val.caption_image[:, None] == np.arange(len(val.image_ids))
    scores = standardise(val.scores.T, val.reference)
    return calibrate(scores, right, val.caption_image), standardise(test.scores.T, test.reference)


def coverage(answers: ModelAnswers, crowd: Judged) -> Iterator[tuple[str, str, Figure]]:
    """Coverage of prediction sets by the judgements of the crowd, for the captions that it judged.

    Yields:
        The truth, what is counted, and the figure.
    """
    sets, scores = answer_sets(answers)
    relation, test = crowd.relation(), answers.test
    asked = np.flatnonzero(np.bincount(crowd.captions, minlength=crowd.shape[1]))
    inside = scores[asked] >= sets.cutoff
    own = test.caption_image[asked][:, None] == np.arange(crowd.shape[0])
    voted = relation.grades.toarray().T[asked] > 0
    judged = relation.judged.toarray().T[asked]
    for truth, right in (
        ("annotated", own),
        ("crowd and annotated", voted | own),
        ("crowd, other photos", voted & ~own),
    ):
        share = _share(inside & right, right)
        kept = np.where(np.isnan(share), np.nan, share >= sets.share - 1e-9)
        yield truth, f"sets with at least {sets.share:.0%} of the right photos", mean(kept)
        yield truth, "share of the right photos in the set", mean(share)
    yield "crowd", "photos in a set", mean(inside.sum(axis=1).astype(float))
    yield (
        "crowd",
        "right among the judged photos of a set",
        mean(_share(inside & voted, inside & judged)),
    )
    yield "crowd", "right among all judged photos", mean(_share(voted, judged))


def _share(some: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The share of true values in each row, of those in `of`; NaN of a row without any."""
    sizes = of.sum(axis=1)
    return np.divide(some.sum(axis=1), sizes, out=np.full(len(of), np.nan), where=sizes > 0)
