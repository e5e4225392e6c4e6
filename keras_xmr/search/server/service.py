"""Index, model, relevance feedback and metrics of the server."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from data_pipelines.pixels import encode
from data_pipelines.sources import UnreadableError
from keras_xmr.config.model_compatibility import attends, further_matchers
from keras_xmr.evaluation.reporting.heat import named_maps, overlay
from keras_xmr.judgements.formats import read_csv
from keras_xmr.judgements.reading import one_line, write_rows
from keras_xmr.runs.folder import load_run
from keras_xmr.search import Filters, Photo, PhotoIndex, Searcher, SearchResult
from keras_xmr.search.server.batching import BatchingEmbedder
from keras_xmr.search.server.requests import (
    NotFoundError,
    PhotosRequest,
    SearchRequest,
    Settings,
    Upload,
    check,
)
from keras_xmr.utils.errors import UserError

_LOG = logging.getLogger(__name__)

State = Literal["loading", "ready", "draining"]
_SMALL, _KEPT, _MAPS_KEPT, _LISTS_KEPT = 512, 2048, 64, 8
_LEAST = 288
"""Minimum side of a photo under an attention map, in pixels."""
# Limits the number of full-size photos in memory.
_SHRINKING = threading.BoundedSemaphore(2)


class Service:
    """Service of the routes: searches an index, which may be replaced by a newer one at any time.

    Args:
        path: The index.
        settings: Limits, and the file of relevance feedback.
        run: The run of the index, if it was moved.
        load: Loads the embedder of queries when it is first needed; default: the model of the run.

    Attributes:
        matchers: Further matchers by which photos can be ranked.
        attends: Whether the model has attention maps of photos.
        searcher: The current searcher. A request reads it once: it may be replaced at any time.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        run: Path | None = None,
        load: Callable[[], Any] | None = None,
    ) -> None:
        self.settings, self.metrics = settings, ServerMetrics()
        self.feedback = RelevanceFeedback(settings.marks)
        self.state: State = "loading"
        self.embedder = BatchingEmbedder(
            load or (lambda: _model(run or self.index.run)),
            settings.max_batch,
            settings.max_waiting,
            lambda kind, size: self.metrics.batches.labels(kind).observe(size),
        )
        self._path = path
        self.searcher = self._open()
        # A changed photo has another checksum.
        self._thumbnail = lru_cache(_KEPT)(lambda id_, _: self.resized(id_, _SMALL))
        self._sort_by_day = lru_cache(_LISTS_KEPT)(_sort_by_day)
        self._attention_maps = lru_cache(_MAPS_KEPT)(
            lambda id_, sha256: self._render_attention(id_)
        )
        self.matchers, self.attends = _read_abilities(run or self.index.run)
        self.metrics.watch("photos", "Photos in the index.", lambda: len(self.index))
        self.metrics.watch(
            "waiting", "Requests that wait for the model.", lambda: self.embedder.waiting
        )

    @property
    def index(self) -> PhotoIndex:
        """The current index."""
        return self.searcher.index

    def warm_up(self) -> None:
        """Loads the model.

        Raises:
            UserError: If it is not the model of the index.
        """
        self.searcher.warm_up()
        self.index.load()
        if self.state == "loading":
            self.state = "ready"

    def update(self) -> None:
        """Updates the index on the disk by the model of the server.

        Searches use the old index until `refresh`.

        Raises:
            UserError: If the update fails, or the server stops.
        """
        from keras_xmr.search.build import build_index

        model: Any = self.embedder
        report = build_index(model, self.index.root, self._path, self.index.backend)
        done = {"new": report.added, "changed": report.changed, "removed": report.removed}
        if any(done.values()):
            _LOG.info("photos: %s", ", ".join(f"{n:,} {name}" for name, n in done.items() if n))

    def refresh(self) -> None:
        """Opens the index on the disk, if it has changed and is finished.

        It is read completely before it answers requests. The old one is not closed: requests may
        still use it.

        Raises:
            UserError: If it cannot be opened.
        """
        if self.index.is_current():
            return
        newer = self._open()
        if newer.index.is_finished:
            newer.index.load()
            if newer.index.is_current():
                self.searcher = newer
                self._sort_by_day.cache_clear()

    def search(self, request: SearchRequest, uploads: Sequence[Upload] = ()) -> dict[str, Any]:
        """Searches; invalid uploads are listed with the hits.

        Raises:
            UserError: If no valid part is left, or the request is not permitted.
        """
        searcher = self.searcher
        checked = self._check(uploads)
        broken = [upload for upload in checked if upload.error]
        images = [upload.data for upload in checked if not upload.error]
        if broken and not (images or request.texts or request.ids):
            raise UserError("; ".join(upload.error for upload in broken))
        for id_ in request.ids:
            _photo(searcher.index, id_)
        result = self.find(request, images, searcher)
        return {**asdict(result), "broken": [_named(upload) for upload in broken]}

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
        query, searcher = request.query(images), searcher or self.searcher
        matcher, default = request.matcher, searcher.index.matcher
        if matcher not in ("", default):
            if matcher not in self.matchers:
                names = ", ".join([default, *self.matchers])
                raise UserError(
                    f"matcher: {matcher!r} cannot rank these photos; use one of: {names}"
                )
            searcher = searcher.by_matcher(matcher)
        return searcher.search(query, request.count, request.filters(), request.rerank or None)

    def attention_maps(self, id_: int) -> dict[str, bytes]:
        """Attention maps of a photo: JPEGs of it under the maps, by the names of the maps.

        Raises:
            UserError: If the model has no attention maps.
            NotFoundError: If the photo is unknown, or its file is missing or broken.
        """
        if not self.attends:
            raise UserError("this model has no attention maps of photos")
        return self._attention_maps(id_, self.photo(id_).sha256)

    def photo(self, id_: int) -> Photo:
        """A photo of the index.

        Raises:
            NotFoundError: If the id is unknown.
        """
        return _photo(self.index, id_)

    def photos(self, request: PhotosRequest) -> dict[str, Any]:
        """Pages of photos, the newest first.

        A page begins after a day and an id, not after a number of photos: so none is skipped or
        repeated if the index is replaced by a newer one.
        """
        index = self.index
        places = self._sort_by_day(index, request.filters())
        day, _, number = request.after.rpartition(" ")
        end = bisect_left(places, (day, int(number))) if request.after else len(places)
        start = max(0, end - request.count)
        return {
            "photos": [asdict(index.photo(id_)) for _, id_ in reversed(places[start:end])],
            "total": len(places),
            "next": " ".join(map(str, places[start])) if start else "",
        }

    def days(self) -> tuple[str, str]:
        """The first and the last day of all photos, ISO; empty if unknown."""
        days = [day[:10] for day, _ in self._sort_by_day(self.index, Filters()) if day]
        return (days[0], days[-1]) if days else ("", "")

    def original(self, id_: int) -> Path:
        """The file of a photo.

        Raises:
            UserError: If the server does not offer files.
            NotFoundError: If the photo is unknown, or its file is missing.
        """
        if not self.settings.originals:
            raise UserError("this server does not offer original files: start it with --originals")
        with self._showing(id_) as (index, _):
            return index.photo_path(id_)

    def thumbnail(self, id_: int) -> bytes:
        """The thumbnail of a photo; the latest ones are cached."""
        return self._thumbnail(id_, self.photo(id_).sha256)

    def resized(self, id_: int, size: int) -> bytes:
        """A photo as a new JPEG: no byte of its file leaves the server.

        Args:
            id_: The photo.
            size: Its longer side, in pixels.

        Raises:
            NotFoundError: If the photo is unknown, or its file is missing or broken.
        """
        with self._showing(id_) as (index, _), _SHRINKING:
            return index.thumbnail(id_, size)

    def embed(self, texts: Sequence[str], uploads: Sequence[Upload]) -> dict[str, Any]:
        """Embeddings of texts and images, as lists of numbers; an invalid image has an error."""
        index, checked = self.index, self._check(uploads)
        good = [upload for upload in checked if not upload.error]
        vectors = iter(_rows(self.embedder.embed_images([u.data for u in good])) if good else ())
        return {
            "fingerprint": index.fingerprint,
            "kind": index.kind,
            "texts": _rows(self.embedder.embed_texts(texts)) if texts else [],
            "images": [_named(u) if u.error else next(vectors) for u in checked],
        }

    def _render_attention(self, id_: int) -> dict[str, bytes]:
        with self._showing(id_) as (index, photo), _SHRINKING:
            pixels = self.embedder.pixels(index.photo_path(id_).read_bytes(), photo.path)
        maps = {name: map_[0] for name, map_ in self.embedder.attention(pixels[None]).items()}
        side = max(_LEAST, len(pixels))
        seen = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC))
        return {
            name: encode(Image.fromarray(overlay(seen, weights)), quality=85)
            for name, weights in named_maps(maps).items()
        }

    def close(self) -> None:
        """Closes the service after all pending work."""
        self.embedder.close()
        self.index.close()

    @contextmanager
    def _showing(self, id_: int) -> Iterator[tuple[PhotoIndex, Photo]]:
        """The index and a photo of it; errors say that it cannot be shown."""
        index = self.index
        photo = _photo(index, id_)
        try:
            yield index, photo
        except (UserError, UnreadableError, OSError) as error:
            raise NotFoundError(f"{photo.path} cannot be shown: {error}") from None

    def _open(self) -> Searcher:
        return Searcher(PhotoIndex.open(self._path), embedder=self.embedder)

    def _check(self, uploads: Sequence[Upload]) -> list[Upload]:
        checked = [check(upload, self.settings) for upload in uploads]
        self.metrics.broken.inc(sum(bool(upload.error) for upload in checked))
        return checked


