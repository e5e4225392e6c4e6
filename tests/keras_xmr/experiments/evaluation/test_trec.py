"""Run files and qrels of TREC, in and out."""

from __future__ import annotations

import csv

import ir_measures
import numpy as np
import pytest
import scipy.sparse

from keras_xmr.commands import _cli as cli
from keras_xmr.experiments.evaluation.external_scores import ExternalScores, run
from keras_xmr.experiments.evaluation.score_files import (
    ScoresError,
    read_run,
    write_run,
    write_trec,
)
from keras_xmr.judgements import (
    Judgements,
    JudgementsError,
    read_ground_truth,
    read_judgements,
    write_qrels,
)
from keras_xmr.utils.errors import ArgumentError

PHOTOS, CAPTIONS = ["a.jpg", "b.jpg", "c.jpg"], [f"{p}.jpg#{k}" for p in "abc" for k in range(2)]


@pytest.fixture
def folder(tmp_path, random):
    """Three photos with two captions each, scores, and judgements of some pairs."""
    rows = [["image", "caption_id", "caption"]]
    rows += [[name.partition("#")[0], name, f"says {name}"] for name in CAPTIONS]
    with (tmp_path / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    np.save(tmp_path / "scores.npy", random.normal(size=(3, 6)).astype(np.float32))
    judged = (
        "image,caption,grade\na.jpg,a.jpg#0,2\na.jpg,b.jpg#0,0\nb.jpg,a.jpg#1,1\nb.jpg,b.jpg#1,0\n"
    )
    (tmp_path / "crowd.csv").write_text(judged)
    return tmp_path


def evaluated(folder, **options):
    options = {"scores": folder / "scores.npy", "output": folder / "out"} | options
    return run(ExternalScores(folder / "captions.csv", **options)).measured["scores"]


@pytest.mark.slow
def test_what_is_written_is_what_trec_eval_measures(folder):
    cli.main(
        [
            "main.py",
            "evaluate",
            f"--ground-truth={folder / 'captions.csv'}",
            f"--scores={folder / 'scores.npy'}",
            f"--judgements={{source: {folder / 'crowd.csv'}, unjudged: left_out}}",
            f"--output={folder / 'out'}",
            f"--trec={folder / 'trec'}",
        ]
    )
    names = {path.name for path in (folder / "trec").iterdir()}
    ends = ("i2t.run", "i2t.qrels", "crowd-i2t.qrels")
    assert names == {f"test-{end.replace('i2t', side)}" for end in ends for side in ("i2t", "t2i")}
    judgements = read_judgements(folder / "crowd.csv", PHOTOS, CAPTIONS, unjudged="left_out")
    matrix = np.load(folder / "scores.npy")
    measured = evaluated(folder, judgements=[str(folder / "trec" / "test-crowd-t2i.qrels")])
    for side in ("i2t", "t2i"):
        trec_run = list(ir_measures.read_trec_run(str(folder / "trec" / f"test-{side}.run")))
        assert len(trec_run) == 18
        own = list(ir_measures.read_trec_qrels(str(folder / "trec" / f"test-{side}.qrels")))
        names = {"r_precision": "Rprec", "ndcg_10": "nDCG@10", "recall_1": "Success@1"}
        parsed = {name: ir_measures.parse_measure(title) for name, title in names.items()}
        wanted = ir_measures.calc_aggregate([*parsed.values()], own, trec_run)
        for name, title in parsed.items():
            assert measured.metrics.summary[f"{side}_{name}"] == pytest.approx(wanted[title])
        crowd = list(ir_measures.read_trec_qrels(str(folder / "trec" / f"test-crowd-{side}.qrels")))
        assert sorted(q.relevance for q in crowd) == [0, 0, 1, 2]
        turned = judgements if side == "i2t" else judgements.transpose()
        ids = (PHOTOS, CAPTIONS) if side == "i2t" else (CAPTIONS, PHOTOS)
        assert {(q.query_id, q.doc_id) for q in crowd} == {
            (ids[0][r], ids[1][c]) for r, c in np.argwhere(turned.judged.toarray())
        }
    np.testing.assert_allclose(
        read_run(folder / "trec" / "test-t2i.run", PHOTOS, CAPTIONS).astype(np.float32), matrix
    )


@pytest.mark.slow
def test_run_files_are_scores(folder):
    expected = evaluated(folder)
    scores = np.load(folder / "scores.npy")
    write_run(folder / "i2t.run", scores, PHOTOS, CAPTIONS)
    write_run(folder / "t2i.run", scores.T, CAPTIONS, PHOTOS)
    for options in (
        {"scores": folder / "i2t.run"},
        {"scores": folder / "t2i.run"},
        {"scores": folder / "i2t.run", "text_to_image_scores": folder / "t2i.run"},
    ):
        assert evaluated(folder, **options).metrics.summary == expected.metrics.summary


def test_pairs_that_a_run_leaves_out_come_last(tmp_path):
    scores = np.array([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], [0, 0, 0, 0, 0, -np.inf]])
    write_run(tmp_path / "a.run", scores, PHOTOS, CAPTIONS, depth=2, tag="mine")
    lines = (tmp_path / "a.run").read_text().splitlines()
    assert lines[0] == "a.jpg Q0 c.jpg#1 1 6 mine"
    assert len(lines) == 6
    found = read_run(tmp_path / "a.run", PHOTOS, CAPTIONS)
    assert np.isfinite(found).sum() == 6
    np.testing.assert_array_equal(found[1], [6, 5, *[-np.inf] * 4])


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_no_reader_takes_are_not_written(tmp_path, wrong):
    with pytest.raises(ScoresError, match=r"a score of 'b' is NaN or infinity"):
        write_run(tmp_path / "a.run", np.array([[1.0], [wrong]]), ["a", "b"], ["c"])
    assert not list(tmp_path.iterdir())
    with pytest.raises(ArgumentError, match="two images have the same id"):
        write_trec(tmp_path, np.eye(2), image_ids=["a", "a"])


