"""Comparing two systems by their scores."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from finished_runs import CAPTIONS, IMAGES, OWNER, scores
from scipy.special import ndtri

import keras_xmr
from keras_xmr.metrics import (
    DiscountedGain,
    ReciprocalRank,
    Retrieval,
    mean_scores,
    per_query,
    retrieval,
)
from keras_xmr.metrics.bootstrap import difference, holm, resampled_means
from keras_xmr.metrics.comparison import LEAST_GROUPS
from keras_xmr.utils.tables import Table


def test_what_is_better_is_found_and_what_is_not_is_not():
    good, fair = scores(3.0, 1), scores(1.5, 2)
    found = keras_xmr.compare(fair, good, OWNER, resamples=500)
    own = found.metrics["rsum"]
    means = [found.means[name]["rsum"] for name in "ab"]
    assert [mean.value for mean in means] == pytest.approx(
        [retrieval(fair, OWNER)["rsum"], retrieval(good, OWNER)["rsum"]]
    )
    assert all(mean.low < mean.value < mean.high for mean in means)
    assert (own.method, own.minus) == ("b", "a")
    assert own.value == pytest.approx(means[1].value - means[0].value)
    assert 0 < own.low < own.value < own.high
    assert own.p_holm < 0.05
    assert 0 < own.detectable < own.value
    same = keras_xmr.compare(good, good, OWNER, resamples=100)
    assert all(metric.p == 1 for metric in same.metrics.values())


def test_it_is_the_paired_bootstrap_of_the_queries():
    good, fair = scores(3.0, 1), scores(1.5, 2)
    options = {"metrics": ["recall_1"], "resamples": 300}
    found = keras_xmr.compare(fair, good, OWNER, **options).metrics["t2i_recall_1"]
    good, fair = ((s.argmax(axis=0) == OWNER).astype(float) for s in (good, fair))
    apart = (good - fair)[:, None]
    resampled = resampled_means(apart, OWNER, resamples=300)[:, 0]
    # Both directions are tested, and the p-values are equal: twice the level.
    assert found.p_holm == pytest.approx(2 * found.p)
    expected = difference(apart.mean(), resampled, 0.05 / 2)
    assert found.value == pytest.approx(expected.value)
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)


def test_intervals_have_the_correction_of_the_p_values():
    spread = np.linspace(-1.7, 1.7, IMAGES)
    shifts = np.sqrt([1, 3, 5, 6, 16, 25]) / np.sqrt(IMAGES)  # As many standard errors.
    some = {f"i2t_m{n}": spread + shift for n, shift in enumerate(shifts)}
    some |= {f"t2i_{name[4:]}": values[OWNER] for name, values in some.items()}
    systems = {"zero": {name: 0 * values for name, values in some.items()}, "some": some}
    options = {"metrics": [f"m{n}" for n in range(len(shifts))], "resamples": 5000}
    found = keras_xmr.compare_systems(systems, OWNER, **options).metrics.values()
    assert any(row.p < 0.05 < row.p_holm for row in found)
    assert any(row.p_holm < 0.05 for row in found)
    for row in found:
        assert (row.low > 0 or row.high < 0) == (row.p_holm < 0.05)


def test_captions_with_several_right_images_need_to_say_whose_they_are():
    right = np.eye(IMAGES)[:, OWNER] + np.roll(np.eye(IMAGES)[:, OWNER], 1, axis=0)
    pair = scores(1.5, 1), scores(3.0, 2)
    together = keras_xmr.compare(*pair, right, image_ids=OWNER, resamples=300)
    alone = keras_xmr.compare(*pair, right, resamples=300)
    both = [found.metrics["t2i_recall_1"] for found in (together, alone)]
    assert both[0].value == both[1].value
    assert both[0].low != both[1].low


def test_what_does_not_fit_is_refused():
    with pytest.raises(keras_xmr.ArgumentError, match="the same images and captions"):
        keras_xmr.compare(scores(1.0, 1), scores(1.0, 1)[:, :-1], OWNER)
    for image_ids in (OWNER[:-1], OWNER / 1):
        with pytest.raises(keras_xmr.ArgumentError, match="image_ids is the row"):
            keras_xmr.compare(scores(1.0, 1), scores(1.0, 1), OWNER, image_ids=image_ids)
    for options, says in (
        ({"resamples": 0}, "resamples is a whole number from 1 on, not 0"),
        ({"resamples": 1.5}, "resamples is a whole number"),
        ({"seed": -1}, "seed is a whole number from 0 on, not -1"),
        ({"judgements": np.zeros((2, 2))}, "no pair is relevant"),
        ({"resamples": True}, "resamples is a whole number from 1 on, not True"),
        *(({"names": names}, "names are two") for names in (("one",), "ab", None, (1, 2))),
        *(({"metrics": names}, "metrics are a list of names") for names in ([], "recall_1")),
    ):
        with pytest.raises(keras_xmr.ArgumentError, match=says):
            keras_xmr.compare(np.eye(2), np.eye(2), **options)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "the list is empty"),
        (np.zeros((2, 60, 120)), r"make a list: list\(scores\)"),
        (np.zeros(60), r"not shape \(60,\)"),
        ({"i2t_x": 1, "t2i_x": [1]}, r"i2t_x has a number for each query, not .* shape \(\)"),
        ({"i2t_x": ["a"], "t2i_x": [1]}, "i2t_x has a number for each query, not <U1"),
        ((scores(1.0, 1), scores(1.0, 2)), "give several runs as a list"),
        ((scores(1.0, 1), scores(1.0, 2), scores(1.0, 3)), "give several runs as a list"),
    ],
)
def test_what_is_not_a_system_is_refused(given, says):
    for pair in ((given, given), (scores(1.0, 1), given)):
        with pytest.raises(keras_xmr.ArgumentError, match=says):
            keras_xmr.compare(*pair, OWNER)


def test_both_directions_of_a_re_ranker_are_one_run():
    reranked = keras_xmr.reranking.FastReranking()(scores(1.5, 1))
    matrices = keras_xmr.metrics.ScoreMatrices(*reranked)
    for one, several in ((reranked, [reranked, reranked]), (matrices, [matrices, matrices])):
        found = keras_xmr.compare(one, several, OWNER, resamples=50)
        assert found.runs == {"a": 1, "b": 2}
        assert found.metrics["rsum"].value == 0


def test_too_few_images_are_refused(random):
    """Also where there are many, of which few have a right caption."""
    few = np.concatenate([np.arange(29), np.full(CAPTIONS - 29, 28)])
    for images, owner in ((2, [0, 1, 1]), (29, np.repeat(np.arange(29), 5)), (60, few)):
        pair = random.normal(size=(2, images, len(owner)))
        with pytest.raises(keras_xmr.ArgumentError, match="compare on 30 or more"):
            keras_xmr.compare(*pair, np.array(owner))
    owner = np.repeat(np.arange(30), 2)
    assert keras_xmr.compare(*random.normal(size=(2, 30, 60)), owner, resamples=50).metrics


@pytest.mark.slow
def test_from_that_number_on_intervals_hold_what_they_say(random):
    """Of two recalls; the five captions of one image are alike."""
    trials, captions = 2_000, 5

    def coverage(images: int, left: float, right: float) -> float:
        hard = 0.7 * random.normal(size=(images, 1, trials))
        recalls = [
            (hard + 0.7 * random.normal(size=(images, captions, trials)) < 0.98**0.5 * ndtri(p))
            for p in (left, right)
        ]
        apart = np.mean(recalls[0], axis=1) - np.mean(recalls[1], axis=1)
        drawn = resampled_means(apart, resamples=400)
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        return np.mean((low <= left - right + 1e-12) & (left - right - 1e-12 <= high))

    recalls = [(0.5, 0.5), (0.6, 0.4), (0.3, 0.2), (0.9, 0.8)]
    assert min(coverage(LEAST_GROUPS, *pair) for pair in recalls) >= 0.91
    assert min(coverage(LEAST_GROUPS // 3, *pair) for pair in recalls) < 0.91


def test_tables_for_papers():
    found = keras_xmr.compare(
        scores(1.5, 1), scores(3.0, 2), OWNER, names=("my_first", "my_second"), resamples=100
    )
    markdown = found.markdown().splitlines()
    assert markdown[0] == "### my_second minus my_first; runs: 1 and 1"
    assert markdown[2].startswith("| metric | my_first | my_second | difference | 95 % interval (H")
    assert {line.count("|") for line in markdown[2:]} == {9}
    titles = [line.split(" | ")[0].strip("| ") for line in markdown[4:]]
    assert titles[:4] == ["i2t R@1", "i2t R@5", "i2t R@10", "i2t R-P"]
    latex = found.latex()
    assert r"my\_first & my\_second & difference & 95 \% interval (Holm)" in latex
    assert latex.count(r"\\") == 2 * 5 + 1 + 1
    table = Table("of A & B", ["row", "x"], [["a_1", "-1.5"], ["b*|", "2 ± 0.1"]], {1: "-1.5"})
    assert r"\caption{of A \& B}" in table.latex()
    assert r"a\_1 & \textbf{$-$1.5} \\" in table.latex()
    assert r"b*| & 2 $\pm$ 0.1 \\" in table.latex()
    assert table.markdown().splitlines()[-2:] == [r"| a_1 | **-1.5** |", r"| b\*\| | 2 ± 0.1 |"]


def test_several_systems_and_any_metric():
    """Pairs of systems are corrected together, and values of queries are as good as scores."""
    runs = {
        "fair": scores(1.5, 2),
        "good": scores(3.0, 1),
        "twin": [scores(1.5, 5), scores(1.5, 6)],
    }
    options = {"metrics": ["ndcg_10", "r_precision"], "resamples": 300}
    found = keras_xmr.compare_systems(runs, OWNER, **options)
    assert list(found.pairs) == [("fair", "good"), ("fair", "twin"), ("good", "twin")]
    assert found.runs == {"fair": 1, "good": 1, "twin": 2}
    assert list(found.metrics) == [f"{s}_{m}" for s in ("i2t", "t2i") for m in options["metrics"]]
    every = [metric for of_pair in found.pairs.values() for metric in of_pair.values()]
    expected = holm([metric.p for metric in every])
    np.testing.assert_allclose([metric.p_holm for metric in every], expected)
    assert str(found).count("minus") == 3
    values = {
        name: [per_query(run, OWNER) for run in (of_one if name == "twin" else [of_one])]
        for name, of_one in runs.items()
    }
    assert keras_xmr.compare_systems(values, OWNER, **options).results == found.results


def test_metrics_that_need_labels_and_relevance_are_compared(random):
    labels, relevance = random.integers(0, 2, (IMAGES, 5)), random.random((IMAGES, CAPTIONS))
    chosen = [DiscountedGain(k=3), ReciprocalRank()]
    values = [
        per_query(scores(skill, 1), OWNER, labels=labels, relevance=relevance, metrics=chosen)
        for skill in (1.0, 3.0)
    ]
    names = ["pmrp", "asp", "discounted_gain", "reciprocal_rank"]
    systems = dict(zip("ab", values, strict=True))
    both = keras_xmr.compare_systems(systems, OWNER, metrics=names, resamples=200)
    found = both.metrics
    assert {name.partition("_")[2] for name in found} == set(names)
    means = [v["i2t_reciprocal_rank"].mean() for v in values]
    assert found["i2t_reciprocal_rank"].value == pytest.approx(means[1] - means[0])
    assert both.means["a"]["t2i_pmrp"].value == pytest.approx(
        np.mean([np.nanmean(values[0][f"t2i_pmrp_{zeta}"]) for zeta in (0, 1, 2)])
    )
    for wrong in (None, "ndcg", ["ndcg"], [len]):
        with pytest.raises(keras_xmr.ArgumentError, match="metrics are a list of QueryMetric"):
            per_query(scores(1.0, 1), OWNER, metrics=wrong)
    with pytest.raises(keras_xmr.ArgumentError, match="labels are 0 and 1"):
        per_query(scores(1.0, 1), OWNER, labels=labels / 2)
    for k in (0, 1.5, "5", True):
        with pytest.raises(keras_xmr.ArgumentError, match="k must be a whole number from 1 on"):
            DiscountedGain(k=k)
    with pytest.raises(keras_xmr.ArgumentError, match="no metric 'asp'"):
        keras_xmr.compare_systems({"a": values[0], "b": scores(1.0, 1)}, OWNER, metrics=["asp"])
    for systems in ({"a": scores(1.0, 1)}, scores(1.0, 1), {}):
        with pytest.raises(keras_xmr.ArgumentError, match="systems are two or more"):
            keras_xmr.compare_systems(systems, OWNER)
    with pytest.raises(keras_xmr.ArgumentError, match="values of queries have names such as"):
        keras_xmr.compare_systems({"a": {"recall": [1.0]}, "b": scores(1.0, 1)}, OWNER)
    with pytest.raises(keras_xmr.ArgumentError, match="labels are 0 and 1 of shape"):
        per_query(scores(1.0, 1), OWNER, labels=labels[1:])


def test_batches_of_a_split_give_the_metrics_of_the_whole(random):
    images, captions = random.normal(size=(20, 8)), random.normal(size=(60, 8))
    owner = np.repeat(np.arange(20), 3)
    cosines = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images, captions)]
    expected = retrieval((cosines[0] @ cosines[1].T).astype(np.float32), owner)
    one, several = Retrieval(), Retrieval()
    one.update_state(images, captions, np.arange(20), owner)
    order = random.permutation(60)  # An image comes again with each of its captions.
    for part in np.array_split(order, 7):
        # Squares of such numbers would vanish.
        several.update_state(
            1e-200 * images[owner[part]], captions[part], [f"i{n}" for n in owner[part]]
        )
    matches = owner == np.arange(20)[:, None]
    matches[3] = True
    graded = retrieval((cosines[0] @ cosines[1].T).astype(np.float32), matches)
    assert one.result(matches) == pytest.approx(graded, abs=1e-5)
    with pytest.raises(keras_xmr.ArgumentError, match="judgements of shape"):
        one.result(matches[:, 1:])
    for found in (one, several):
        assert found.result() == pytest.approx(expected, abs=1e-5)
    several.reset_state()
    with pytest.raises(keras_xmr.ArgumentError, match="no batches"):
        several.result()
    for arguments, says in (
        ((images, captions[:, 1:], range(20), owner), "of one width"),
        ((images, captions, range(19), owner), "20 images, but 19 image_ids"),
        ((images, captions, range(20)), "image_ids"),
    ):
        with pytest.raises(keras_xmr.ArgumentError, match=says):
            one.update_state(*arguments)
    with pytest.raises(keras_xmr.ArgumentError, match="similarity is"):
        Retrieval("l2")


def test_the_mean_of_scores_and_their_trec_files(tmp_path):
    pair = scores(1.0, 1), scores(1.0, 2)
    np.testing.assert_allclose(mean_scores(pair).image_to_text, sum(pair) / 2, rtol=1e-6)
    with pytest.raises(keras_xmr.ArgumentError, match="no scores"):
        mean_scores([])
    with pytest.raises(keras_xmr.ArgumentError, match="have no mean"):
        mean_scores([pair[0], pair[1][1:]])
    with pytest.raises(keras_xmr.ArgumentError, match=r"of the shape \(images, captions\), not"):
        mean_scores(pair[0])
    written = keras_xmr.write_trec(tmp_path / "trec", pair[0], OWNER, depth=3)
    assert [path.name for path in written] == [
        f"test-{side}.{kind}" for side in ("i2t", "t2i") for kind in ("run", "qrels")
    ]
    assert written[0].read_text().startswith("image0 Q0 caption")
    with pytest.raises(keras_xmr.ArgumentError, match="ids of"):
        keras_xmr.write_trec(tmp_path, pair[0], OWNER, image_ids=["one"])


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("compare", "second minus first; runs: 1 and 3"),
        ("metrics_from_arrays", "fused minus noisy; runs: 2 and 1"),
    ],
)
def test_the_snippet_of_the_docs_runs(page, says, capsys, tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "how_to" / f"{page}.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {})
    assert says in capsys.readouterr().out


def test_two_images_of_one_id_in_a_split_are_refused(random):
    images, captions = random.normal(size=(10, 8)), random.normal(size=(10, 8))
    split = Retrieval()
    split.update_state(images[:5], captions[:5], range(5))
    before = split.result()
    with pytest.raises(keras_xmr.ArgumentError, match="image id 0 occurs again with another"):
        split.update_state(images[5:], captions[5:], range(5))  # Numbered per batch, as for losses.
    with pytest.raises(keras_xmr.ArgumentError, match="in row 1: two images have one id"):
        split.update_state(images[5:], captions[5:], [7] * 5)
    for ids in (list("56789"), np.array(list("56789")), [5, 6, 7, 8, "9"]):
        with pytest.raises(keras_xmr.ArgumentError, match="are numbers and others texts"):
            split.update_state(images[5:], captions[5:], ids)
    for ids in (np.full(5, np.nan), [5, 6, 7, 8, None], 7, [[5], [6], [7], [8], [9, 9]]):
        with pytest.raises(keras_xmr.ArgumentError, match=r"image.ids?"):
            split.update_state(images[5:], captions[5:], ids)
    assert split.result() == before  # A refused batch is not added.
    # Rounding of half precision, and another norm under the cosine, are no other embedding.
    split.update_state(7 * images[:5].astype(np.float16), captions[5:], np.arange(5))
    assert len(split._captions) == 2


def test_texts_of_tensorflow_and_tensors_are_ids(random):
    images = captions = random.normal(size=(4, 8))
    split = Retrieval()
    split.update_state(images, captions, np.array([b"a", b"b", b"c", b"d"], object))
    split.update_state(images, captions, ["a", "b", "c", "d"])
    assert split.result()["i2t_relevant_5"] == 2
