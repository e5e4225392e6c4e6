"""Builds and updates the index of a folder of photos."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.training_words import WORDS, encode_words
from keras_xmr.search.backends import backend_class
from keras_xmr.search.descriptions import near_duplicates
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.file_changes import compare_files
from keras_xmr.search.index_vectors import update_vectors
from keras_xmr.search.manifests import MANIFEST, read_manifest, write_manifest, write_numbered
from keras_xmr.search.photo_embedding import PhotoEmbedder, Store
from keras_xmr.search.photo_index import PATHS, PHOTOS, REFERENCE, VERSION, PhotoIndex
from keras_xmr.search.photo_table import FileState, Photo, PhotoTable, find_photos
from keras_xmr.search.prediction_sets import PredictionSets
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import locked, remove_stale_temporaries
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import Arrays, select

_LOGGER = logging.getLogger(__name__)

Calibrate = Callable[[Any], "tuple[PredictionSets, Arrays] | None"]
"""Calibrates prediction sets: these, and the embeddings of the reference; or None."""

_LEAST, _SHARE = 512, 10
"""Photos between two saves: a minimum, and a share of the photos of the index."""


@dataclass
class BuildSummary:
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
    model: Embedder,
    root: Path,
    path: Path,
    backend: str = "exact",
    tags: Mapping[str, list[str]] | None = None,
    calibrate: Calibrate | None = None,
    uri: str = "",
    replaced: PhotoIndex | None = None,
    store: Store | None = None,
) -> BuildSummary:
    """Builds or updates the index of a folder of photos.

    Photos are identified by their path, size and times and, if these differ, their content: only
    new and changed ones are embedded, not those that were moved. An interrupted build is resumed.

    Args:
        model: The embedder, which the index gets a copy of.
        root: The folder of the photos, absolute.
        path: The folder of the index.
        backend: Name of a backend; an index never changes its backend.
        tags: Tags by path; see `read_tags`. None keeps the present tags.
        calibrate: Calibrates missing prediction sets; None for none.
        uri: Address of a server of Milvus, for its backend and a new index.
        replaced: An index that the new one will replace; see `replace_index`.
        store: Stored features of the image encoder; see `PhotoEmbedder`.

    Raises:
        UserError: If the index was made by another model, of a folder with other photos, or with
            another backend.
        LockedError: If another process writes the index.
    """
    if uri and backend != "milvus":
        raise UserError(f"the backend {backend} uses no server: use --uri with --backend=milvus")
    with locked(path):
        builder = _Builder(model, root, path, backend, uri, store)
        if replaced is not None:
            builder.take_place_of(replaced)
        return builder.build(calibrate, tags)


def replace_index(fresh: Path, path: Path) -> None:
    """Replaces an index by another one, which was built for that, at once for all readers.

    Args:
        fresh: The folder of the new index, which is removed.
        path: The folder of the index.
    """
    with locked(path):
        for entry in fresh.iterdir():
            if entry.name != MANIFEST:
                if (path / entry.name).is_dir():
                    shutil.rmtree(path / entry.name)
                os.replace(entry, path / entry.name)
        os.replace(fresh / MANIFEST, path / MANIFEST)
        _remove_former_files(PhotoIndex.open(path))
    shutil.rmtree(fresh, ignore_errors=True)


def _remove_former_files(index: PhotoIndex) -> None:
    """Removes the files that the manifest of an index does not name; readers have theirs open."""
    content = index.content
    kept = {*content["files"], *content["reference"], *content.get("words", ())}
    for path in index.path.glob("[0-9]*"):
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (*index.path.glob("vectors-*"), *index.path.glob("embedder-*")):
        if path not in (index.vectors_path, index.embedder_path):
            shutil.rmtree(path)


class _Builder:
    """Writes an index. Only files in its manifest, which is written last, belong to it."""

    def __init__(
        self,
        model: Embedder,
        root: Path,
        path: Path,
        backend: str,
        uri: str,
        store: Store | None,
    ) -> None:
        self.model, self.root, self.path, self.uri = model, root, path, uri
        self.store = store
        self.summary = BuildSummary(path)
        self.photos = PhotoTable.of(())
        self.arrays: dict[str, np.ndarray] = {}
        if (path / MANIFEST).exists():
            self.content = read_manifest(path, VERSION, "root")
            self._check(backend)
        else:
            self.content = self._empty(backend)

    def take_place_of(self, replaced: PhotoIndex) -> None:
        """Gives files other names than an index has, to lie next to them."""
        self.content["number"] = max(self.content["number"], replaced.content["number"])

    def build(
        self, calibrate: Calibrate | None, tags: Mapping[str, list[str]] | None
    ) -> BuildSummary:
        """Builds the index, and returns a summary."""
        if tags is not None:
            self.content["tags"] = dict(tags)
        remove_stale_temporaries(self.path)
        self._install_embedder()
        self._check_calibration()
        if calibrate is not None and self.content["prediction_sets"] is None:
            self._calibrate(calibrate)
        self._write_training_words()
        self._load()
        self._embed(*self._compare())
        self._finish()
        return self.summary

    def _empty(self, backend: str) -> dict[str, Any]:
        search = self.model.search
        return {
            "root": str(self.root),
            "fingerprint": self.model.fingerprint,
            "matcher": self.model.matcher_name,
            "kind": self.model.kind,
            "augmentation": search.augmentation,
            "reduces": search.exact,
            "backend": backend,
            "prediction_sets": None,
            "reference": {},
            "files": {},
            "number": 0,
            "next_id": 0,
            "broken": {},
            "duplicates": {},
            "tags": {},
            "finished": False,
        }

    def _check(self, backend: str) -> None:
        """Refuses an index of another model or backend."""
        other = "use another folder with --index"
        if self.content["fingerprint"] != self.model.fingerprint:
            raise UserError(
                f"{self.path} was made by another model than {self.model.name}; {other}"
            )
        if self.content["backend"] != backend:
            raise UserError(f"{self.path} has the backend {self.content['backend']}; {other}")

    def _check_calibration(self) -> None:
        """Removes a calibration with a damaged file."""
        if self.content["prediction_sets"] is None:
            return
        try:
            _ = PhotoIndex(self.path, self.content).reference
        except UserError:
            self.summary.damaged += [self.path / name for name in self.content["reference"]]
            self.content |= {"prediction_sets": None, "reference": {}}

    def _install_embedder(self) -> None:
        """Gives the index the files of the embedder, in place of damaged ones."""
        target = PhotoIndex(self.path, self.content).embedder_path
        if target.exists() and target.resolve() != Path(self.model.folder).resolve():
            try:
                Embedder.open(target).check()
                return
            except UserError:
                self.summary.damaged.append(target)
        self.model.install(target)

    def _calibrate(self, calibrate: Calibrate) -> None:
        calibrated = calibrate(self.model)
        if calibrated is None:
            return
        sets, reference = calibrated
        writers = {REFERENCE: partial(_save_archive, reference)}
        self.content |= {"prediction_sets": asdict(sets), "reference": self._write_files(writers)}

    def _write_training_words(self) -> None:
        """Writes the words of the training captions, if the embedder has them."""
        try:
            if PhotoIndex(self.path, self.content).training_words is not None:
                return
        except UserError:
            self.summary.damaged += [self.path / name for name in self.content["words"]]
        self.content.pop("words", None)
        if words := self.model.training_words:
            content = encode_words(words)
            writers = {WORDS: lambda path: path.write_bytes(content)}
            self.content["words"] = self._write_files(writers)

    def _load(self) -> None:
        """Reads the photos and their embeddings; if they are damaged, all are embedded again."""
        index = PhotoIndex(self.path, self.content)
        try:
            self.arrays = index.embeddings(index.ids)
            self.photos = index.photos()
        except UserError:
            self.summary.damaged += [self.path / name for name in self.content["files"]]
            self.arrays, self.content["files"] = {}, {}

    def _compare(self) -> tuple[dict[str, FileState], set[str]]:
        """Keeps the photos that are there with the same content.

        Returns:
            The photos to embed, and the paths of photos of which an earlier version is kept until
            then.
        """
        files = dict(find_photos(self.root, self.path.resolve()))
        known = {path: row for row, path in enumerate(self.photos.paths)}
        is_moved = self.content["root"] != str(self.root)
        if known and not files and not is_moved:
            raise UserError(
                f"{self.root} has no photos, but {self.path} has {len(known):,}: is the disk "
                f"mounted? If they have moved, run `index --index={self.path} --images=FOLDER`; "
                "if they are gone, move the folder of the index away"
            )
        changes = compare_files(self.photos, self.root, files, trusts_states=not is_moved)
        kept, others = changes.kept, changes.others
        broken = self.content["broken"]
        if is_moved:
            self._check_moved(len(kept))
            broken.clear()
        new = {p: s for p, s in others.items() if p not in broken or broken[p]["status"] != list(s)}
        # A file that could not be read may have the content of another one by now.
        for path in [path for path in broken if path not in others or path in new]:
            del broken[path]
        changed = {p for p in new if p in known and known[p] not in kept and not is_moved}
        self.summary.kept = len(kept)
        self.summary.removed = len(known) - len(kept) - len(changed)
        is_other = bool(changes.moved or self.summary.removed or is_moved)
        self._keep_rows(sorted(kept | {known[path] for path in changed}), changes.moved)
        if is_other:
            self.content |= {"root": str(self.root), "finished": False}
            self._save()
        return new, changed

    def _check_moved(self, kept: int) -> None:
        """Refuses another folder than the indexed one, unless it has most of its photos."""
        if kept * 2 < len(self.photos):
            raise UserError(
                f"{self.path} has the photos of {self.content['root']}, and {self.root} has "
                f"{kept:,} of these {len(self.photos):,}; use another folder with --index"
            )

    def _keep_rows(self, rows: Sequence[int], moved: Mapping[int, Photo] | None = None) -> None:
        """Keeps some of the photos, perhaps with other descriptions."""
        if moved:
            self.photos = self.photos.replaced(moved)
        if len(rows) < len(self.photos):
            kept = np.array(rows, np.int64)
            self.photos, self.arrays = self.photos.take(kept), select(self.arrays, kept)

    def _embed(self, new: Mapping[str, FileState], changed: set[str]) -> None:
        """Embeds photos. A changed photo is removed when its new version is added."""
        if not new:
            return
        self.content["finished"] = False
        self._write_manifest()
        embedder = PhotoEmbedder(self.root, self.model, self.store)
        files = list(new.items())
        with Progress("embedding photos", len(new), "photos") as bar:
            while files:
                size = max(_LEAST, len(self.photos) // _SHARE)
                some, files = files[:size], files[size:]
                embedded = embedder.embed(some, bar, self.content["next_id"])
                _refuse_non_finite(embedded.arrays, embedded.photos)
                self.content["next_id"] += len(embedded.photos)
                for path, why in embedded.broken.items():
                    self.content["broken"][path] = {"why": why, "status": list(new[path])}
                count = sum(path in changed for path in embedded.paths)
                self.summary.changed += count
                self.summary.added += len(embedded.photos) - count
                old = changed.intersection(path for path, _ in some)
                if old:
                    paths = self.photos.paths
                    self._keep_rows([row for row, path in enumerate(paths) if path not in old])
                if embedded.photos:
                    self._append(embedded.photos, embedded.arrays)
                self._save()

    def _append(self, photos: list[Photo], arrays: Arrays) -> None:
        self.arrays = {
            name: np.concatenate([self.arrays[name], values]) if len(self.photos) else values
            for name, values in arrays.items()
        }
        self.photos = self.photos.extended(photos)

    def _save(self) -> None:
        """Writes the photos and their embeddings, which replace those on the disk at once."""
        writers: dict[str, Callable[[Path], Any]] = {
            PHOTOS: self.photos.write_rows,
            PATHS: self.photos.write_paths,
        }
        if len(self.photos):
            writers |= {
                f"{name}.npy": partial(np.save, arr=values) for name, values in self.arrays.items()
            }
        self.content["files"] = self._write_files(writers)
        self._write_manifest()

    def _write_files(self, writers: Mapping[str, Callable[[Path], Any]]) -> dict[str, str]:
        """Writes files under new names, by their ends; returns their checksums by name."""
        self.content["number"] += 1
        return write_numbered(self.path, self.content["number"], writers)

    def _write_manifest(self) -> None:
        write_manifest(self.path, VERSION, self.content)
        _remove_former_files(PhotoIndex(self.path, self.content))

    def _finish(self) -> None:
        """Updates the vectors and the near-duplicates."""
        index = PhotoIndex(self.path, self.content)
        if not update_vectors(index, self.model, backend_class(self.content["backend"]), self.uri):
            self.summary.damaged.append(index.vectors_path)
        duplicates = self._near_duplicates()
        self.content["duplicates"] = {str(number): first for number, first in duplicates.items()}
        self.content["finished"] = True
        self._write_manifest()
        self.summary.photos, self.summary.duplicates = len(self.photos), len(duplicates)
        self.summary.broken = {p: entry["why"] for p, entry in self.content["broken"].items()}
        paths = set(self.photos.paths)
        self.summary.tagged = [path for path in self.content["tags"] if path not in paths]

    def _near_duplicates(self) -> dict[int, int]:
        """Finds near-duplicates, of photos that are new alone if no other was removed."""
        content, ids = self.content, self.photos.ids
        before = content.get("compared", {"below": 0, "photos": 0})
        compared = int(np.searchsorted(ids, before["below"]))
        content["compared"] = {"below": content["next_id"], "photos": len(ids)}
        if compared < before["photos"]:
            compared = 0
        known = {int(number): first for number, first in content["duplicates"].items()}
        return near_duplicates(self.photos, known, compared)


def _refuse_non_finite(arrays: Mapping[str, np.ndarray], items: list[Photo]) -> None:
    for values in arrays.values():
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            path = items[int(np.argmin(finite))].path
            raise UserError(
                f"the model computes numbers for {path} that are not finite; train it again"
            )


def _save_archive(arrays: Arrays, path: Path) -> None:
    np.savez(path, **dict(arrays))  # type: ignore[arg-type]
