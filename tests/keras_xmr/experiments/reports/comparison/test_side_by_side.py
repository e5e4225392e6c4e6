"""Two models side by side, in the report of a comparison."""

from __future__ import annotations

import csv
import re
import shutil

import numpy as np
import pytest
from datasets import encoded, picture, write_csv
from finished_runs import CAPTIONS, IMAGES, OWNER, finished_run
from models import tiny_config

from data_pipelines.prepare import prepare
from keras_xmr.commands._comparison import compare
from keras_xmr.experiments.evaluation.evaluation_files import (
    RIGHT,
    TRUE,
    first_answers,
    write_answers,
)
from keras_xmr.experiments.evaluation.split_evaluation import (
    EmbeddedSplit,
    Evaluation,
    MatcherEvaluation,
)
from keras_xmr.experiments.reports.comparison.comparison_report import signed
from keras_xmr.experiments.reports.comparison.run_results import read_runs
from keras_xmr.experiments.reports.comparison.side_by_side import side_by_side, wins
from keras_xmr.experiments.reports.pages import TEMPLATES
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import measure
from keras_xmr.metrics.score_matrices import ScoreMatrices


def answers_of(folder, seed):
    """Answers of random scores, as an evaluation leaves them."""
    random = np.random.default_rng(seed)
    arrays = {}
    for side, (queries, candidates) in {
        "i2t": (IMAGES, CAPTIONS),
        "t2i": (CAPTIONS, IMAGES),
    }.items():
        arrays[side] = random.integers(0, candidates, (queries, 6)).astype(np.int32)
        arrays[f"{side}_kind"] = random.integers(0, 3, (queries, 6)).astype(np.int8)
    np.savez(folder.evaluation("test") / "answers-test.npz", **arrays)
    return arrays


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    output = tmp_path_factory.mktemp("runs")
    folders = [finished_run(output, name, 0, skill) for name, skill in (("a", 3.0), ("b", 2.0))]
    return {folder.path.name: (folder.path, answers_of(folder, 5)) for folder in folders}


def test_the_answers_of_both_models_to_what_one_wins(runs, tmp_path):
    methods = read_runs([path for path, _ in runs.values()])["test"]
    found = wins(methods, "truth")
    duel = side_by_side(methods, found)[0]
    assert (duel["winner"], duel["loser"]) == ("a", "b")
    first = next(win for win in found["a", "b"] if win.direction == "text_to_image")
    query = int(first.query.split()[1])
    shown = next(own for own in duel["queries"] if own["text"] == first.text)
    expected = [arrays["t2i"][query] for _, arrays in runs.values()]
    part = TEMPLATES.get_template("parts.html").module.duel(shown)
    names = re.findall(r"<span>image (\d+)</span>", part)
    assert list(map(int, names)) == [int(n) for row in expected for n in row]
    assert part.count('<div class="answers">') == 2
    kinds = re.findall(r'<div class="(wrong|true|right)"', part)
    assert kinds[:6] == [("wrong", "true", "right")[k] for k in runs["a"][1]["t2i_kind"][query]]
    images = next(own for own in duel["queries"] if own["photo"])
    part = TEMPLATES.get_template("parts.html").module.duel(images)
    assert part.count('<li class="') == 12
    old = finished_run(tmp_path, "old", 0, 1.0)
    methods = read_runs([next(iter(runs.values()))[0], old.path])["test"]
    assert side_by_side(methods, wins(methods, "truth")) == [], (
        "without its answers it is compared as well"
    )


def test_photos_of_the_records_are_shown_where_they_still_exist(tmp_path):
    root = tmp_path / "photos"
    (root / "images").mkdir(parents=True)
    names = [f"image {number}" for number in range(IMAGES)]
    splits = [[name, "test"] for name in names] + [["other", "train"]]
    for name, _ in splits:
        (root / "images" / name).write_bytes(encoded(picture(0)))
    write_csv(root / "captions.csv", ["image", "caption"], [[name, "a dog"] for name, _ in splits])
    write_csv(root / "splits.csv", ["image", "split"], splits)
    source = f"data.source={{name: csv, root: {root}, splits: splits.csv}}"
    config = tiny_config(tmp_path, source)
    assert prepare(config.data).split("test").image_keys == names
    folders = [
        finished_run(tmp_path, name, 0, skill, (f"data.records={config.data.records}",))
        for name, skill in (("a", 3.0), ("b", 2.0))
    ]
    for folder in folders:
        answers_of(folder, 5)
    methods = read_runs([folder.path for folder in folders])["test"]
    shown = side_by_side(methods, wins(methods, "truth"))[0]["queries"]
    photos = [answer["photo"] for m in shown[0]["models"] for answer in m["answers"]]
    photos += [query["photo"] for query in shown if query["photo"]]
    assert len(photos) == 15
    assert {photo["key"] for photo in photos} <= set(names)
    assert all(photo["url"].startswith("data:image/jpeg;base64,") for photo in photos)
    shutil.rmtree(config.data.records)
    answer = side_by_side(methods, wins(methods, "truth"))[0]["queries"][0]["models"][0]["answers"][
        0
    ]
    assert answer["photo"].keys() == {"key"}


