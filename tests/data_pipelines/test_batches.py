"""Samplers, and the batches that a model eats."""

from __future__ import annotations

import itertools

import datasets
import numpy as np
import pytest
import tensorflow as tf

import data_pipelines.batches
from data_pipelines.batches import caption_batches, image_batches, training_batches
from data_pipelines.options import DataOptions, ImageOptions, TextOptions
from data_pipelines.prepare import prepare
from data_pipelines.samplers import OnePerClassSampler, PairSampler
from data_pipelines.shards import RecordsError
from data_pipelines.text import SPECIAL, WordTokenizer
from keras_xmr.utils.errors import UserError

IMAGE = ImageOptions(size=16, resize=16)
TEXT = TextOptions()
TOKENIZER = WordTokenizer([*SPECIAL, *datasets.WORDS.split()], 20)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    section = datasets.csv_photos(folder / "data", images=40, captions=3)
    options = DataOptions(source=section, records=folder / "records", images_per_shard=7)
    return prepare(options).split("train")


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("birds")
    section = datasets.cub(folder / "data", classes=5) | {"held_out_share": 0.0}
    return prepare(DataOptions(source=section, records=folder / "records")).split("train")


def batches(split, sampler, start=0, part=(0, 1), image=IMAGE, text=TEXT):
    dataset = training_batches(split, sampler, TOKENIZER, image, text, start, part)
    return iter(dataset.as_numpy_iterator())


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "says"), [(40, "in the record of 'photo_000.jpg'"), (0, "its checksum is not")]
)
def test_damage_of_records_read_in_order_is_named(tmp_path, place, says):
    section = datasets.csv_photos(tmp_path / "data", images=16)
    records = prepare(DataOptions(source=section, records=tmp_path / "records"))
    split = records.split("train")
    content = bytearray(split.shards[0].read_bytes())
    content[place] ^= 1
    split.shards[0].write_bytes(content)
    expected = f"train-00000.tfrecord is damaged.* {says}"
    with pytest.raises(RecordsError, match=expected), split.naming_damage():
        list(image_batches(split, IMAGE, 4))
    with pytest.raises(tf.errors.InvalidArgumentError), records.split("val").naming_damage():
        raise tf.errors.InvalidArgumentError(None, None, "something else")


def test_an_epoch_sees_every_pair_once(photos):
    sampler = PairSampler(photos, batch_size=8, seed=3)
    assert sampler.steps == 12
    epochs = [sampler.epoch(number) for number in range(2)]
    for epoch in epochs:
        assert sorted(epoch.ravel()) == list(range(96))
    assert (epochs[0] != epochs[1]).any()
    np.testing.assert_array_equal(PairSampler(photos, 8, 3).epoch(1), epochs[1])
    assert (PairSampler(photos, 8, 4).epoch(1) != epochs[1]).any()


