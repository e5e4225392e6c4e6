"""An index of photos on the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from data_pipelines.pixels import thumbnail
from data_pipelines.sources import UnreadableError
from data_pipelines.sources.base import inside
from keras_xmr.search.answer_sets import AnswerSets
from keras_xmr.search.augmentations import AUGMENTATIONS
from keras_xmr.search.backends import Backend, backend_class
from keras_xmr.search.manifests import MANIFEST, read_manifest
from keras_xmr.search.photos import FileState, Photo, find_photos, read_photo
from keras_xmr.search.query_reranking import Reranking
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import NO_ARRAY, has_lock, verify
from keras_xmr.utils.vectors import select

VERSION = 1

PARTS, VECTORS, ITEMS = "parts", "vectors", "photos.json"
REFERENCE, CAPTIONS, WORDS = "reference.npz", "captions.npz", "words.npz"

UNFINISHED = "The index is not finished: run `index` again unless it is still running."

_SAMPLE = 4096


@dataclass(frozen=True)
class Calibration:
    """Results of a calibration on a validation split; the manifest of an index has their fields.

    Attributes:
        answer_sets: Conformal prediction sets.
        log_sigma: Uncertainties of training captions, ascending; None if they are not informative.
        reranking: The re-ranking of queries; None if it would take too long.
    """

    answer_sets: AnswerSets | None
    log_sigma: list[float] | None = None
    reranking: Reranking | None = None


class PhotoIndex:
    """Photos of a folder, embedded by a model; read-only, without TensorFlow.

    Args:
        path: The folder of the index.
        content: Its manifest.

    Attributes:
        path: The folder of the index.
        root: The folder of the photos.
        run: The run of the model.
        fingerprint: Of that model.
        matcher: The name of its matcher.
        kind: The kind of its embeddings of images.
        backend: The name of the backend.
        reduces: Whether the vectors rank exactly as the matcher does.
        augmentation: The conversion of its embeddings to vectors.
        is_finished: Whether the build was completed: all photos have vectors.
        is_calibrated: Whether it has a full calibration; an older index may have answer sets alone.
        answer_sets: Conformal prediction sets; None without calibration.
        log_sigma: Uncertainties of training captions, ascending; None if they are not informative.
        reranking: Re-ranking of queries; None without calibration.
    """

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path = path
        self.content = content
        self.root = Path(content["root"])
        self.run = Path(content["run"])
        self.fingerprint: str = content["fingerprint"]
        self.matcher: str = content["matcher"]
        self.kind: str = content["kind"]
        self.backend: str = content["backend"]
        self.reduces: bool = content["reduces"]
        self.augmentation = AUGMENTATIONS[content["augmentation"]]
        # An index of an earlier version lacks some of these keys until `index` is run again.
        self.is_finished: bool = content.get("finished", True)
        self.is_calibrated = "reranking" in content
        self._checksums: Mapping[str, str] = content.get("calibration_checksums", {})
        calibration = TypeAdapter(Calibration).validate_python(content)
        self.answer_sets = calibration.answer_sets
        self.log_sigma = calibration.log_sigma
        self.reranking = calibration.reranking

    @classmethod
    def open(cls, path: Path) -> PhotoIndex:
        """Opens an index.

        Raises:
            UserError: If it is missing or damaged.
        """
        if has_lock(path) and not (path / MANIFEST).exists():
            raise UserError(f"{path} has no photos yet. {UNFINISHED}")
        return cls(path, read_manifest(path, VERSION, "parts"))

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def vectors(self) -> Backend:
        """The backend that searches.

        Raises:
            UserError: If the index was never finished.
        """
        if not self.is_finished and not (self.path / VECTORS / MANIFEST).exists():
            raise UserError(
                f"{self.path} is not finished; run `index` again unless it is still running: it "
                "resumes the build"
            )
        opened: Backend = backend_class(self.backend).open(self.path / VECTORS)
        return opened

    @cached_property
    def parts(self) -> list[Part]:
        """The parts, in the order in which they were added."""
        # An index of an earlier version has none until `index` is run again.
        checksums = self.content.get("checksums", {})
        folder = self.path / PARTS
        return [Part(folder / name, checksums.get(name, {})) for name in self.content["parts"]]

    @cached_property
    def _rows(self) -> dict[int, tuple[int, int, Photo]]:
        """Number of the part, row in it, and description of every photo, by id."""
        removed, touched = set(self.content["removed"]), self.content["touched"]
        rows = {}
        for number, part in enumerate(self.parts):
            for row, photo in enumerate(part.items):
                if photo.id not in removed:
                    changes = touched.get(str(photo.id))
                    rows[photo.id] = (number, row, replace(photo, **changes) if changes else photo)
        return rows

    @cached_property
    def ids(self) -> np.ndarray:
        """The ids of all photos, int64 (photos,), ascending."""
        return np.array(sorted(self._rows), np.int64)

    def photos(self) -> Sequence[Photo]:
        """All photos, in the order of their ids."""
        return [self._rows[i][2] for i in self.ids.tolist()]

    def photo(self, number: int) -> Photo:
        """A photo by its id.

        Raises:
            KeyError: If the id is unknown.
        """
        return self._rows[number][2]

    def embeddings(self, ids: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """The embeddings of some photos, in the order of the ids, float32.

        Raises:
            KeyError: If an id is unknown.
        """
        places = [self._rows[int(i)][:2] for i in ids]
        numbers = np.array([part for part, _ in places], np.int64)
        rows = np.array([row for _, row in places], np.int64)
        embedding: dict[str, np.ndarray] = {}
        for number in np.unique(numbers):
            here = numbers == number
            for name, values in self.parts[number].arrays.items():
                empty = np.empty((len(rows), *values.shape[1:]), values.dtype)
                embedding.setdefault(name, empty)[here] = values[rows[here]]
        return embedding

    @cached_property
    def reference(self) -> dict[str, np.ndarray]:
        """Embeddings of the reference by which scores are standardised.

        Without calibration, those of photos of the index.
        """
        if self.answer_sets is None:
            return select(self.sample, slice(256))
        return self._calibrated(REFERENCE)

    @cached_property
    def captions(self) -> dict[str, np.ndarray]:
        """Embeddings of training captions; empty without calibration."""
        return self._calibrated(CAPTIONS) if self.is_calibrated else {}

    def damaged_calibration(self) -> list[Path]:
        """The files of the calibration that are missing or damaged."""
        needed = {
            REFERENCE: self.answer_sets is not None,
            CAPTIONS: self.is_calibrated,
        }
        damaged = []
        for name in (name for name, is_needed in needed.items() if is_needed):
            try:
                self._calibrated(name)
            except UserError:
                damaged.append(self.path / name)
        return damaged

    def _calibrated(self, name: str) -> dict[str, np.ndarray]:
        """The embeddings in a file of the calibration.

        Raises:
            UserError: If it is damaged.
        """
        path, expected = self.path / name, self._checksums.get(name)
        with _naming_damage(path, "calibrates"):
            if expected is not None:
                verify(path, expected)
            with np.load(path) as arrays:
                return dict(arrays)

    @cached_property
    def sample(self) -> dict[str, np.ndarray]:
        """The embeddings of a fixed sample of photos."""
        step = max(1, len(self.ids) // _SAMPLE)
        return self.embeddings(self.ids[::step])

    def photo_path(self, number: int) -> Path:
        """The file of a photo.

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
        """A small JPEG of a photo, the right way up and on white.

        Args:
            number: The id of the photo.
            size: The longer side, in pixels.

        Raises:
            KeyError: If the id is unknown.
            UserError: If its file cannot be read.
        """
        path = self.photo(number).path
        try:
            return thumbnail(read_photo(self.root, path), path, size)
        except UnreadableError as error:
            raise UserError(f"{error}; run `index` again") from None

    def duplicate_of(self, number: int) -> int | None:
        """The id of the first near-duplicate of a photo, or None."""
        first: int | None = self.content["duplicates"].get(str(number))
        return first

    def tags_of(self, number: int) -> tuple[str, ...]:
        """The tags of a photo."""
        return tuple(self.content["tags"].get(self.photo(number).path, ()))

    def tags(self) -> list[str]:
        """All tags of photos of the index."""
        tagged = self.content["tags"]
        return sorted({t for p in self.photos() for t in tagged.get(p.path, ())} if tagged else ())

    def folders(self) -> list[str]:
        """All folders of photos, relative to the root."""
        return list(self._folders)

    @cached_property
    def _folders(self) -> list[str]:
        return sorted({photo.folder for _, _, photo in self._rows.values()})

    def broken(self) -> dict[str, str]:
        """Reasons for photos that could not be read, by path."""
        return {path: entry["why"] for path, entry in self.content["broken"].items()}

    def files(self) -> dict[str, FileState]:
        """The states of the files of all photos that are in the folder now, by path."""
        return dict(find_photos(self.root, self.path.resolve()))

    def known_files(self) -> dict[str, FileState]:
        """The states of the files of all photos when they were read, also of broken ones."""
        read = {photo.path: (photo.bytes, photo.modified) for photo in self.photos()}
        return read | {p: tuple(entry["status"]) for p, entry in self.content["broken"].items()}

    def changes(self) -> str:
        """A sentence on changes of the folder of photos since the build; empty without changes.

        Files are compared by size and time, without reading them. A missing folder counts as
        unchanged.
        """
        if not self.root.is_dir():
            return ""
        known, now = self.known_files(), self.files()
        counts = {
            "new": len(now.keys() - known.keys()),
            "changed": sum(known[path] != now[path] for path in now.keys() & known.keys()),
            "gone": len(known.keys() - now.keys()),
        }
        changed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
        return changed and f"Photos of {self.root} since the index was made: {changed}."

    def is_current(self) -> bool:
        """Whether the index on the disk is the one that was opened."""
        try:
            content = read_manifest(self.path, VERSION, "parts")
        except UserError:
            return False
        return content == self.content

    def load(self) -> None:
        """Opens every file that searches read, so that a later build does not remove them.

        Raises:
            UserError: If one is damaged.
        """
        for part in self.parts:
            part.verify()
        _ = self.ids, self.sample, self.reference, self.captions
        if self.is_finished and len(self):
            _ = self.vectors

    def close(self) -> None:
        """Closes the files."""
        if "vectors" in self.__dict__:
            self.vectors.close()