@pytest.mark.usefixtures("undrawn")
def test_the_page_and_every_picture_have_it(runs, tmp_path, capsys):
    compare([], [path for path, _ in runs.values()], tmp_path)
    capsys.readouterr()
    page = (tmp_path / "test" / "report.html").read_text("utf-8")
    assert "Won by a, lost by b" in page
    assert page.count("<details open>") == 1
    assert ": differences in RSUM" not in page
    pictures = {path.stem for path in (tmp_path / "test").glob("*.png")}
    tables = {path.stem for path in (tmp_path / "test").glob("*.csv")}
    assert pictures <= tables
    with (tmp_path / "test" / "validation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"a", "b"}
    assert float(rows[0]["rsum"]) == 50.0


def test_answers_are_kept_with_what_they_are(tmp_path, random):
    right = np.eye(4)[:, np.repeat(np.arange(4), 2)]
    truth = GroundTruth(
        list("abcd"), list("01234567"), OWNER[:8], Judgements.from_pairs(OWNER[:8], 4)
    )
    truth.extra["truth"] = Judgements(Judgements.from_pairs(OWNER[:8], 4).grades + right[::-1])
    scores = random.normal(size=(4, 8)).astype(np.float32)
    own = MatcherEvaluation("cosine", ScoreMatrices(scores), measure(scores, truth))
    evaluation = Evaluation("test", [own], EmbeddedSplit({}, {}), truth)
    write_answers(evaluation, tmp_path)
    # Annotated answers come after others with the same score, as in the metrics.
    tied = np.ones((4, 8), np.float32)
    first, kinds = first_answers(evaluation, "image_to_text", np.array([0, 2]), tied[:2])
    assert kinds.shape == (2, 6)
    assert (kinds != RIGHT).all()
    first, kinds = first_answers(evaluation, "text_to_image", np.array([5]), tied.T[:1])
    assert (first[0, -1], kinds[0].tolist().index(RIGHT)) == (2, 3)
    with np.load(tmp_path / "answers-test.npz") as found:
        np.testing.assert_array_equal(found["i2t"], np.argsort(-scores, axis=1)[:, :6])
        np.testing.assert_array_equal(found["t2i"], np.argsort(-scores.T, axis=1)[:, :6])
        for query, (numbers, kinds) in enumerate(zip(found["t2i"], found["t2i_kind"], strict=True)):
            for number, kind in zip(numbers, kinds, strict=True):
                annotated, other = right[number, query], right[::-1][number, query]
                assert kind == (RIGHT if annotated else TRUE if other else 0)


def test_zeta_is_the_number_of_labels_that_differ(tmp_path, random):
    labels = [(0, 2), (), (0, 1, 2, 5), (3,)]
    owner = OWNER[:8]
    truth = GroundTruth(
        list("abcd"), list("01234567"), owner, Judgements.from_pairs(owner, 4), labels=labels
    )
    scores = random.normal(size=(4, 8)).astype(np.float32)
    own = MatcherEvaluation("cosine", ScoreMatrices(scores), measure(scores, truth))
    write_answers(Evaluation("test", [own], EmbeddedSplit({}, {}), truth), tmp_path)
    sides = {"i2t": (range(4), owner), "t2i": (owner, range(4))}
    with np.load(tmp_path / "answers-test.npz") as found:
        for side, (queries, candidates) in sides.items():
            for (query, place), answer in np.ndenumerate(found[side]):
                ours, theirs = set(labels[queries[query]]), set(labels[candidates[answer]])
                expected = len(ours ^ theirs) if ours and theirs else -1
                assert found[f"{side}_zeta"][query, place] == expected
    page = TEMPLATES.get_template("parts.html").module
    answers = [{"kind": "wrong", "text": "a dog", "zeta": z} for z in (0, None)]
    assert page.answers(answers).count("<small>zeta 0</small>") == 1
    assert page.answers(answers).count("zeta") == 1


def test_a_difference_of_nothing_has_no_sign():
    assert [signed(value) for value in (-0.04, 0.0, 0.04, -0.06, 1.25)] == [
        "0.0",
        "0.0",
        "0.0",
        "-0.1",
        "+1.2",
    ]