def test_one_per_class_holds_each_class_once(birds):
    sampler = OnePerClassSampler(birds, batch_size=4, seed=0)
    classes = np.array([labels[0] for labels in birds.labels])[birds.caption_image]
    epoch = sampler.epoch(0)
    assert epoch.shape == (len(classes) // 4, 4)
    assert all(sorted(row) == [0, 1, 2, 3] for row in classes[epoch])
    assert len(set(epoch.ravel())) > 100
    three = OnePerClassSampler(birds, batch_size=3, seed=0).epoch(0)
    assert all(len(set(row)) == 3 for row in classes[three])


def test_a_split_smaller_than_a_batch_is_one_batch(photos, caplog):
    sampler = PairSampler(photos, 250, 0)
    assert (sampler.batch_size, sampler.steps) == (96, 1)
    assert sorted(sampler.epoch(0)[0]) == list(range(96))
    assert (
        "250 is more than the 96 captions of the training split; batches are of 96" in caplog.text
    )
    assert PairSampler(photos, 250, 0, devices=5).batch_size == 95
    x, _ = next(batches(photos, sampler))
    assert len(x["image"]) == len(x["caption"]) == 96


def test_a_split_that_cannot_fill_a_batch_is_refused(photos):
    message = "the training split has 96 captions; a batch needs 97 or more"
    with pytest.raises(UserError, match=message):
        PairSampler(photos, 128, 0, devices=97)


def test_too_few_classes_are_refused(birds):
    with pytest.raises(UserError, match=r"5 is more than the 4 classes .* lower it to 4, or set"):
        OnePerClassSampler(birds, 5, 0)
    with pytest.raises(UserError, match=r"lower it to 4, or set train\.sampler to pairs"):
        OnePerClassSampler(birds, 128, 0)


@pytest.mark.slow
def test_batches_hold_pixels_words_and_ids(photos):
    sampler = PairSampler(photos, 8, 0)
    x, y = next(batches(photos, sampler, text=TextOptions(drop_words=0)))
    assert x["image"].shape == (8, 16, 16, 3)
    assert x["image"].dtype == np.uint8
    assert x["caption"].dtype == np.int32
    np.testing.assert_array_equal(y["caption_id"], sampler.epoch(0)[0])
    np.testing.assert_array_equal(y["image_id"], photos.caption_image[y["caption_id"]])
    for ids, caption in zip(x["caption"], y["caption_id"], strict=True):
        text = photos.captions[caption].text
        assert TOKENIZER.text(ids) == f"<start> {text.removesuffix(' .')} <end>"
    assert "labels" not in y


PLAIN = ImageOptions(size=16, resize=16, crop="center", flip=False, cutout=0)


@pytest.mark.slow
def test_pixels_that_never_change_are_kept(photos, monkeypatch):
    sampler = PairSampler(photos, 8, 0)
    assert not PLAIN.augments
    with monkeypatch.context() as patch:
        patch.setattr(data_pipelines.batches, "MAX_CACHED_BYTES", len(photos) * 16 * 16 * 3 - 1)
        decoded = itertools.islice(batches(photos, sampler, image=PLAIN), 3)
        decoded = [part for pair in decoded for part in pair]
    pipeline = batches(photos, sampler, image=PLAIN)
    # No record is read again once all are decoded.
    monkeypatch.setattr(type(photos), "read", None)
    assert_same([part for pair in itertools.islice(pipeline, 3) for part in pair], decoded)


def test_a_damaged_record_is_named_before_the_first_step(tmp_path):
    section = datasets.csv_photos(tmp_path / "data", images=40, captions=3)
    split = prepare(DataOptions(source=section, records=tmp_path / "records")).split("train")
    shard = next((tmp_path / "records").glob("train-*.tfrecord"))
    content = bytearray(shard.read_bytes())
    content[split.index.columns["offset"][6] + 60] ^= 4
    shard.write_bytes(bytes(content))
    with pytest.raises(RecordsError, match=rf"{shard.name} .*'photo_\d+\.jpg'"):
        batches(split, PairSampler(split, 8, 0), image=PLAIN)


@pytest.mark.slow
def test_no_thread_tunes_a_pipeline(photos):
    """It would now and then hold up the end of the pipeline for as long as a minute."""
    pipelines = [
        training_batches(photos, PairSampler(photos, 8, 0), TOKENIZER, IMAGE, TEXT),
        image_batches(photos, IMAGE, 8),
        caption_batches(photos.texts, TOKENIZER, 8),
    ]
    assert not any(pipeline.options().autotune.enabled for pipeline in pipelines)


@pytest.mark.slow
def test_a_compiled_step_meets_few_lengths(photos):
    def made(multiple: int) -> list:
        sampler = PairSampler(photos, batch_size=2, seed=3)
        dataset = training_batches(photos, sampler, TOKENIZER, IMAGE, TEXT, multiple=multiple)
        return [x["caption"] for x, _ in itertools.islice(dataset, 12)]

    # Of a compiled function, every shape is another program.
    captions, padded = made(1), made(8)
    assert len({ids.shape[1] for ids in captions}) > 2 >= len({ids.shape[1] for ids in padded})
    for ids, longer in zip(captions, padded, strict=True):
        assert longer.shape[1] % 8 == 0
        length = ids.shape[1]
        np.testing.assert_array_equal(longer[:, :length], ids)
        assert (longer[:, length:].numpy() == TOKENIZER.pad).all()


@pytest.mark.slow
def test_starting_later_goes_on_as_if_never_stopped(photos):
    sampler = PairSampler(photos, 8, 5)
    whole = list(itertools.islice(batches(photos, sampler), 14))
    later = list(itertools.islice(batches(photos, sampler, 11), 3))
    for left, right in zip(whole[11:], later, strict=True):
        assert_same(left, right)


@pytest.mark.slow
def test_same_pair_is_augmented_anew_in_every_epoch(photos):
    sampler = PairSampler(photos, 96, 0)
    (x0, y0), (x1, y1) = itertools.islice(batches(photos, sampler), 2)
    first = {c: image.tobytes() for c, image in zip(y0["caption_id"], x0["image"], strict=True)}
    same = [
        first[c] == image.tobytes() for c, image in zip(y1["caption_id"], x1["image"], strict=True)
    ]
    assert np.mean(same) < 0.2


@pytest.mark.slow
def test_parts_of_a_batch_make_the_whole(photos):
    sampler = PairSampler(photos, 8, 0)
    wholes = list(itertools.islice(batches(photos, sampler), 2))
    halves = [list(itertools.islice(batches(photos, sampler, part=(n, 2)), 2)) for n in range(2)]
    for step, (x, y) in enumerate(wholes):
        joined = [np.concatenate([halves[n][step][0]["image"] for n in range(2)])]
        np.testing.assert_array_equal(joined[0], x["image"])
        texts = [TOKENIZER.text(ids) for n in range(2) for ids in halves[n][step][0]["caption"]]
        assert texts == [TOKENIZER.text(ids) for ids in x["caption"]]
        ids = np.concatenate([halves[n][step][1]["caption_id"] for n in range(2)])
        np.testing.assert_array_equal(ids, y["caption_id"])
    with pytest.raises(ValueError, match="3 parts"):
        batches(photos, sampler, part=(0, 3))


@pytest.mark.slow
def test_evaluation_batches_keep_the_order(photos):
    images = np.concatenate(list(image_batches(photos, IMAGE, 5).as_numpy_iterator()))
    assert images.shape == (32, 16, 16, 3)
    alone = list(image_batches(photos, IMAGE, 1).as_numpy_iterator())
    np.testing.assert_array_equal(np.concatenate(alone), images)
    texts = [caption.text for caption in photos.captions]
    ids = [row for b in caption_batches(texts, TOKENIZER, 10).as_numpy_iterator() for row in b]
    assert len(ids) == 96
    assert TOKENIZER.text(ids[95]) == f"<start> {texts[95].removesuffix(' .')} <end>"
