"""Image files that are sent to a server, checked by their headers before they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.pixels import naming, open_image
from data_pipelines.sources import UnreadableError

_SERVED = ("JPEG", "MPO", "PNG", "GIF", "BMP")


def checked(images: Sequence[Path | str | bytes]) -> list[bytes]:
    """The bytes of image files.

    A graph refuses a broken file with all that came with it, and a server may have put other
    clients' there. What a header tells is found out here.

    Args:
        images: Paths, or bytes.

    Raises:
        UserError: If one is no image that an exported model reads, is cut off within its header,
            or has too many pixels; it names which.
        OSError: If one cannot be read.
    """
    return [_checked(image, number) for number, image in enumerate(images)]


def _checked(image: Path | str | bytes, number: int) -> bytes:
    data = image if isinstance(image, bytes) else Path(image).read_bytes()
    told = "" if isinstance(image, bytes) else f": {image}"
    name = f"image {number} (counted from 0{told})"
    try:
        with naming(data, name):
            kind = open_image(data).format
    except UnreadableError as error:
        raise UserError(str(error)) from None
    if kind not in _SERVED:
        raise UserError(f"{name} is a {kind} file, which exported models do not read; save as PNG")
    return data