class Part:
    """Descriptions and embeddings of photos that were added together.

    Args:
        folder: Holds `photos.json` and an array for each tensor of the embedding.
        checksums: The SHA-256 of these files by name; empty if unknown.
    """

    def __init__(self, folder: Path, checksums: Mapping[str, str]) -> None:
        self.folder = folder
        self._checksums = checksums

    @cached_property
    def items(self) -> list[Photo]:
        """Descriptions of the photos.

        Raises:
            UserError: If the file is damaged.
        """
        with _naming_damage(self.folder, "embeds its photos"):
            self._check(ITEMS)
            return [Photo(**fields) for fields in json.loads((self.folder / ITEMS).read_bytes())]

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors of the embedding by name, memory-mapped, with a row per photo.

        Raises:
            UserError: If a file is damaged.
        """
        files = {path.name for path in self.folder.glob("*.npy")}
        names = sorted(files | self._checksums.keys() - {ITEMS})
        with _naming_damage(self.folder, "embeds its photos"):
            self._check(*names)
            arrays = {name: np.load(self.folder / name, mmap_mode="r") for name in names}
            if {len(values) for values in arrays.values()} != {len(self.items)}:
                raise ValueError(f"its {len(self.items):,} photos have no embeddings")
        return {name.removesuffix(".npy"): values for name, values in arrays.items()}

    def verify(self) -> None:
        """Reads all files.

        Raises:
            UserError: If one is damaged.
        """
        _ = self.items, self.arrays

    def _check(self, *names: str) -> None:
        """Compares files with their checksums, if these are known."""
        for name in names if self._checksums else ():
            verify(self.folder / name, self._checksums.get(name))


@contextmanager
def _naming_damage(path: Path, action: str) -> Iterator[None]:
    """Names a damaged file or folder of an index, and how `index` repairs it."""
    try:
        yield
    except (*NO_ARRAY, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); run `index` again, which {action} again"
        ) from None
