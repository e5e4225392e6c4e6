"""Judgements and scores to other programs and back."""

from __future__ import annotations

import json
from types import SimpleNamespace

import ir_measures
import numpy as np
import pytest
import scipy.sparse

from keras_xmr.judgements import (
    Judgements,
    JudgementsError,
    from_qrels,
    read_beir,
    read_judgements,
    to_qrels,
    write_beir,
)
from keras_xmr.metrics import from_run, retrieval, to_run
from keras_xmr.utils.errors import ArgumentError

IMAGES, CAPTIONS = [f"photo {n}" for n in range(12)], [f"c{n}" for n in range(30)]
SIDES = {"i2t": "image_to_text", "t2i": "text_to_image"}


@pytest.fixture
def judged(random):
    """Graded pairs of 12 images and 30 captions, some of which were not judged."""
    pairs = np.argwhere(random.random((12, 30)) < 0.5)
    return Judgements.from_grades(
        pairs, random.integers(0, 3, len(pairs)), (12, 30), fully_judged=False
    )


@pytest.fixture
def scores(random):
    return random.normal(size=(12, 30))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("fully", [True, False])
def test_other_programs_measure_the_same_and_give_it_back(judged, scores, side, fully):
    judgements = Judgements(judged.grades) if fully else judged
    direction = SIDES[side]
    qrels = to_qrels(judgements, IMAGES, CAPTIONS, direction)
    run = to_run(scores, IMAGES, CAPTIONS, direction)
    names = {"recall_5": "Success@5", "r_precision": "Rprec", "ndcg_10": "nDCG@10"}
    if not fully:  # Only of judged pairs.
        run = {q: {d: s for d, s in docs.items() if d in qrels[q]} for q, docs in run.items()}
    relevant = {q: docs for q, docs in qrels.items() if any(docs.values())}
    parsed = {name: ir_measures.parse_measure(title) for name, title in names.items()}
    theirs = ir_measures.calc_aggregate([*parsed.values()], relevant, run)
    ours = retrieval(scores, judgements)
    for name, measure in parsed.items():
        assert ours[f"{side}_{name}"] == pytest.approx(theirs[measure])
    again = from_qrels(qrels, IMAGES, CAPTIONS, direction, fully_judged=fully)
    assert (again.grades != judgements.grades).nnz == 0
    if fully:
        np.testing.assert_array_equal(from_run(run, IMAGES, CAPTIONS, direction), scores)
        assert retrieval(from_run(run, IMAGES, CAPTIONS, direction), again) == ours
    else:
        assert (again.judged != judgements.judged).nnz == 0


def test_all_forms_of_qrels_and_runs_are_read(judged, scores):
    qrels = to_qrels(judged, IMAGES, CAPTIONS)
    triples = [(q, d, g) for q, docs in qrels.items() for d, g in docs.items()]
    forms = {
        "rows": [{"query-id": q, "corpus-id": d, "score": g} for q, d, g in triples],
        "ir_measures": [ir_measures.Qrel(*triple) for triple in triples],
        "ranx": SimpleNamespace(to_dict=lambda: qrels),
    }
    forms["hugging face"] = type(
        "Dataset",
        (),
        {"column_names": ["query-id"], "to_dict": None, "__iter__": lambda _: iter(forms["rows"])},
    )()
    for name, form in forms.items():
        again = from_qrels(form, IMAGES, CAPTIONS, fully_judged=False)
        assert (again.grades != judged.grades).nnz == 0, name
    run = to_run(scores, IMAGES, CAPTIONS)
    docs = [ir_measures.ScoredDoc(q, d, s) for q, ranked in run.items() for d, s in ranked.items()]
    np.testing.assert_array_equal(from_run(docs, IMAGES, CAPTIONS), scores)
    numbers = from_qrels({7: {1: 2}}, [1, 2], [7])
    assert numbers.grades.toarray().tolist() == [[2], [0]]
    assert to_qrels(numbers, [1, 2], [7]) == {"7": {"1": 2}}
    halves = Judgements(scipy.sparse.csr_array([[0.5]]))
    assert to_qrels(halves, ["a"], ["b"]) == {"b": {"a": 0.5}}


def test_masks_depth_and_pairs_that_are_left_out(scores):
    pairs = np.array([[0, 0], [1, 1]])
    grades = Judgements.from_grades(pairs, np.ones(2), (12, 30)).grades
    mask = np.arange(30) == 1
    assert to_qrels(Judgements(grades, None, mask), IMAGES, CAPTIONS) == {"c1": {"photo 1": 1}}
    scores[3, 0] = -np.inf
    run = to_run(scores, IMAGES, CAPTIONS, depth=2)
    assert {len(docs) for docs in run.values()} == {2}
    assert list(run["c5"]) == [IMAGES[n] for n in np.argsort(-scores[:, 5])[:2]]
    assert "photo 3" not in to_run(scores, IMAGES, CAPTIONS)["c0"]
    negative = from_qrels({"c0": {"photo 0": 1, "photo 1": -1}}, IMAGES, CAPTIONS)
    assert negative.grades.nnz == 1


