"""Near-duplicates are those of a comparison of all pairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from keras_xmr.search import descriptions
from keras_xmr.search.descriptions import near_duplicates
from keras_xmr.search.photo_table import Photo, PhotoTable


def photos(count: int, seed: int, clusters: int) -> Iterator[Photo]:
    """Photos with hashes near to some, plain areas, and copies of files."""
    random = np.random.default_rng(seed)
    centres = random.integers(0, 2, (clusters, 128))
    for number in range(count):
        bits = centres[random.integers(clusters)].copy()
        bits[random.choice(128, random.integers(0, 9), replace=False)] ^= 1
        if random.random() < 0.05:
            bits[:] = random.random(128) < 0.05
        file = random.integers(count) if random.random() < 0.1 else count + number
        yield Photo(
            id=3 * number + 1,
            path=f"{number}.jpg",
            bytes=1,
            modified=0,
            changed=0,
            sha256=f"{file:064x}",
            taken="",
            width=1,
            height=1,
            hash=np.packbits(bits).tobytes().hex(),
        )


def naive(some: list[Photo]) -> dict[int, int]:
    """The first near-duplicate of each photo that is not one itself, by comparing all of them."""
    found: dict[int, int] = {}
    originals: list[Photo] = []
    for row, photo in enumerate(some):
        bits = int(photo.hash, 16)
        same = [other for other in some[:row] if other.sha256 == photo.sha256]
        if same:
            found[photo.id] = found.get(same[0].id, same[0].id)
            continue
        if not 16 <= bits.bit_count() <= 112:
            continue
        near = [o for o in originals if (int(o.hash, 16) ^ bits).bit_count() <= 7]
        if near:
            found[photo.id] = near[0].id
        else:
            originals.append(photo)
    return found


@pytest.mark.parametrize(("seed", "clusters"), [(0, 10), (1, 100), (2, 290)])
def test_near_duplicates_are_the_first_of_all_that_are_alike(seed, clusters):
    some = list(photos(300, seed, clusters))
    found = near_duplicates(PhotoTable.of(some))
    assert found == naive(some)
    assert 20 < len(found) < 300


@pytest.mark.parametrize("compared", [1, 150, 299, 300])
def test_a_few_more_are_compared_with_all(compared, monkeypatch):
    some = list(photos(300, 3, 60))
    monkeypatch.setattr(descriptions, "_FEW", 299)
    found = near_duplicates(PhotoTable.of(some), naive(some[:compared]), compared)
    assert found == naive(some)


def test_no_photos_have_no_duplicates():
    assert near_duplicates(PhotoTable.of([])) == {}
