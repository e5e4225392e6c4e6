"""Captions in the metadata of photos: XMP, IPTC and EXIF."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image, IptcImagePlugin

from data_pipelines.photo_files import check_file
from data_pipelines.pixels import open_image

_DESCRIPTION, _TITLE, _COMMENT = 0x010E, 0x9C9B, 0x9C9C
_CAPTION = (2, 120)

_CAMERA_TEXT = re.compile(r"default|untitled|sony dsc|.*(digital camera|camera pictures).*", re.I)
"""Texts that cameras write as description."""


def embedded_captions(path: Path) -> list[str]:
    """Reads the captions in the metadata of a photo, without repetitions.

    Captions are `dc:description` of XMP, the caption of IPTC, and `ImageDescription`, `XPTitle`
    and `XPComment` of EXIF, without the default texts of cameras. Only the header is read.

    Args:
        path: The file of the photo.

    Returns:
        The captions; empty if the file is not a photo, or its metadata are damaged.
    """
    captions: list[str] = []
    with suppress(OSError), check_file(path).open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Metadata may be broken in any way although the photo is intact.
        with suppress(Exception):
            image = open_image(file)
            for read in (_xmp, _iptc, _exif):
                with suppress(Exception):
                    captions += read(image)
    texts = (" ".join(text.replace("\0", " ").split()) for text in captions)
    return list(dict.fromkeys(text for text in texts if text and not _CAMERA_TEXT.fullmatch(text)))


def _xmp(image: Image.Image) -> Iterator[str]:
    return _descriptions(image.getxmp())


def _descriptions(node: Any, is_within: bool = False) -> Iterator[str]:
    """Yields the texts within all elements `description` of nested XMP, in all languages."""
    if isinstance(node, str) and is_within:
        yield node
    for value in node if isinstance(node, list) else ():
        yield from _descriptions(value, is_within)
    for key, value in node.items() if isinstance(node, dict) else ():
        if key != "lang":
            yield from _descriptions(value, is_within or key == "description")


def _iptc(image: Image.Image) -> Iterator[str]:
    texts = (IptcImagePlugin.getiptcinfo(image) or {}).get(_CAPTION, ())
    for text in texts if isinstance(texts, list) else [texts] if texts else []:
        yield _decoded(text)


def _exif(image: Image.Image) -> Iterator[str]:
    exif = image.getexif()
    if text := exif.get(_DESCRIPTION):
        # Pillow decodes Latin-1, but programs write UTF-8.
        yield _decoded(str(text).encode("latin-1", "ignore"))
    for tag in (_TITLE, _COMMENT):
        yield bytes(exif.get(tag, b"")).decode("utf-16-le", "ignore")


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")
