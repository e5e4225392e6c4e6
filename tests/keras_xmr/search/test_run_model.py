"""Indexing and searching with a trained model: the tiny run."""

from __future__ import annotations

import re
from pathlib import Path

import graphs
import numpy as np
import pytest
import scipy.stats
from tiny_runs import copy_of

from keras_xmr.experiments.config.loader import find_config, load_config
from keras_xmr.experiments.evaluation.embed import embed_split
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.parts.registry import components
from keras_xmr.search import PhotoIndex, Query, Searcher
from keras_xmr.search.build import build_index
from keras_xmr.search.calibration import calibrate_run, example_caption, standardised_split
from keras_xmr.search.run_model import RunModel, is_independent
from keras_xmr.utils.errors import UserError


@pytest.fixture(scope="module")
def model(trained):
    """A model without graphs, which take longer than what is done with them here."""
    return RunModel(trained.folder.path, compiled=False)


@pytest.fixture(scope="module")
def compiled(trained):
    return RunModel(trained.folder.path)


@pytest.fixture(scope="module")
def photos(trained, tmp_path_factory):
    """The test photos of the run as files."""
    root = tmp_path_factory.mktemp("photos")
    records = trained.records.split("test")
    for number in range(len(records)):
        encoded = records.parse(records.read(number))
        (root / f"{number:03d}.jpg").write_bytes(encoded.numpy())
    return root


@pytest.fixture(scope="module")
def embedded(trained):
    """The test split as evaluation embeds it."""
    part = trained.records.split("test")
    with graphs.eager():
        return embed_split(trained.retriever, part, trained.tokenizer, trained.config)


@pytest.fixture(scope="module")
def index(trained, model, photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    report = build_index(model, photos.resolve(), path, calibrate=True)
    assert not report.broken
    assert example_caption(model) in [c.text for c in trained.records.split("train").captions]
    return PhotoIndex.open(path)


@pytest.fixture(scope="module")
def searcher(index, model):
    return Searcher(index, embedder=model)


def test_photos_are_scored_as_evaluation_scores_them(trained, embedded, searcher):
    part = trained.records.split("test")
    scores = score_tiles(
        trained.retriever.matcher,
        embedded.images,
        embedded.captions,
        trained.config.evaluation.tile,
    ).dense()
    for caption in (0, 7):
        found = searcher.search(Query(texts=(part.captions[caption].text,)), count=len(part))
        own = {int(hit.path[:3]): hit.score for hit in found.hits}
        told = [own[number] for number in range(len(part))]
        np.testing.assert_allclose(told, scores.image_to_text[:, caption], rtol=1e-3, atol=1e-3)
        assert found.certified


def test_the_snippet_of_the_docs_searches(index, tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[3] / "docs" / "how_to" / "search.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
    (tmp_path / "saved_models" / "csv_pretrained").mkdir(parents=True)
    (tmp_path / "saved_models" / "csv_pretrained" / "index").symlink_to(index.path)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(page), "exec"), {})
    hits = capsys.readouterr().out.splitlines()
    assert len(hits) == 5
    scores = [float(line.split()[1]) for line in hits]
    assert scores == sorted(scores, reverse=True)


def test_answer_sets_are_calibrated_and_cover_the_exhaustive_truth(model, index):
    sets, reference = calibrate_run(model)
    assert index.answer_sets == sets
    scores, right, groups = standardised_split(model, "test", reference)
    assert right.sum() > len(right)  # Captions are true of several photos.
    kept = ((scores >= sets.cutoff) & right).sum(axis=1) >= sets.share * right.sum(axis=1) - 1e-9
    # Captions of one photo are not independent.
    photos = [kept[groups == group].mean() for group in np.unique(groups)]
    test = scipy.stats.binomtest(round(sum(photos)), len(photos), sets.confidence, "less")
    assert test.pvalue > 0.01, np.mean(photos)


def test_records_of_other_data_are_refused(trained):
    model = RunModel(trained.folder.path)
    source = model.config.data.source.model_copy(update={"seed": 99})
    data = model.config.data.model_copy(update={"source": source})
    model.config = model.config.model_copy(update={"data": data})
    with pytest.raises(UserError, match=r"holds records made with data\.source\.seed: .* now 99"):
        calibrate_run(model)
    assert example_caption(model) == ""


def test_a_query_of_words_loads_no_image_tower(trained, index, compiled):
    plain = Searcher(index, compiled=False)
    found = plain.search(Query(texts=("a red circle",)), count=3)
    assert not {"image_tower", "_complete_model"} & vars(plain.model).keys()
    assert_same_weights(plain.model, trained.retriever)
    same = Searcher(index, embedder=compiled).search(Query(texts=("a red circle",)), count=3)
    assert [hit.path for hit in found.hits] == [hit.path for hit in same.hits]
    scores = [[hit.score for hit in result.hits] for result in (found, same)]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def assert_same_weights(model, whole):
    for name in ("text_tower", "image_tower", "matcher"):
        own, expected = (getattr(each, name).weights for each in (model, whole))
        assert len(own) == len(expected) > 0
        for one, other in zip(own, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_matcher_that_does_not_stand_alone_comes_with_the_whole_model(trained, monkeypatch):
    monkeypatch.setattr("keras_xmr.search.run_model.is_independent", lambda config: False)
    model = RunModel(trained.folder.path)
    assert model.matcher is model._complete_model.matcher
    assert_same_weights(model, trained.retriever)


@pytest.mark.parametrize(
    ("config", "alone"), [("scenes_pcme", True), ("scenes_msrm", False), ("scenes_sgr", False)]
)
def test_matchers_stand_alone_where_nothing_else_shapes_or_trains_them(config, alone):
    assert is_independent(load_config(find_config(config))) is alone


@pytest.mark.slow
def test_odd_words_and_photos(index, searcher):
    found = searcher.search(Query(texts=("a red flurb",)), count=1)
    assert found.unknown_words == ("flurb",)
    own = index.photo_path(3).read_bytes()
    (hit,) = searcher.search(Query(images=(own,)), count=1).hits
    assert hit.id == 3


def test_another_run_is_refused(trained, index, tmp_path):
    other = copy_of(trained, tmp_path)
    for weights in other.folder.path.glob("*.weights.h5"):
        weights.write_bytes(weights.read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"made by another model .*--run"):
        Searcher(index, other.folder.path).search(Query(texts=("red",)))


def test_a_vocabulary_of_another_run_is_refused(trained, index, photos, tmp_path):
    other = copy_of(trained, tmp_path)
    vocabulary = other.folder.path / "vocabulary.txt"
    *words, last, end = vocabulary.read_text().splitlines()
    vocabulary.write_text("\n".join([*words, end, last, ""]))
    for use in (
        lambda: Searcher(index, other.folder.path).search(Query(texts=("red",))),
        lambda: build_index(RunModel(other.folder.path), photos.resolve(), tmp_path / "index"),
    ):
        with pytest.raises(UserError, match=r"vocabulary\.txt is damaged: its checksum"):
            use()


def test_a_matcher_that_does_not_say_how_it_is_searched_is_refused(trained, monkeypatch):
    monkeypatch.setattr(components("matcher")["match_probability"], "SEARCH", None)
    with pytest.raises(UserError, match="match_probability does not declare how it"):
        RunModel(trained.folder.path)


def test_a_run_without_training_is_refused(trained, tmp_path):
    run = copy_of(trained, tmp_path)
    run.folder.done.unlink()
    with pytest.raises(UserError, match="has no finished training"):
        RunModel(run.folder.path)