@pytest.mark.parametrize(
    ("qrels", "says"),
    [
        ({"c0": 1}, "has a int"),
        ({"test": [{"query-id": "c0"}]}, "rows of one split"),
        ([{"query": "c0"}], "a row has query-id"),
        ([("c0", "photo 0", 1)], "a row has query-id"),
        ("qrels.txt", "not a str"),
        ({"c0": {"photo 0": "high"}}, "not 'high'"),
        ({"c0": {"photo 0": float("nan")}}, "finite number"),
        ({"photo 0": {"c0": 1}}, "queries are captions: see `direction`"),
        (
            [{"query-id": "c0", "corpus-id": "photo 0", "score": n} for n in (1, 2)],
            "have two grades",
        ),
    ],
)
def test_what_is_no_qrels_is_refused(qrels, says):
    with pytest.raises(ArgumentError, match=says):
        from_qrels(qrels, IMAGES, CAPTIONS)


def test_runs_and_ids_that_do_not_fit_are_refused(judged, scores):
    for action, says in (
        (lambda: to_qrels(judged, IMAGES[1:], CAPTIONS), "but ids of"),
        (lambda: to_qrels(judged, IMAGES, CAPTIONS, "t2i"), "direction is one of"),
        (lambda: to_run(scores, IMAGES, CAPTIONS[1:]), "but ids of"),
        (lambda: to_run(scores, ["a"] * 12, CAPTIONS), "two images have the same id"),
        (lambda: to_run(np.where(scores > 1, np.nan, scores), IMAGES, CAPTIONS), "NaN"),
        (lambda: from_run({"c0": {"photo x": 1.0}}, IMAGES, CAPTIONS), "unknown image"),
        (lambda: from_run({"photo 0": {"c0": 1.0}}, IMAGES, CAPTIONS), "see `direction`"),
        (
            lambda: from_run([ir_measures.ScoredDoc("c0", "photo 0", 1.0)] * 2, IMAGES, CAPTIONS),
            "occurs twice",
        ),
    ):
        with pytest.raises(ArgumentError, match=says):
            action()


@pytest.mark.parametrize("direction", SIDES.values())
def test_a_folder_of_beir(judged, direction, tmp_path):
    texts = [f"text «{n}»" for n in range(30)]
    written = write_beir(tmp_path / "beir", judged, IMAGES, CAPTIONS, texts, direction)
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        "beir/corpus.jsonl",
        "beir/queries.jsonl",
        "beir/qrels/test.tsv",
    ]
    corpus = [json.loads(line) for line in written[0].read_text("utf-8").splitlines()]
    assert corpus[0].keys() == {"_id", "title", "text"}
    again = read_beir(tmp_path / "beir", direction, fully_judged=False)
    assert (again.image_ids, again.caption_ids, again.texts) == (IMAGES, CAPTIONS, texts)
    assert (again.judgements.grades != judged.grades).nnz == 0
    assert (again.judgements.judged != judged.judged).nnz == 0
    if direction == "text_to_image":  # As the option --judgements takes it.
        read = read_judgements(written[2], IMAGES, CAPTIONS, unjudged="left_out")
        assert (read.grades != judged.grades).nnz == 0


def test_judgements_without_a_text_are_counted(judged, tmp_path, caplog):
    write_beir(tmp_path, judged, IMAGES, CAPTIONS, CAPTIONS)
    for name, left in (("corpus", 11), ("queries", 28)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:left]))
    found = read_beir(tmp_path)
    assert (len(found.image_ids), len(found.caption_ids)) == (11, 28)
    assert "2 judged queries are not in" in caplog.text
    assert "1 judged documents are not in" in caplog.text
    assert "such as 'photo 11', and are left out" in caplog.text


def test_queries_of_other_splits_are_left_out_and_damage_is_named(judged, tmp_path):
    folder = tmp_path / "beir"
    write_beir(folder, judged, IMAGES, CAPTIONS, CAPTIONS)
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nc3\tphoto 0\t1\n")
    dev = read_beir(folder, split="dev")
    assert (dev.caption_ids, len(dev.image_ids)) == (["c3"], 12)
    with pytest.raises(JudgementsError, match=r"test2.tsv.*does not exist"):
        read_beir(folder, split="test2")
    for line, says in (("c3\tphoto 0", "2 fields"), ("c3\tphoto 0\tx", "the grade is 'x'")):
        (folder / "qrels" / "dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{line}\n")
        with pytest.raises(JudgementsError, match=rf"dev.tsv:2: {says}"):
            read_beir(folder, split="dev")
    for lines, says in (
        ("[]", ""),
        ('{"text": "no id"}', ""),
        ("{", ""),
        ('{"_id": ["a"]}', r":1: .*invalid id \['a'\]"),
        ('{"_id": true}', ":1: .*invalid id True"),
        ('{"_id": "a", "text": 0}', ":1: .*a string, got 0"),
        ('{"_id": "a", "text": "b", "text": "c"}', r":1: .*got \['b', 'c'\]"),
        ('{"_id": "a", "text": "b"}\n{"_id": "a", "text": "c"}', ":2: the `_id` 'a' is in line 1"),
    ):
        (folder / "corpus.jsonl").write_text(f"{lines}\n")
        with pytest.raises(JudgementsError, match=rf"corpus\.jsonl.*{says}"):
            read_beir(folder)
    with pytest.raises(ArgumentError, match="a tab or a line break"):
        write_beir(folder, judged, ["a\tb", *IMAGES[1:]], CAPTIONS, CAPTIONS)
    with pytest.raises(ArgumentError, match="whole numbers"):
        write_beir(folder, Judgements(judged.grades / 4), IMAGES, CAPTIONS, CAPTIONS)
    with pytest.raises(ArgumentError, match="30 captions, but 1 texts"):
        write_beir(folder, judged, IMAGES, CAPTIONS, ["a"])
