"""An index of photos on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from data_pipelines.photo_files import UnreadableError, inside
from keras_xmr.search.augmentations import AUGMENTATIONS
from keras_xmr.search.backends import Backend, backend_class
from keras_xmr.search.manifests import MANIFEST, read_manifest
from keras_xmr.search.photo_table import FileState, Photo, PhotoTable, find_photos, read_photo
from keras_xmr.search.prediction_sets import PredictionSets
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import NO_ARRAY, has_lock, verify
from keras_xmr.utils.vectors import select

VERSION = 6

PHOTOS, PATHS, REFERENCE = "photos.npy", "paths.txt", "reference.npz"
"""Ends of the names of files, which have a number in front."""

UNFINISHED = "The index is not finished: run `index` again unless it is still running."

_SAMPLE = 4096

_LOADING = Lock()
"""Held while arrays are opened: Python 3.11 may fail where two threads read their headers at once
(python/cpython#106905)."""


class PhotoIndex:
    """Photos of a folder, embedded by a model; read-only, without TensorFlow.

    The manifest names the other files with their checksums. No file is ever changed: a build writes
    others, and replaces the manifest.

    Args:
        path: The folder of the index.
        content: The manifest.

    Attributes:
        path: The folder of the index.
        root: The folder of the photos.
        fingerprint: Of the model.
        matcher: The name of its matcher.
        kind: The kind of its embeddings of images.
        backend: The name of the backend.
        reduces: Whether the vectors rank exactly as the matcher does.
        augmentation: The conversion of its embeddings to vectors.
        is_finished: Whether the build was completed: all photos have vectors.
        prediction_sets: Conformal prediction sets; None without calibration.
    """

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path = path
        self.content = content
        self.root = Path(content["root"])
        self.fingerprint: str = content["fingerprint"]
        self.matcher: str = content["matcher"]
        self.kind: str = content["kind"]
        self.backend: str = content["backend"]
        self.reduces: bool = content["reduces"]
        self.augmentation = AUGMENTATIONS[content["augmentation"]]
        self.is_finished: bool = content["finished"]
        sets = content["prediction_sets"]
        self.prediction_sets = None if sets is None else PredictionSets(**sets)

    @classmethod
    def open(cls, path: Path) -> PhotoIndex:
        """Opens an index, with every file that searches read: a later build may remove them.

        Raises:
            UserError: If it is missing or damaged.
        """
        if has_lock(path) and not (path / MANIFEST).exists():
            raise UserError(f"{path} has no photos yet. {UNFINISHED}")
        while True:
            index = cls(path, read_manifest(path, VERSION, "root"))
            try:
                with _LOADING:
                    index.load()
            except UserError:
                index.close()
                # A build may have replaced files in the meantime.
                if index.is_current():
                    raise
            else:
                return index

    def load(self) -> None:
        """Opens every file that searches read.

        Raises:
            UserError: If one is damaged.
        """
        _ = self._arrays, self.ids, self.sample, self.reference, self.training_words
        if self.is_finished and len(self):
            _ = self.vectors

    def __len__(self) -> int:
        return len(self._photos)

    @property
    def has_vectors(self) -> bool:
        """Whether there are vectors; an index that was never finished has none."""
        return self.is_finished or (self.vectors_path / MANIFEST).exists()

    @cached_property
    def vectors(self) -> Backend:
        """The backend that searches."""
        opened: Backend = backend_class(self.backend).open(self.vectors_path)
        return opened

    @property
    def vectors_path(self) -> Path:
        """The folder of the vectors of one model."""
        return self.path / f"vectors-{self.fingerprint[:12]}"

    @property
    def embedder_path(self) -> Path:
        """The folder of the embedder, which is of one model."""
        return self.path / f"embedder-{self.fingerprint[:12]}"

    @cached_property
    def _photos(self) -> PhotoTable:
        """Descriptions of the photos, in the order of their ids."""
        files = self.content["files"]
        ends = {end: name for name in files for end in (PHOTOS, PATHS) if name.endswith(end)}
        if not ends:
            return PhotoTable.of(())
        rows, paths = self._verified(ends[PHOTOS]), self._verified(ends[PATHS])
        with _naming_damage(rows, "embeds its photos"):
            return PhotoTable.read(rows, paths)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        """The tensors of the embedding by name, memory-mapped, with a row per photo."""
        arrays = {}
        for name in self.content["files"]:
            if name.endswith(".npy") and not name.endswith(PHOTOS):
                path = self._verified(name)
                with _naming_damage(path, "embeds its photos"):
                    values = np.load(path, mmap_mode="r")
                    if len(values) != len(self._photos):
                        raise ValueError(f"{len(values):,} rows for {len(self._photos):,} photos")
                arrays[name.split(".")[1]] = values
        return arrays

    def _verified(self, name: str) -> Path:
        """Returns the path of a file with embeddings, which has its checksum."""
        path = self.path / name
        with _naming_damage(path, "embeds its photos"):
            verify(path, self.content["files"][name])
        return path

    def _rows(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns the rows of photos by their ids.

        Raises:
            KeyError: If an id is unknown.
        """
        wanted, known = np.asarray(ids, np.int64), self.ids
        rows = np.searchsorted(known, wanted)
        found = rows < len(known)
        found[found] = known[rows[found]] == wanted[found]
        if not found.all():
            raise KeyError(int(wanted[~found][0]))
        return rows

    @cached_property
    def ids(self) -> np.ndarray:
        """The ids of all photos, int64 (photos,), ascending."""
        return self._photos.ids

    def photos(self) -> PhotoTable:
        """Returns all photos, in the order of their ids."""
        return self._photos

    def photo(self, number: int) -> Photo:
        """Returns a photo by its id.

        Raises:
            KeyError: If the id is unknown.
        """
        return self._photos[int(self._rows([number])[0])]

    def embeddings(self, ids: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """Returns the embeddings of some photos, in the order of the ids, float32.

        Raises:
            KeyError: If an id is unknown.
        """
        return select(self._arrays, self._rows(ids))

    @cached_property
    def reference(self) -> dict[str, np.ndarray]:
        """Embeddings of the reference by which scores are standardised.

        Without calibration, photos of the index are taken.

        Raises:
            UserError: If its file is missing or damaged.
        """
        if self.prediction_sets is None:
            return select(self.sample, slice(256))
        ((name, sha256),) = self.content["reference"].items()
        path = self.path / name
        with _naming_damage(path, "calibrates"):
            verify(path, sha256)
            with np.load(path) as arrays:
                return dict(arrays)

    @cached_property
    def training_words(self) -> frozenset[str] | None:
        """Words of the training captions of the run; None if they are unknown.

        Raises:
            UserError: If their file is missing or damaged.
        """
        for name, sha256 in self.content.get("words", {}).items():
            path = self.path / name
            with _naming_damage(path, "writes its words"):
                verify(path, sha256)
                return frozenset(path.read_text("utf-8").split())
        return None

    @cached_property
    def sample(self) -> dict[str, np.ndarray]:
        """The embeddings of a fixed sample of photos."""
        step = max(1, len(self.ids) // _SAMPLE)
        return self.embeddings(self.ids[::step])

    def photo_path(self, number: int) -> Path:
        """Returns the file of a photo.

        Raises:
            KeyError: If the id is unknown.
            UserError: If it is missing, or outside of the root.
        """
        try:
            path = inside(self.root, self.photo(number).path)
        except UnreadableError as error:
            raise UserError(str(error)) from None
        if not path.is_file():
            raise UserError(f"{path} is missing; run `index` again")
        return path

    def thumbnail(self, number: int, size: int = 256) -> bytes:
        """Returns a small JPEG of a photo, the right way up and on white.

        Args:
            number: The id of the photo.
            size: The longer side, in pixels.

        Raises:
            KeyError: If the id is unknown.
            UserError: If its file cannot be read.
        """
        from data_pipelines.pixels import thumbnail  # Searches need no Pillow.

        path = self.photo(number).path
        try:
            return thumbnail(read_photo(self.root, path), path, size)
        except UnreadableError as error:
            raise UserError(f"{error}; run `index` again") from None

    def duplicate_of(self, number: int) -> int | None:
        """Returns the id of the first near-duplicate of a photo, or None."""
        first: int | None = self.content["duplicates"].get(str(number))
        return first

    def tags_of(self, number: int) -> tuple[str, ...]:
        """Returns the tags of a photo."""
        return tuple(self.content["tags"].get(self.photo(number).path, ()))

    def tags(self) -> list[str]:
        """Returns all tags of photos of the index."""
        if not (tagged := self.content["tags"]):
            return []
        return sorted({tag for path in self._photos.paths for tag in tagged.get(path, ())})

    def days(self, ids: np.ndarray) -> list[str]:
        """Returns the times of the shots of some photos, ISO; empty where unknown.

        Raises:
            KeyError: If an id is unknown.
        """
        taken: list[str] = self._photos.column("taken")[self._rows(ids)].astype(str).tolist()
        return taken

    def folders(self) -> list[str]:
        """Returns all folders of photos, relative to the root."""
        return sorted({path.rpartition("/")[0] for path in self._photos.paths})

    def broken(self) -> dict[str, str]:
        """Returns the reasons for photos that could not be read, by path."""
        return {path: entry["why"] for path, entry in self.content["broken"].items()}

    def files(self) -> dict[str, FileState]:
        """Returns the states of the files of all photos that are in the folder now, by path."""
        return dict(find_photos(self.root, self.path.resolve()))

    def changes(self) -> str:
        """Returns a sentence on changes of the photos since the build; empty without changes.

        Files are compared by size and times, without reading them. A missing folder counts as
        unchanged.
        """
        if not self.root.is_dir():
            return ""
        known = dict(zip(self._photos.paths, self._photos.states(), strict=True))
        known |= {p: tuple(entry["status"]) for p, entry in self.content["broken"].items()}
        now = self.files()
        counts = {
            "new": len(now.keys() - known.keys()),
            "changed": sum(known[path] != now[path] for path in now.keys() & known.keys()),
            "gone": len(known.keys() - now.keys()),
        }
        changed = ", ".join(f"{count:,} {change}" for change, count in counts.items() if count)
        return changed and f"Photos of {self.root} since the index was made: {changed}."

    def is_current(self) -> bool:
        """Returns whether the index on the disk is the one that was opened."""
        try:
            return read_manifest(self.path, VERSION, "root") == self.content
        except UserError:
            return False

    def close(self) -> None:
        """Closes the files."""
        if "vectors" in self.__dict__:
            self.vectors.close()


@contextmanager
def _naming_damage(path: Path, action: str) -> Iterator[None]:
    """Names a damaged file of an index, and how `index` repairs it."""
    try:
        yield
    except (*NO_ARRAY, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); run `index` again, which {action} again"
        ) from None
