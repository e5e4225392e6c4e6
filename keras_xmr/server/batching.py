"""One call of the model for the requests of several clients."""

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

from keras_xmr.server.errors import OverloadedError

_LOG = logging.getLogger(__name__)

_AT_ONCE, _PAUSE = 8, 0.001
"""Photos that are embedded at once for an index, and seconds in which others get the model: a lock
that is taken again at once is not handed on."""

Embedding = dict[str, np.ndarray]
_Request = tuple[list[Any], Future[Embedding]]


class Batcher:
    """Gathers items that several threads want embedded, while the model is at work for others.

    Nobody is kept waiting for company: what has come by the time the model is free is the next
    batch. Items that fail together are tried again one request at a time, so that none fails for
    another's sake.

    Args:
        embed: Embeds a list of items: arrays whose first axis is that of the items.
        max_batch: Items in one call, unless one request has more.
        max_waiting: Requests that may wait.
        count: Is told the size of every batch. If it raises, that is logged.
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
        """The embedding of some items; waits for it.

        Raises:
            OverloadedError: If too many requests wait already.
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
        """Ends the thread, once everything that waits is done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self._do(batch)

    def _next(self) -> list[_Request]:
        """The next requests, of at most `max_batch` items together; none if all is over."""
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

    def _do(self, batch: list[_Request]) -> None:
        items = [item for some, _ in batch for item in some]
        try:
            self._count(len(items))
        except Exception:
            _LOG.exception("a batch of %d could not be counted", len(items))
        try:
            parts = _split(self._embed(items), [len(some) for some, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for request in batch:
                self._do([request])
            return
        for (_, future), part in zip(batch, parts, strict=True):
            future.set_result(part)


def _split(embedding: Embedding, sizes: Sequence[int]) -> list[Embedding]:
    """The embeddings of requests of some sizes, one after another."""
    ends = np.cumsum(sizes).tolist()
    return [
        {name: array[end - size : end] for name, array in embedding.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


class BatchingEmbedder:
    """An embedder whose calls by several threads become one call of another embedder.

    Whatever else the other can, this can.

    Args:
        load: Gives the other, which has `embed_texts` and `embed_images`, when it is first needed.
        max_batch: Texts or images in one call.
        max_waiting: Requests that may wait for either.
        count: Is told the kind and size of every batch.
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
                # The model is one: texts and images take turns.
                with self._turn:
                    found: Embedding = getattr(self._embedder(), f"embed_{kind}")(items)
                    return found

            return Batcher(embed, max_batch, max_waiting, partial(count, kind))

        self._texts, self._images = batcher("texts"), batcher("images")

    def embed_texts(self, texts: Sequence[str]) -> Embedding:
        """Embeddings of texts, in a batch with those of others."""
        return self._texts(texts)

    def embed_images(self, images: Sequence[bytes]) -> Embedding:
        """Embeddings of image files, in a batch with those of others."""
        return self._images(images)

    def embed_pixels(self, pixels: np.ndarray) -> Embedding:
        """Embeddings of many pixels uint8 (N, size, size, 3): a few at once, queries in between.

        Raises:
            OverloadedError: If this was closed meanwhile.
        """
        found = []
        for start in range(0, len(pixels), _AT_ONCE):
            if self._closed:
                raise OverloadedError("the server ends")
            with self._turn:
                found.append(self._embedder().embed_pixels(pixels[start : start + _AT_ONCE]))
            time.sleep(_PAUSE)
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    @property
    def waiting(self) -> int:
        """How many requests wait for the model."""
        return len(self._texts) + len(self._images)

    def close(self) -> None:
        """Ends the threads, once everything that waits is done."""
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
