"""Judgements from everywhere that they come from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from keras_xmr.judgements import (
    GroundTruth,
    JudgementOptions,
    Judgements,
    JudgementsError,
    add_judgements,
    extended_coco,
    multi_hot,
    read_ground_truth,
    read_judgements,
    read_labels,
    write_ground_truth,
)
from keras_xmr.metrics import evaluate_scores
from keras_xmr.utils.errors import ArgumentError, UserError

IMAGES, CAPTIONS = ["a", "b", "c"], ["1", "2", "3", "4"]


def written(tmp_path, text, name="judgements.csv"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_label_vectors_within_zeta_match(random):
    labels = [tuple(np.flatnonzero(random.random(6) < 0.4)) for _ in range(300)]
    images, captions = labels[:280], labels[20:]
    vectors = multi_hot(images, 6), multi_hot(captions, 6)
    for zeta in (0, 1, 2):
        found = Judgements.from_labels(*vectors, zeta).grades.toarray()
        expected = [
            [bool(a) and bool(b) and len(set(a) ^ set(b)) <= zeta for b in captions] for a in images
        ]
        np.testing.assert_array_equal(found, expected)
    # Different single labels are two entries apart, though they share none.
    single = multi_hot([(0,), (1,), ()], 2)
    np.testing.assert_array_equal(
        Judgements.from_labels(single, single, 2).grades.toarray(),
        [[1, 1, 0], [1, 1, 0], [0, 0, 0]],
    )


def test_texts_and_classes_that_do_not_fit_are_refused():
    for texts, says in (
        (["a", "b", "c"], "3 texts, but .* 2 captions"),
        ("ab", "one text"),
        (["a", None], "a list of captions"),
        (None, "a list of captions"),
    ):
        with pytest.raises(ArgumentError, match=says):
            Judgements.from_texts(texts, np.array([0, 1]), 2)
    for classes in (np.zeros((2, 1), int), np.int64(1)):
        with pytest.raises(ArgumentError, match=r"image_classes has one class .*from_labels"):
            Judgements.from_classes(classes, np.zeros(3, int))
    with pytest.raises(ArgumentError, match="image_classes are numbers or texts"):
        Judgements.from_classes(["a", None], ["a", "b"])
    assert Judgements.from_classes([0, 1], [1, 1, 0]).grades.nnz == 3
    assert Judgements.from_classes(["a", "b"], ["b", "b", "a"]).grades.nnz == 3
    for zeta in (-1, "a", None, 0.5):
        with pytest.raises(ArgumentError, match="zeta is a whole number from 0 on"):
            Judgements.from_labels(np.eye(2), np.eye(2), zeta)
    for options in ({"judged": 3}, {"grades": [[1, 2], [3]]}):
        with pytest.raises(ArgumentError, match="are a sparse matrix"):
            Judgements(**{"grades": np.eye(2)} | options)
    for labels in (([0, 1], [1, 0]), (np.eye(2), np.eye(3)), ("a", "b"), (np.eye(2) / 2,) * 2):
        with pytest.raises(ArgumentError, match="matrices of 0 and 1"):
            Judgements.from_labels(*labels, 1)


def test_identical_captions_match_each_others_images():
    texts = ["A horse.", "a horse", "Two dogs!", "A mare", "?", "!"]
    owner = np.array([0, 1, 1, 0, 2, 3])
    found = Judgements.from_texts(texts, owner, 4)
    np.testing.assert_array_equal(
        found.grades.toarray(),
        [[1, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]],
    )
    ids = [*map(str, range(6))]
    truth = GroundTruth(ids[:4], ids, owner, Judgements.from_pairs(owner, 4), texts=texts)
    add_judgements(truth, ["identical_captions"])
    assert truth.extra["identical_captions"] is not truth.judgements
    assert truth.extra["identical_captions"].grades.nnz == 8
    with pytest.raises(JudgementsError, match="'identical_captions' has no wrong pairs"):
        add_judgements(truth, [JudgementOptions("identical_captions", "x", unjudged="left_out")])
    with pytest.raises(JudgementsError, match="identical_captions needs the texts"):
        add_judgements(replace(truth, texts=(), extra={}), ["identical_captions"])


def test_csv_judgements_are_graded_and_many_to_many(tmp_path):
    text = "grade,image,caption\n2,a,1\n0.5,a,4\n1,b,1\n0,c,2\n\n2,a,1\n"
    found = read_judgements(written(tmp_path, text), IMAGES, CAPTIONS)
    np.testing.assert_array_equal(
        found.grades.toarray(), [[2, 0, 0, 0.5], [1, 0, 0, 0], [0, 0, 0, 0]]
    )
    plain = read_judgements(written(tmp_path, "image,caption\nc,3\n"), IMAGES, CAPTIONS)
    assert plain.grades[2, 2] == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image,caption\na,1\nd,1\n", r"csv:3: unknown image 'd'; there are 3, the first 'a'"),
        ("image,caption\na,9\n", r"csv:2: unknown caption '9'"),
        *(
            (f"image,caption,grade\na,1,{grade}\n", f"csv:2: the grade is '{grade}'")
            for grade in ("good", "-1", "nan", "inf", "1_0", "1e39", "1e-50")
        ),
        ("image,caption,grade,grade\na,1,1,0\n", r"has two columns 'grade'"),
        ("image,caption\n", r"has no relevant pair"),
        ("image,caption,grade\na,1,0\nb,2,0\n", r"has no relevant pair"),
        (
            "image,caption,grade\na,1,1\na,1,2\n",
            r"csv:3: image 'a' and caption '1' are judged 1 above",
        ),
        ("image,caption\na\n", r"csv:2: 1 fields, not 2"),
        ("picture,caption\na,1\n", r"no column 'image'"),
        ('image,caption\na,"1\n', r"not valid CSV"),
    ],
)
def test_mistakes_in_a_csv_name_file_and_line(tmp_path, text, says):
    with pytest.raises(JudgementsError, match=says):
        read_judgements(written(tmp_path, text), IMAGES, CAPTIONS)


def test_sparse_matrices_are_judgements(tmp_path):
    right = scipy.sparse.csr_array(np.eye(3, 4))
    scipy.sparse.save_npz(tmp_path / "truth.npz", right)
    found = read_judgements(tmp_path / "truth.npz", IMAGES, CAPTIONS)
    np.testing.assert_array_equal(found.grades.toarray(), np.eye(3, 4))
    with pytest.raises(JudgementsError, match="judges 3 images and 4 captions"):
        read_judgements(tmp_path / "truth.npz", IMAGES, CAPTIONS[:3])
    with pytest.raises(JudgementsError, match="does not exist"):
        read_judgements(tmp_path / "none.npz", IMAGES, CAPTIONS)
    scipy.sparse.save_npz(tmp_path / "inf.npz", right * np.inf)
    with pytest.raises(JudgementsError, match=r"inf.npz: .* infinite"):
        read_judgements(tmp_path / "inf.npz", IMAGES, CAPTIONS)
    scipy.sparse.save_npz(tmp_path / "empty.npz", 0 * right)
    with pytest.raises(JudgementsError, match="has no relevant pair"):
        read_judgements(tmp_path / "empty.npz", IMAGES, CAPTIONS)


def test_only_those_who_are_asked_are_queries(random):
    right = scipy.sparse.csr_array(random.random((9, 14)) < 0.4)
    scores = random.normal(size=(9, 14))
    image_query_mask, caption_query_mask = random.random(9) < 0.5, random.random(14) < 0.5
    everyone = evaluate_scores(scores, Judgements(right))
    some = evaluate_scores(scores, Judgements(right, image_query_mask, caption_query_mask))
    for found, whole, asked in (
        (some.image_to_text, everyone.image_to_text, image_query_mask),
        (some.text_to_image, everyone.text_to_image, caption_query_mask),
    ):
        for name, values in found.values.items():
            np.testing.assert_array_equal(values[asked], whole.values[name][asked])
            assert np.isnan(values[~asked]).all()
    order = random.permutation(9)
    chosen = Judgements(right, image_query_mask).select(order, np.arange(14))
    np.testing.assert_array_equal(chosen.image_query_mask, image_query_mask[order])


@pytest.mark.slow
def test_extended_coco_equals_the_package(random, monkeypatch):
    module = pytest.importorskip("eccv_caption")
    package, files = module.Metrics(), module.Metrics()
    monkeypatch.setattr(module, "Metrics", lambda: files)  # Reading them takes half a second.
    images, captions = list(map(str, package.coco_gts["i2t"])), list(map(str, package.coco_ids))
    eccv = extended_coco("eccv_caption", images, captions)
    assert (eccv.image_query_mask.sum(), eccv.caption_query_mask.sum()) == (1261, 1332)
    whole = [int(id_) for id_ in images], package.coco_ids  # As Karpathy's file has them.
    assert extended_coco("cxc", *whole).grades.nnz == 35585
    with pytest.raises(UserError, match="COCO's test split and use COCO's ids"):
        extended_coco("cxc", IMAGES, CAPTIONS)

    owner = {c: images[0] for c, images in package.coco_gts["t2i"].items()}
    # A part of the test split, with the first queries of ECCV Caption and all they ask for.
    images = list(package.eccv_gts["i2t"])[:40]
    wanted = {c for i in images for c in package.eccv_gts["i2t"][i] if c in owner}
    captions = sorted(wanted | {c for c in package.eccv_gts["t2i"] if owner.get(c) in images})
    scores = random.normal(size=(len(images), len(captions)))
    scores += [[2.0 * (owner[c] == i) for c in captions] for i in images]
    i2t = {
        i: [captions[k] for k in np.argsort(-row)] for i, row in zip(images, scores, strict=True)
    }
    t2i = {c: [images[k] for k in np.argsort(-scores[:, n])] for n, c in enumerate(captions)}
    for name, relation in (("eccv_caption", package.eccv_gts), ("cxc", package.cxc_gts)):
        relation["i2t"] = _within(relation["i2t"], images, captions)
        relation["t2i"] = _within(relation["t2i"], captions, images)
        judgements = extended_coco(name, list(map(str, images)), list(map(str, captions)))
        summary = evaluate_scores(scores, judgements).summary
        items = {"i2t": i2t, "t2i": t2i}
        recalls = package.cxc_recalls if name == "cxc" else package.eccv_recalls
        for k in (1, 5, 10):
            expected = recalls(items, "all", k)
            for side in ("i2t", "t2i"):
                np.testing.assert_allclose(summary[f"{side}_recall_{k}"], expected[side])
    expected = package.eccv_metrics(items, "all")
    judgements = extended_coco("eccv_caption", list(map(str, images)), list(map(str, captions)))
    summary = evaluate_scores(scores, judgements).summary
    for side in ("i2t", "t2i"):
        np.testing.assert_allclose(summary[f"{side}_map_at_r"], expected["eccv_map_at_r"][side])
        np.testing.assert_allclose(
            summary[f"{side}_r_precision"], expected["eccv_rprecision"][side]
        )


def _within(relation, queries, candidates):
    candidates = set(candidates)
    parts = {q: [c for c in relation[q] if c in candidates] for q in queries if q in relation}
    return {q: found for q, found in parts.items() if found}


def test_extended_coco_without_the_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "eccv_caption", None)
    with pytest.raises(Exception, match=r"pip install .*\[eccv\]"):
        extended_coco("cxc", IMAGES, CAPTIONS)


COCO = {
    "images": [{"id": 7}, {"id": 3}],
    "annotations": [
        {"id": 12, "image_id": 3, "caption": "x"},
        {"id": 10, "image_id": 7, "caption": "y"},
        {"id": 11, "image_id": 3, "caption": "x"},
    ],
}


def test_coco_captions_keep_the_order_of_the_file(tmp_path):
    truth = read_ground_truth(written(tmp_path, json.dumps(COCO), "captions.json"))
    assert truth.image_ids == ["7", "3"]
    assert truth.caption_ids == ["12", "10", "11"]
    np.testing.assert_array_equal(truth.judgements.grades.toarray(), [[0, 1, 0], [1, 0, 1]])
    instances = {
        "categories": [{"id": 90}, {"id": 2}],
        "annotations": [{"image_id": 3, "category_id": 90}, {"image_id": 3, "category_id": 2}],
    }
    path = written(tmp_path, json.dumps(instances), "instances.json")
    assert read_labels(path, truth.image_ids) == [(), (0, 1)]


def test_karpathy_files_have_splits(tmp_path):
    def image(number, split):
        sentences = [{"raw": "x", "sentid": 10 * number + k} for k in range(2)]
        return {"filename": f"{number}.jpg", "split": split, "sentences": sentences}

    content = {"images": [image(4, "test"), image(5, "val"), image(2, "test")]}
    path = written(tmp_path, json.dumps(content), "dataset.json")
    truth = read_ground_truth(path)
    assert truth.image_ids == ["4.jpg", "2.jpg"]
    assert truth.caption_ids == ["40", "41", "20", "21"]
    np.testing.assert_array_equal(truth.caption_image, [0, 0, 1, 1])
    assert read_ground_truth(path, "val").shape == (1, 2)
    with pytest.raises(JudgementsError, match="no split 'dev'; it has test, val"):
        read_ground_truth(path, "dev")


def test_csv_ground_truth_is_many_to_many(tmp_path):
    text = "image,caption,grade\nb,a dog,2\na,a dog,1\na,a cat,0\nb,a cat,1\n"
    truth = read_ground_truth(written(tmp_path, text))
    assert (truth.image_ids, truth.caption_ids) == (["b", "a"], ["a dog", "a cat"])
    np.testing.assert_array_equal(truth.judgements.grades.toarray(), [[2, 1], [1, 0]])
    np.testing.assert_array_equal(truth.caption_image, [0, 0])
    with pytest.raises(JudgementsError, match="has no relevant pair"):
        read_ground_truth(written(tmp_path, "image,caption,grade\nb,a dog,0\n"))
    apart = "image,caption_id,caption\nb,1,a dog\na,2,a dog\n"
    assert read_ground_truth(written(tmp_path, apart)).caption_ids == ["1", "2"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": [{"id": 7}, {"id": 7}]}, "image id '7' is given twice"),
        ({"images": [{"id": 7}]}, "caption 12 belongs to image '3'"),
        ({"images": 5}, "no list 'images'"),
        ({"annotations": []}, "has no captions"),
        ({"judgements": "classes"}, "'labels' in every image"),
        ({"annotations": [{"id": 1}]}, "it has no 'image_id'"),
    ],
)
def test_mistakes_in_a_caption_file_are_told(tmp_path, change, says):
    with pytest.raises(JudgementsError, match=says):
        read_ground_truth(written(tmp_path, json.dumps(COCO | change), "captions.json"))
    with pytest.raises(JudgementsError, match="no splits"):
        read_ground_truth(written(tmp_path, json.dumps(COCO), "captions.json"), "test")


@pytest.mark.parametrize("kind", ["pairs", "classes"])
def test_a_ground_truth_that_is_written_reads_the_same(tmp_path, kind):
    labels = [(1,), (0,), (1,)]
    owner = np.array([2, 0, 0, 1])
    classes = np.array([1, 0, 1])
    judgements = (
        Judgements.from_pairs(owner, 3)
        if kind == "pairs"
        else Judgements.from_classes(classes, classes[owner])
    )
    truth = GroundTruth(IMAGES, CAPTIONS, owner, judgements, kind, list("wxyz"), labels)
    write_ground_truth(tmp_path / "g.json", truth)
    again = read_ground_truth(tmp_path / "g.json")
    np.testing.assert_array_equal(again.judgements.grades.toarray(), judgements.grades.toarray())
    np.testing.assert_array_equal(again.caption_image, owner)
    assert (again.image_ids, again.caption_ids, again.texts) == (IMAGES, CAPTIONS, list("wxyz"))
    assert again.labels == labels
    assert not again.has_label_vectors


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("\u0915\u093f", "\u0915\u0940", False),  # Hindi: ki, kii
        ("\u0e01\u0e34", "\u0e01\u0e35", False),  # Thai: vowels i, ii
        ("a \U0001f436", "a \U0001f431", False),
        ("\U0001f436", "\U0001f431", False),
        ("c++", "c#", False),
        ("c++", "c", False),
        ("caf\u00e9", "cafe\u0301", True),
        ("A dog, running.", "a dog running", True),
        ("the dog's ball!", "The dog\u2019s ball", True),
        ("\u0915\u093f\u0964", "\u0915\u093f", True),  # The full stop of Hindi
    ],
)
def test_captions_are_equal_if_their_words_are(left, right, same):
    judgements = Judgements.from_texts([left, right], np.arange(2), 2)
    assert judgements.grades.nnz == (4 if same else 2)


def test_no_pairs_are_judgements():
    nothing = Judgements.from_grades(np.empty((0, 2)), [], (2, 3), fully_judged=False)
    assert (nothing.grades.nnz, nothing.image_query_mask.any()) == (0, False)
