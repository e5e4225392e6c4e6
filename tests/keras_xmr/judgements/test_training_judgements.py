"""Pairs that people have judged, in a training."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.runs.beginning import keep_judgements
from keras_xmr.experiments.training.judged import judged_training
from keras_xmr.judgements.judgement_files import (
    BatchGrades,
    JudgementsError,
    read_judgements,
    read_training_judgements,
)
from keras_xmr.model.objective import relations
from keras_xmr.utils.errors import ConfigError

IMAGES = ["a.jpg", "b.jpg", "c.jpg"]
CAPTIONS = [("a#0", "a dog"), ("a#1", "two  dogs"), ("b#0", "a dog"), ("c#0", "a cat")]


def written(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["image,caption,grade", *rows, ""]), "utf-8")
    return path


def read(path: Path, *rows: str):
    others = (["test.jpg"], ["test#0"])
    return read_training_judgements(written(path, *rows), IMAGES, CAPTIONS, *others)


def test_captions_go_by_id_or_by_text(tmp_path):
    rows = ("a.jpg,c#0,1", "c.jpg,a dog,0", "b.jpg,two dogs,0.5", "test.jpg,a dog,1")
    found = read(tmp_path / "marks.csv", *rows, "a.jpg,test#0,1")
    assert (found.new_captions, found.left_out) == ({}, 2)
    grades = BatchGrades(found.grades, IMAGES, CAPTIONS)
    n = np.nan
    everything = [[n, n, n, 1], [n, 0.5, n, n], [0, n, 0, n]]
    np.testing.assert_array_equal(grades(np.arange(3), np.arange(4)), everything)
    np.testing.assert_array_equal(grades(np.array([2, 0]), np.array([3, 0])), [[n, 0], [1, n]])


def test_a_pair_that_is_judged_by_id_and_by_text_is_one(tmp_path):
    found = read(tmp_path / "marks.csv", "c.jpg,c#0,1", "c.jpg,a cat,1")
    assert BatchGrades(found.grades, IMAGES, CAPTIONS)(np.array([2]), np.array([3])) == [[1]]
    twice = r"marks.csv:3: image 'c.jpg' and caption 'a cat' .*judged 1 above and 0 here"
    with pytest.raises(JudgementsError, match=twice):
        read(tmp_path / "marks.csv", "c.jpg,c#0,1", "c.jpg,a cat,0")


def test_the_largest_grade_is_1(tmp_path):
    found = read(tmp_path / "marks.csv", "a.jpg,a cat,3", "b.jpg,a cat,1")
    told = BatchGrades(found.grades, IMAGES, CAPTIONS)(np.arange(3), np.array([3]))[:, 0]
    np.testing.assert_allclose(told, [1, 1 / 3, np.nan], rtol=1e-5)


def test_a_text_that_was_searched_for_becomes_a_caption(tmp_path):
    rows = ("a.jpg,a brown dog,1", "b.jpg,a brown dog,1", "c.jpg,a brown dog,0", "b.jpg,snow,0")
    found = read(tmp_path / "marks.csv", *rows)
    assert found.new_captions == {
        "a.jpg": [("a.jpg#judged-0", "a brown dog")],
        "b.jpg": [("b.jpg#judged-0", "a brown dog")],
    }
    new = [caption for own in found.new_captions.values() for caption in own]
    grades = BatchGrades(found.grades, IMAGES, [*CAPTIONS, *new])
    # Each is right for both photos, and wrong for the third.
    told = grades(np.arange(3), np.array([4, 5]))
    np.testing.assert_array_equal(told, [[1, 1], [1, 1], [0, 0]])


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("z.jpg,a dog,1", "no image 'z.jpg'"),
        ("a.jpg,a#17,1", "'a#17' is neither the id nor the text"),
        ("a.jpg,a dog,-1", "the grade is '-1'"),
        ("a.jpg,a dog,right", "the grade is 'right'"),
    ],
)
def test_mistakes_are_named(tmp_path, row, what):
    path = tmp_path / "marks.csv"
    with pytest.raises(JudgementsError, match=what) as error:
        read(path, row)
    assert f"{path}:2" in str(error.value)


def test_blanks_around_a_name_count_where_the_data_set_has_them(tmp_path):
    path = tmp_path / "judgements.csv"
    path.write_text("image,caption,grade\na.jpg , c0,1\nb.jpg ,c1 ,0\n")
    found = read_training_judgements(path, ["a.jpg", "b.jpg "], [("c0", "a dog"), ("c1 ", "two")])
    assert found.grades == {("a.jpg", "c0"): 1.0, ("b.jpg ", "c1 "): 0.0}


def test_marks_of_searches_are_judgements_to_measure_by(tmp_path):
    path = written(tmp_path / "marks.csv", "c.jpg,a  dog,1", "a.jpg,c#0,2")
    ids, texts = zip(*CAPTIONS, strict=True)
    found = read_judgements(path, IMAGES, ids, texts).grades.toarray()
    np.testing.assert_array_equal(found, [[0, 0, 0, 2], [0, 0, 0, 0], [1, 0, 1, 0]])
    with pytest.raises(JudgementsError, match="unknown caption 'a  dog'"):
        read_judgements(path, IMAGES, ids)


def test_what_people_say_goes_before_what_was_annotated():
    judged = np.full((3, 3), np.nan, np.float32)
    judged[0, 0], judged[0, 1], judged[2, 1] = 0, 1, 0.5
    found = relations({"image_id": tf.range(3), "judged": tf.constant(judged)}, "pairs")
    expected = [[False, True, False], [False, True, False], [False, True, True]]
    np.testing.assert_array_equal(found["positives"], expected)
    np.testing.assert_allclose(found["targets"], [[0, 1, 0], [0, 1, 0], [0, 0.5, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("make", [models.pcmepp, models.points, models.msrm])
def test_the_gradient_attracts_what_is_right_and_repels_what_is_wrong(make):
    """A pair that nobody has annotated (0, 2), and the annotated pair (0, 0) called wrong."""
    model = make()
    x, y = models.batch(4)
    y["image_id"] = np.arange(4)
    judged = {grade: np.full((4, 4), np.nan, np.float32) for grade in (1, 0)}
    judged[1][0, 2], judged[0][0, 0] = 1, 0

    with tf.GradientTape(persistent=True) as tape:
        out = model(x, training=False)
        scores = model.score(out["image"], out["caption"])
        pairs = scores[0, 2], scores[0, 0]
        losses = [
            model.compute_loss(x, {n: tf.constant(v) for n, v in {**y, **more}.items()}, out)
            for more in ({}, {"judged": judged[1]}, {"judged": judged[0]})
        ]
    kernel = model.image_tower.get_layer("encoder").kernel
    plain, right, wrong = (-tape.gradient(loss, kernel) for loss in losses)
    attracted, repelled = (tape.gradient(pair, kernel) for pair in pairs)
    # How much further a step against the gradient takes the score of the pair up, or down.
    assert tf.reduce_sum((right - plain) * attracted) > 0
    assert tf.reduce_sum((wrong - plain) * repelled) < 0


def test_a_training_takes_it_and_keeps_a_copy(trained, tmp_path):
    records = trained.records
    part, held = records.split("train"), records.split("test")
    marks = tmp_path / "marks.csv"
    keys = part.image_keys
    written(
        marks,
        f"{keys[0]},a thing that is new,1",
        f"{keys[1]},{part.captions[0].text},0",
        f"{held.image_keys[0]},a thing that is new,1",
    )
    config = models.tiny_config(tmp_path, f"data.training_judgements={marks}")
    folder = type(trained.folder)(config)
    found, grades, _ = judged_training(config, folder, records)
    more = found.split("train")
    assert more.num_captions == part.num_captions + 1
    assert found.split("test").num_captions == held.num_captions
    assert more.captions[int(more.first_caption[1]) - 1].text == "a thing that is new"
    told = grades(np.array([1]), np.array([0]))
    assert told.tolist() == [[0.0]]
    folder.path.mkdir(parents=True)
    keep_judgements(folder, config)
    assert folder.training_judgements.read_bytes() == marks.read_bytes()


def test_losses_that_cannot_learn_from_it_are_refused():
    marks = "data.training_judgements=marks.csv"
    with pytest.raises(ConfigError, match="no loss"):
        load_config(find_config("scenes_pcmepp"), [marks, "objective=[kl_divergence]"])
    load_config(find_config("scenes_pcmepp"), [marks])
