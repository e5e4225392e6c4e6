"""The command `learn`, with a model that knows colours."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest
from small_index import StubEmbedder, small_index

from keras_xmr.commands import learn
from keras_xmr.config.loader import ConfigError
from keras_xmr.utils.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learn")
    small_index(folder)
    return folder


@pytest.fixture
def call(monkeypatch, folder, capsys):
    """Runs the command with a stub in place of the model of any run; gives what it prints."""

    def stub(run, compiled=True):
        found = StubEmbedder()
        found.folder = SimpleNamespace(path=run)
        return found

    monkeypatch.setattr("keras_xmr.search.run_model.RunModel", stub)
    monkeypatch.chdir(folder)

    def run(*arguments):
        parser = argparse.ArgumentParser()
        learn.add_arguments(parser)
        learn.run(parser.parse_args(["--index=index", *arguments]))
        return capsys.readouterr().out.splitlines()

    yield run
    for name in ("learned.npz", "judgements.csv"):
        (folder / "index" / name).unlink(missing_ok=True)


def write(path, queries, right=(0, 1, 2), wrong=("green", "blue")):
    rows = [f"red/{n}.jpg,{query},1" for query in queries for n in right]
    rows += [f"{colour}/0.jpg,{query},0" for query in queries for colour in wrong]
    path.write_text("image,caption,grade\n" + "\n".join(rows) + "\n", "utf-8")


@pytest.mark.slow
def test_marks_of_the_page_are_learned_and_forgotten(call, folder):
    write(folder / "index/judgements.csv", ["dusk", "evening", "nightfall"])
    first, second, third = call()
    assert first == "15 marks (9 right) of 3 queries"
    assert second.startswith("learned; pairs of a right and a wrong photo in order, of held-out")
    assert third == "`keras-xmr learn --index=index --undo` removes the change"
    assert (folder / "index/learned.npz").is_file()
    assert call("--undo") == ["removed; searches are those of the unchanged model"]
    assert call("--undo") == ["nothing was learned"]
    assert (folder / "index/judgements.csv").is_file(), "marks stay"


def test_too_few_marks_are_said_to_be(call, folder):
    write(folder / "marks.csv", ["dusk"])
    told = call("--marks=marks.csv")
    assert told[0] == "5 marks (3 right) of 1 query"
    assert told[1].startswith("too few to learn from: mark right and wrong photos of two queries")


def test_marks_that_the_model_knew_teach_nothing(call, folder):
    write(folder / "marks.csv", ["red", "red thing"])
    told = call("--marks=marks.csv")[1]
    assert told.startswith("nothing learned: on held-out queries")
    assert told.endswith("100.0 % of pairs of a right and a wrong photo in order")


def test_marks_of_other_photos_are_passed_over(call, folder):
    (folder / "marks.csv").write_text("image,caption,grade\ngone.jpg,dusk,1\n")
    first, second = call("--marks=marks.csv")
    assert first == "ignored, photos that are not in the index: gone.jpg"
    assert second.startswith("no marks of photos of the index")


def test_what_is_wrong_with_the_arguments_is_said(call):
    with pytest.raises(UserError, match=r"index/judgements\.csv does not exist: mark"):
        call()
    with pytest.raises(ConfigError, match="remove --marks"):
        call("--undo", "--marks=marks.csv")
