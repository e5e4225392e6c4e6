"""Semantic relevance: CIDEr, CIDEr-D and TF-IDF, of whole splits and of batches."""

from __future__ import annotations

import json

import numpy as np
import pytest

from keras_xmr.relevance import (
    BatchRelevance,
    RelevanceMatrix,
    cider_d,
    count_ngrams,
    ptb_tokenize,
    weigh,
)
from keras_xmr.relevance.ngram_weights import averaging, document_frequencies
from keras_xmr.utils.errors import ArgumentError

MEASURES = ("cider", "cider_d", "tf_idf")


def random_captions(random, images=12, per_image=4):
    """Captions with much in common, repeated words, and lengths from none to sixteen words."""
    words = np.array(["a", "the", "of", *(f"word{n}" for n in range(12))])
    share = 1 / np.arange(1, len(words) + 1)
    captions = [
        list(random.choice(words, random.integers(0, 17), p=share / share.sum()))
        for _ in range(images * per_image)
    ]
    return captions, random.permutation(np.repeat(np.arange(images), per_image))


def tf_idf_oracle(captions, image_of_caption, num_images):
    """The mean cosine of TF-IDF of words with two letters or more."""
    captions = [[word for word in words if len(word) > 1] for words in captions]
    names = sorted({word for words in captions for word in words})
    counts = np.array([[words.count(name) for name in names] for words in captions], float)
    idf = np.log((1 + len(captions)) / (1 + (counts > 0).sum(axis=0))) + 1
    norms = np.linalg.norm(counts * idf, axis=1, keepdims=True)
    unit = np.divide(counts * idf, norms, out=np.zeros_like(counts), where=norms > 0)
    of_image = [np.flatnonzero(image_of_caption == image) for image in range(num_images)]
    return np.array([(unit[own] @ unit.T).sum(axis=0) / max(len(own), 1) for own in of_image])


@pytest.fixture
def flickr(golden):
    """The captions of the reference case, and its numbers."""
    case = golden("cider")
    texts = json.loads((case.folder / "cider_captions.json").read_text("utf-8"))
    return case, texts


def flat(captions):
    return [text for image in captions for text in image]