def test_qrels_go_both_ways_with_three_states(tmp_path):
    text = "a.jpg#0 0 a.jpg 2\na.jpg#0 0 b.jpg 0\nb.jpg#1 0 a.jpg -1\nb.jpg#1 0 z.jpg 1\n"
    (tmp_path / "some.txt").write_text(text)
    found = read_judgements(tmp_path / "some.txt", PHOTOS, CAPTIONS, unjudged="left_out")
    assert found.judged.nnz == 2
    assert found.grades[0, 0] == 2
    plain = read_judgements(tmp_path / "some.txt", PHOTOS, CAPTIONS)
    assert plain.fully_judged
    write_qrels(tmp_path / "again.txt", found, PHOTOS, CAPTIONS)
    again = read_judgements(tmp_path / "again.txt", PHOTOS, CAPTIONS, unjudged="left_out")
    np.testing.assert_array_equal(again.judged.toarray(), found.judged.toarray())
    np.testing.assert_array_equal(again.grades.toarray(), found.grades.toarray())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a.jpg Q0 a.jpg 1 0.5 mine", r"run:2: unknown caption 'a\.jpg'.* such as 'a\.jpg#0'"),
        ("x.jpg Q0 a.jpg#1 1 0.5 mine", r"run:2: unknown image 'x\.jpg'"),
        ("a.jpg Q0 a.jpg#1 1 nan mine", r"run:2: the score 'nan' is not a finite number"),
        ("a.jpg Q0 a.jpg#1 1 1_0 mine", r"run:2: the score '1_0' is not a finite number"),
        ("a.jpg Q0 a.jpg#0 1 0.5 mine", r"run:2: duplicate 'a\.jpg#0' for 'a\.jpg'"),
        ("a.jpg Q0 a dog 1 0.5 mine", r"run:2: 7 words, expected 6: .*have no blanks"),
    ],
)
def test_damaged_run_files_end_in_a_sentence(tmp_path, line, says):
    path = tmp_path / "bad.run"
    path.write_text(f"a.jpg Q0 a.jpg#0 1 0.7 mine\n{line}\n")
    with pytest.raises((ScoresError, JudgementsError), match=says):
        read_run(path, PHOTOS, CAPTIONS)


def test_the_direction_follows_from_all_lines(tmp_path):
    """Not from the first, which may be of other items."""
    path = tmp_path / "some.txt"
    path.write_text("z.jpg 0 z.jpg#0 1\na.jpg 0 a.jpg#0 1\nb.jpg 0 b.jpg#1 2\n")
    assert read_judgements(path, PHOTOS, CAPTIONS).grades.nnz == 2
    path.write_text("2 0 1 1\n3 0 2 1\n")
    grades = read_judgements(path, ["1", "2"], ["1", "2", "3"]).grades.toarray()
    assert grades.tolist() == [[0, 1, 0], [0, 0, 1]]
    for text, ids, says in (
        (
            "a.jpg 0 a.jpg#0 1\na.jpg#1 0 a.jpg 1\n",
            (PHOTOS, CAPTIONS),
            r":2: .* is a caption, but in line 1",
        ),
        ("1 0 2 1\n", (["1", "2"], ["1", "2"]), r":1: '1' and '2' are ids of images and of cap"),
    ):
        path.write_text(text)
        with pytest.raises(JudgementsError, match=says):
            read_judgements(path, *ids)
        path.write_text(
            "".join(f"{' '.join(line.split()[:3])} 1 0.5 a\n" for line in text.splitlines())
        )
        with pytest.raises(JudgementsError, match=says):
            read_run(path, *ids)
    path.write_text("1 0 1 1\n2 0 2 1\n")
    assert read_judgements(path, ["1", "2"], ["1", "2"]).grades.nnz == 2


def test_names_with_blanks_and_broken_grades_are_refused(tmp_path):
    halves = Judgements(scipy.sparse.csr_array(np.full((1, 1), 0.5)))
    with pytest.raises(JudgementsError, match=r"whole numbers as grades"):
        write_qrels(tmp_path / "a.qrels", halves, ["a"], ["b"])
    with pytest.raises(JudgementsError, match=r"'a dog' has blanks.*column caption_id"):
        write_run(tmp_path / "a.run", np.zeros((1, 1)), ["a"], ["a dog"])
    (tmp_path / "bad.qrels").write_text("a.jpg 0 a.jpg#0 1\na.jpg 0 a.jpg#1 1.5\n")
    with pytest.raises(JudgementsError, match=r"qrels:2: the grade '1\.5' is not a whole number"):
        read_judgements(tmp_path / "bad.qrels", PHOTOS, CAPTIONS)


def test_captions_that_go_by_their_text_have_no_run_files(folder, capsys):
    (folder / "captions.csv").write_text("image,caption\na.jpg,a dog\nb.jpg,two men\n")
    np.save(folder / "scores.npy", np.eye(2))
    assert read_ground_truth(folder / "captions.csv").caption_ids == ["a dog", "two men"]
    with pytest.raises(JudgementsError, match="has blanks"):
        evaluated(folder, trec=folder / "trec")
