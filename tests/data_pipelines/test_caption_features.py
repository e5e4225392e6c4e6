"""Features of captions in a flat file: what is read is what was written."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from data_pipelines.batches import caption_feature_batches
from data_pipelines.caption_features import CaptionFeatures, write_caption_features
from data_pipelines.shards import RecordsError

LENGTHS = (3, 1, 5, 2, 4)
WIDTH = 6


@pytest.fixture
def captions(random):
    """Features of five captions, exact in half precision."""
    return [random.normal(size=(n, WIDTH)).astype(np.float16).astype(np.float32) for n in LENGTHS]


def batches(captions, size: int = 2):
    """As an encoder makes them, with anything at all where the mask is false."""
    for begin in range(0, len(captions), size):
        part = captions[begin : begin + size]
        longest = max(map(len, part)) + 1
        features = np.full((len(part), longest, WIDTH), np.inf, np.float32)
        mask = np.zeros((len(part), longest), bool)
        for row, caption in enumerate(part):
            features[row, : len(caption)], mask[row, : len(caption)] = caption, True
        yield features, mask


@pytest.fixture
def written(captions, tmp_path):
    write_caption_features(tmp_path, "train", batches(captions))
    return tmp_path


def test_what_is_read_is_what_was_written(captions, written):
    features = CaptionFeatures.open(written, "train")
    assert features.first.tolist() == [0, *np.cumsum(LENGTHS)]
    assert isinstance(features.tokens, np.memmap)
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


def test_batches_come_in_the_order_that_is_asked_for(captions, written):
    dataset = caption_feature_batches(
        CaptionFeatures.open(written, "train"), np.array([2, 0, 4, 1, 3]), 2
    )
    assert dataset.element_spec.shape.as_list() == [None, None, WIDTH]
    found = [batch.numpy() for batch in dataset]
    assert [batch.shape[:2] for batch in found] == [(2, 5), (2, 4), (1, 2)]
    np.testing.assert_array_equal(found[1][1, :1], captions[1])


def test_what_was_not_written_is_none(written, captions):
    assert CaptionFeatures.open(written, "val") is None
    # A writer that was killed leaves nothing that is taken for the whole.
    names = sorted(path.name for path in written.iterdir())
    assert names == ["train-first.npz", "train-tokens.f2"]
    (written / "train-first.npz").unlink()
    assert CaptionFeatures.open(written, "train") is None

    def broken():
        yield next(batches(captions))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_caption_features(written, "val", broken())
    assert [path.name for path in written.iterdir()] == ["train-tokens.f2"]
    assert CaptionFeatures.open(written, "val") is None


@pytest.mark.parametrize("name", ["train-tokens.f2", "train-first.npz"])
@pytest.mark.parametrize("left", [0, 0.5, 5 / 6, 0.99])
def test_a_damaged_file_is_told(written, name, left):
    path = written / name
    content = path.read_bytes()
    # Of the tokens, 5 / 6 leave a whole number of features for each of them.
    path.write_bytes(content[: int(len(content) * left)])
    with pytest.raises(RecordsError, match=r"damaged .*; delete that folder"):
        CaptionFeatures.open(written, "train")


def test_what_half_precision_cannot_hold_is_refused(captions, tmp_path):
    captions[3][0, 0] = 7e4
    with pytest.raises(
        RecordsError, match=r"caption is 70000, which half precision cannot hold; train without"
    ):
        write_caption_features(tmp_path, "train", batches(captions))
    assert not list(tmp_path.iterdir())


def test_a_word_that_looks_like_padding_is_refused(captions, tmp_path):
    captions[2][1] = 1e-9  # 0 in half precision
    with pytest.raises(RecordsError, match=r"all features of a word are 0"):
        write_caption_features(tmp_path, "train", batches(captions))


def test_a_full_disk_is_told(captions, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordsError, match=r"disk"):
        write_caption_features(tmp_path, "train", batches(captions))
    assert not list(tmp_path.iterdir())
