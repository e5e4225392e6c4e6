"""Agreement of people with the pairs of an audit, and with prediction sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse
from intervals import Figure, mean, means
from judged import Judged
from model_answers import ModelAnswers, SplitAnswers

from keras_xmr.audit.candidates import belief_matrix, least_leads
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.search.answer_sets import AnswerSets, calibrate, standardise

FIRST = (100, 500, 2000)


def audit_precision(
    test: SplitAnswers, crowd: Judged, first: tuple[int, ...] = FIRST
) -> Iterator[tuple[str, str, Figure]]:
    """The share of the first N unlabelled pairs that the crowd judged relevant, of the judged ones.

    Only annotated pairs are labelled, as for somebody who has no judgements. Pairs of one photo
    are drawn together for the intervals.

    Yields:
        The N, what orders the pairs, and the figure; and the order of the audit minus the others.
    """
    annotated = Judgements.from_pairs(test.caption_image, len(test.image_ids)).grades
    asked = ~crowd.own
    images, captions, right = (a[asked] for a in (crowd.images, crowd.captions, crowd.right))
    orders = {
        name: np.argsort(-values[images, captions], kind="stable")
        for name, values in beliefs(_audit_scores(test), annotated).items()
    }
    for n in (n for n in first if n <= len(right)):
        columns = {}
        for name, order in orders.items():
            columns[name] = np.full(len(right), np.nan)
            columns[name][order[:n]] = right[order[:n]]
        columns["random judged pairs"] = right.astype(float)
        for name, figure in means(columns, images).items():
            yield str(n), name, figure


def beliefs(scores: np.ndarray, annotated: scipy.sparse.csr_array) -> dict[str, np.ndarray]:
    """Scores (images, captions) by which an audit may order pairs: its own first, then others."""
    model = ScoreMatrices(scores)
    wide = scores.astype(np.float64)
    deviations = sum(
        (wide - wide.mean(n, keepdims=True)) / wide.std(n, keepdims=True) for n in (0, 1)
    )
    return {
        "audit": belief_matrix({"model": model}, annotated, "mean"),
        "lead alone": least_leads(model, annotated),
        "score alone": scores,
        "score, standardised": deviations,
    }


def judged_among_first(
    test: SplitAnswers, crowd: Judged, first: tuple[int, ...] = FIRST
) -> Iterator[tuple[str, str, Figure]]:
    """The number of judged pairs among the first N unlabelled pairs of the audit."""
    annotated = Judgements.from_pairs(test.caption_image, len(test.image_ids)).grades
    belief = belief_matrix({"model": ScoreMatrices(_audit_scores(test))}, annotated, "mean")
    judged = np.zeros(belief.shape, bool)
    judged[crowd.images, crowd.captions] = True
    order = np.argsort(-belief, axis=None)[: max(first)]
    images = order // belief.shape[1]
    for n in (n for n in first if n <= len(order)):
        yield str(n), "judged at all", mean(judged.ravel()[order[:n]].astype(float), images[:n])


def _audit_scores(test: SplitAnswers) -> np.ndarray:
    return test.scores if test.audit_scores is None else test.audit_scores


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
