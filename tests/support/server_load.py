"""Many clients at once at the server of an index.

Every client sends the requests of the page: a search by words, sometimes one by a photo of the
index or an uploaded one, and two thumbnails of the results; then the next search at once.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import product

import httpx
import numpy as np
from PIL import Image

SUBJECTS = ("a dog", "two children", "a man in a red shirt", "a woman", "a large blue square")
PLACES = ("in the snow", "on a beach", "beside a small red circle", "in front of a house", "")


@dataclass
class Load:
    """Measurements of the clients.

    Attributes:
        seconds: How long each request took, by what was asked.
        errors: What went wrong, and how often.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))


async def load(url: str, clients: int, seconds: float, last: Callable[[], None]) -> Load:
    """Lets clients search until the time is over.

    Args:
        url: Of the server.
        clients: How many.
        seconds: How long.
        last: Is called when the time is over, while all clients are asking. A request that has
            not reached the server by then is not counted.
    """
    found = Load()
    over = asyncio.Event()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        asking = [_client(http, number, found, over) for number in range(clients)]
        tasks = [asyncio.create_task(client) for client in asking]
        await asyncio.sleep(seconds)
        over.set()
        last()
        await asyncio.gather(*tasks)
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
