"""Builds and updates the index of a folder of photos."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import (
    checksum,
    locked,
    remove_stale_temporaries,
    replace_atomically,
    temporary_path,
)
from data_pipelines.progress import Progress
from data_pipelines.source_changes import data_change
from data_pipelines.vectors import chunks
from keras_xmr.config.program import update_hint
from keras_xmr.index.augmentations import AUGMENTATIONS
from keras_xmr.index.backends import Backend, DamagedError, backend_class
from keras_xmr.index.calibration import calibrate_run, example_caption, has_validation
from keras_xmr.index.manifests import MANIFEST, write_manifest
from keras_xmr.index.photo_embedding import PhotoEmbedder
from keras_xmr.index.photo_index import (
    CAPTIONS,
    ITEMS,
    PARTS,
    REFERENCE,
    VECTORS,
    VERSION,
    WORDS,
    PhotoIndex,
)
from keras_xmr.index.photos import (
    Photo,
    check_root,
    describe,
    find_photos,
    near_duplicates,
    read_tags,
)
from keras_xmr.index.run_model import RunModel

_LOGGER = logging.getLogger(__name__)

_PART = 512
"""Number of photos per part, the maximum loss by a kill."""

_SMALL_PARTS = 16
"""Maximum number of parts that are less than half full; more are joined."""


@dataclass
class Report:
    """Summary of a build of an index.

    Attributes:
        path: The folder of the index.
        photos: Number of photos in the index.
        added: Number of new photos.
        changed: Number of photos with changed files, which were embedded again.
        removed: Number of photos whose files are gone.
        kept: Number of unchanged photos.
        duplicates: Number of near-duplicates of earlier photos.
        broken: Reasons for photos that could not be read, by path.
        damaged: Files and folders of the index that were damaged, and rebuilt. A calibration is
            rebuilt only if calibration was requested, and removed otherwise.
        tagged: Paths with tags that are not in the index.
        example: A caption of training, as a query to try; empty without the records of the
            run.
        seconds: Time of the build.
    """

    path: Path
    photos: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    kept: int = 0
    duplicates: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    damaged: list[Path] = field(default_factory=list)
    tagged: list[str] = field(default_factory=list)
    example: str = ""
    seconds: float = 0.0


def build_index(
    run: Path,
    images: Path,
    path: Path | None = None,
    backend: str = "exact",
    tags: Path | None = None,
    calibrate: bool = True,
    uri: str = "",
) -> Report:
    """Builds or updates the index of a folder of photos.

    Photos are identified by their path, size, time and, if these differ, their content: only new
    and changed ones are embedded. An interrupted build is resumed.

    Args:
        run: The folder of a finished run.
        images: The folder of the photos.
        path: The folder of the index; `index` in that of the run by default.
        backend: Name of a backend; that of an index never changes.
        tags: A CSV file with tags; see `read_tags`. None keeps the present tags.
        calibrate: Whether missing answer sets are calibrated on the validation split.
        uri: Address of a server of Milvus, for its backend and a new index.

    Raises:
        UserError: If the run is not finished, the folder cannot be read, or the index was made by
            another model, of another folder, or with another backend.
        LockedError: If another process writes the index.
    """
    begin = time.perf_counter()
    root = check_root(images)
    found_tags = None if tags is None else read_tags(tags)
    model = RunModel(run)
    path = model.folder.path / "index" if path is None else path
    backend_class(backend)
    if change := data_change(model.config.data):
        _LOGGER.warning("%s. %s trains again", change, update_hint(model.folder.path))
    report = build_with(model, root, path, backend, found_tags, calibrate, uri)
    report.example = example_caption(model)
    report.seconds = time.perf_counter() - begin
    return report


def build_with(
    model: RunModel,
    root: Path,
    path: Path,
    backend: str = "exact",
    tags: Mapping[str, list[str]] | None = None,
    calibrate: bool = False,
    uri: str = "",
) -> Report:
    """Builds an index by a model; see `build_index`."""
    if uri and backend != "milvus":
        raise UserError(f"the backend {backend} uses no server: use --uri with --backend=milvus")
    with locked(path):
        return _Builder(model, root, path, backend, uri).build(calibrate, tags)


class _Builder:
    """Writes an index. Only files in its manifest, which is written last, belong to it."""

    def __init__(self, model: RunModel, root: Path, path: Path, backend: str, uri: str) -> None:
        self.model, self.root, self.path, self.uri = model, root, path, uri
        self.report = Report(path)
        if (path / MANIFEST).exists():
            self.content = dict(PhotoIndex.open(path).content)
            self._check(backend)
        else:
            self.content = self._empty(backend)
        self.augmentation = AUGMENTATIONS[self.content["augmentation"]]

    def build(self, calibrate: bool, tags: Mapping[str, list[str]] | None) -> Report:
        if tags is not None:
            self.content["tags"] = dict(tags)
        self._check_calibration()
        # An index of an earlier version has no verdict.
        if calibrate and "verdict" not in self.content:
            self._calibrate()
        for folder in (self.path / PARTS, self.path):
            remove_stale_temporaries(folder)
        self._check_parts()
        self._remove_strays()
        new, gone = self._compare()
        self._embed(new, gone)
        self._finish()
        return self.report

    def _empty(self, backend: str) -> dict[str, Any]:
        search = self.model.search
        return {
            "root": str(self.root),
            "run": str(self.model.folder.path.resolve()),
            "fingerprint": self.model.fingerprint,
            "matcher": self.model.matcher_name,
            "kind": self.model.kind,
            "augmentation": search.augmentation,
            "reduces": search.exact,
            "backend": backend,
            "answer_sets": None,
            "parts": [],
            "checksums": {},
            "next_id": 0,
            "next_part": 0,
            "removed": [],
            "touched": {},
            "broken": {},
            "duplicates": {},
            "tags": {},
            "finished": False,
        }

    def _check(self, backend: str) -> None:
        """Refuses an index of another model, folder or backend."""
        other = f"use another folder with --index, or delete {self.path}"
        if self.content["fingerprint"] != self.model.fingerprint:
            raise UserError(
                f"{self.path} was made by another model than {self.model.folder.path}; {other}"
            )
        if self.content["root"] != str(self.root):
            raise UserError(f"{self.path} has the photos of {self.content['root']}; {other}")
        if self.content["backend"] != backend:
            raise UserError(f"{self.path} has the backend {self.content['backend']}; {other}")

    def _check_calibration(self) -> None:
        """Removes a calibration with damaged files."""
        index = PhotoIndex(self.path, self.content)
        names = [REFERENCE] * (index.answer_sets is not None) + [CAPTIONS] * index.is_calibrated
        names += [WORDS] * ("verdict" in self.content)
        damaged = [self.path / name for name in names if not index.has_calibration(name)]
        if damaged:
            self.report.damaged += damaged
            self.content["answer_sets"] = None
            for key in ("verdict", "log_sigma", "reranking", "calibration_checksums"):
                self.content.pop(key, None)

    def _calibrate(self) -> None:
        if not has_validation(self.model):
            _LOGGER.warning(
                "not calibrated, so searches do not estimate how many photos are right: that takes "
                "captions of some photos, and %s has none for validation",
                self.model.config.data.records,
            )
            return
        calibration = calibrate_run(self.model)
        self.content["answer_sets"] = asdict(calibration.answer_sets)
        self.content["log_sigma"] = calibration.log_sigma
        for key in ("verdict", "reranking"):
            model = getattr(calibration, key)
            self.content[key] = None if model is None else asdict(model)
        files = {
            REFERENCE: calibration.reference,
            CAPTIONS: calibration.captions,
            WORDS: calibration.vocabulary.as_arrays(),
        }
        for name, arrays in files.items():
            with replace_atomically(self.path / name, ".npz") as temporary:
                np.savez(temporary, **dict(arrays))  # type: ignore[arg-type]
        self.content["calibration_checksums"] = {name: checksum(self.path / name) for name in files}

    def _check_parts(self) -> None:
        """Removes damaged parts, so that their photos are embedded again."""
        whole = []
        for part in PhotoIndex(self.path, self.content).parts:
            try:
                part.verify()
            except UserError:
                self.report.damaged.append(part.folder)
            else:
                whole.append(part.folder.name)
        self._name_parts(whole)

    def _name_parts(self, parts: list[str]) -> None:
        """Sets the parts of the index."""
        known = self.content.get("checksums", {})
        self.content["parts"] = parts
        self.content["checksums"] = {
            name: known.get(name) or _checksums(self.path / PARTS / name) for name in parts
        }

    def _remove_strays(self) -> None:
        """Removes parts of a killed build."""
        folder = self.path / PARTS
        folder.mkdir(exist_ok=True)
        for part in folder.iterdir():
            if part.name not in self.content["parts"]:
                shutil.rmtree(part)

    def _compare(self) -> tuple[list[tuple[str, os.stat_result]], dict[str, int]]:
        """The photos to embed, and the ids of removed and changed photos by path."""
        known = {photo.path: photo for photo in PhotoIndex(self.path, self.content).photos()}
        photos = dict(find_photos(self.root, self.path.resolve()))
        if known and not photos:
            raise UserError(
                f"{self.root} has no photos, but {self.path} has {len(known):,}: is the disk "
                "mounted? If the photos are gone, delete the index"
            )
        new = [(p, status) for p, status in photos.items() if not self._is_known(p, status, known)]
        self.content["broken"] = {p: b for p, b in self.content["broken"].items() if p in photos}
        changed = {p for p, _ in new} & known.keys()
        gone = {p: photo.id for p, photo in known.items() if p not in photos or p in changed}
        self.report.kept = len(known) - len(gone)
        self.report.removed = len(gone) - len(changed)
        return new, gone

    def _is_known(self, path: str, status: os.stat_result, known: Mapping[str, Photo]) -> bool:
        """Whether a file is unchanged."""
        now = [status.st_size, status.st_mtime_ns]
        if path in self.content["broken"]:
            return bool(self.content["broken"][path]["status"] == now)
        photo = known.get(path)
        if photo is None or photo.bytes != status.st_size:
            return False
        if photo.modified != status.st_mtime_ns:
            if checksum(self.root / path) != photo.sha256:
                return False
            self.content["touched"][str(photo.id)] = {"modified": status.st_mtime_ns}
        return True

    def _embed(self, new: list[tuple[str, os.stat_result]], gone: dict[str, int]) -> None:
        """Embeds photos part by part. A changed photo is removed when its new version is added."""
        paths = {path for path, _ in new}
        self.content["finished"] = False
        self._remove([number for path, number in gone.items() if path not in paths])
        if not new:
            return
        embedder = PhotoEmbedder(self.root, self.model)
        with Progress("embedding photos", len(new), "photos") as bar:
            for part in chunks(new, _PART):
                statuses = dict(part)
                items, broken, arrays = embedder.embed(
                    list(statuses), bar, partial(self._describe, statuses)
                )
                for path, why in broken.items():
                    status = [statuses[path].st_size, statuses[path].st_mtime_ns]
                    self.content["broken"][path] = {"why": why, "status": status}
                old = [gone[path] for path, _ in part if path in gone]
                self.report.changed += sum(item.path in gone for item in items)
                self.report.added += sum(item.path not in gone for item in items)
                self._keep(items, arrays, old)

    def _describe(
        self, statuses: Mapping[str, os.stat_result], path: str, data: bytes, pixels: np.ndarray
    ) -> Photo:
        photo = describe(self.content["next_id"], path, data, statuses[path], pixels)
        self.content["broken"].pop(path, None)
        self.content["next_id"] += 1
        return photo

    def _keep(self, items: list[Photo], arrays: dict[str, np.ndarray], old: list[int]) -> None:
        """Writes a part, and adds it to the manifest."""
        if items:
            _refuse_non_finite(arrays, items)
            self._name_parts([*self.content["parts"], self._write_part(items, arrays)])
        self._remove(old)

    def _write_part(self, items: Sequence[Photo], arrays: Mapping[str, np.ndarray]) -> str:
        """Writes a part, and returns its name."""
        name = f"{self.content['next_part']:06d}"
        temporary = temporary_path(self.path / PARTS / name)
        temporary.mkdir()
        (temporary / ITEMS).write_text(json.dumps([asdict(item) for item in items]), "utf-8")
        for key, values in arrays.items():
            np.save(temporary / f"{key}.npy", values)
        os.replace(temporary, self.path / PARTS / name)
        self.content["next_part"] += 1
        return name

    def _compact(self) -> None:
        """Rewrites the parts if many are small, or most photos were removed.

        The old ones stay until the next build, for readers of the index.
        """
        index = PhotoIndex(self.path, self.content)
        small = sum(len(part.items) < _PART // 2 for part in index.parts)
        if small <= _SMALL_PARTS and len(self.content["removed"]) <= len(index):
            return
        parts = []
        for ids in chunks(index.ids, _PART):
            items = [index.photo(number) for number in ids.tolist()]
            parts.append(self._write_part(items, index.embeddings(ids)))
        self._name_parts(parts)
        self.content |= {"removed": [], "touched": {}}
        write_manifest(self.path, VERSION, self.content)

    def _remove(self, ids: list[int]) -> None:
        self.content["removed"] = sorted({*self.content["removed"], *ids})
        write_manifest(self.path, VERSION, self.content)

    def _finish(self) -> None:
        """Updates the vectors and the near-duplicates."""
        self._compact()
        index = PhotoIndex(self.path, self.content)
        self._update_vectors(index)
        duplicates = near_duplicates(index.photos())
        self.content["duplicates"] = {str(number): first for number, first in duplicates.items()}
        self.content["finished"] = True
        write_manifest(self.path, VERSION, self.content)
        self.report.photos, self.report.duplicates = len(index), len(duplicates)
        self.report.broken = index.broken()
        paths = {photo.path for photo in index.photos()}
        self.report.tagged = [path for path in self.content["tags"] if path not in paths]

    def _update_vectors(self, index: PhotoIndex) -> None:
        folder = self.path / VECTORS
        kind, vectors = backend_class(self.content["backend"]), None
        if (folder / MANIFEST).exists():
            vectors = self._open_vectors(kind, folder)
        if vectors is not None:
            vectors.remove(np.setdiff1d(vectors.ids, index.ids))
        stored = np.empty(0, np.int64) if vectors is None else vectors.ids
        missing = np.setdiff1d(index.ids, stored)
        for ids in chunks(missing, 1 << 16):
            added = self._compute_vectors(index, ids)
            if vectors is None:
                options = {"uri": self.uri} if self.uri else {}
                vectors = kind(folder, added.shape[1:], **options)
                vectors.begin(len(missing), partial(self._sample, index, missing))
            vectors.add(ids, added)
        if vectors is not None:
            vectors.save()
            vectors.close()

    def _open_vectors(self, kind: Any, folder: Path) -> Backend | None:
        """The vectors, or None if they are damaged."""
        try:
            opened: Backend = kind.open(folder, writing=True)
            return opened
        except DamagedError:
            shutil.rmtree(folder)
            self.report.damaged.append(folder)
            return None

    def _sample(self, index: PhotoIndex, ids: np.ndarray, size: int) -> np.ndarray:
        """Vectors of a random sample of photos."""
        drawn = np.random.default_rng(0).choice(ids, size, replace=False)
        return self._compute_vectors(index, np.sort(drawn))

    def _compute_vectors(self, index: PhotoIndex, ids: np.ndarray) -> np.ndarray:
        embedded = (
            self.model.prepare(index.embeddings(part), "image") for part in chunks(ids, 1024)
        )
        return np.concatenate([self.augmentation.gallery_vectors(part) for part in embedded])


def _checksums(part: Path) -> dict[str, str]:
    """The SHA-256 of the files of a part by name."""
    return {path.name: checksum(path) for path in sorted(part.iterdir())}


def _refuse_non_finite(arrays: Mapping[str, np.ndarray], items: list[Photo]) -> None:
    for values in arrays.values():
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            path = items[int(np.argmin(finite))].path
            raise UserError(
                f"the model computes numbers for {path} that are not finite; train it again"
            )
