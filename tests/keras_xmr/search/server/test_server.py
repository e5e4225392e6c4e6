"""The server: its JSON, its limits, and what it does not give away."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from small_index import StubEmbedder, small_index

from keras_xmr.search.index_build import build_index
from keras_xmr.search.server import requests as requests_module
from keras_xmr.search.server.batching import Batcher
from keras_xmr.search.server.process import create_app
from keras_xmr.search.server.requests import OverloadedError, Settings
from keras_xmr.search.server.service import Service


def image_file(size: tuple[int, int] = (20, 10), kind: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def service(tmp_path):
    index = small_index(tmp_path)
    service = Service(
        index.path,
        Settings(max_pixels=10_000, max_request_pixels=12_000, max_image_bytes=50_000),
        load=StubEmbedder,
    )
    service.warm_up()
    yield service
    service.close()


@pytest.fixture
def client(service):
    return TestClient(
        create_app(service), base_url="http://localhost:8000", raise_server_exceptions=False
    )


def error_of(response, status: int) -> str:
    """The sentence of an error, which is all that there is of it."""
    assert response.status_code == status, response.text
    content = response.json()
    assert list(content) == ["error"]
    assert content["error"]
    assert "Traceback" not in content["error"]
    return content["error"]


def test_search_by_text_tells_all_that_the_library_tells(client, service):
    response = client.post("/search", json={"texts": ["a dog"], "count": 5})
    found = response.json()
    assert response.status_code == 200
    assert len(found["hits"]) == 5
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    expected = {"broken", "certified", "hits", "notes", "prediction_set", "searched", "seconds"}
    assert set(found) == expected | {"unknown_words", "untrained_words"}
    assert found["searched"] == len(service.index)
    again = client.get("/search", params={"texts": "a dog", "count": 5}).json()
    assert again["hits"] == found["hits"]


def test_filters(client, service):
    photo = service.index.photos()[0]
    folder = photo.path.rpartition("/")[0]
    found = client.post("/search", json={"texts": ["a dog"], "folder": folder}).json()
    assert found["hits"]
    assert all(hit["path"].startswith(f"{folder}/") for hit in found["hits"])
    for late in ({"since": "2999-01-01"}, {"until": "1900-01-01"}, {"tags": ["no such tag"]}):
        found = client.post("/search", json={"texts": ["a dog"], **late}).json()
        assert (found["hits"], found["searched"]) == ([], 0)
        shown = client.get("/photos", params=late).json()
        assert shown == {"photos": [], "total": 0, "next": ""}
        assert client.get("/photos", params={"after": "2020 x"}).status_code == 422


@pytest.mark.slow
def test_photos_the_newest_first(client, service):
    """Page by page, and without a gap or a repetition if some are added and removed meanwhile."""
    root, index = service.index.root, service.index
    for number, photo in enumerate(index.photos()):
        os.utime(root / photo.path, (9e8 + number // 2, 9e8 + number // 2))
        (root / photo.path).write_bytes((root / photo.path).read_bytes() + b"changed")
        os.utime(root / photo.path, (9e8 + number // 2, 9e8 + number // 2))
    service.update()
    service.refresh()
    expected = sorted(service.index.photos(), key=lambda photo: (photo.taken, photo.id))[::-1]
    found, after = [], ""
    while True:
        answer = client.get("/photos", params={"count": 4, "after": after}).json()
        assert len(answer["photos"]) <= 4
        found += [photo["path"] for photo in answer["photos"]]
        if len(found) == 4:
            (root / expected[3].path).unlink()  # The last of the first page.
            (root / "new.jpg").write_bytes(image_file())
            service.update()
            service.refresh()
        if not (after := answer["next"]):
            break
    assert found == [photo.path for photo in expected]
    assert answer["total"] == len(expected)


def test_the_file_itself_is_given_where_that_is_permitted(client, service):
    photo = service.index.photos()[0]
    response = client.get(f"/originals/{photo.id}")
    assert response.content == (service.index.root / photo.path).read_bytes()
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["content-disposition"].startswith("inline")
    service.settings = replace(service.settings, originals=False)
    assert "--originals" in error_of(client.get(f"/originals/{photo.id}"), 422)
    assert "Open original" not in client.get("/").text


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_similar_to_an_upload(client, kind):
    files = [("images", ("mine", image_file(kind=kind)))]
    found = client.post("/similar", files=files, data={"query": '{"count": 3}'})
    assert found.status_code == 200
    assert len(found.json()["hits"]) == 3
    assert found.json()["broken"] == []


def test_similar_to_a_photo_of_the_index(client, service):
    id_ = service.index.photos()[3].id
    found = client.get(f"/similar/{id_}", params={"count": 4}).json()
    assert len(found["hits"]) == 4
    assert error_of(client.get("/similar/987654"), 404) == "the index has no photo 987654"


def test_a_bad_image_is_an_error_for_that_image_alone(client):
    good = image_file()
    files = [
        ("images", ("good.jpg", good)),
        ("images", ("cut.jpg", good[: len(good) // 2])),
        ("images", ("text.jpg", b"<script>alert(1)</script>")),
        ("images", ("huge.png", image_file((200, 100), "PNG"))),
        ("images", ("heavy.jpg", good + bytes(60_000))),
        ("images", ("empty.jpg", b"")),
    ]
    found = client.post("/similar", files=files)
    assert found.status_code == 200
    assert found.json()["hits"]
    assert {entry["name"]: entry["error"] for entry in found.json()["broken"]}.keys() == {
        name for _, (name, _) in files[1:]
    }
    refused = client.post("/similar", files=files[3:4])
    assert refused.status_code == 422
    assert "20,000 pixels; the limit is 10,000" in refused.json()["error"]
    assert [entry["name"] for entry in refused.json()["broken"]] == ["huge.png"]
    assert "keras_xmr_broken_uploads_total 6.0" in client.get("/metrics").text


def test_the_pixels_of_a_request_are_limited_before_they_are_decoded(client, monkeypatch):
    decoded = []
    reduced = requests_module.reduced
    monkeypatch.setattr(requests_module, "reduced", lambda *a: decoded.append(a[1]) or reduced(*a))
    files = [("images", (f"{n}.png", image_file((90, 50), "PNG"))) for n in range(4)]
    answer = client.post("/similar", files=files).json()
    assert decoded == ["0.png", "1.png"]
    assert answer["hits"]
    assert [entry["error"] for entry in answer["broken"]] == [
        "2.png and the images before it have 13,500 pixels; the limit of a request is 12,000",
        "3.png and the images before it have 13,500 pixels; the limit of a request is 12,000",
    ]


@pytest.mark.slow
def test_uploads_decode_two_at_once_apart_from_the_model(client, service, monkeypatch):
    """A large upload holds up neither the model nor other requests, and is small in memory."""
    service.settings = Settings()
    together, most, threads, sizes = [0], [0], set(), []
    reduced, lock = requests_module.reduced, threading.Lock()

    def slow(*arguments):
        with lock:
            together[0] += 1
            most[0] = max(most[0], together[0])
        try:
            time.sleep(0.1)
            sizes.append(Image.open(io.BytesIO(data := reduced(*arguments))).size)
            return data
        finally:
            with lock:
                together[0] -= 1

    pixels = service.embedder.pixels
    model = service.embedder._embedder()
    monkeypatch.setattr(requests_module, "reduced", slow)
    monkeypatch.setattr(
        model, "pixels", lambda *a: threads.add(threading.current_thread().name) or pixels(*a)
    )
    large = image_file((4000, 3000))
    with ThreadPoolExecutor(7) as pool:
        answers = [
            pool.submit(client.post, "/similar", files=[("images", ("a.jpg", large))])
            for _ in range(6)
        ]
        text = pool.submit(client.post, "/search", json={"texts": ["red"]})
        assert text.result().status_code == 200
        assert [answer.result().status_code for answer in answers] == [200] * 6
    assert most[0] == 2
    assert all(name.startswith("uploads") for name in threads)
    assert set(sizes) == {(2309, 1732)}


def test_too_many_waiting_uploads_are_turned_away(client, service):
    service.settings = replace(service.settings, max_waiting=0)
    files = [("images", ("a.jpg", image_file()))]
    answer = client.post("/similar", files=files)
    assert "too many requests at once" in error_of(answer, 503)
    assert answer.headers["retry-after"] == "1"


def test_an_upload_without_a_file_name(client):
    answer = client.post("/similar", files={"images": (None, "no file")})
    assert error_of(answer, 422) == "images: each must be a file of the form, with a file name"


def test_invalid_ranges_of_files_and_heads(client, service):
    photo = service.index.photos()[0]
    path = f"/originals/{photo.id}"
    content = (service.index.root / photo.path).read_bytes()
    part = client.get(path, headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, content[5:10])
    for text, status in (("bytes=9999999-", 416), ("lines=1-2", 400), ("bytes=9-5", 400)):
        answer = client.get(path, headers={"Range": text})
        assert "Range" in error_of(answer, status)
        if status == 416:
            assert answer.headers["content-range"] == f"bytes */{len(content)}"
    for route in (path, "/", "/healthz", "/search?texts=red", "/static/page.css"):
        answer = client.head(route)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 0
    assert client.head("/nowhere").status_code == 404


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({}, "query is empty"),
        ({"texts": [""]}, "texts.0"),
        ({"texts": ["x" * 2001]}, "a text has at most 2,000 characters, not 2,001"),
        ({"texts": ["\N{DOG FACE}"]}, "has no words: say in words what the photo shows"),
        ({"texts": ["a"] * 17}, "texts"),
        ({"texts": "a dog"}, "texts"),
        ({"texts": ["a"], "count": 0}, "count"),
        ({"texts": ["a"], "count": 1001}, "count"),
        ({"texts": ["a"], "count": "many"}, "count"),
        ({"texts": ["a"], "count": True}, "count"),
        ({"texts": ["a"], "count": "1_0"}, "count"),
        ({"texts": ["a"], "count": "+1"}, "count"),
        ({"texts": ["a"], "since": "yesterday"}, "since"),
        ({"texts": ["a"], "since": 0}, "since"),
        ({"ids": [True]}, "ids.0"),
        ({"texts": ["a"], "colour": "red"}, "colour"),
        ({"texts": ["a"], "matcher": "cosine"}, "matcher"),
        ({"ids": [-1]}, "ids.0"),
        ({"ids": [2**63]}, "ids.0"),
        ([], "the request"),
    ],
)
def test_mistakes_are_named(client, content, what):
    assert what in error_of(client.post("/search", json=content), 422)


def test_a_name_that_is_given_twice_is_refused(client):
    sent = [
        client.post("/search", content=content, headers={"content-type": "application/json"})
        for content in (
            '{"texts": ["a"], "texts": ["b"]}',
            '{"texts": "a", "texts": "b"}',
            '{"texts": ["b"], "count": 1, "count": 2}',
        )
    ]
    sent += [
        client.get(f"/{address}&count=4")
        for address in ("search?texts=a&count=3", "photos?count=3")
    ]
    query = {"query": '{"count": 1, "count": 2}'}
    sent.append(client.post("/similar", files={"images": ("a.jpg", b"a")}, data=query))
    for answer, name in zip(sent, ("texts", "texts", *["count"] * 4), strict=True):
        assert (answer.status_code, answer.json()["error"]) == (
            422,
            f"{name}: given twice; give it once",
        )
    assert client.get("/search?texts=a&texts=b").status_code == 200


def test_what_is_no_json_is_refused(client):
    headers = {"Content-Type": "application/json"}
    for body in (b"{", b"[" * 50_000, b'{"texts": ["\\ud800"]}', b'{"count": 1e999}', b"\xff\xfe"):
        response = client.post("/search", content=body, headers=headers)
        assert 400 <= response.status_code < 500
        assert list(response.json()) == ["error"]
    assert error_of(client.post("/similar", data={"query": "{}"}), 422)
    files = [("images", ("a.jpg", image_file()))]
    assert "count" in error_of(
        client.post("/similar", files=files, data={"query": '{"count": -1}'}), 422
    )


def test_too_many_or_too_large_requests_are_refused(client, service):
    files = [("images", (f"{n}.jpg", image_file())) for n in range(9)]
    assert "limit is 8" in error_of(client.post("/similar", files=files), 422)
    long = json.dumps({"texts": ["x" * service.settings.max_json]})
    headers = {"Content-Type": "application/json"}
    assert "too large" in error_of(client.post("/search", content=long, headers=headers), 413)

    def chunks():  # No length is announced.
        for _ in range(40):
            yield b"x" * 10_000

    assert "too large" in error_of(client.post("/search", content=chunks(), headers=headers), 413)


@pytest.mark.slow
def test_nothing_but_photos_of_the_index_can_be_read(client, service):
    secret = service.index.root / "secret.txt"
    secret.write_text("secret")
    (service.index.root.parent / "outside.jpg").write_bytes(image_file())
    for path in (
        "/photos/secret.txt",
        "/photos/..%2foutside.jpg",
        "/photos/%2e%2e/%2e%2e/etc/passwd",
        "/thumbnails/-1",
        "/thumbnails/12345",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2fapp.py",
        "/templates/page.html",
        "/docs",
    ):
        assert client.get(path).status_code in (404, 422), path
    photo = service.index.photos()[0]
    for kind in ("photos", "thumbnails"):
        response = client.get(f"/{kind}/{photo.id}")
        assert response.headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(response.content)).format == "JPEG"
    service.index.photo_path(photo.id).write_bytes(b"no photo any more")
    service._thumbnail.cache_clear()
    assert photo.path in error_of(client.get(f"/photos/{photo.id}"), 404)
    service.index.photo_path(photo.id).unlink()
    assert photo.path in error_of(client.get(f"/originals/{photo.id}"), 404)


def test_a_request_by_another_name_or_from_another_page_is_refused(client, service):
    for host in ("evil.example", "localhost.evil.example", "", "[::", "a:b:c"):
        assert "unknown Host header" in error_of(client.get("/", headers={"Host": host}), 421)
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "192.168.1.5"):
        assert client.get("/", headers={"Host": host}).status_code == 200
    body = {"texts": ["a dog"]}
    for origin in ("https://evil.example", "null", "http://localhost:9"):
        response = client.post("/search", json=body, headers={"Origin": origin})
        assert "another site" in error_of(response, 403)
    same = client.post("/search", json=body, headers={"Origin": "http://localhost:8000"})
    assert same.status_code == 200
    service.settings = replace(service.settings, names=frozenset({"photos.home"}))
    assert client.get("/healthz", headers={"Host": "photos.home"}).status_code == 200


def test_health_and_measures(client, service):
    told = {"status": "ready", "photos": len(service.index), "unreadable": 0}
    told["server"] = service.id
    assert client.get("/healthz").json() == told
    client.post("/search", json={"texts": ["a dog"]})
    client.get("/no/such/page")
    text = client.get("/metrics").text
    assert 'keras_xmr_requests_total{route="/search",status="200"} 1.0' in text
    assert 'keras_xmr_requests_total{route="other",status="404"} 1.0' in text
    assert f"keras_xmr_photos {float(len(service.index))}" in text
    assert 'keras_xmr_batch_size_count{kind="texts"}' in text
    service.state = "draining"
    ended = client.get("/healthz")
    assert (ended.status_code, ended.headers["connection"]) == (503, "close")


def test_the_page_asks_for_nothing_from_elsewhere_and_runs_no_script_of_others(client, service):
    service.index.root = Path("<script>alert(1)</script>")
    response = client.get("/")
    assert "<script>alert" not in response.text
    assert "http://" not in response.text
    assert "https://" not in response.text
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    for name in ("page.css", "gallery.js", "viewer.js", "page.js", "icon.svg"):
        assert f"/static/{name}?v=" in response.text
        assert "https://" not in client.get(f"/static/{name}").text


def test_nothing_is_sent_where_the_environment_says(service, monkeypatch):
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    telemetry = getattr(create_app(service), "_telemetry", {})
    assert not any(telemetry.values())


def test_a_defect_is_told_without_details(client, service, monkeypatch, caplog):
    def fail(*arguments, **options):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(service, "search", fail)
    assert "secret" not in error_of(client.post("/search", json={"texts": ["a"]}), 500)
    assert "secret detail" in caplog.text


def test_a_request_keeps_to_one_index(client, service, monkeypatch, tmp_path):
    old = service.index
    last = old.photos()[-1]
    (old.root / last.path).unlink()
    build_index(StubEmbedder(), old.root, old.path)
    embed = service.embedder._embedder().embed_pixels

    def replace_index(pixels):
        service.refresh()  # In the middle of the request.
        return embed(pixels)

    monkeypatch.setattr(service.embedder._embedder(), "embed_pixels", replace_index)
    found = client.post(
        "/similar",
        files=[("images", ("x.jpg", image_file()))],
        data={"query": json.dumps({"ids": [last.id], "count": 50})},
    )
    assert found.status_code == 200, found.text
    assert found.json()["searched"] == len(old) - 1
    assert service.index is not old


ODD = [None, True, -1, 0, 7, 2**70, 1e308, "", "\0", "a" * 3000, "é\u202e", "a dog", [], {}, [[]]]
FIELDS = {
    "/search": ["texts", "ids", "unlike", "count", "folder", "since", "tags"],
    "/similar": ["query", "images"],
}


@pytest.mark.slow
def test_fuzzed_requests_end_in_clean_errors(client):
    random = np.random.default_rng(7)
    seen = set()
    for _ in range(600):
        path = str(random.choice(list(FIELDS)))
        content = {name: ODD[random.integers(len(ODD))] for name in FIELDS[path]}
        kept = random.integers(1, len(content) + 1)
        content = {name: content[name] for name in list(content)[:kept]}
        if random.random() < 0.5:
            content = {name: [value] for name, value in content.items()}
        response = client.post(path, json=content)
        seen.add(response.status_code)
        assert response.status_code < 500, (path, content, response.text)
    assert seen >= {200, 422}


class HeldEmbedder:
    """Embeds numbers as themselves, and not before it is let."""

    def __init__(self) -> None:
        self.entered, self.let, self.sizes = threading.Event(), threading.Event(), []

    def __call__(self, texts: list[str]) -> dict[str, np.ndarray]:
        self.entered.set()
        assert self.let.wait(60)
        self.sizes.append(len(texts))
        return {"mean": np.array([[float(text)] for text in texts])}


def wait_for_queue(batcher: Batcher, count: int) -> None:
    end = time.monotonic() + 60
    while len(batcher) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_requests_that_come_together_are_embedded_together():
    embed = HeldEmbedder()
    batcher = Batcher(embed, max_batch=8, max_waiting=20)
    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(batcher, ["0", "0"])]
        # What comes before it is taken would join the first.
        assert embed.entered.wait(60)
        futures += [pool.submit(batcher, [str(n), str(n)]) for n in range(1, 11)]
        wait_for_queue(batcher, 10)
        embed.let.set()
        for number, future in enumerate(futures):
            assert future.result()["mean"].tolist() == [[number], [number]]
    batcher.close()
    assert embed.sizes == [2, 8, 8, 4]


def test_one_bad_request_of_a_batch_fails_alone():
    embed = HeldEmbedder()
    batcher = Batcher(embed, max_batch=8, max_waiting=2)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(batcher, ["0"])
        assert embed.entered.wait(60)
        futures = [pool.submit(batcher, [text]) for text in ("1", "no number")]
        wait_for_queue(batcher, 2)
        with pytest.raises(OverloadedError):
            batcher(["3"])
        embed.let.set()
        assert first.result()["mean"].tolist() == [[0]]
        assert futures[0].result()["mean"].tolist() == [[1]]
        with pytest.raises(ValueError, match="no number"):
            futures[1].result()
    batcher.close()
    with pytest.raises(OverloadedError):
        batcher(["4"])
