"""Detection of near-duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from keras_xmr.index.photos import Photo

_DIFFERENT = 7
"""Maximum number of the 128 bits by which near-duplicates differ. Then at least one of their 8
pieces of 16 bits is the same."""

_PLAIN = 16
"""Minimum number of bits set, and not set: photos with fewer are plain areas, which all match."""


def near_duplicates(photos: Iterable[Photo]) -> dict[int, int]:
    """Finds near-duplicates of photos with smaller ids, and the first of these.

    Args:
        photos: Photos in the order of their ids.
    """
    photos = list(photos)
    looks = np.array([np.frombuffer(bytes.fromhex(p.look), np.uint8) for p in photos], np.uint8)
    bits = np.unpackbits(looks.reshape(-1, 16), axis=1)
    duplicates: dict[int, int] = {}
    by_piece: dict[tuple[int, int], list[int]] = defaultdict(list)
    by_sum: dict[str, int] = {}
    for row, photo in enumerate(photos):
        first = by_sum.setdefault(photo.sha256, row)
        if first == row and _PLAIN <= bits[row].sum() <= 128 - _PLAIN:
            pieces = list(enumerate(looks[row].view(np.uint16).tolist()))
            near = sorted({other for piece in pieces for other in by_piece[piece]})
            alike = (o for o in near if np.sum(bits[o] != bits[row]) <= _DIFFERENT)
            first = next(alike, row)
            for piece in pieces if first == row else ():
                by_piece[piece].append(row)
        if first != row:
            duplicates[photo.id] = duplicates.get(photos[first].id, photos[first].id)
    return duplicates
