"""Index, model and metrics of the server."""

from __future__ import annotations

import logging
import secrets
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from fastapi import UploadFile
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from data_pipelines.photo_files import UnreadableError
from keras_xmr.search import Filters, Photo, PhotoIndex, Searcher, SearchResult
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.server.batching import BatchingEmbedder, submit
from keras_xmr.search.server.requests import (
    BrokenImagesError,
    NotFoundError,
    OverloadedError,
    PhotosRequest,
    SearchRequest,
    Settings,
    Upload,
    read_uploads,
)
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.memory import release_memory

_LOG = logging.getLogger(__name__)

State = Literal["loading", "ready", "draining"]
_SMALL, _KEPT, _LISTS_KEPT = 512, 2048, 8
# Limit the number of full-size photos in memory.
_DECODING = 2
_SHRINKING = threading.BoundedSemaphore(2)


class Service:
    """Service of the routes: searches an index, which may be replaced by a newer one at any time.

    Args:
        path: The index.
        settings: Limits, and what the server offers.
        load: Loads the embedder of queries when it is first needed; by default, of the index.

    Attributes:
        id: What `/healthz` says: each server has another.
        path: The folder of the index.
        searcher: The current searcher. A request reads it once: it may be replaced at any time.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        load: Callable[[], Any] | None = None,
    ) -> None:
        self.settings, self.metrics = settings, ServerMetrics()
        self.state: State = "loading"
        self.id, self.path = secrets.token_hex(8), path
        self._uploads, self._uploading = ThreadPoolExecutor(_DECODING, "uploads"), 0
        self._load = load
        self.searcher = self._open(None)
        # A changed photo has another checksum.
        self._thumbnail = lru_cache(_KEPT)(lambda id_, _: self.resized(id_, _SMALL))
        self._sort_by_day = lru_cache(_LISTS_KEPT)(_sort_by_day)
        self.metrics.watch("photos", "Photos in the index.", lambda: len(self.index))
        self.metrics.watch(
            "waiting", "Requests that wait for the model.", lambda: self.embedder.waiting
        )

    @property
    def index(self) -> PhotoIndex:
        """The current index."""
        return self.searcher.index

    @property
    def title(self) -> str:
        """Title of the page: an option, or the name of the folder of the photos."""
        return self.settings.title or self.index.root.name or "Photos"

    @property
    def embedder(self) -> BatchingEmbedder:
        """The model of the current index."""
        embedder: BatchingEmbedder = self.searcher.embedder
        return embedder

    def warm_up(self) -> None:
        """Loads the model. Texts are answered once their part of it is there.

        Raises:
            UserError: If it is not the model of the index.
        """
        self.searcher.warm_up()
        if self.state == "loading":
            self.state = "ready"
        self.embedder.warm_up_images()

    def update(self) -> None:
        """Updates the index on the disk by the model of the server.

        Searches use the old index until `refresh`.

        Raises:
            UserError: If the update fails, or the server stops.
        """
        from keras_xmr.search.index_build import build_index

        model: Any = self.embedder
        broken = self.index.broken()
        report = build_index(model, self.index.root, self.path, self.index.backend)
        done = {"new": report.added, "changed": report.changed, "removed": report.removed}
        if any(done.values()):
            _LOG.info("photos: %s", ", ".join(f"{n:,} {name}" for name, n in done.items() if n))
        for path, why in report.broken.items():
            if broken.get(path) != why:
                _LOG.warning("not in the index: %s", why)

    def refresh(self) -> None:
        """Opens the index on the disk, if it has changed and is finished, or none was before.

        The index is read completely before it answers requests, and if another model has made it,
        that model is loaded before, too. The old ones are not closed: requests may still use them.

        Raises:
            UserError: If it cannot be opened, or its model cannot be loaded.
        """
        if self.index.is_current():
            return
        newer = self._open(self.embedder)
        is_better = newer.index.is_finished or not self.index.is_finished
        if is_better and newer.index.is_current():
            has_other_model = newer.index.fingerprint != self.index.fingerprint
            if has_other_model:
                newer = self._open(None)
                newer.warm_up()
                newer.embedder.warm_up_images()
                _LOG.info(
                    "took over the new model, and its index of %s photos", f"{len(newer.index):,}"
                )
            self.searcher = newer
            self._sort_by_day.cache_clear()
            if has_other_model:
                release_memory()  # Of the former model.

    def search_by_uploads(
        self, request: SearchRequest, files: Sequence[UploadFile]
    ) -> Future[dict[str, Any]]:
        """Searches in one of a few threads, which limit the images in memory; see `search`.

        Raises:
            OverloadedError: If too many such requests wait, or the server stops.
        """

        def work() -> dict[str, Any]:
            try:
                return self.search(request, read_uploads(files, self.settings))
            finally:
                self._uploading -= 1

        busy = "too many requests at once; try again in a moment"
        if self._uploading >= self.settings.max_waiting:
            raise OverloadedError(busy)
        self._uploading += 1
        return submit(self._uploads, "the server is stopping", work)

    def search(self, request: SearchRequest, uploads: Sequence[Upload] = ()) -> dict[str, Any]:
        """Searches by text and photos; invalid uploads are listed with the hits.

        Raises:
            UserError: If no valid part is left, or the request is not permitted.
        """
        searcher = self.searcher
        broken = [upload for upload in uploads if upload.error]
        images = [upload.data for upload in uploads if not upload.error]
        self.metrics.broken.inc(len(broken))
        if broken and not (images or request.texts or request.ids):
            raise BrokenImagesError(broken)
        for id_ in request.ids:
            _photo(searcher.index, id_)
        result = self.find(request, images, searcher)
        return {**asdict(result), "broken": [upload.refusal for upload in broken]}

    def find(
        self,
        request: SearchRequest,
        images: Sequence[bytes] = (),
        searcher: Searcher | None = None,
    ) -> SearchResult:
        """Searches by a validated request.

        Args:
            request: The request.
            images: Bytes of image files to match.
            searcher: The searcher of the request; default: the current one.
        """
        searcher = searcher or self.searcher
        return searcher.search(request.query(images), request.count, request.filters())

    def photo(self, id_: int) -> Photo:
        """Returns a photo of the index.

        Raises:
            NotFoundError: If the id is unknown.
        """
        return _photo(self.index, id_)

    def photos(self, request: PhotosRequest) -> dict[str, Any]:
        """Returns pages of photos, the newest first.

        A page begins after a day and an id, not after a number of photos: so none is skipped or
        repeated if the index is replaced by a newer one.
        """
        index = self.index
        places = self._sort_by_day(index, request.filters())
        day, _, number = request.after.rpartition("_")
        end = bisect_left(places, (day, int(number))) if request.after else len(places)
        start = max(0, end - request.count)
        return {
            "photos": [index.photo(id_).to_dict() for _, id_ in reversed(places[start:end])],
            "total": len(places),
            "next": "_".join(map(str, places[start])) if start else "",
        }

    def days(self) -> tuple[str, str]:
        """Returns the first and the last day of all photos, ISO; empty if unknown."""
        days = [day[:10] for day, _ in self._sort_by_day(self.index, Filters()) if day]
        return (days[0], days[-1]) if days else ("", "")

    def original(self, id_: int) -> Path:
        """Returns the file of a photo.

        Raises:
            UserError: If the server does not offer files.
            NotFoundError: If the photo is unknown, or its file is missing.
        """
        if not self.settings.originals:
            raise UserError("this server does not offer original files: start it with --originals")
        with self._showing(id_) as (index, _):
            return index.photo_path(id_)

    def thumbnail(self, id_: int) -> bytes:
        """Returns the thumbnail of a photo; the latest ones are cached."""
        return self._thumbnail(id_, self.photo(id_).sha256)

    def resized(self, id_: int, size: int) -> bytes:
        """Returns a photo as a new JPEG: no byte of its file leaves the server.

        Args:
            id_: The photo.
            size: The longer side, in pixels.

        Raises:
            NotFoundError: If the photo is unknown, or its file is missing or broken.
        """
        with self._showing(id_) as (index, _), _SHRINKING:
            return index.thumbnail(id_, size)

    def close(self) -> None:
        """Closes the service after all pending work."""
        self._uploads.shutdown()
        self.embedder.close()
        self.index.close()

    @contextmanager
    def _showing(self, id_: int) -> Iterator[tuple[PhotoIndex, Photo]]:
        """Returns the index and a photo of it; errors say that it cannot be shown."""
        index = self.index
        photo = _photo(index, id_)
        try:
            yield index, photo
        except (UserError, UnreadableError, OSError) as error:
            raise NotFoundError(f"{photo.path} cannot be shown: {error}") from None

    def _open(self, embedder: BatchingEmbedder | None) -> Searcher:
        """Opens the index on the disk, with an embedder, or with its own if that is None."""
        index = PhotoIndex.open(self.path)
        load = self._load or partial(Embedder.open, index.embedder_path)
        return Searcher(index, embedder or self._new_embedder(load))

    def _new_embedder(self, load: Callable[[], Any]) -> BatchingEmbedder:
        return BatchingEmbedder(
            load,
            self.settings.max_batch,
            self.settings.max_waiting,
            lambda items, size: self.metrics.batches.labels(items).observe(size),
        )


def _photo(index: PhotoIndex, id_: int) -> Photo:
    try:
        return index.photo(id_)
    except KeyError:
        raise NotFoundError(f"the index has no photo {id_}") from None


def _sort_by_day(index: PhotoIndex, filters: Filters) -> list[tuple[str, int]]:
    """Times and ids of the photos that pass the filters, ascending."""
    ids = filters.allowed(index)
    return sorted(zip(index.days(ids), ids.tolist(), strict=True))


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32)


class ServerMetrics:
    """The metrics of one server; several servers of one process count separately.

    Attributes:
        registry: All metrics.
        requests: Number of answered requests, by route and status.
        seconds: Time to answer a request, by route.
        batches: Size of the batches of the model, by kind: texts or images.
        broken: Number of uploaded images that were refused.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "Requests, by route and status."
        self.requests = self._new(Counter, "requests", text, "route", "status")
        text = "Time to answer a request, in seconds."
        self.seconds = self._new(Histogram, "request_seconds", text, "route", buckets=_SECONDS)
        text = "Texts or images that the model embedded at once."
        self.batches = self._new(Histogram, "batch_size", text, "kind", buckets=_SIZES)
        text = "Uploaded images that were refused."
        self.broken = self._new(Counter, "broken_uploads", text)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a number that is computed at every export."""
        self._new(Gauge, name, text).set_function(value)

    def _new(self, metric: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
        return metric(f"keras_xmr_{name}", text, labels, registry=self.registry, **options)
