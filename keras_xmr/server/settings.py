"""What the server permits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_MB = 1024**2


@dataclass(frozen=True)
class Settings:
    """Limits of requests, and where the server may be reached and may write.

    Attributes:
        marks: The file to which marks of right and wrong hits go; None takes none.
        originals: Whether the files of photos are given as they are, with all that is in them.
        names: Names of hosts under which the server may be asked, beside addresses and localhost.
        max_body: Bytes of a request with uploads.
        max_json: Bytes of any other request.
        max_images: Images in one request.
        max_image_bytes: Bytes of one image.
        max_pixels: Pixels of one image.
        max_waiting: Requests that may wait for the model before others are turned away.
        max_batch: Texts or images that the model gets at once.
    """

    marks: Path | None = None
    originals: bool = True
    names: frozenset[str] = field(default_factory=frozenset)
    max_body: int = 64 * _MB
    max_json: int = _MB // 4
    max_images: int = 8
    max_image_bytes: int = 20 * _MB
    max_pixels: int = 50_000_000
    max_waiting: int = 256
    max_batch: int = 32
