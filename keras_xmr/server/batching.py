"""Batches the requests of several clients for the model."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from data_pipelines.vectors import chunks, concatenate, select
from keras_xmr.server.errors import OverloadedError

_LOG = logging.getLogger(__name__)

_AT_ONCE, _PAUSE = 8, 0.001
"""Photos per batch of an update of the index, and the pause after it in seconds, without which
other threads would not get the lock."""

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
    """

    def __init__(
        self,
        embed: Callable[[list[Any]], Embedding],
        max_batch: int,
        max_waiting: int,
        count: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._embed, self._count = embed, count
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def __call__(self, items: Sequence[Any]) -> Embedding:
        """Embeds items; blocks until the result.

        Raises:
            OverloadedError: If too many requests are pending.
        """
        future: Future[Embedding] = Future()
        with self._changed:
            if self._closed or len(self._waiting) >= self._max_waiting:
                raise OverloadedError("too many requests at once; try again in a moment")
            self._waiting.append((list(items), future))
            self._changed.notify()
        return future.result()

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Ends the thread after all pending requests."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self._process(batch)

    def _next(self) -> list[_Request]:
        """The next requests, with at most `max_batch` items; empty when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            batch: list[_Request] = []
            size = 0
            while self._waiting and (
                not batch or size + len(self._waiting[0][0]) <= self._max_batch
            ):
                batch.append(self._waiting.popleft())
                size += len(batch[-1][0])
            return batch

    def _process(self, batch: list[_Request]) -> None:
        items = [item for request_items, _ in batch for item in request_items]
        try:
            self._count(len(items))
        except Exception:
            _LOG.exception("a batch of %d could not be counted", len(items))
        try:
            embedding, parts, end = self._embed(items), [], 0
            for request_items, _ in batch:
                begin, end = end, end + len(request_items)
                parts.append(select(embedding, slice(begin, end)))
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for request in batch:
                self._process([request])
            return
        for (_, future), part in zip(batch, parts, strict=True):
            future.set_result(part)


class BatchingEmbedder:
    """Batches the calls of several threads to an embedder.

    All other attributes are delegated to the embedder.

    Args:
        load: Loads the embedder when it is first needed.
        max_batch: Maximum texts or images per call.
        max_waiting: Maximum pending requests for texts, and for images.
        count: Called with the kind and size of every batch.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        max_batch: int,
        max_waiting: int,
        count: Callable[[str, int], None] = lambda kind, size: None,
    ) -> None:
        self._load, self._loaded, self._closed = load, None, False
        self._turn, self._loading = threading.Lock(), threading.Lock()

        def batcher(kind: str) -> Batcher:
            def embed(items: list[Any]) -> Embedding:
                # Texts and images take turns on the same model.
                with self._turn:
                    embedding: Embedding = getattr(self._embedder(), f"embed_{kind}")(items)
                    return embedding

            return Batcher(embed, max_batch, max_waiting, partial(count, kind))

        self._texts, self._images = batcher("texts"), batcher("images")

    def embed_texts(self, texts: Sequence[str]) -> Embedding:
        """Embeds texts in a batch with those of other threads."""
        return self._texts(texts)

    def embed_images(self, images: Sequence[bytes]) -> Embedding:
        """Embeds image files in a batch with those of other threads."""
        return self._images(images)

    def embed_pixels(self, pixels: np.ndarray) -> Embedding:
        """Embeds pixels uint8 (N, size, size, 3) in small batches, with queries in between.

        Raises:
            OverloadedError: If it was closed.
        """
        parts = []
        for batch in chunks(pixels, _AT_ONCE):
            if self._closed:
                raise OverloadedError("the server is stopping")
            with self._turn:
                parts.append(self._embedder().embed_pixels(batch))
            time.sleep(_PAUSE)
        return concatenate(parts)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for the model."""
        return len(self._texts) + len(self._images)

    def close(self) -> None:
        """Ends the threads after all pending requests."""
        self._closed = True
        self._texts.close()
        self._images.close()

    def _embedder(self) -> Any:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder(), name)
