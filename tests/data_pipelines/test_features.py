"""Features in a store by the content of items: what is read is what was written."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from data_pipelines.batches import feature_batches
from data_pipelines.features import INDEX, TOKENS, Features, FeatureStore, text_keys
from data_pipelines.shards import RecordsError
from keras_xmr.utils.files import LockedError

LENGTHS = (3, 1, 5, 2, 4)
WIDTH = 6
KEYS = text_keys(["a dog", "a cat", "", "ein Hund", "a dog runs"])


@pytest.fixture
def captions(random):
    """Features of five captions, exact in half precision."""
    return [random.normal(size=(n, WIDTH)).astype(np.float16).astype(np.float32) for n in LENGTHS]


def write(folder, captions, numbers=range(5)) -> None:
    """As an encoder makes them, with anything at all where the mask is false."""
    with FeatureStore(folder).writing("a caption", "train.precompute_captions") as writer:
        for begin in range(0, len(numbers), 2):
            part = list(numbers[begin : begin + 2])
            longest = max(len(captions[n]) for n in part) + 1
            features = np.full((len(part), longest, WIDTH), np.inf, np.float32)
            mask = np.zeros((len(part), longest), bool)
            for row, number in enumerate(part):
                length = len(captions[number])
                features[row, :length], mask[row, :length] = captions[number], True
            writer.add(KEYS[part], features, mask)


def opened(folder) -> Features:
    store = FeatureStore(folder)
    return Features(store, store.rows(KEYS))


def test_what_is_read_is_what_was_written(captions, tmp_path):
    # The second call adds what the first one has not.
    write(tmp_path, captions, [4, 1])
    store = FeatureStore(tmp_path)
    assert store.missing(KEYS[[0, 1, 0, 3, 4]]).tolist() == [0, 3]
    write(tmp_path, captions, [0, 2, 3])
    features = opened(tmp_path)
    assert len(features) == len(features.store) == 5
    assert (features.length, features.width) == (None, WIDTH)
    for number, expected in enumerate(captions):
        found = features.read(np.int64(number))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    several = features.read(np.array([4, 1, 1, 2]))
    assert several.shape == (4, 5, WIDTH)
    for found, number in zip(several, (4, 1, 1, 2), strict=True):
        np.testing.assert_array_equal(found[: LENGTHS[number]], captions[number])
        assert not found[LENGTHS[number] :].any()
    assert features.read(np.array([], np.int64)).shape == (0, 1, WIDTH)
    dataset = feature_batches(features, np.array([2, 0, 4, 1, 3]), 2)
    assert dataset.element_spec.shape.as_list() == [None, None, WIDTH]
    batches = [batch.numpy() for batch in dataset]
    assert [batch.shape[:2] for batch in batches] == [(2, 5), (2, 4), (1, 2)]
    np.testing.assert_array_equal(batches[1][1, :1], captions[1])


def test_a_killed_writer_leaves_nothing_that_is_taken_for_the_whole(captions, tmp_path):
    assert FeatureStore(tmp_path / "none").rows(KEYS).tolist() == [-1] * 5
    write(tmp_path, captions, [0])
    with (tmp_path / TOKENS).open("ab") as file:
        file.write(b"left over, odd")
    write(tmp_path, captions, [1, 2, 3, 4])
    np.testing.assert_array_equal(opened(tmp_path).read(np.int64(2)), captions[2])
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / "other", captions)
    assert len(FeatureStore(tmp_path / "other")) == 2, "what an interrupted one has added is kept"


def interrupt(folder, captions) -> None:
    with FeatureStore(folder).writing("a caption", "") as writer:
        writer.add(KEYS[:2], np.ones((2, 3, WIDTH)))
        raise KeyboardInterrupt


def test_one_process_writes_at_a_time_while_others_read(captions, tmp_path):
    write(tmp_path, captions, [0, 1])
    before = opened(tmp_path)
    with FeatureStore(tmp_path).writing("a caption", "") as writer:
        with (
            pytest.raises(LockedError, match="in use"),
            FeatureStore(tmp_path).writing("a caption", ""),
        ):
            pass
        writer.add(KEYS[2:], np.ones((3, 2, WIDTH)))
        np.testing.assert_array_equal(before.read(np.int64(1)), captions[1])
        assert len(opened(tmp_path).store) == 2
    assert len(opened(tmp_path).store) == 5


@pytest.mark.parametrize("name", [TOKENS, INDEX])
@pytest.mark.parametrize("left", [0, 0.5, 5 / 6, 0.99])
def test_a_damaged_file_is_told(captions, tmp_path, name, left):
    write(tmp_path, captions)
    path = tmp_path / name
    content = path.read_bytes()
    # Of the tokens, 5 / 6 leave a whole number of features for each of them.
    path.write_bytes(content[: int(len(content) * left)])
    with pytest.raises(RecordsError, match=r"damaged .*; delete that folder"):
        FeatureStore(tmp_path)


def test_a_flipped_bit_and_a_missing_file_are_told(captions, tmp_path):
    write(tmp_path, captions)
    tokens = bytearray((tmp_path / TOKENS).read_bytes())
    tokens[-1] ^= 4
    (tmp_path / TOKENS).write_bytes(tokens)
    with pytest.raises(RecordsError, match=r"damaged \(a checksum differs\); delete that folder"):
        opened(tmp_path).read(np.arange(5))
    (tmp_path / TOKENS).unlink()
    with pytest.raises(RecordsError, match=r"damaged .*; delete that folder"):
        FeatureStore(tmp_path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7e4, r"caption is 70000, which half precision cannot hold; train without"),
        (None, r"all features of a word are 0"),
    ],
)
def test_what_cannot_be_stored_is_refused(captions, tmp_path, value, message):
    if value is None:
        captions[3][1] = 1e-9  # 0 in half precision
    else:
        captions[3][0, 0] = value
    with pytest.raises(RecordsError, match=message):
        write(tmp_path, captions, [3])
    assert not len(FeatureStore(tmp_path))


def test_a_full_disk_is_told(captions, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordsError, match=r"disk"):
        write(tmp_path, captions)
    assert not len(FeatureStore(tmp_path))