@pytest.mark.parametrize(
    ("measure", "key"), [("cider", "out_sem_plain"), ("cider_d", "out_sem_ciderd_x10")]
)
def test_relevance_matches_golden(flickr, measure, key):
    case, texts = flickr
    words = ptb_tokenize(flat(texts["captions_raw"]))
    weighted = weigh(words, np.repeat(np.arange(60), 5), 60, measure)
    expected = case[key]
    for found in (
        RelevanceMatrix(weighted).dense(),
        BatchRelevance(weighted)(np.arange(60), np.arange(300)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pairs_and_statistics_match_golden(flickr):
    case, texts = flickr
    words = ptb_tokenize(flat(texts["captions_raw"]))
    counted = count_ngrams(words)
    np.testing.assert_array_equal(np.bincount(counted.orders)[1:], case["out_num_ngrams"])
    found = document_frequencies(counted.counts, averaging(np.repeat(np.arange(60), 5), 60))
    by_order = np.bincount(counted.orders, found)[1:]
    np.testing.assert_array_equal(by_order, case["out_sum_df"])
    np.testing.assert_array_equal(counted.lengths, case["out_lengths"])
    # The relevance to one reference: the weights of the whole, without the average.
    weighted = weigh(words, np.repeat(np.arange(60), 5), 60, "cider")
    pairs = (weighted.references @ weighted.candidates.T).toarray()
    np.testing.assert_allclose(pairs, case["out_pair_plain"], rtol=1e-5, atol=1e-6)


def test_captions_that_are_no_references_match_golden(flickr):
    case, texts = flickr
    words = ptb_tokenize(flat(texts["captions_raw"]))
    owner = np.where(np.arange(300) % 5 == 0, -1, np.arange(300) // 5)
    found = RelevanceMatrix(weigh(words, owner, 60, "cider_d")).dense()
    expected = case["out_lib_first_caption_vs_other4"]
    np.testing.assert_allclose(found[np.arange(60), ::5].diagonal(), expected, rtol=1e-5, atol=1e-6)


def test_tf_idf_is_what_the_definition_says(random):
    captions, owner = random_captions(random)
    expected = tf_idf_oracle(captions, owner, 12)
    assert np.count_nonzero(expected) > 100
    found = RelevanceMatrix(weigh(captions, owner, 12, "tf_idf")).dense()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
def test_rare_and_frequent_terms_are_counted_alike(random, measure, monkeypatch):
    captions, owner = random_captions(random)
    weighted = weigh(captions, owner, 12, measure)
    whole = RelevanceMatrix(weighted).dense()
    for frequent in (0, 5):
        monkeypatch.setattr("keras_xmr.relevance.matrix.FREQUENT", frequent)
        matrix = RelevanceMatrix(weighted)
        np.testing.assert_allclose(matrix.rows(3, 8), whole[3:8], rtol=1e-5, atol=1e-6)


def test_cider_d_is_what_pycocoevalcap_scores(random):
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    captions, owner = random_captions(random)
    # Its references are those of an image, so each image in turn is asked about each caption.
    found = RelevanceMatrix(weigh(captions, owner, 12, "cider_d")).dense()
    references = [
        [" ".join(captions[c]) for c in np.flatnonzero(owner == image)] for image in range(12)
    ]
    for shift in range(0, 48, 7):
        cider = scorer.CiderScorer()
        asked = (np.arange(12) + shift) % 48
        for image, caption in enumerate(asked):
            cider += (" ".join(captions[caption]), references[image])
        _, expected = cider.compute_score()
        np.testing.assert_allclose(found[np.arange(12), asked], expected, rtol=1e-5, atol=1e-6)


def test_cider_is_what_pycocoevalcap_scores_without_clipping_and_lengths(random):
    """Captions of equal length with different words: CIDEr-D is then 10 times CIDEr."""
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    captions = [list(random.choice(list("abcdefghij"), 6, replace=False)) for _ in range(48)]
    owner = np.repeat(np.arange(12), 4)
    found = RelevanceMatrix(weigh(captions, owner, 12, "cider")).dense()
    references = [[" ".join(c) for c in captions[4 * image : 4 * image + 4]] for image in range(12)]
    for shift in range(0, 48, 5):
        cider = scorer.CiderScorer()
        asked = (np.arange(12) + shift) % 48
        for image, caption in enumerate(asked):
            cider += (" ".join(captions[caption]), references[image])
        _, expected = cider.compute_score()
        np.testing.assert_allclose(10 * found[np.arange(12), asked], expected, rtol=1e-5, atol=1e-6)


def test_a_word_that_is_repeated_often_costs_no_more_than_its_counts():
    """Clipped counts of 200,000 and of 2 words; without the gaps between counts it took hours."""
    repeated = [["dog"] * 200_000, ["dog", "dog"], ["cat"]]
    owner = np.arange(3)
    found = RelevanceMatrix(weigh(repeated, owner, 3, "cider_d")).dense()
    assert found[0, 0] > 9.9


def test_the_relevance_of_a_batch_shows_no_bar(capsys):
    """A call per step would write a line per step to a log."""
    assert cider_d(["a dog", "a cat"], [0, 1]).shape == (2, 2)
    assert capsys.readouterr().err == ""


def test_images_of_captions_that_are_names_are_refused():
    for captions in (None, "a dog", [1, 2]):
        with pytest.raises(ArgumentError, match="captions must be a list of texts"):
            cider_d(captions, [0, 1])
    texts = ["a dog", "a cat"]
    np.testing.assert_array_equal(cider_d(iter(texts), [0, 1]), cider_d(texts, [0, 1]))
    for image_ids in (["a", "b"], [0.5, 1.0], [[0], [1]]):
        with pytest.raises(ArgumentError, match="image_ids is the row of the image"):
            cider_d(["a dog", "a cat"], image_ids)


@pytest.mark.parametrize("measure", MEASURES)
def test_empty_short_and_equal_captions(measure):
    captions = [["red", "dog"], ["cat"], [], ["red", "dog"], ["cat"], ["blue", "fish", "swims"]]
    owner = np.array([0, 1, 2, 3, 3, 4])
    weighted = weigh(captions, owner, 6, measure)
    matrix = RelevanceMatrix(weighted).dense()
    if measure == "tf_idf":
        np.testing.assert_allclose(matrix, tf_idf_oracle(captions, owner, 6), rtol=1e-5, atol=1e-6)
    assert not matrix[2].any()
    assert not matrix[:, 2].any()
    assert not matrix[5].any(), "an image without captions is like nothing"
    assert np.array_equal(matrix[:, 0], matrix[:, 3])
    assert matrix[0, 3] > 0
    batch = BatchRelevance(weighted)
    np.testing.assert_allclose(batch(np.arange(6), np.arange(6)), matrix, rtol=1e-5, atol=1e-6)
    assert not batch(np.array([2, 5]), np.array([2, 0])).any()


@pytest.mark.parametrize("measure", MEASURES)
def test_nothing_can_be_said_of_one_image_or_no_captions(measure):
    assert RelevanceMatrix(weigh([], np.zeros(0, int), 3, measure)).dense().shape == (3, 0)
    # Every n-gram stands in every document, so none tells anything.
    weighted = weigh([["a", "dog"], ["a", "cat"]], np.array([0, 0]), 1, measure)
    assert (measure == "tf_idf") or not RelevanceMatrix(weighted).dense().any()


@pytest.mark.parametrize("measure", MEASURES)
def test_batches_agree_with_the_whole(random, measure):
    captions, owner = random_captions(random, images=30)
    weighted = weigh(captions, owner, 30, measure)
    whole = RelevanceMatrix(weighted).dense()
    batch = BatchRelevance(weighted)
    for _ in range(5):
        chosen = random.integers(0, len(captions), 16)
        images = random.integers(0, 30, 7)
        found = batch(images, chosen)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, whole[images][:, chosen], rtol=1e-5, atol=1e-6)
