"""Uploaded images, read within limits and validated one by one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import UploadFile

from data_pipelines.errors import UserError
from data_pipelines.pixels import naming, open_image, pixels_of
from data_pipelines.sources import UnreadableError
from keras_xmr.server.settings import Settings

# Limits the number of decoded images in memory, which take three bytes per pixel.
_DECODING = threading.BoundedSemaphore(2)
_MAX_NAME = 100


@dataclass(frozen=True)
class Upload:
    """An uploaded image.

    Attributes:
        name: Its name by the client, shortened.
        data: The bytes of the file.
        error: The reason if it is invalid, else empty.
    """

    name: str
    data: bytes = b""
    error: str = ""


async def read_uploads(files: Sequence[UploadFile], settings: Settings) -> list[Upload]:
    """Reads the files of a request; one that is too large has an error instead of its bytes.

    Raises:
        UserError: If the request has too many.
    """
    if len(files) > settings.max_images:
        raise UserError(f"{len(files)} images in one request; the limit is {settings.max_images}")
    return [await _read(file, number, settings) for number, file in enumerate(files, 1)]


def check(upload: Upload, settings: Settings) -> Upload:
    """Decodes an upload as for an index; one that cannot be decoded gets an error.

    Format and size are read from the header first, and the rest only if they are valid.
    """
    if upload.error:
        return upload
    try:
        with naming(upload.data, upload.name), _DECODING:
            image = open_image(upload.data)
            if image.width * image.height > settings.max_pixels:
                raise UnreadableError(
                    f"{upload.name} has {image.width * image.height:,} pixels; the limit "
                    f"is {settings.max_pixels:,}"
                )
            pixels_of(image, upload.data)
    except UnreadableError as error:
        return Upload(upload.name, error=str(error))
    return upload


async def _read(file: UploadFile, number: int, settings: Settings) -> Upload:
    name = (file.filename or "")[:_MAX_NAME] or f"image {number}"
    data = await file.read(settings.max_image_bytes + 1)
    if not data:
        return Upload(name, error=f"{name} is empty")
    if len(data) > settings.max_image_bytes:
        limit = settings.max_image_bytes
        return Upload(name, error=f"{name} is too large: the limit is {limit:,} bytes")
    return Upload(name, data)
