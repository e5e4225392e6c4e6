"""The commands `index`, `search` and `embed`, with a model that knows colours."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as parquet
import pytest
import uvicorn
from small_index import StubEmbedder, photo, write_photos

from data_pipelines.shards import RecordsError
from keras_xmr.commands import embed, index, search, serve
from keras_xmr.search.server.process import create_app, listen, page_address
from keras_xmr.search.server.requests import Settings
from keras_xmr.search.server.running import announced, server_address
from keras_xmr.search.server.service import Service
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import replace_atomically


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """Runs a command with a stub in place of the model of any run; gives what it prints."""

    data = SimpleNamespace(records=Path("nowhere"), is_prepared=False)
    monkeypatch.setattr(
        "keras_xmr.experiments.export.run_embedder.run_embedder",
        lambda run, precision: StubEmbedder(),
    )
    monkeypatch.setattr(
        "keras_xmr.experiments.runs.configs.load_run", lambda *_: SimpleNamespace(data=data)
    )
    opened = SimpleNamespace(open=lambda folder, few_texts=False: StubEmbedder())
    for module in ("search", "server.service", "embedder"):
        monkeypatch.setattr(f"keras_xmr.search.{module}.Embedder", opened)
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos")

    def run(command, *arguments):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        command.run(parser.parse_args(arguments))
        return capsys.readouterr().out

    return run


@pytest.fixture
def indexed(call, tmp_path):
    (tmp_path / "photos/cut.jpg").write_bytes(photo("red")[:90])
    told = call(index, "--run=run", "--images=photos", "--no-prediction-sets")
    return SimpleNamespace(call=call, told=told)


def test_index_says_what_was_done_and_what_is_next(indexed, tmp_path, monkeypatch):
    first, *rest = indexed.told.splitlines()
    assert first == "15 photos (15 new) in run/index"
    assert "skipped, since they cannot be read: 1" in rest
    assert any("cut.jpg is" in line for line in rest)
    assert rest[-2:] == [
        "try next: keras-xmr search --index=run/index 'your query'",
        "          keras-xmr serve --index=run/index",
    ]
    # A shell does not replace the home folder there.
    monkeypatch.setenv("HOME", str(tmp_path))
    again = indexed.call(index, "--run=run", "--images=~/photos", "--no-prediction-sets")
    assert again.startswith("15 photos (nothing new)")


def test_index_says_that_the_data_of_the_training_have_changed(
    indexed, tmp_path, monkeypatch, caplog
):
    change = "my_photos has changed since records was written: train has 3 images, not 2"
    monkeypatch.setattr("data_pipelines.source_changes.data_change", lambda data: change)
    indexed.call(index, "--run=run", "--images=photos", "--no-prediction-sets")
    assert caplog.messages == [f"{change}. `keras-xmr update --run=run` trains again"]


def test_damaged_embeddings_are_named(indexed, tmp_path):
    damaged = next((tmp_path / "run/index").glob("*.mean.npy"))
    damaged.write_bytes(b"")
    told = indexed.call(index, "--run=run", "--images=photos", "--no-prediction-sets")
    assert "damaged files of the index, replaced or removed: 3" in told
    assert f"\n  run/index/{damaged.name}" in told


def test_search_prints_a_table_and_json(indexed):
    told = indexed.call(search, "--index=run/index", "blue flurb", "--results=3")
    assert told.splitlines()[0] == "blue flurb"
    assert "in set" not in told  # Nothing was calibrated.
    assert len(re.findall(r"^blue/\d.jpg +[01]\.\d+", told, re.M)) == 3
    assert "Words that the model does not know: flurb." in told
    told = indexed.call(search, "--index=run/index", "blue", "--json", "--folder=blue")
    (result,) = json.loads(told)
    assert (result["query"], result["searched"], result["prediction_set"]) == ("blue", 3, None)


def test_the_only_index_is_found_or_all_are_named(call, tmp_path):
    for command, words in ((search, ("red",)), (serve, ())):
        with pytest.raises(ConfigError, match="saved_models has no index: build one"):
            call(command, *words)
    call(index, "--run=saved_models/a", "--images=photos", "--no-prediction-sets")
    assert "red/0.jpg" in call(search, "red")
    call(index, "--run=saved_models/b", "--images=photos", "--no-prediction-sets")
    for command, words in ((search, ("red",)), (serve, ())):
        with pytest.raises(ConfigError, match=r"2 indexes; use one of --index=saved_models/a/ind"):
            call(command, *words)


def test_a_search_finds_the_server_that_runs(call, tmp_path):
    """And not another server that has its address later."""
    for name in "ab":
        call(index, f"--run=saved_models/{name}", "--images=photos", "--no-prediction-sets")
    (tmp_path / "photos/red/0.jpg").unlink()
    call(index, "--run=saved_models/b", "--images=photos", "--no-prediction-sets")
    service = Service(tmp_path / "saved_models/b/index", Settings(), load=StubEmbedder)
    service.warm_up()
    with listen("127.0.0.1", 0) as listener:
        address = page_address("127.0.0.1", listener.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with announced(service.path, address, service.id):
            (result,) = json.loads(call(search, "red", "--json"))
            assert result["searched"] == 14
            (result,) = json.loads(call(search, "red", "--json", "--index=saved_models/a/index"))
            assert result["searched"] == 15
        for announced_id, place in ((service.id, "b"), ("another", "a")):
            with announced(tmp_path / "saved_models" / place / "index", address, announced_id):
                found = server_address(tmp_path / "saved_models" / place / "index")
            assert found == (address if place == "b" else "")
        server.should_exit = True
        thread.join()
    with announced(service.path, address, service.id):
        assert server_address(service.path) == ""
    assert not (service.path / "server.json").exists()


def test_a_page_can_be_written_to_a_pipe_and_a_link_stays(indexed, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        indexed.call(search, "--index=run/index", "red", "--html=pipe")
        assert read.result(20).startswith("<!doctype html>")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "page.html").touch()
    (tmp_path / "link.html").symlink_to("page.html")
    indexed.call(search, "--index=run/index", "red", "--html=link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()
    message = "pipe is a device or a pipe; name a file"
    with pytest.raises(UserError, match=message), replace_atomically(tmp_path / "pipe"):
        pass


def test_records_of_other_data_calibrate_nothing(call, monkeypatch):
    def refuse(config):
        raise RecordsError("data/records holds records made with data.source.seed: 1")

    monkeypatch.setattr("keras_xmr.experiments.export.calibration.open_records", refuse)
    monkeypatch.setattr(
        "keras_xmr.experiments.export.calibration.load_run",
        lambda run: SimpleNamespace(data=SimpleNamespace(is_prepared=True)),
    )
    with pytest.raises(UserError, match=r"seed: 1\. --no-prediction-sets builds an index without"):
        call(index, "--run=run", "--images=photos")
    assert call(index, "--run=run", "--images=photos", "--no-prediction-sets")


def test_search_says_that_photos_have_changed_since(indexed, tmp_path, caplog):
    indexed.call(search, "--index=run/index", "blue")
    assert not [message for message in caplog.messages if "since the index was made" in message]
    (tmp_path / "photos/new.jpg").write_bytes(photo("red", 9))
    (tmp_path / "photos/red/0.jpg").write_bytes(photo("green", 8))
    (tmp_path / "photos/red/1.jpg").unlink()
    indexed.call(search, "--index=run/index", "blue")
    folder = tmp_path / "photos"
    assert caplog.messages[-1] == (
        f"Photos of {folder} since the index was made: 1 new, 1 changed, 1 gone. "
        "To update the index: `keras-xmr index --index=run/index`"
    )


def test_search_takes_photos_and_what_not_to_find(indexed, tmp_path):
    (tmp_path / "query.png").write_bytes(photo("yellow", 5))
    told = indexed.call(
        search, "--index=run/index", "--image=query.png", "--not=red", "--results=3", "--json"
    )
    (result,) = json.loads(told)
    assert result["query"] == "query.png, not red"
    assert len(result["hits"]) == 3


def test_queries_come_from_a_file(indexed, tmp_path):
    (tmp_path / "queries.txt").write_text("red\n\n  green \n")
    told = json.loads(indexed.call(search, "--index=run/index", "--queries=queries.txt", "--json"))
    assert [result["query"] for result in told] == ["red", "green"]
    assert [result["hits"][0]["path"][:3] for result in told] == ["red", "gre"]
    (tmp_path / "queries.txt").write_text("\n")
    with pytest.raises(UserError, match=r"queries.txt is empty"):
        indexed.call(search, "--index=run/index", "--queries=queries.txt")
    with pytest.raises(ConfigError, match="excludes TEXT"):
        indexed.call(search, "--index=run/index", "--queries=queries.txt", "red")
    with pytest.raises(UserError, match=r"no.png cannot be read"):
        indexed.call(search, "--index=run/index", "--image=no.png")


def test_a_query_that_is_none_is_named_and_the_others_are_answered(indexed, tmp_path, caplog):
    (tmp_path / "queries.txt").write_bytes(b"red\n\n!?\ngreen\n\xff\nblue\n" + 3000 * b"x" + b"\n")
    told = json.loads(indexed.call(search, "--index=run/index", "--queries=queries.txt", "--json"))
    assert [result["query"] for result in told] == ["red", "green", "blue"]
    assert caplog.messages[-4:] == [
        "queries.txt:3: the text '!?' has no words: say in words what the photo shows",
        r"queries.txt:5: the text '\udcff' is not UTF-8",
        "queries.txt:7: a text has at most 2,000 characters, not 3,000",
        "3 of 6 queries skipped",
    ]
    (tmp_path / "queries.txt").write_text("\n!\n?\n")
    with pytest.raises(UserError, match=r"--queries: queries.txt:2: the text '!' has no words"):
        indexed.call(search, "--index=run/index", "--queries=queries.txt")
    with pytest.raises(UserError, match=r"the text 'a\\udcff' is not UTF-8"):
        indexed.call(search, "--index=run/index", "a\udcff")


def test_the_page_holds_all_that_it_shows(indexed, tmp_path):
    (tmp_path / "photos/<b>.jpg").write_bytes(photo("red", 7))
    indexed.call(index, "--run=run", "--images=photos", "--no-prediction-sets")
    indexed.call(search, "--index=run/index", "red <script>", "--html=out/page.html")
    page = (tmp_path / "out/page.html").read_text()
    assert "default-src 'none'" in page
    assert page.count("<br>score ") == 10
    assert "<script>" not in page
    assert "<b>.jpg" not in page
    assert "&lt;b&gt;.jpg" in page
    assert page.count('src="data:image/jpeg;base64,') == 10
    assert not re.findall(r"(src|href)=.(?!data:)", page)


def test_what_no_photo_has_is_said(indexed, tmp_path):
    (tmp_path / "tags.csv").write_text("image,tag\nred/0.jpg,warm\nnowhere.jpg,lost\n")
    told = indexed.call(
        index, "--run=run", "--images=photos", "--no-prediction-sets", "--tags=tags.csv"
    )
    assert "in the tags, but not in the index: 1\n  nowhere.jpg" in told
    told = indexed.call(search, "--index=run/index", "red", "--tag=worm", "--folder=rad")
    assert "No photo has the tag 'worm'. Did you mean 'warm'?" in told
    assert "No photo is in the folder 'rad'. Did you mean 'red'?" in told
    told = indexed.call(search, "--index=run/index", "red", "--tag=warm", "--folder=red/")
    assert "No photo" not in told


def test_mistakes_of_a_search_are_told(indexed, tmp_path):
    (tmp_path / "queries.txt").write_bytes(b"\xff\xd8")
    with pytest.raises(UserError, match=r"queries.txt:1: the text .* is not UTF-8"):
        indexed.call(search, "--index=run/index", "--queries=queries.txt")
    with pytest.raises(ConfigError, match="--html=photos is a folder; name a file"):
        indexed.call(search, "--index=run/index", "red", "--html=photos")
    with pytest.raises(UserError, match=r"queries.txt is not a folder"):
        indexed.call(search, "--index=run/index", "red", "--html=queries.txt/page.html")
    days = ("--since=2021-01-02", "--until=2021-01-01")
    with pytest.raises(ConfigError, match="--since=2021-01-02 is later than --until=2021-01-01"):
        indexed.call(search, "--index=run/index", "red", *days)


def test_embed_writes_all_that_can_be_read(call, tmp_path):
    (tmp_path / "photos/cut.jpg").write_bytes(photo("red")[:90])
    told = call(embed, "photos", "--run=run", "--output=out/x.npz")
    assert "mean (15, 3) of 15 photos" in told
    found = np.load(tmp_path / "out/x.npz")
    assert sorted(found) == ["fingerprint", "mean", "paths"]
    assert found["paths"][0] == "blue/0.jpg"
    assert found["mean"][0].argmax() == 2
    assert not list((tmp_path / "out").glob(".*"))
    call(embed, "photos", "--run=run", "--output=out/x.parquet")
    table = parquet.read_table(tmp_path / "out/x.parquet")
    assert table.column_names == ["path", "mean"]
    assert table["path"].to_pylist() == found["paths"].tolist()
    np.testing.assert_array_equal(table["mean"].to_pylist(), found["mean"])
    assert table.schema.metadata[b"fingerprint"].decode() == str(found["fingerprint"])
    with pytest.raises(UserError, match=r"must end in .npz or .parquet"):
        call(embed, "photos", "--run=run", "--output=x.csv")
    with pytest.raises(UserError, match="nowhere is not a folder"):
        call(embed, "nowhere", "--run=run", "--output=x.npz")
    with pytest.raises(UserError, match=r"0.jpg is not a folder"):
        call(embed, "photos", "--run=run", "--output=photos/red/0.jpg/x.npz")
    with pytest.raises(UserError, match=r"0.jpg is not a folder"):
        call(index, "--run=run", "--images=photos", "--index=photos/red/0.jpg/index")


@pytest.mark.parametrize("day", ["June", "2021-13-01"])
def test_days_are_checked(call, day, capsys):
    with pytest.raises(SystemExit):
        call(search, "--index=nowhere", "a dog", f"--since={day}")
    assert f"invalid date '{day}': use YYYY-MM-DD" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x" * 3000], "a text has at most 2,000 characters, not 3,000"),
        (["!?"], "has no words"),
        (["--image=broken.jpg"], "broken.jpg is not an image of a known format"),
        (["--image=nothing.jpg"], "nothing.jpg"),
    ],
)
def test_bad_queries_are_refused_before_a_model_is_loaded(
    call, indexed, tmp_path, monkeypatch, words, says
):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    opened = SimpleNamespace(open=lambda folder: pytest.fail("too late"))
    monkeypatch.setattr("keras_xmr.search.search.Embedder", opened)
    with pytest.raises(UserError, match=says):
        call(search, "--index=run/index", *words)


def test_a_wrong_folder_needs_no_model(call, indexed, monkeypatch):
    opened = SimpleNamespace(open=lambda folder: pytest.fail("too late"))
    monkeypatch.setattr("keras_xmr.search.search.Embedder", opened)
    told = call(search, "--index=run/index", "a dog", "--folder=nope")
    assert "No photo is in the folder 'nope'" in told
