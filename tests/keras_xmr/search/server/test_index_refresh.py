"""Photos that are added, changed and removed while the server answers."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
from fastapi.testclient import TestClient
from small_index import StubEmbedder, photo, small_index

from keras_xmr.search import PhotoIndex, Searcher
from keras_xmr.search.index_build import build_index, replace_index
from keras_xmr.search.query import Query
from keras_xmr.search.server import process
from keras_xmr.search.server.batching import BatchingEmbedder
from keras_xmr.search.server.process import create_app
from keras_xmr.search.server.requests import SearchRequest, Settings
from keras_xmr.search.server.service import Service
from keras_xmr.utils.files import LockedError

ASKED = SearchRequest(texts=("red",), count=100)


class Slow(StubEmbedder):
    """A model that takes its time with photos."""

    def embed_pixels(self, pixels):
        time.sleep(0.02)
        return super().embed_pixels(pixels)


@pytest.fixture
def service(tmp_path):
    service = Service(small_index(tmp_path).path, Settings(), load=Slow)
    service.warm_up()
    yield service
    service.close()


def answer(service) -> tuple:
    """What a request is answered with: the photos and their scores."""
    return tuple((hit.id, hit.path, hit.score) for hit in service.find(ASKED).hits)


def answer_of_the_disk(service) -> tuple:
    """The same by the index as it is on the disk."""
    searcher = Searcher(PhotoIndex.open(service.index.path), embedder=StubEmbedder())
    hits = searcher.search(Query(texts=ASKED.texts), ASKED.count).hits
    return tuple((hit.id, hit.path, hit.score) for hit in hits)


def change(root, step: int) -> None:
    """Adds, changes and removes some photos."""
    for number in range(4):
        (root / "red" / f"new {step} {number}.jpg").write_bytes(photo("red", 50 * step + number))
    (root / "green" / "0.jpg").write_bytes(photo("yellow", 70 + step, (50, 50)))
    (root / ("blue", "white")[step] / "1.jpg").unlink()


@pytest.mark.slow
def test_answers_are_of_the_old_or_the_new_index(service, monkeypatch):
    # The index is written photo by photo.
    monkeypatch.setattr("keras_xmr.search.index_build._LEAST", 1)
    monkeypatch.setattr("keras_xmr.search.index_build._SHARE", 1000)
    stopped, states = threading.Event(), {answer(service)}

    def ask() -> list[tuple]:
        given = []
        while not stopped.is_set():
            given.append(answer(service))
            time.sleep(0.002)
        return given

    def refresh() -> None:
        while not stopped.is_set():
            service.refresh()
            time.sleep(0.005)

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask) for _ in range(2)]
        refreshed = pool.submit(refresh)
        try:
            for step in range(2):
                change(service.index.root, step)
                before = service.index
                service.update()
                states.add(answer_of_the_disk(service))
                while service.index is before:
                    time.sleep(0.005)
        finally:
            stopped.set()
        refreshed.result()
        given = [answer for future in asked for answer in future.result()]
    assert len(states) == 3
    assert set(given) <= states
    assert len(given) > 20
    paths = {path for _, path, _ in answer(service)}
    assert {"red/new 0 3.jpg", "red/new 1 0.jpg"} <= paths
    assert not {"blue/1.jpg", "white/1.jpg"} & paths


@pytest.mark.slow
def test_a_server_that_watches(service, monkeypatch, caplog):
    monkeypatch.setattr(process, "CHECK_INTERVAL", 0.02)
    root, stopped = service.index.root, threading.Event()
    thread = threading.Thread(target=process.keep_current, args=(service, True, stopped))
    thread.start()

    def wait_for(condition) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def paths() -> set[str]:
        return {hit.path for hit in service.find(ASKED).hits}

    try:
        half = photo("red", 1)
        (root / "half.jpg").write_bytes(half[: len(half) // 2])
        (root / "new.jpg").write_bytes(photo("red", 2))
        wait_for(lambda: "new.jpg" in paths() and "half.jpg" in service.index.broken())
        (root / "half.jpg").write_bytes(half)
        (root / "new.jpg").unlink()
        wait_for(lambda: "half.jpg" in paths() and "new.jpg" not in paths())
        before = paths()
        root.rename(root.with_name("away"))
        wait_for(lambda: "is the disk mounted?" in caplog.text)
        time.sleep(0.1)
        assert paths() == before
        assert caplog.text.count("is the disk mounted?") == 1
        root.with_name("away").rename(root)
        (root / "last.jpg").write_bytes(photo("blue", 3))
        wait_for(lambda: "last.jpg" in paths())
    finally:
        stopped.set()
        thread.join()


class Changing(StubEmbedder):
    """The model that the run has when it is loaded; a later one turns colours round."""

    current = "stub"

    def __init__(self):
        super().__init__(self.current)

    def embed_pixels(self, pixels):
        embedded = super().embed_pixels(pixels)
        return embedded if self.fingerprint == "stub" else {"mean": -embedded["mean"]}

    def embed_texts(self, texts):
        embedded = super().embed_texts(texts)
        return embedded if self.fingerprint == "stub" else {"mean": -embedded["mean"]}


@pytest.mark.slow
@pytest.mark.parametrize("watch", [False, True])
def test_an_update_of_the_run_fails_no_search(tmp_path, monkeypatch, watch):
    """The new model and its index take the place of the old ones, while searches go on."""
    monkeypatch.setattr(process, "CHECK_INTERVAL", 0.01)
    monkeypatch.setattr(Changing, "current", "stub")
    index = small_index(tmp_path)
    service = Service(index.path, Settings(), load=Changing)
    service.warm_up()
    client, stopped = TestClient(create_app(service), base_url="http://localhost"), Event()
    uploaded = {"files": [("images", ("x.jpg", photo("red", 7)))]}

    def ask() -> list[tuple[int, str]]:
        given = []
        while not stopped.is_set():
            for response in (
                client.post("/search", json={"texts": ["red"], "count": 3}),
                client.post("/similar", **uploaded),
            ):
                best = response.json().get("hits", [{"path": response.text}])[0]["path"]
                given.append((response.status_code, best.partition("/")[0]))
        return given

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask) for _ in range(2)]
        watched = pool.submit(process.keep_current, service, watch, stopped)
        try:
            for number in range(3):
                name = f"model {number}"
                (index.root / f"red/new {number}.jpg").write_bytes(photo("red", 50 + number))
                monkeypatch.setattr(Changing, "current", name)
                time.sleep(0.1)  # The run has its new model, and the index is not there yet.
                old, fresh = PhotoIndex.open(index.path), index.path.with_name(".index-update")
                build_index(Changing(), index.root, fresh, replaced=old)
                while True:
                    try:
                        replace_index(fresh, index.path)
                        break
                    except LockedError:
                        time.sleep(0.01)
                end = time.monotonic() + 20
                while service.index.fingerprint != name:
                    assert time.monotonic() < end
                    time.sleep(0.01)
        finally:
            stopped.set()
        watched.result()
        given = [answer for future in asked for answer in future.result()]
    assert set(given) == {(200, "red")}
    assert len(given) > 20
    assert len(service.index) == 18
    service.close()


def test_the_first_upload_does_not_make_texts_wait(tmp_path):
    """What images need is loaded after texts are answered, and not in the thread of texts."""
    begun, let = Event(), Event()

    class Heavy(StubEmbedder):
        def warm_up_images(self):
            begun.set()
            assert let.wait(20)

    service = Service(small_index(tmp_path).path, Settings(), load=Heavy)
    with ThreadPoolExecutor(2) as pool:
        warmed = pool.submit(service.warm_up)
        assert begun.wait(20)
        upload = pool.submit(service.find, SearchRequest(count=1), [photo("red", 7)])
        assert service.state == "ready"
        assert service.find(ASKED).hits
        assert not upload.done()
        let.set()
        assert upload.result(20).hits[0].path.startswith("red/")
        warmed.result(20)
    service.close()


def test_a_model_that_nothing_uses_is_freed(tmp_path):
    """At once: a server looks for garbage so rarely that it would keep each model it ever had."""
    path = small_index(tmp_path).path
    with no_garbage_collection():
        embedder = BatchingEmbedder(Slow, 8, 8)
        searcher = Searcher(PhotoIndex.open(path), embedder)
        searcher.search(Query(texts=ASKED.texts), ASKED.count)
        embedder.warm_up_images()
        model = weakref.ref(embedder._embedder())
        assert model() is not None
        del embedder, searcher
        time.sleep(0.05)
        assert model() is None


@contextmanager
def no_garbage_collection():
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_photos_that_cannot_be_read_are_logged_by_name(service, caplog):
    (service.index.root / "cut.jpg").write_bytes(photo("red")[:100])
    for _ in range(2):
        service.update()
        service.refresh()
    assert caplog.text.count("not in the index: cut.jpg is") == 1


def test_an_unfinished_index_is_not_taken(service):
    (service.index.root / "new.jpg").write_bytes(photo("red", 9))
    before, written = service.index, []

    def stop(pixels):
        written.append(1)
        raise KeyboardInterrupt

    service.embedder._embedder().embed_pixels = stop
    (service.index.root / "red" / "0.jpg").unlink()
    with pytest.raises(KeyboardInterrupt):
        service.update()
    assert not PhotoIndex.open(before.path).is_finished
    service.refresh()
    assert service.index is before
