"""The study of hubs, on random numbers, and its page."""

import re
from pathlib import Path

import numpy as np
import pytest

from keras_xmr.judgements import Judgements
from keras_xmr.metrics import evaluate_scores
from keras_xmr.reranking import ScoreBank
from studies import hubs

PAGES = Path(__file__).parents[2] / "docs/results"


@pytest.fixture(scope="module")
def scored():
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), 2)
    splits = []
    for _ in range(2):
        scores = random.normal(size=(12, 24)) + 2 * (np.arange(12)[:, None] == owner)
        bank = ScoreBank(random.normal(size=(9, 24)), random.normal(size=(9, 12)))
        splits.append((hubs.Scored(scores, bank, random.random(24)), owner))
    return splits


def test_hits_are_the_r_precision_of_the_library():
    random = np.random.default_rng(1)
    scores, judged = random.normal(size=(20, 15)), random.random((20, 15)) < 0.6
    right = judged & (random.random((20, 15)) < 0.3)
    pairs = np.argwhere(judged)
    truth = hubs.Truth.of({(int(c), int(i)): bool(right[i, c]) for i, c in pairs})
    judgements = Judgements.from_grades(pairs, right[judged], scores.shape, fully_judged=False)
    values = evaluate_scores(scores, judgements).text_to_image.values["r_precision"]
    np.testing.assert_allclose(truth.hits(scores) / truth.relevant, values[truth.captions])


def test_finished_corrections_are_not_run_again(scored, tmp_path, capsys):
    results = tmp_path / "hubs.csv"
    pairs = {(caption, image): image < 3 for caption in range(24) for image in range(12)}
    truths = [hubs.Truth.of(pairs)] * 3
    for seed in ("1", "2"):
        writer = hubs.Writer(results)
        writer.run(("flickr8k", "cca", seed), scored, truths)
    before = results.read_text()
    hubs.Writer(results).run(("flickr8k", "cca", "2"), scored, truths)
    assert results.read_text() == before
    table = hubs.Table(hubs.read_lines(results))
    gain = table.gain("crowd", "CSLS, bank", "none", 3, 3)
    lines = {key[3]: line for key, line in table.lines.items() if key[2] == "2"}
    hits = [hubs.unpack(lines[name]["crowd"]) for name in ("CSLS, bank", "none")]
    assert gain.value == pytest.approx(100 * (hits[0] - hits[1]).mean() / 3)
    dev, test = table.recalls("QB-Norm, bank")
    sides = [
        [np.array(list(lines[n][s]), int) for s in ("i2t", "t2i")]
        for n in ("QB-Norm, bank", "none")
    ]
    assert test.value == pytest.approx(hubs.rsum(*sides[0]) - hubs.rsum(*sides[1]))
    after = float(lines["QB-Norm, bank"]["dev"])
    assert dev == pytest.approx(after - before_of_dev(scored), abs=0.005)


def before_of_dev(scored):
    """The sum of recalls of uncorrected scores on dev, by the library."""
    dev, owner = scored[0]
    return evaluate_scores(dev.scores, Judgements.from_pairs(owner, 12)).summary["rsum"]


def test_the_page_has_what_the_results_say(capsys):
    hubs.main([])
    tables = capsys.readouterr().out
    page = (PAGES / "hubs.md").read_text("utf-8").splitlines()
    rows = [line for line in page if line[:1] == "|"]
    assert len(rows) > 12
    assert set(rows) <= set(tables.splitlines())
    prose = re.findall(r"\d+\.\d+", " ".join(line for line in page if line[:1] != "|"))
    assert set(prose) <= set(re.findall(r"\d+\.\d+", tables))
