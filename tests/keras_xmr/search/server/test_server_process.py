"""The server as a process: how it starts, what it bears, how it ends."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import httpx
import pytest
from small_index import StubEmbedder, photo, small_index

from keras_xmr.commands import serve as serve_command
from keras_xmr.commands._cli import main
from keras_xmr.search import PhotoIndex, Query, Searcher
from keras_xmr.search.server.process import is_loopback, listen, page_address, serve
from keras_xmr.search.server.requests import Settings
from keras_xmr.search.server.service import Service
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import has_lock

ROOT = Path(__file__).parents[4]
SUPPORT = ROOT / "tests" / "support"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return small_index(tmp_path_factory.mktemp("served")).path


@contextmanager
def stub_server(index: Path, seconds: float):
    """A process that serves, and its address."""
    command = [sys.executable, str(SUPPORT / "stub_server.py"), str(index), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{SUPPORT}"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.slow
def test_sigterm_lets_it_answer_what_was_asked(index):
    with stub_server(index, 0.5) as (process, url), ThreadPoolExecutor(4) as pool:
        while httpx.get(f"{url}healthz").status_code != 200:
            time.sleep(0.02)
        ask = {"texts": ["a red photo"]}
        asked = [pool.submit(httpx.post, f"{url}search", json=ask, timeout=20) for _ in range(4)]
        while "keras_xmr_waiting 0.0" in httpx.get(f"{url}metrics").text:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        answers = [future.result() for future in asked]
        output, errors = process.communicate(timeout=20)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert all(answer.json()["hits"] for answer in answers)
        assert (process.returncode, output, errors) == (0, "False\n", "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def search_on(http: httpx.Client, over: threading.Event, number: int) -> list[int]:
    """What a client of the page is answered until the time is over, and for what was asked then."""
    found = []
    while not over.is_set():
        number += 1
        ways = (
            partial(http.post, "/search", json={"texts": [f"a red photo {number}"]}),
            partial(http.get, f"/similar/{number % 15}"),
            partial(http.post, "/similar", files={"images": ("x.jpg", photo("red", number))}),
        )
        try:
            answer = ways[number % 3]()
            found.append(answer.status_code)
            for hit in answer.json()["hits"][:2]:
                found.append(http.get(f"/thumbnails/{hit['id']}").status_code)
        except httpx.ConnectError:
            assert over.is_set(), "only a server that ends takes no more"
    return found


@pytest.mark.slow
def test_programs_ask_a_server_and_many_at_once_see_no_error(index, capsys):
    """The command line, without TensorFlow, and then many clients until SIGTERM."""
    script = """
