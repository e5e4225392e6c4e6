"""The study of what a model knows of what people think, on small data of the layout."""

from __future__ import annotations

import json

import datasets
import models
import numpy as np
import pytest
import scipy.stats
from benchmark_modules import benchmark
from tiny_runs import untrained

from keras_xmr.commands._steps import Run
from keras_xmr.utils.errors import UserError

PHOTOS, PER_PHOTO = 40, 2

bench = benchmark("flickr8k_people", "studies")
answers_of = benchmark("model_answers", "studies")
intervals = benchmark("intervals", "studies")
sets = benchmark("people_coverage", "studies")
uncertainty = benchmark("people_uncertainty", "studies")
agreement = benchmark("people_agreement", "studies")


def split_answers(random, module, split, vague):
    """Scores that know the own photo, and photos of vague captions a little."""
    ids = np.array([f"{split}_{n}.jpg" for n in range(PHOTOS)])
    owner = np.repeat(np.arange(PHOTOS), PER_PHOTO)
    captions = np.array([f"{ids[p]}#{k}" for p in range(PHOTOS) for k in (1, 2)])
    own = np.arange(PHOTOS)[:, None] == owner
    scores = random.normal(size=own.shape) + 3 * own + 2 * vague.T
    return module.SplitAnswers(
        scores=scores.astype(np.float32),
        reference=random.normal(size=(len(owner), 30)).astype(np.float32),
        image_ids=ids,
        caption_ids=captions,
        caption_image=owner,
        texts=np.array(["a dog " * (1 + n % 3) for n in range(len(owner))]),
        image_log_sigma=random.normal(size=PHOTOS),
        caption_log_sigma=vague.sum(axis=1) + 0.1 * random.normal(size=len(owner)),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory, answers_of):
    """Judgements of captions #2: vague captions are right for many photos, and sigma knows it."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("people")
    vague = random.random((PHOTOS * PER_PHOTO, PHOTOS)) < np.repeat(
        random.random(PHOTOS * PER_PHOTO)[:, None] ** 2, PHOTOS, axis=1
    )
    splits = [
        split_answers(random, answers_of, s, v) for s, v in (("val", vague * 0), ("test", vague))
    ]
    found = answers_of.ModelAnswers(*splits)
    found.save(folder / "answers.npz")
    test, crowd, experts = found.test, [], []
    for caption in range(1, PHOTOS * PER_PHOTO, PER_PHOTO):
        for photo in random.permutation(PHOTOS)[:20]:
            right = vague[caption, photo] or test.caption_image[caption] == photo
            pair = f"{test.image_ids[photo]}\t{test.caption_ids[caption]}"
            yes = int(random.binomial(3, 0.9 if right else 0.1))
            crowd.append(f"{pair}\t{yes / 3:.6f}\t{yes}\t{3 - yes}")
            scores = np.clip((4 if right else 1) + random.integers(-1, 2, 3), 1, 4)
            experts.append("\t".join([pair, *map(str, scores)]))
    (folder / "CrowdFlowerAnnotations.txt").write_text("\n".join(crowd) + "\n")
    (folder / "ExpertAnnotations.txt").write_text("\n".join(experts) + "\n")
    return folder


@pytest.fixture
def judged(bench, answers_of, data):
    found = answers_of.ModelAnswers.load(data / "answers.npz")
    return found, *(bench.read_judged(data / name, found.test) for name in bench.FILES)


def test_correlations_are_those_of_scipy(intervals, random):
    first, other, target = random.normal(size=(3, 200))
    target = target + first
    target[7] = np.nan
    found = intervals.correlations({"first": first, "other": other}, target)
    known = ~np.isnan(target)
    ranks = [scipy.stats.rankdata(v[known]) for v in (first, other, target)]
    for name, own in (("first", first), ("other", other)):
        expected = scipy.stats.spearmanr(own[known], target[known]).statistic
        assert found[name].value == pytest.approx(expected)
        assert found[name].low < expected < found[name].high
    assert found["first - other"].value == pytest.approx(
        found["first"].value - found["other"].value
    )
    # Held fixed: what is left of both ranks after a straight line of the other's.
    left = [r - np.polyval(np.polyfit(ranks[1], r, 1), ranks[1]) for r in (ranks[0], ranks[2])]
    assert found["first, others fixed"].value == pytest.approx(np.corrcoef(*left)[0, 1])
    assert found["first"].count == 199


@pytest.mark.slow
def test_what_sigma_knows_is_seen(uncertainty, judged):
    found, crowd, experts = judged
    figures = {
        (side, what, name): figure
        for side, what, name, figure in uncertainty.against_people(found.test, crowd, experts)
    }
    share = "share that the crowd calls right"
    assert figures["caption", share, "sigma"].low > 0.5
    assert figures["caption", share, "sigma, others fixed"].low > 0.3
    assert figures["image", share, "sigma"].low < 0.3
    # By hand: other photos of one caption that the crowd calls right.
    caption = int(crowd.captions[0])
    own = (crowd.captions == caption) & ~crowd.own
    means = crowd.mean_per_query(crowd.right.astype(float), "caption", ~crowd.own)
    assert means[caption] == pytest.approx(crowd.right[own].mean())
    assert np.isnan(means[caption - 1])


def test_answer_sets_keep_their_promise_by_the_annotated_pairs(sets, judged):
    found, crowd, _ = judged
    rows = {(who, what): f for who, what, f in sets.coverage(found, crowd)}
    answer_sets, scores = sets.answer_sets(found)
    asked = np.unique(crowd.captions)
    own = scores[asked, found.test.caption_image[asked]]
    figure = rows["annotated", "share of the right photos in the set"]
    assert figure.value == pytest.approx((own >= answer_sets.cutoff).mean())


@pytest.mark.slow
def test_one_expert_is_between_ties_against_and_for(agreement, judged):
    found, crowd, experts = judged
    rows = {(s, w, m): f for s, w, m, f in agreement.one_against_others(found.test, experts)}
    for side in ("caption", "image"):
        against, at_random, ties_for = (
            rows[side, f"one expert, ties {how}", "ndcg_10"].value
            for how in ("against", "at random", "for")
        )
        assert against < at_random < ties_for <= 1
    names = {(who, what) for who, what, _ in agreement.agreement(crowd, experts)}
    assert ("experts", "Krippendorff's alpha, ordinal") in names


@pytest.mark.slow
def test_all_figures_are_written(bench, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("intervals.RESAMPLES", 200)
    bench.main([f"--answers={data / 'answers.npz'}", f"--data={data}", f"--output={tmp_path}"])
    rows = [json.loads(line) for line in (tmp_path / "people.jsonl").read_text().splitlines()]
    assert {row["part"] for row in rows} == set(bench.PARTS)
    assert all(
        row["low"] <= row["value"] <= row["high"] for row in rows if row["part"] == "selective"
    )
    page = (tmp_path / "people.md").read_text()
    assert page.strip() in capsys.readouterr().out
    assert "**Answer sets of captions, calibrated on val" in page
    assert (tmp_path / "people.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_run_is_asked_once_and_kept(bench, tmp_path, monkeypatch):
    datasets.flickr8k(tmp_path / "photos", test=6)
    run = Run(
        models.tiny_config(
            tmp_path,
            "data.source={name: flickr8k, root: " + str(tmp_path / "photos") + "}",
            "evaluation.judgements=[experts, crowd]",
        )
    )
    run.prepare()
    untrained(run)
    monkeypatch.setattr("intervals.RESAMPLES", 50)
    bench.main([f"--run={run.folder.path}"])
    folder = run.folder.path / "people"
    kept = bench.ModelAnswers.load(folder / "answers.npz")
    assert kept.test.scores.shape == (6, 30)
    assert kept.test.caption_log_sigma.shape == (30,)
    assert kept.test.caption_ids[2] == "test_0.jpg#2"
    (folder / "people.md").unlink()
    monkeypatch.setattr(bench.ModelAnswers, "of_run", None)  # what is kept is not asked again
    bench.main([f"--run={run.folder.path}"])
    assert (folder / "people.md").exists()


def test_mistakes_end_in_a_sentence(bench, answers_of, data, tmp_path):
    with pytest.raises(UserError, match="--answers needs --data"):
        bench.main([f"--answers={data / 'answers.npz'}"])
    np.savez(tmp_path / "a.npz", val_scores=np.eye(2))
    with pytest.raises(UserError, match="has no array 'val_reference'"):
        answers_of.ModelAnswers.load(tmp_path / "a.npz")
