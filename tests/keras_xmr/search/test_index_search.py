"""Searching an index, with a model that knows colours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from small_index import COLOURS, StubEmbedder, photo, small_index, write_photos

from keras_xmr.commands._results_page import results_table
from keras_xmr.search import MAX_TEXT, Filters, PhotoIndex, Query, Searcher, search
from keras_xmr.search.backends import Exact
from keras_xmr.search.index_build import build_index
from keras_xmr.search.manifests import write_manifest
from keras_xmr.search.photo_table import PhotoTable
from keras_xmr.search.prediction_sets import PredictionSets
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import locked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    small_index(folder, tags={"red/0.jpg": ["warm", "mine"], "blue/1.jpg": ["mine"]})
    return folder


@pytest.fixture
def searcher(folder):
    return Searcher(PhotoIndex.open(folder / "index"), embedder=StubEmbedder())


def folders(result):
    return [hit.path.partition("/")[0] for hit in result.hits]


def with_prediction_sets(folder, **values):
    index = PhotoIndex.open(folder / "index")
    index.prediction_sets = PredictionSets(**({"cutoff": 0.8, "queries": 2, "groups": 2} | values))
    index.__dict__["reference"] = {"mean": index.sample["mean"]}
    return Searcher(index, embedder=StubEmbedder())


def test_texts_find_what_they_name(searcher):
    for colour in COLOURS:
        result = searcher.search(Query(texts=(f"{colour} thing",)), count=3)
        assert folders(result) == [colour] * 3
        assert result.unknown_words == ("thing",)
        assert result.certified
        assert result.searched == 15
        scores = [hit.score for hit in result.hits]
        assert scores == sorted(scores, reverse=True)


def test_photos_find_what_looks_like_them(searcher):
    result = searcher.search(Query(images=(photo("green", 999),)), count=3)
    assert folders(result) == ["green"] * 3
    own = searcher.index.photos()[0]
    result = searcher.search(Query(ids=(own.id,)), count=2)
    assert folders(result) == ["blue"] * 2
    assert own.id not in {hit.id for hit in result.hits}


def test_where_no_photo_is_looked_at_no_model_is_loaded(folder):
    searcher = Searcher(PhotoIndex.open(folder / "index"))
    result = searcher.search(Query(texts=("red",)), filters=Filters(folder="gren"))
    assert result.notes[0].startswith("No photo is in the folder 'gren'.")
    assert results_table("red", result) == "red\n\n" + "\n".join(result.notes)


def test_several_parts_count_together(searcher):
    both = searcher.search(Query(texts=("red", "blue")), count=6)
    assert set(folders(both)) == {"red", "blue"}
    plain = searcher.search(Query(texts=("red",)), count=6)
    assert set(folders(plain)) == {"red", "yellow"}
    without = searcher.search(Query(texts=("red",), unlike=("yellow",)), count=15)
    assert folders(without)[:3] == ["red"] * 3
    assert without.prediction_set is None


def test_filters_leave_photos_out(searcher):
    result = searcher.search(Query(texts=("red",)), 20, Filters(folder="blue"))
    assert (set(folders(result)), result.searched) == ({"blue"}, 3)
    assert searcher.search(Query(texts=("red",)), 20, Filters(folder="blu")).searched == 0
    assert searcher.search(Query(texts=("red",)), 20, Filters(tags=("mine",))).searched == 2
    assert searcher.search(Query(texts=("red",)), 20, Filters(tags=("mine", "warm"))).searched == 1
    result = searcher.search(Query(texts=("red",)), 5, Filters(until=date(2101, 1, 1)))
    assert (result.hits, result.notes[-1]) == ((), "No photo passes the filters.")
    assert result.notes[0] == "No photo has the day of the shot (EXIF)."


def test_days_are_those_of_photos_that_have_one(tmp_path):
    searcher = Searcher(small_index(tmp_path), embedder=StubEmbedder())
    photos = list(searcher.index.photos())
    days = "2019-07-03T10:20:30", "2020-01-01T00:00:00", "9999-12-31T10:00:00"
    photos[:3] = [replace(item, taken=day) for item, day in zip(photos, days, strict=False)]
    searcher.index.__dict__["_photos"] = PhotoTable.of(photos)
    for filters, count in (
        (Filters(since=date(2019, 7, 3), until=date(2019, 7, 3)), 1),
        (Filters(since=date(2019, 7, 4)), 2),
        (Filters(until=date(2030, 1, 1)), 2),
        (Filters(until=date(2001, 1, 1)), 0),
    ):
        assert searcher.search(Query(texts=("red",)), 5, filters).searched == count
    with_days = searcher.search(
        Query(texts=("red",)), 5, Filters(since=date(2020, 1, 1), until=date(2021, 1, 1))
    )
    assert "taken" in results_table("red", with_days)
    (hit,) = with_days.hits
    without = replace(with_days, hits=(replace(hit, taken=""),))
    assert "taken" not in results_table("red", without)


@pytest.mark.parametrize(
    ("query", "count", "message"),
    [
        (Query(), 5, "query is empty"),
        (Query(unlike=("red",)), 5, "query is empty"),
        (Query(texts=("!? ",)), 5, "has no words"),
        (Query(texts=("x" * (MAX_TEXT + 1),)), 5, "at most 2,000 characters"),
        (Query(texts=("red",) * 17), 5, "at most 16 parts"),
        (Query(texts=("red",)), 0, "must be 1 to 1,000, got"),
        (Query(ids=(999,)), 5, "no photo 999"),
        (Query(images=(b"no photo at all",)), 5, "photo 1 is not an image"),
    ],
)
def test_what_cannot_be_answered_is_said(searcher, query, count, message):
    with pytest.raises(UserError, match=message):
        searcher.search(query, count)


def test_prediction_sets_say_how_many(folder):
    found = with_prediction_sets(folder).search(Query(texts=("red",)), count=10)
    prediction_set = found.prediction_set
    assert [hit.in_prediction_set for hit in found.hits] == [
        hit.score >= prediction_set.cutoff for hit in found.hits
    ]
    assert 3 <= prediction_set.size < 10
    everything = with_prediction_sets(folder, cutoff=-np.inf).search(Query(texts=("red",)))
    assert (everything.prediction_set.size, everything.prediction_set.cutoff) == (15, None)


class Roundabout(StubEmbedder):
    """Scores by something that its vectors only resemble, with a bound."""

    def __init__(self, slack):
        super().__init__()
        self.slack = slack
        self.scored = 0

    def score(self, gallery, query):
        self.scored += len(gallery["mean"])
        found = super().score(gallery, query)
        return found + self.slack * np.sin(1000 * found)

    def score_bound(self, similarity, gallery, query):
        return similarity + self.slack


@pytest.mark.parametrize(("slack", "certified"), [(1e-3, True), (30.0, False)])
def test_candidates_are_widened_until_the_bound_proves_them(folder, monkeypatch, slack, certified):
    monkeypatch.setattr(search, "_FEW", 2)
    monkeypatch.setattr(search, "_MOST", 8 if certified else 2)
    index = PhotoIndex.open(folder / "index")
    index.reduces = False
    model = Roundabout(slack)
    result = Searcher(index, embedder=model).search(Query(texts=("red",)), count=1)
    assert result.certified is certified
    assert bool(result.notes) is not certified
    everything = super(Roundabout, model).score(index.sample, model.embed_texts(["red"]))[:, 0]
    exact = np.argmax(everything + slack * np.sin(1000 * everything))
    if certified:
        assert result.hits[0].id == index.ids[exact]


def with_a_bound_between_photos(folder, monkeypatch):
    """A searcher whose bound on the photos that were not scored lies above the second photo."""
    for name in ("_FEW", "_MOST"):
        monkeypatch.setattr(search, name, 12)
    searcher = with_prediction_sets(folder)
    searcher.index.reduces = False
    searcher.model.score_bound = lambda *_: np.array([-np.inf])
    first, second, *_ = searcher.search(Query(texts=("red",))).hits
    assert first.score > second.score
    searcher.model.score_bound = lambda *_: np.array([(first.score + second.score) / 2])
    return searcher


def test_a_prediction_set_that_may_lack_photos_is_not_certified(folder, monkeypatch):
    searcher = with_a_bound_between_photos(folder, monkeypatch)
    found = searcher.search(Query(texts=("red",)), count=1)
    assert 1 < found.prediction_set.size < 12
    assert found.certified is False


@pytest.mark.slow
def test_an_index_that_is_being_changed_finds_what_is_there(tmp_path, monkeypatch):
    small_index(tmp_path)
    (tmp_path / "photos/red/0.jpg").unlink()
    (tmp_path / "photos/red/9.jpg").write_bytes(photo("red", 999))
    with monkeypatch.context() as killed:
        killed.setattr(Exact, "save", _kill)
        with pytest.raises(KeyboardInterrupt):
            build_index(StubEmbedder(), tmp_path / "photos", tmp_path / "index")
    monkeypatch.setattr(search, "_FEW", 4)
    searcher = Searcher(PhotoIndex.open(tmp_path / "index"), embedder=StubEmbedder())
    found = searcher.search(Query(texts=("red",)), count=2)
    assert {hit.path for hit in found.hits} == {"red/1.jpg", "red/2.jpg"}
    assert found.certified is None
    assert found.notes[0].startswith("The index is not finished")
    shutil.rmtree(searcher.index.vectors_path)
    searcher = Searcher(PhotoIndex.open(tmp_path / "index"), embedder=StubEmbedder())
    assert searcher.search(Query(texts=("red",)), count=2).hits == found.hits
    build_index(StubEmbedder(), tmp_path / "photos", tmp_path / "index")
    searcher = Searcher(PhotoIndex.open(tmp_path / "index"), embedder=StubEmbedder())
    assert searcher.search(Query(texts=("red",)), count=2).certified


def _kill(*_):
    raise KeyboardInterrupt


def test_a_search_says_that_the_first_index_is_still_built(tmp_path):
    write_photos(tmp_path / "photos")
    model, said = StubEmbedder(), []

    def look(pixels):
        index = PhotoIndex.open(tmp_path / "index")
        for filters in (Filters(), Filters(folder="red")):
            query = Query(texts=("red",))
            said.append(Searcher(index, tmp_path / "no run").search(query, filters=filters).notes)
        raise KeyboardInterrupt

    model.embed_pixels = look
    with pytest.raises(KeyboardInterrupt):
        build_index(model, tmp_path / "photos", tmp_path / "index")
    unfinished = "The index is not finished: run `index` again unless it is still running."
    assert said[0] == ("The index has no photos yet.", unfinished)
    assert said[1][-2:] == said[0]


def test_a_search_before_the_first_photo_says_that_the_index_is_built(tmp_path):
    with (
        locked(tmp_path / "index"),
        pytest.raises(UserError, match=r"no photos yet\. The index is not finished"),
    ):
        PhotoIndex.open(tmp_path / "index")


def test_an_empty_index_answers(tmp_path):
    (tmp_path / "photos").mkdir()
    build_index(StubEmbedder(), tmp_path / "photos", tmp_path / "index")
    searcher = Searcher(PhotoIndex.open(tmp_path / "index"), embedder=StubEmbedder())
    searcher.warm_up()
    assert searcher.search(Query(texts=("red",))).hits == ()


def test_a_folder_without_an_index_is_named(tmp_path):
    with pytest.raises(UserError, match=r"holds no index .*; `index` builds one"):
        PhotoIndex.open(tmp_path / "nowhere")
    (tmp_path / "run" / "index").mkdir(parents=True)
    write_manifest(tmp_path / "run" / "index", 99, {})
    with pytest.raises(UserError, match=r"run holds no index .*run/index does"):
        PhotoIndex.open(tmp_path / "run")


@pytest.mark.slow
def test_opening_an_index_imports_no_tensorflow(folder):
    code = (
        "import sys; COMMAND_LINE_OF_KERAS_XMR = True; from pathlib import Path;"
        "from keras_xmr.search import PhotoIndex, Searcher;"
        "index = PhotoIndex.open(Path(sys.argv[1])); Searcher(index); index.thumbnail(0);"
        "index.vectors; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder / "index")], check=True)
