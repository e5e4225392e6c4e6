"""Builds and updates the index of a folder of photos."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.search.backends import Backend, DamagedError, backend_class
from keras_xmr.search.calibration import calibrate_run, has_validation
from keras_xmr.search.manifests import MANIFEST, write_manifest
from keras_xmr.search.photo_embedding import PhotoEmbedder
from keras_xmr.search.photo_index import ITEMS, PARTS, VECTORS, VERSION, PhotoIndex
from keras_xmr.search.photos import FileState, Photo, near_duplicates
from keras_xmr.search.run_model import RunModel
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import (
    checksum,
    locked,
    remove_stale_temporaries,
    replace_atomically,
    temporary_path,
)
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import chunks

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
        removed: Number of photos with deleted files.
        kept: Number of unchanged photos.
        duplicates: Number of near-duplicates of earlier photos.
        broken: Reasons for photos that could not be read, by path.
        damaged: Files and folders of the index that were damaged, and rebuilt. A calibration is
            rebuilt only if calibration was requested, and removed otherwise.
        tagged: Paths with tags that are not in the index.
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


def build_index(
    model: RunModel,
    root: Path,
    path: Path,
    backend: str = "exact",
    tags: Mapping[str, list[str]] | None = None,
    calibrate: bool = False,
    uri: str = "",
) -> Report:
    """Builds or updates the index of a folder of photos.

    Photos are identified by their path, size, time and, if these differ, their content: only new
    and changed ones are embedded. An interrupted build is resumed.

    Args:
        model: The model of a finished run.
        root: The folder of the photos, absolute.
        path: The folder of the index.
        backend: Name of a backend; that of an index never changes.
        tags: Tags by path; see `read_tags`. None keeps the present tags.
        calibrate: Whether missing answer sets are calibrated on the validation split.
        uri: Address of a server of Milvus, for its backend and a new index.

    Raises:
        UserError: If the index was made by another model, of another folder, or with another
            backend.
        LockedError: If another process writes the index.
    """
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

    def build(self, calibrate: bool, tags: Mapping[str, list[str]] | None) -> Report:
        if tags is not None:
            self.content["tags"] = dict(tags)
        self._check_calibration()
        if calibrate and "reranking" not in self.content:
            self._calibrate()
        for folder in (self.path / PARTS, self.path):
            remove_stale_temporaries(folder)
        self._check_parts()
        self._embed(*self._compare())
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
        damaged = PhotoIndex(self.path, self.content).damaged_calibration()
        if damaged:
            self.report.damaged += damaged
            self.content["answer_sets"] = None
            for key in ("log_sigma", "reranking", "calibration_checksums"):
                self.content.pop(key, None)

    def _calibrate(self) -> None:
        if not has_validation(self.model):
            _LOGGER.warning(
                "not calibrated, so searches have no answer sets: these take "
                "captions of some photos, and %s has none for validation",
                self.model.config.data.records,
            )
            return
        calibration, files = calibrate_run(self.model)
        self.content |= asdict(calibration)
        for name, arrays in files.items():
            with replace_atomically(self.path / name, ".npz") as temporary:
                np.savez(temporary, **dict(arrays))  # type: ignore[arg-type]
        self.content["calibration_checksums"] = {name: checksum(self.path / name) for name in files}

    def _check_parts(self) -> None:
        """Removes damaged parts, to embed their photos again, and those of a killed build."""
        folder, whole = self.path / PARTS, []
        for part in PhotoIndex(self.path, self.content).parts:
            try:
                part.verify()
                whole.append(part.folder.name)
            except UserError:
                self.report.damaged.append(part.folder)
        self._name_parts(whole)
        folder.mkdir(exist_ok=True)
        for stray in folder.iterdir():
            if stray.name not in whole:
                shutil.rmtree(stray)

    def _name_parts(self, parts: list[str]) -> None:
        """Sets the parts of the index."""
        known, folder = self.content.get("checksums", {}), self.path / PARTS
        self.content["parts"] = parts
        self.content["checksums"] = {
            name: known.get(name)
            or {p.name: checksum(p) for p in sorted((folder / name).iterdir())}
            for name in parts
        }

    def _compare(self) -> tuple[dict[str, FileState], dict[str, int]]:
        """The photos to embed, and the ids of removed and changed photos by path."""
        index = PhotoIndex(self.path, self.content)
        known, files = {photo.path: photo for photo in index.photos()}, index.files()
        if known and not files:
            raise UserError(
                f"{self.root} has no photos, but {self.path} has {len(known):,}: is the disk "
                "mounted? If the photos are gone, delete the index"
            )
        read = index.known_files()
        other = {p: state for p, state in files.items() if state != read.get(p)}
        new = {p: state for p, state in other.items() if not self._is_same(known.get(p), state)}
        self.content["broken"] = {p: b for p, b in self.content["broken"].items() if p in files}
        changed = new.keys() & known.keys()
        gone = {p: photo.id for p, photo in known.items() if p not in files or p in changed}
        self.report.kept = len(known) - len(gone)
        self.report.removed = len(gone) - len(changed)
        return new, gone

    def _is_same(self, photo: Photo | None, state: FileState) -> bool:
        """Whether a photo has the same content, though its file has another time."""
        size, modified = state
        if photo is None or photo.bytes != size:
            return False
        if checksum(self.root / photo.path) != photo.sha256:
            return False
        self.content["touched"][str(photo.id)] = {"modified": modified}
        return True

    def _embed(self, new: Mapping[str, FileState], gone: Mapping[str, int]) -> None:
        """Embeds photos part by part. A changed photo is removed when its new version is added."""
        self.content["finished"] = False
        self._remove([number for path, number in gone.items() if path not in new])
        if not new:
            return
        embedder, broken = PhotoEmbedder(self.root, self.model), self.content["broken"]
        with Progress("embedding photos", len(new), "photos") as bar:
            for files in chunks(list(new.items()), _PART):
                embedded = embedder.embed(files, bar, self.content["next_id"])
                self.content["next_id"] += len(embedded.photos)
                for path in embedded.paths:
                    broken.pop(path, None)
                for path, why in embedded.broken.items():
                    broken[path] = {"why": why, "status": list(new[path])}
                changed = sum(path in gone for path in embedded.paths)
                self.report.changed += changed
                self.report.added += len(embedded.photos) - changed
                old = [gone[path] for path, _ in files if path in gone]
                self._keep(embedded.photos, embedded.arrays, old)

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
        folder, kind = self.path / VECTORS, backend_class(self.content["backend"])
        vectors: Backend | None = None
        if (folder / MANIFEST).exists():
            try:
                vectors = kind.open(folder, writing=True)
                vectors.remove(np.setdiff1d(vectors.ids, index.ids))
            except DamagedError:
                shutil.rmtree(folder)
                self.report.damaged.append(folder)
        missing = np.setdiff1d(index.ids, [] if vectors is None else vectors.ids)

        def sample(size: int) -> np.ndarray:
            drawn = np.random.default_rng(0).choice(missing, size, replace=False)
            return self._compute_vectors(index, np.sort(drawn))

        for ids in chunks(missing, 1 << 16):
            added = self._compute_vectors(index, ids)
            if vectors is None:
                options = {"uri": self.uri} if self.uri else {}
                vectors = kind(folder, added.shape[1:], **options)
                vectors.begin(len(missing), sample)
            vectors.add(ids, added)
        if vectors is not None:
            vectors.save()
            vectors.close()

    def _compute_vectors(self, index: PhotoIndex, ids: np.ndarray) -> np.ndarray:
        embedded = (
            self.model.prepare(index.embeddings(part), "image") for part in chunks(ids, 1024)
        )
        return np.concatenate([index.augmentation.gallery_vectors(part) for part in embedded])


def _refuse_non_finite(arrays: Mapping[str, np.ndarray], items: list[Photo]) -> None:
    for values in arrays.values():
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            path = items[int(np.argmin(finite))].path
            raise UserError(
                f"the model computes numbers for {path} that are not finite; train it again"
            )
