"""The index of a split: columns that are joined from those of its shards."""

from __future__ import annotations

import numpy as np
import pytest

from data_pipelines.sources import Caption, Entry
from data_pipelines.split_index import OF_IMAGES, SplitIndex, Strings


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
    rows = range(len(images))
    return SplitIndex.from_entries(images, {name: list(rows) for name in OF_IMAGES})


@pytest.mark.parametrize("ends", [(7,), (3, 7), (1, 1, 7), (0, 7)])
def test_joined_shards_say_what_the_images_say(ends):
    images = entries(0, 7)
    parts = [images[a:b] for a, b in zip((0, *ends), ends, strict=False)]
    index = SplitIndex.join([index_of(part) for part in parts])
    captions = [caption for image in images for caption in image.captions]
    assert index.keys == [image.key for image in images]
    assert index.labels == [image.labels for image in images]
    assert index.captions == captions
    assert index.texts == [caption.text for caption in captions]
    assert np.diff(index.columns["first_caption"]).tolist() == [len(i.captions) for i in images]
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
    assert index.captions == [caption for captions in expected for caption in captions]
    assert np.diff(index.columns["first_caption"]).tolist() == list(map(len, expected))


def test_strings_are_a_sequence():
    texts = ["a", "", "höher", "狗", "e" * 9]
    content = np.frombuffer("".join(texts).encode(), np.uint8)
    first = np.cumsum([0, *(len(text.encode()) for text in texts)])
    strings = Strings(content, first)
    assert strings == texts
    assert strings != texts[:-1]
    assert strings != [*texts[:-1], "f"]
    assert [strings[i] for i in range(-5, 5)] == texts + texts
    assert strings[1:4] == texts[1:4]
    assert strings[::-2] == texts[::-2]
    assert strings[4:2] == []
    with pytest.raises(IndexError):
        strings[5]


def test_a_split_without_images_has_an_index():
    empty = index_of([])
    assert (len(empty.keys), len(empty.texts), empty.labels.longest) == (0, 0, 0)
    assert empty.labels.padded(np.zeros(0, np.int64), 2).shape == (0, 2)
