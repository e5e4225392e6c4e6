"""Serving: time of an exported model to embed, and of a server of an index under load.

The table has the signatures `embed_text` and `embed_image` of the demo's model, called in this
process, without a network. Under load, every client sends the requests of the page: a search by
words, sometimes one by a photo of the index or an uploaded one, and two thumbnails of the results;
then the next search at once. With `--index` a server is started, and receives SIGTERM while all
clients still send requests: it must answer all requests sent by then. Clients and server share the
machine.

    python benchmarks/table.py serving
    python benchmarks/serving.py --index=saved_models/csv_pretrained/index
    python benchmarks/serving.py --url=http://127.0.0.1:8000 --clients=32 --seconds=60
"""

from __future__ import annotations

import argparse
import asyncio
import io
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from measuring import Row, compare
from PIL import Image

MAIN = Path(__file__).parent.parent / "main.py"

SUBJECTS = ("a dog", "two children", "a man in a red shirt", "a woman", "a large blue square")
PLACES = ("in the snow", "on a beach", "beside a small red circle", "in front of a house", "")


@dataclass
class Load:
    """Measurements of the clients.

    Attributes:
        seconds: How long each request took, by what was asked.
        errors: What went wrong, and how often.
        elapsed: How long it all took, in seconds.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    elapsed: float = 0.0

    def table(self) -> str:
        """Times in milliseconds."""
        lines = [f"{'asked':<12}" + "".join(f"{t:>10}" for t in ("number", "p50", "p95", "p99"))]
        for kind, seconds in self.seconds.items():
            times = 1000 * np.quantile(seconds, (0.5, 0.95, 0.99))
            lines.append(f"{kind:<12}{len(seconds):>10,}" + "".join(f"{t:>10.0f}" for t in times))
        searches = sum(len(s) for kind, s in self.seconds.items() if kind != "thumbnail")
        lines.append(f"{searches / self.elapsed:.1f} searches a second for {self.elapsed:.0f} s")
        lines.append(f"errors: {dict(self.errors) or 'none'}")
        return "\n".join(lines)


async def load(url: str, clients: int, seconds: float, last: Callable[[], None]) -> Load:
    """Lets clients search until the time is over.

    Args:
        url: Of the server.
        clients: How many.
        seconds: How long.
        last: Is called when the time is over, while all clients are asking. A request that has
            not reached the server by then is not counted.
    """
    found, begin = Load(), time.perf_counter()
    over = asyncio.Event()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        asking = [_client(http, number, found, over) for number in range(clients)]
        tasks = [asyncio.create_task(client) for client in asking]
        await asyncio.sleep(seconds)
        over.set()
        last()
        await asyncio.gather(*tasks)
    found.elapsed = time.perf_counter() - begin
    return found


async def _client(http: httpx.AsyncClient, number: int, found: Load, over: asyncio.Event) -> None:
    random = np.random.default_rng(number)
    texts = [" ".join(words).strip() for words in product(SUBJECTS, PLACES)]
    photo = _photo(random)
    while not over.is_set():
        kind = str(random.choice(["words", "like photo", "upload"], p=[0.8, 0.1, 0.1]))
        asked: dict[str, Callable[[], Awaitable[httpx.Response]]] = {
            "words": lambda: http.post("/search", json={"texts": [random.choice(texts)]}),
            "like photo": lambda: http.get("/photos", params={"count": 20}),
            "upload": lambda: http.post("/similar", files={"images": ("mine.jpg", photo)}),
        }
        response = await _timed(kind, asked[kind], found, over)
        if response is None:
            continue
        hits = response.json().get("hits") or response.json().get("photos", [])
        if kind == "like photo" and hits and not over.is_set():
            like = random.choice([hit["id"] for hit in hits])
            await _timed(kind, lambda like=like: http.get(f"/similar/{like}"), found, over)
        for hit in hits[:2]:
            if not over.is_set():
                path = f"/thumbnails/{hit['id']}"
                await _timed("thumbnail", lambda path=path: http.get(path), found, over)


async def _timed(
    kind: str, ask: Callable[[], Awaitable[httpx.Response]], found: Load, over: asyncio.Event
) -> httpx.Response | None:
    """Asks, and notes how long it took, or what went wrong."""
    begin = time.perf_counter()
    try:
        response = await ask()
    except httpx.HTTPError as error:
        if isinstance(error, httpx.ConnectError) and over.is_set():
            return None  # It has not reached the server, which takes no more.
        found.errors[f"{kind}: {type(error).__name__}"] += 1
        return None
    if response.status_code != 200:
        found.errors[f"{kind}: {response.status_code}"] += 1
        return None
    found.seconds[kind].append(time.perf_counter() - begin)
    return response


def _photo(random: np.random.Generator) -> bytes:
    buffer = io.BytesIO()
    small = Image.fromarray(random.integers(0, 256, (6, 8, 3), np.uint8))
    small.resize((640, 480)).save(buffer, "JPEG")
    return buffer.getvalue()


def rows(smoke: bool = False) -> Iterator[Row]:
    """What a served model takes for texts and photos: one alone, and many at once."""
    random = np.random.default_rng(0)
    texts = [" ".join(words).strip() for words in product(SUBJECTS, PLACES)]
    many = len(texts)
    inputs = {
        "embed_text": ("captions", texts),
        "embed_image": ("image_bytes", [_photo(random) for _ in range(1 if smoke else many)]),
    }
    with tempfile.TemporaryDirectory() as folder:
        served = _endpoints_of_words() if smoke else _exported(Path(folder))
        for name, ask in served.items():
            key, items = inputs[name]
            yield compare(f"served {name}", "one", lambda k=key, i=items, a=ask: a(k, i[:1]))
            yield compare(
                f"served {name}, an item",
                f"{len(items)} at once",
                lambda k=key, i=items, a=ask: a(k, i),
                lambda k=key, i=items, a=ask: [a(k, [each]) for each in i],
                "one after another",
                items=len(items),
            )


Asked = Callable[[str, list[Any]], Any]


def _exported(folder: Path) -> dict[str, Asked]:
    """Signatures of the demo's model, exported for TF Serving but not trained."""
    import tensorflow as tf
    from start import untrained_run

    import keras_xmr
    from keras_xmr.export.saved_model import export_saved_model

    run = keras_xmr.load(untrained_run(folder))
    path = folder / "serving" / "1"
    export_saved_model(run.model, run.tokenizer, run.config.data.image, path)
    signatures = tf.saved_model.load(str(path)).signatures

    def asks(name: str) -> Asked:
        return lambda key, items: signatures[name](**{key: tf.constant(items)})

    return {name: asks(name) for name in ("embed_text", "embed_image")}


def _endpoints_of_words() -> dict[str, Asked]:
    """A stand-in for a model, to test the benchmark alone."""
    return {"embed_text": lambda key, items: [len(item.split()) for item in items]}


def wait_until_ready(url: str, seconds: float) -> None:
    """Waits until the model is loaded."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if httpx.get(f"{url.rstrip('/')}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} is not ready after {seconds:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--index", help="start a server for this index")
    where.add_argument("--url", help="a server that runs")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    if options.url:
        found = asyncio.run(load(options.url, options.clients, options.seconds, lambda: None))
        print(found.table())
        return
    command = [sys.executable, str(MAIN), "serve", f"--index={options.index}", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split("at ")[1].split("/ ")[0]
            begin = time.perf_counter()
            wait_until_ready(url, 300)
            print(f"ready after {time.perf_counter() - begin:.1f} s")
            end = lambda: server.send_signal(signal.SIGTERM)  # noqa: E731
            print(asyncio.run(load(url, options.clients, options.seconds, end)).table())
            print(f"ended with {server.wait(60)}")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
