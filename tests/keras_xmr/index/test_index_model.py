"""Indexing and searching with a trained model: the tiny run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from tiny_runs import copy_of

from data_pipelines.errors import UserError
from data_pipelines.records import parse
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.registry import components
from keras_xmr.evaluation import embed_split, score_matrices
from keras_xmr.index import PhotoIndex, Query, Searcher
from keras_xmr.index.answer_sets import standardise
from keras_xmr.index.build import build_index
from keras_xmr.index.calibration import SplitQueries, calibrate_split, embed_reference
from keras_xmr.index.model import RunModel
from keras_xmr.index.parts import stands_alone


@pytest.fixture(scope="module")
def model(trained):
    return RunModel(trained.folder.path)


@pytest.fixture(scope="module")
def photos(trained, tmp_path_factory):
    """The test photos of the run as files."""
    root = tmp_path_factory.mktemp("photos")
    records = trained.records.split("test")
    for number in range(len(records)):
        encoded = parse(records.read(number), None)["encoded"]
        (root / f"{number:03d}.jpg").write_bytes(encoded.numpy())
    return root


@pytest.fixture(scope="module")
def index(trained, photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    report = build_index(trained.folder.path, photos, path)
    assert not report.broken
    return PhotoIndex.open(path)


def test_photos_are_scored_as_evaluation_scores_them(trained, index):
    part = trained.records.split("test")
    embedded = embed_split(trained.model, part, trained.tokenizer, trained.config.data.image, 16)
    scores = score_matrices(
        trained.model.matcher, embedded.images, embedded.captions, trained.config.evaluation.tile
    )
    searcher = Searcher(index)
    for caption in (0, 7):
        found = searcher.search(Query(texts=(part.captions[caption].text,)), count=len(part))
        own = {int(hit.path[:3]): hit.score for hit in found.hits}
        told = [own[number] for number in range(len(part))]
        np.testing.assert_allclose(told, scores.image_to_text[:, caption], rtol=1e-3, atol=1e-3)
        assert found.certified


def test_answer_sets_are_calibrated_and_cover_the_exhaustive_truth(trained, model, index):
    assert index.answer_sets is not None
    found = calibrate_split(model, trained.records, "val").answer_sets
    assert found == index.answer_sets
    asked = SplitQueries.embed(model, trained.records, "test")
    assert asked.right.sum() > len(asked.right)  # Captions are true of several photos.
    against = model.score(embed_reference(model, trained.records), asked.captions).T
    scores = standardise(asked.scores(model), against)
    inside = ((scores >= found.cutoff) & asked.right).sum(axis=1)
    covered = inside >= found.share * asked.right.sum(axis=1)
    by_photo = [covered[asked.groups == g].mean() for g in np.unique(asked.groups)]
    counted = round(float(np.sum(by_photo)))
    test = scipy.stats.binomtest(counted, len(by_photo), found.confidence, "less")
    assert test.pvalue > 0.01, np.mean(by_photo)


def test_a_query_of_words_loads_no_image_tower(trained, index):
    plain = Searcher(index, compiled=False)
    found = plain.search(Query(texts=("a red circle",)), count=3)
    assert not {"image_tower", "_whole"} & vars(plain.model).keys()
    assert_same_weights(plain.model, trained.model)
    compiled = Searcher(index).search(Query(texts=("a red circle",)), count=3)
    assert [hit.path for hit in found.hits] == [hit.path for hit in compiled.hits]
    scores = [[hit.score for hit in result.hits] for result in (found, compiled)]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def assert_same_weights(model, whole):
    for name in ("text_tower", "image_tower", "matcher"):
        own, expected = (getattr(each, name).weights for each in (model, whole))
        assert len(own) == len(expected) > 0
        for one, other in zip(own, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_matcher_that_does_not_stand_alone_comes_with_the_whole_model(trained, monkeypatch):
    monkeypatch.setattr("keras_xmr.index.model.stands_alone", lambda config: False)
    model = RunModel(trained.folder.path)
    assert model.matcher is model._whole.matcher
    assert_same_weights(model, trained.model)


@pytest.mark.parametrize(
    ("config", "alone"), [("scenes_pcme", True), ("scenes_msrm", False), ("scenes_sgr", False)]
)
def test_matchers_stand_alone_where_nothing_else_shapes_or_trains_them(config, alone):
    assert stands_alone(load_config(find_config(config))) is alone


def test_odd_words_and_photos(index, model):
    found = Searcher(index).search(Query(texts=("a red flurb",)), count=1)
    assert found.unknown_words == ("flurb",)
    own = index.photo_path(3).read_bytes()
    (hit,) = Searcher(index).search(Query(images=(own,)), count=1).hits
    assert hit.id == 3


def test_another_run_is_refused(trained, index, tmp_path):
    other = copy_of(trained, tmp_path)
    for weights in other.folder.path.glob("*.weights.h5"):
        weights.write_bytes(weights.read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"made by another model .*--run"):
        Searcher(index, other.folder.path).search(Query(texts=("red",)))


def test_a_matcher_that_does_not_say_how_it_is_searched_is_refused(trained, monkeypatch):
    asked = components("matcher")["match_probability"]
    silent = {n: v for n, v in asked.constants.items() if n != "AUGMENTATION"}
    one = {"match_probability": replace(asked, constants=silent)}
    monkeypatch.setattr("keras_xmr.index.model.components", lambda family: one)
    with pytest.raises(UserError, match="match_probability does not say how photos are searched"):
        RunModel(trained.folder.path)


def test_a_run_without_training_is_refused(trained, tmp_path):
    run = copy_of(trained, tmp_path)
    run.folder.done.unlink()
    with pytest.raises(UserError, match="holds no finished training"):
        build_index(run.folder.path, tmp_path)