import sys
from keras_xmr.commands._cli import main
main()
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
"""

    def refusal(*words):
        """What is said to a search that fails, in this process."""
        with pytest.raises(SystemExit):
            main(["keras-xmr", "search", f"--server={url}", *words])
        return capsys.readouterr().err

    with stub_server(index, 0.002) as (process, url):
        while httpx.get(f"{url}healthz").status_code != 200:
            time.sleep(0.02)
        words = ["search", f"--server={url}", "red", "--not=blue", "--results=3", "--json"]
        command = [sys.executable, "-c", script, *words]
        found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert found.returncode == 0, found.stderr
        query = Query(texts=("red",), unlike=("blue",))
        wanted = Searcher(PhotoIndex.open(index), embedder=StubEmbedder()).search(query, 3)
        (answer,) = json.loads(found.stdout)
        assert answer["hits"] == json.loads(json.dumps([asdict(hit) for hit in wanted.hits]))
        said = refusal("red", "--folder=" + "x" * 2000)
        assert f"{url}search refuses the search: " in said
        with ThreadPoolExecutor(16) as pool, httpx.Client(base_url=url, timeout=60) as http:
            over = threading.Event()
            clients = [pool.submit(search_on, http, over, number) for number in range(16)]
            time.sleep(1)
            over.set()
            process.send_signal(signal.SIGTERM)
            answers = [status for client in clients for status in client.result()]
        assert process.wait(20) == 0
    assert set(answers) == {200}
    assert len(answers) > 30
    assert f"{url}search gives no answer to the search" in refusal("red")
    assert "--image excludes --server; use --index" in refusal("--image=a.jpg")


def test_what_takes_too_long_is_told_so_when_the_server_ends(index, monkeypatch):
    monkeypatch.setattr("keras_xmr.search.server.process.DRAIN", 0.1)
    monkeypatch.setattr("keras_xmr.search.server.process._ACCEPT_LONGER", 0.0)
    answered, texts = threading.Event(), []

    class Stuck(StubEmbedder):
        def embed_texts(self, wanted):
            texts.extend(wanted)
            if len(texts) == 1:
                while not service.embedder.waiting:
                    time.sleep(0.01)
            else:
                answered.wait(20)
            raise RuntimeError("no memory")

    def ask(url: str) -> httpx.Response:
        response = httpx.post(f"{url}search", json={"texts": ["red"]}, timeout=20)
        answered.set()
        return response

    service = Service(index, Settings(), load=Stuck)
    with ThreadPoolExecutor(1) as pool:
        answers = []
        with pytest.raises(UserError, match="no memory"):
            serve(service, "127.0.0.1", 0, lambda url: answers.append(pool.submit(ask, url)))
        answer = answers[0].result()
    assert answer.status_code == 503
    assert answer.json()["error"] == "the server stopped before it could answer"


@pytest.mark.slow
def test_a_model_that_does_not_fit_ends_the_server(index):
    service = Service(index, Settings(), load=lambda: StubEmbedder(fingerprint="another"))
    with pytest.raises(UserError, match="is the embedder of another index"):
        serve(service, "127.0.0.1", 0, lambda address: None)


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_ends_the_server(index):
    def load():
        raise RuntimeError("no memory")

    service = Service(index, Settings(), load=load)
    with pytest.raises(UserError, match="the model cannot be loaded: no memory"):
        serve(service, "127.0.0.1", 0, lambda address: None)


def test_what_cannot_be_listened_at_is_told():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} of 127.0.0.1 is not available"):
            listen("127.0.0.1", port)
    with pytest.raises(UserError, match="'no such host'; use one of this machine"):
        listen("no such host", 0)


def test_addresses():
    assert page_address("::1", 80) == "http://[::1]:80/"
    assert [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.5", "home")] == [False] * 4


def command(*words: str) -> None:
    """Does what the command does with some arguments."""
    parser = argparse.ArgumentParser()
    serve_command.add_arguments(parser)
    serve_command.run(parser.parse_args(["--index=nowhere", *words]))


def test_the_command_says_what_is_wrong_before_tensorflow_is_imported(monkeypatch):
    with pytest.raises(UserError, match=r"nowhere holds no index"):
        command()
    with pytest.raises(UserError, match="--port: 70000 is not a valid port"):
        command("--port=70000")


def test_the_server_waits_for_an_index_that_is_being_made(tmp_path, monkeypatch, index):
    served = []
    monkeypatch.setattr(
        "keras_xmr.search.server.process.serve", lambda *arguments: served.append(arguments)
    )
    monkeypatch.setattr(serve_command, "_PAUSE", 0.01)
    path = tmp_path / "index"
    for words in ([], ["--wait"]):
        thread = threading.Thread(target=command, args=(f"--index={path}", *words))
        if not words:
            path.mkdir()
            (path / ".lock").touch()
            assert has_lock(path)
        thread.start()
        time.sleep(0.1)
        assert thread.is_alive()
        assert not served
        # The manifest comes last, as when an index is built.
        whole = tmp_path / "whole"
        shutil.copytree(index, whole)
        path.mkdir(exist_ok=True)
        for entry in sorted(whole.iterdir(), key=lambda entry: entry.name == "manifest.json"):
            entry.rename(path / entry.name)
        whole.rmdir()
        thread.join(20)
        assert len(served) == 1
        served.clear()
        shutil.rmtree(path)


@pytest.mark.parametrize(
    ("words", "given"),
    [([], True), (["--host=0.0.0.0"], False), (["--allow-host=photos.home"], False)],
)
def test_others_get_no_files_unless_they_may(index, monkeypatch, words, given):
    served = []
    monkeypatch.setattr(
        "keras_xmr.search.server.process.serve", lambda *arguments: served.append(arguments)
    )
    command(f"--index={index}", *words)
    command(f"--index={index}", *words, "--originals", "--watch")
    assert [arguments[0].settings.originals for arguments in served] == [given, True]
    assert [arguments[-1] for arguments in served] == [False, True]


def test_packages_that_are_missing_are_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_xmr.search.server.process", None)
    with pytest.raises(UserError, match=r"pip install .*\[search\]"):
        command()
