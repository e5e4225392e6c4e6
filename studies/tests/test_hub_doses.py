"""The study of hubs, on random numbers, and its page."""

import numpy as np
import pytest

from keras_xmr.judgements import Judgements
from keras_xmr.metrics import evaluate_scores
from keras_xmr.reranking import ScoreBank
from studies import galleries, hub_corrections, hub_doses


@pytest.fixture(scope="module")
def scored():
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), 2)
    splits = []
    for _ in range(2):
        scores = random.normal(size=(12, 24)) + 2 * (np.arange(12)[:, None] == owner)
        bank = ScoreBank(random.normal(size=(9, 24)), random.normal(size=(9, 12)))
        splits.append((hub_corrections.Scored(scores, bank), owner))
    return splits


def test_hits_are_the_r_precision_of_the_library():
    random = np.random.default_rng(1)
    scores, judged = random.normal(size=(20, 15)), random.random((20, 15)) < 0.6
    right = judged & (random.random((20, 15)) < 0.3)
    pairs = np.argwhere(judged)
    truth = hub_doses.Truth.of({(int(c), int(i)): bool(right[i, c]) for i, c in pairs})
    judgements = Judgements.from_grades(pairs, right[judged], scores.shape, fully_judged=False)
    values = evaluate_scores(scores, judgements).text_to_image.values["r_precision"]
    np.testing.assert_allclose(truth.hits(scores) / truth.relevant, values[truth.captions])


def test_finished_corrections_are_not_run_again(scored, tmp_path):
    results = tmp_path / "hubs.csv"
    pairs = {(caption, image): image < 3 for caption in range(24) for image in range(12)}
    truths = hub_doses.Truths.of(pairs, scored[1][1])
    hub_doses.Writer(results).run(("flickr8k", "cca", "1"), scored, truths)
    before = results.read_text()
    hub_doses.Writer(results).run(("flickr8k", "cca", "1"), scored, truths)
    assert results.read_text() == before
    lines = {line["correction"]: line for line in hub_corrections.read_lines(results)}
    assert {*hub_corrections.CORRECTIONS, "CSLS, bank, 0.5 of it", "relevant"} <= set(lines)
    dev, owner = scored[0]
    plain = evaluate_scores(dev.scores, Judgements.from_pairs(owner, 12)).summary["rsum"]
    assert float(lines["none"]["dev"]) == pytest.approx(plain, abs=0.005)
    # The annotated photo is right, too, and left out of the list of others.
    relevant = {name: hub_doses.unpack(lines["relevant"][name]) for name in ("right", "others")}
    assert set(relevant["right"]) == {3, 4}
    assert set(relevant["others"]) == {2, 3}


def test_whole_doses_are_the_correction(scored):
    dev, _ = scored[0]
    for share, name in ((0.0, "none"), (1.0, "CSLS, bank")):
        whole = hub_corrections.correct(name, (5,), dev, 1.0)
        dose = hub_corrections.correct("CSLS, bank", (5, share), dev, 1.0)
        for one, other in zip(whole, dose, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_sinkhorn_gives_every_photo_and_caption_its_share():
    logits = np.random.default_rng(2).normal(size=(6, 18))
    coupling = np.exp(hub_corrections.sinkhorn(logits, 200))
    np.testing.assert_allclose(coupling.sum(axis=0), np.full(18, coupling.sum() / 18), rtol=1e-6)
    np.testing.assert_allclose(coupling.sum(axis=1), np.full(6, coupling.sum() / 6), rtol=1e-6)


def test_galleries_have_the_numbers_of_captions_that_they_say():
    owner = np.repeat(np.arange(20), 5)
    for kind, parts in galleries.KINDS.items():
        kept = galleries.captions_of(kind, 1, owner)
        counts = np.bincount(owner[kept], minlength=20)
        expected = sorted(n for share, n in parts for _ in range(round(20 * share)))
        assert sorted(counts) == expected
        assert len(kept) == 40


def test_recalls_by_photo_sum_to_those_of_all_queries():
    owner = np.repeat(np.arange(20), 5)
    random = np.random.default_rng(3)
    kept = galleries.captions_of("five or none", 2, owner)
    queries = np.isin(np.arange(20), owner[kept])
    i2t = np.where(queries, random.integers(0, 4, 20), galleries.NO_QUERY)
    t2i = random.integers(0, 4, len(kept))
    line = {"gallery": "five or none", "seed": "2"}
    line |= {"i2t": "".join(map(str, i2t)), "t2i": "".join(map(str, t2i))}
    expected = hub_corrections.rsum(i2t[queries], t2i)
    assert galleries.recalls_by_photo(line, owner).mean() == pytest.approx(expected)
