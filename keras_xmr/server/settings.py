"""Settings of the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_MB = 1024**2


@dataclass(frozen=True)
class Settings:
    """Access to the server, and limits of requests.

    Attributes:
        marks: The file of relevance feedback; None disables it.
        originals: Whether the original files of photos are offered.
        names: Allowed host names, in addition to addresses and localhost.
        max_body: Maximum bytes of a request with uploads.
        max_json: Maximum bytes of any other request.
        max_images: Maximum images per request.
        max_image_bytes: Maximum bytes per image.
        max_pixels: Maximum pixels per image.
        max_waiting: Maximum requests that wait for the model; others are rejected.
        max_batch: Maximum texts or images per batch of the model.
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
