"""Photos that look alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from keras_xmr.index.photos import Photo

_DIFFERENT = 7
"""So many of the 128 bits of two near-duplicates may differ. Then at least one of their 8 pieces of
16 bits is the same."""

_PLAIN = 16
"""A photo whose look has fewer bits set, or not set, is a plain area: it is like any other."""


def near_duplicates(photos: Iterable[Photo]) -> dict[int, int]:
    """Photos that look like one with a smaller id, and the first of those that they look like.

    Args:
        photos: Photos in the order of their ids.
    """
    photos = list(photos)
    looks = np.array([np.frombuffer(bytes.fromhex(p.look), np.uint8) for p in photos], np.uint8)
    bits = np.unpackbits(looks.reshape(-1, 16), axis=1)
    found: dict[int, int] = {}
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
            found[photo.id] = found.get(photos[first].id, photos[first].id)
    return found
