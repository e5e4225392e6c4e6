"""Scores and judgements of any framework and dtype: read exactly, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from finished_runs import OWNER, scores

import keras_xmr
from keras_xmr.judgements.relation import Judgements
from keras_xmr.metrics import recall, retrieval
from keras_xmr.reranking import FastReranking
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array

SCORES = scores(1.5, 1)


class OnDevice:
    """As a tensor of PyTorch on a GPU: NumPy reads it only when it is detached and moved."""

    def __init__(self, values, steps=()):
        self.values, self.steps, self.dtype = values, steps, "torch.float64"

    def detach(self):
        return OnDevice(self.values, (*self.steps, "detach"))

    def cpu(self):
        return OnDevice(self.values, (*self.steps, "cpu"))

    def __array__(self, dtype=None, copy=None):
        if self.steps != ("detach", "cpu"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.values


class Capsule:
    """Has the protocol DLPack alone."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Unwilling(Capsule):
    """As an array of CuPy: NumPy may read it by DLPack, and not otherwise."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


@pytest.mark.parametrize("made", [OnDevice, Capsule, Unwilling])
def test_what_is_not_numpys_is_read_without_a_copy(made):
    assert np.shares_memory(as_array(made(SCORES), "scores"), SCORES) or made is Unwilling
    assert retrieval(made(SCORES), made(OWNER)) == retrieval(SCORES, OWNER)
    found = keras_xmr.compare(
        made(SCORES), [made(SCORES), made(scores(3.0, 2))], made(OWNER), resamples=50
    )
    assert found.runs == {"a": 1, "b": 2}
    both = FastReranking()(made(SCORES)), FastReranking()(SCORES)
    np.testing.assert_array_equal(both[0].image_to_text, both[1].image_to_text)

    relevance = np.eye(60)[:, OWNER]
    assert recall(SCORES, made(relevance)) == recall(SCORES, OWNER)


@pytest.mark.slow
def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(SCORES, requires_grad=True)
    ids = torch.tensor(OWNER)
    assert retrieval(tensor, ids) == retrieval(SCORES, OWNER)
    assert np.shares_memory(as_array(tensor, "scores"), tensor.detach().numpy())
    assert recall([*tensor], ids) == recall(SCORES, OWNER)
    assert keras_xmr.compare(tensor, [tensor, tensor], ids, resamples=50).runs == {"a": 1, "b": 2}
    half = tensor.bfloat16()
    assert retrieval(half, ids) == retrieval(half.detach().double().numpy(), OWNER)
    assert Judgements.from_pairs(ids, 60).grades.nnz == len(OWNER)
    with pytest.raises(ArgumentError, match="scores: "):
        recall(tensor.to_sparse(), ids)


LARGE = np.array([[2**53, 2**53 + 1], [0, 1]])
FINE = np.array([[1, 1 + np.finfo(np.longdouble).eps], [0, 1]], np.longdouble)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (SCORES + 1j, "scores must be numbers, got complex128"),
        (np.ma.masked_less(SCORES, 0), "masked in places"),
        ([np.ma.masked_less(row, 0) for row in SCORES], "masked in places"),
        (LARGE, "beyond 2\\^53"),
        (LARGE.astype(np.uint64), "beyond 2\\^53"),
    ],
)
def test_scores_that_would_lose_what_they_hold_are_refused(given, says):
    for measure in (retrieval, FastReranking()):
        with pytest.raises(ArgumentError, match=says):
            measure(given)


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="the same here")
def test_longdouble_is_converted_if_float64_holds_it():
    with pytest.raises(ArgumentError, match="digits or sizes that float64 does not have"):
        recall(FINE)
    with pytest.raises(ArgumentError, match="digits or sizes"):
        recall(np.full((2, 2), np.longdouble("1e4000")))
    assert retrieval(SCORES.astype(np.longdouble), OWNER) == retrieval(SCORES, OWNER)


def test_whole_numbers_are_ranked_and_re_ranked_exactly():
    """Float32 would make both captions of an image equal."""
    close = (1 << 25) + np.array([[1, 0], [0, 1]])
    assert recall(close, k=1) == {"i2t_recall_1": 1.0, "t2i_recall_1": 1.0}
    reranked = FastReranking()(close)
    assert reranked.image_to_text.dtype == np.float64
    assert recall(reranked, k=1) == {"i2t_recall_1": 1.0, "t2i_recall_1": 1.0}
    masked = np.ma.masked_array(SCORES, np.zeros(SCORES.shape, bool))
    assert retrieval(masked, OWNER) == retrieval(SCORES, OWNER)


def test_judgements_are_real():
    for grades in (np.eye(2) * 1j, np.eye(2) + 0j):
        with pytest.raises(ArgumentError, match="complex"):
            recall(np.eye(2), grades)
        with pytest.raises(ArgumentError, match="complex"):
            Judgements(grades)
