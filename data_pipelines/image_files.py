"""Writes images of records as files."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from data_pipelines.records import SplitRecords
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, check_folder
from keras_xmr.utils.progress import Progress

_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg"}


def write_images(records: SplitRecords, folder: Path) -> int:
    """Writes the images of a split, each under its key.

    Args:
        records: The split.
        folder: Folder of the files.

    Returns:
        The number of images.

    Raises:
        UserError: If the records hold features instead of images, or a key leads out of the folder.
    """
    if records.holds != "images":
        raise UserError("the records hold features of images, not pixels; use a run on photos")
    check_folder(folder)
    with Progress("writing images", total=len(records), unit="images") as progress:
        for number, key in enumerate(records.image_keys):
            content = records.encoded(number)
            path = folder / _name(key, content)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content)
            progress.update()
    return len(records)


def _name(key: str, content: bytes) -> PurePosixPath:
    name = PurePosixPath(key)
    if name.is_absolute() or ".." in name.parts or not name.name:
        raise UserError(f"the image {key!r} has a name that leads out of the folder")
    suffix = next((s for start, s in _SUFFIXES.items() if content.startswith(start)), name.suffix)
    return name if name.suffix.lower() in (suffix, ".jpeg") else name.with_name(name.name + suffix)
