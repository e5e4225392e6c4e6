"""Batches the requests of several clients for the model."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from keras_xmr.search.server.requests import OverloadedError
from keras_xmr.utils.vectors import chunks, concatenate, select

_LOG = logging.getLogger(__name__)

_AT_ONCE = 8
"""Photos per batch of an update of the index, with queries in between."""

Embedding = dict[str, np.ndarray]
_Request = tuple[list[Any], Future[Embedding]]


class Batcher:
    """Batches the items of several threads while the model is busy.

    Requests never wait for a full batch: the next batch has the requests that are pending when the
    model is free. Requests that fail together are retried one by one, so that none fails because of
    another.

    Args:
        embed: Embeds a list of items, to arrays with the items as the first axis.
        max_batch: Maximum items per call, unless one request has more.
        max_waiting: Maximum pending requests.
        count: Called with the size of every batch; its errors are logged.
        thread: The only thread that embeds; several batchers may take turns on it.
    """

    def __init__(
        self,
        embed: Callable[[list[Any]], Embedding],
        max_batch: int,
        max_waiting: int,
        count: Callable[[int], None] = lambda size: None,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        self._embed, self._count = embed, count
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()
        self._thread = thread or ThreadPoolExecutor(1, "batcher")

    def __call__(self, items: Sequence[Any]) -> Embedding:
        """Embeds items; blocks until the result.

        Raises:
            OverloadedError: If too many requests are pending, or it was closed.
        """
        future: Future[Embedding] = Future()
        busy = "too many requests at once; try again in a moment"
        with self._lock:
            if len(self._waiting) >= self._max_waiting:
                raise OverloadedError(busy)
            submit(self._thread, busy, self._work)
            self._waiting.append((list(items), future))
        return future.result()

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Ends the thread after all pending requests."""
        self._thread.shutdown()

    def _work(self) -> None:
        """Embeds the next requests; the own ones may have been in an earlier batch."""
        batch: list[_Request] = []
        size = 0
        with self._lock:
            while self._waiting and (
                not batch or size + len(self._waiting[0][0]) <= self._max_batch
            ):
                batch.append(self._waiting.popleft())
                size += len(batch[-1][0])
        if batch:
            self._process(batch)

    def _process(self, batch: list[_Request]) -> None:
        items = [item for request_items, _ in batch for item in request_items]
        try:
            self._count(len(items))
        except Exception:
            _LOG.exception("a batch of %d could not be counted", len(items))
        try:
            embedding, embeddings, end = self._embed(items), [], 0
            for request_items, _ in batch:
                begin, end = end, end + len(request_items)
                embeddings.append(select(embedding, slice(begin, end)))
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for request in batch:
                self._process([request])
            return
        for (_, future), own in zip(batch, embeddings, strict=True):
            future.set_result(own)


class BatchingEmbedder:
    """Batches the calls of several threads to an embedder, which embeds in one further thread.

    All other attributes are delegated to the embedder.

    Args:
        load: Loads the embedder when it is first needed.
        max_batch: Maximum texts or images per call.
        max_waiting: Maximum pending requests for texts, and for images.
        count: Called with `texts` or `images` and the size of every batch.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        max_batch: int,
        max_waiting: int,
        count: Callable[[str, int], None] = lambda items, size: None,
    ) -> None:
        # Batchers hold this function, not the object that has them: so the model is freed with it.
        self._embedder = embedder = _once(load)
        self._thread = ThreadPoolExecutor(1, "embedder")

        def batcher(items: str, embed: Callable[[list[Any]], Embedding]) -> Batcher:
            return Batcher(embed, max_batch, max_waiting, partial(count, items), self._thread)

        self.embed_texts = batcher("texts", lambda texts: embedder().embed_texts(texts))
        self._embed_decoded = batcher(
            "images", lambda pixels: embedder().embed_pixels(np.stack(pixels))
        )
        self._warming, self._is_warm = threading.Lock(), False

    def warm_up_images(self) -> None:
        """Loads what images need in the calling thread, so that texts do not wait for it."""
        with self._warming:
            if not self._is_warm:
                self._embedder().warm_up_images()
                self._is_warm = True

    def embed_images(self, files: Sequence[bytes]) -> Embedding:
        """Embeds image files, which are decoded in the calling thread; see `Batcher`."""
        self.warm_up_images()
        pixels = self._embedder().pixels
        return self._embed_decoded([pixels(f, f"photo {n}") for n, f in enumerate(files, start=1)])

    def embed_pixels(self, pixels: np.ndarray) -> Embedding:
        """Embeds pixels uint8 (N, size, size, 3) in small batches, with queries in between.

        Raises:
            OverloadedError: If it was closed.
        """
        self.warm_up_images()
        embed, stopping = self._embedder().embed_pixels, "the server is stopping"
        return concatenate(
            [
                submit(self._thread, stopping, embed, batch).result()
                for batch in chunks(pixels, _AT_ONCE)
            ]
        )

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the model."""
        return len(self.embed_texts) + len(self._embed_decoded)

    def close(self) -> None:
        """Ends the thread after all pending requests."""
        self._thread.shutdown()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder(), name)


def _once(load: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that loads something when it is first called, in any thread."""
    loaded: list[Any] = []
    loading = threading.Lock()

    def get() -> Any:
        with loading:
            if not loaded:
                loaded.append(load())
            return loaded[0]

    return get


def submit(
    thread: ThreadPoolExecutor, closed: str, function: Callable[..., Any], *arguments: Any
) -> Future[Any]:
    """Submits a call to a thread; `closed` is the error once the thread has ended."""
    try:
        return thread.submit(function, *arguments)
    except RuntimeError:
        raise OverloadedError(closed) from None
