"""The index of a split: columns that are joined from those of its shards."""

from __future__ import annotations

import numpy as np
import pytest

from data_pipelines.sources import Caption, Entry
from data_pipelines.split_index import OF_IMAGES, SplitIndex


def entries(begin: int, end: int) -> list[Entry]:
    """Images with none to three captions and labels."""
    return [
        Entry(
            f"höhe_{number}.jpg",
            "train",
            tuple(Caption(f"{number}#{k}", f"{'狗 ' * k}dog {number}") for k in range(number % 4)),
            tuple(range(number % 3)),
        )
        for number in range(begin, end)
    ]


def index_of(images: list[Entry]) -> SplitIndex:
    """The index of a shard, as it is read from its arrays."""
    rows = [[number] * len(OF_IMAGES) for number in range(len(images))]
    return SplitIndex.from_arrays(SplitIndex.from_entries(images, rows).arrays())


def captions_of(index: SplitIndex) -> list[Caption]:
    return list(map(Caption, index.caption_keys, index.texts))


@pytest.mark.parametrize("ends", [(7,), (3, 7), (1, 1, 7), (0, 7)])
def test_joined_shards_say_what_the_images_say(ends):
    images = entries(0, 7)
    parts = [images[a:b] for a, b in zip((0, *ends), ends, strict=False)]
    index = SplitIndex.join([index_of(part) for part in parts])
    assert index.keys == [image.key for image in images]
    assert index.labels == [image.labels for image in images]
    assert captions_of(index) == [caption for image in images for caption in image.captions]
    assert np.diff(index.first_caption).tolist() == [len(image.captions) for image in images]
    assert index.columns["offset"].tolist() == [row for part in parts for row in range(len(part))]
    assert index.columns["shard"].tolist() == [n for n, part in enumerate(parts) for _ in part]


def test_more_captions_come_after_those_of_their_image():
    images = entries(0, 6)
    more = {
        "höhe_1.jpg": [("a", "neu"), ("b", "")],
        "höhe_4.jpg": [("c", "猫")],
        "x": [("d", "no")],
    }
    index = index_of(images).with_captions(more)
    expected = [
        [*image.captions, *(Caption(*c) for c in more.get(image.key, ()))] for image in images
    ]
    assert captions_of(index) == [caption for captions in expected for caption in captions]
    assert np.diff(index.first_caption).tolist() == list(map(len, expected))
