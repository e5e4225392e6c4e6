"""Re-rankers against hubs, against plain loops over the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.reranking import (
    CSLS,
    InvertedSoftmax,
    QueryBankNormalization,
    ScoreBank,
    build_rerankers,
)
from keras_xmr.utils.errors import ArgumentError, UserError

KINDS = [CSLS, InvertedSoftmax, QueryBankNormalization]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture
def scores(random):
    return random.uniform(-1, 1, size=(7, 11))


@pytest.fixture
def bank(random):
    return ScoreBank(random.uniform(-1, 1, size=(9, 11)), random.uniform(-1, 1, size=(5, 7)))


def top_mean(values, count):
    best = sorted(map(float, values), reverse=True)[:count]
    return sum(best) / len(best)


def csls(scores, bank, neighbours, gate):
    return [
        [
            2 * scores[q, j]
            - top_mean(scores[q], neighbours)
            - gate[q] * top_mean(bank[:, j], neighbours)
            for j in range(scores.shape[1])
        ]
        for q in range(len(scores))
    ]


def inverted_softmax(scores, bank, temperature):
    """The probabilities, as the papers have them."""
    sums = [sum(math.exp(b / temperature) for b in column) for column in bank.T]
    return [
        [math.exp(s / temperature) / sums[j] for j, s in enumerate(row)] for row in scores.tolist()
    ]


def normalised_queries(scores, bank, neighbours, own):
    """For each query, whether a best item is among the best of a query of the bank."""
    found = []
    for q, row in enumerate(scores.tolist()):
        best = [j for j, s in enumerate(row) if s == max(row)]
        others = [b for i, b in enumerate(bank.tolist()) if not (own and i == q)]
        thresholds = [sorted(b, reverse=True)[:neighbours][-1] for b in others]
        found.append(any(b[j] >= t for j in best for b, t in zip(others, thresholds, strict=True)))
    return np.array(found)


def directions(scores, found, bank=None):
    """Scores, bank and re-ranked scores of each direction, with the queries as rows."""
    i2t, t2i = (scores, scores.T) if bank is None else (bank.image_to_text, bank.text_to_image)
    return (scores, i2t, found.image_to_text), (scores.T, t2i, found.text_to_image.T)


@pytest.mark.parametrize("with_bank", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_three_equal_plain_loops(scores, bank, random, monkeypatch, with_bank, tied, dtype):
    monkeypatch.setattr("keras_xmr.linear.hubness._ROWS", 3)
    make = (lambda s: np.round(2 * s).astype(dtype)) if tied else (lambda s: s.astype(dtype))
    scores = make(scores)
    bank = ScoreBank(make(bank.image_to_text), make(bank.text_to_image)) if with_bank else None
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-12}
    gate = random.uniform(-1, 2, size=7), random.uniform(0, 1, size=11)
    for k in (1, 3, 100):
        plain = CSLS(bank, neighbours=k)(scores)
        gated = CSLS(bank, gate, neighbours=k)(scores)
        for side, (of, by, found) in enumerate(directions(scores, plain, bank)):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, csls(of, by, k, np.ones(len(of))), **close)
            found = directions(scores, gated, bank)[side][2]
            np.testing.assert_allclose(found, csls(of, by, k, gate[side]), **close)
        whole = InvertedSoftmax(bank, temperature=0.3)(scores)
        queries = QueryBankNormalization(bank, temperature=0.3, neighbours=k)(scores)
        for side, (of, by, found) in enumerate(directions(scores, whole, bank)):
            expected = 0.3 * np.log(inverted_softmax(of, by, 0.3))
            np.testing.assert_allclose(found, expected, **close)
            chosen = normalised_queries(of, by, k, own=not with_bank)[:, None]
            mixed = directions(scores, queries, bank)[side][2]
            np.testing.assert_array_equal(mixed, np.where(chosen, found, of))


@by_kind
def test_one_item_and_other_numbers(kind):
    for shape in ((1, 1), (1, 9), (9, 1)):
        scores = np.linspace(0, 1, 9)[: shape[0] * shape[1]].reshape(shape)
        bank = ScoreBank(np.ones((1, shape[1]), np.float16), np.zeros((2, shape[0]), int))
        for found in kind(bank)(scores):
            assert found.shape == shape
            assert np.isfinite(found).all()


@by_kind
def test_a_bank_with_another_gallery_is_refused(scores, bank, kind):
    with pytest.raises(ArgumentError, match=r"\(7, 11\) images.* \(7, 10\); score the"):
        kind(bank)(scores[:, 1:])
    with pytest.raises(ArgumentError, match=r"\(7, 11\) images.* \(6, 11\); score the"):
        kind(bank)(scores[1:])
    scores[6, 10] = np.nan
    with pytest.raises(ArgumentError, match=r"image 6 and caption 10 is nan"):
        kind(bank)(scores)
    bank.text_to_image[4, 5] = np.inf
    with pytest.raises(ArgumentError, match=r"bank caption 4 and image 5 is inf"):
        ScoreBank(bank.image_to_text, bank.text_to_image)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((0, 11)), [["a"]], [[1], [2, 3]]])
def test_a_bank_that_is_no_matrix_of_numbers_is_refused(bank, wrong):
    with pytest.raises(ArgumentError, match="image_to_text"):
        ScoreBank(wrong, bank.text_to_image)


def test_options_that_are_out_of_range_are_refused(scores):
    for kind in (CSLS, QueryBankNormalization):
        with pytest.raises(ArgumentError, match=r"a whole number and at least 1, got 2\.5"):
            kind(neighbours=2.5)
    for kind in (InvertedSoftmax, QueryBankNormalization):
        for wrong in (0.0, -1.0, math.inf, math.nan, "a", None):
            with pytest.raises(ArgumentError, match="temperature must be above 0 and finite"):
                kind(temperature=wrong)
    with pytest.raises(ArgumentError, match="bank is ScoreBank"):
        CSLS(scores)
    with pytest.raises(ArgumentError, match="gate must be a tuple"):
        CSLS(gate=np.ones(7))
    for wrong in (np.ones(6), np.ones((7, 1)), np.full(7, np.nan), ["a"] * 7):
        with pytest.raises(ArgumentError, match=r"gate of images .* each of the 7 images"):
            CSLS(gate=(wrong, None))(scores)
        with pytest.raises(ArgumentError, match=r"gate of captions .* each of the 11 captions"):
            CSLS(gate=(None, wrong))(scores)


def test_a_config_names_them_and_sets_their_options():
    config = load_config(
        find_config("scenes_pcme"),
        ["evaluation.rerankers=[{name: csls, neighbours: 4}, {name: inverted_softmax, "
         "temperature: 0.2}, {name: query_bank_normalization, temperature: 3, neighbours: 2}]"],
    )  # fmt: skip
    csls, softmax, queries = build_rerankers(config.evaluation.rerankers).values()
    assert (csls.neighbours, softmax.temperature) == (4, 0.2)
    assert (queries.softmax.temperature, queries.neighbours) == (3, 2)
    with pytest.raises(UserError, match="bank"):
        load_config(find_config("scenes_pcme"), ["evaluation.rerankers=[{name: csls, bank: 1}]"])