def _photo(index: PhotoIndex, id_: int) -> Photo:
    try:
        return index.photo(id_)
    except KeyError:
        raise NotFoundError(f"the index has no photo {id_}") from None


def _sort_by_day(index: PhotoIndex, filters: Filters) -> list[tuple[str, int]]:
    """Times and ids of the photos that pass the filters, ascending."""
    return sorted((index.photo(id_).taken, id_) for id_ in filters.allowed(index).tolist())


def _read_abilities(run: Path) -> tuple[list[str], bool]:
    """Further matchers and attention of the model of a run, by its config; none without it."""
    try:
        config = load_run(run)
    except UserError:
        return [], False
    return further_matchers(config), attends(config)


def _model(run: Path) -> Any:
    from keras_xmr.search.run_model import RunModel

    return RunModel(run)


def _named(upload: Upload) -> dict[str, str]:
    return {"name": upload.name, "error": upload.error}


def _rows(embedding: dict[str, Any]) -> list[dict[str, Any]]:
    """The embedding of each item, as lists."""
    lists = {name: array.tolist() for name, array in embedding.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


COLUMNS = ("image", "caption", "grade")


class RelevanceFeedback:
    """A CSV file `image,caption,grade`, in the format of `read_judgements`.

    It has a line per pair: a new mark replaces the old one. The file is read again for every mark,
    since people edit it, and replaced atomically.

    Args:
        path: The file, which may be missing; None disables feedback.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def grades(self, caption: str) -> dict[str, float]:
        """The grades of images for a caption, by image."""
        caption = one_line(caption)
        return {image: grade for (image, text), grade in self._read().items() if text == caption}

    def set(self, image: str, caption: str, grade: float | None) -> int:
        """Sets the grade of a pair, or removes it if it is None.

        Returns:
            The number of marked pairs.

        Raises:
            UserError: If feedback is disabled, or the file is damaged or cannot be written.
        """
        if self._path is None:
            raise UserError("relevance feedback is disabled on this server")
        with self._lock:
            marks = self._read()
            marks.pop((image, one_line(caption)), None)
            if grade is not None:
                marks[image, one_line(caption)] = grade
            rows = ((*pair, f"{grade:g}") for pair, grade in marks.items())
            try:
                write_rows(self._path, COLUMNS, rows)
            except OSError as error:
                raise UserError(f"{self._path} cannot be written: {error.strerror}") from None
        return len(marks)

    def _read(self) -> dict[tuple[str, str], float]:
        if self._path is None or not self._path.exists():
            return {}
        # Names of photos may begin or end with a blank, captions do not.
        rows = read_csv(self._path)
        return {(image, caption.strip()): grade for _, (image, caption), grade in rows}


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32)


class ServerMetrics:
    """The metrics of one server; those of several in one process are separate.

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

    def _new(self, kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
        return kind(f"keras_xmr_{name}", text, labels, registry=self.registry, **options)
