"""Batches of images, each with all its captions, of which there are more or fewer."""

from __future__ import annotations

import itertools

import datasets
import numpy as np
import pytest

from data_pipelines.batches import training_batches
from data_pipelines.options import DataOptions, ImageOptions, TextOptions
from data_pipelines.prepare import prepare
from data_pipelines.samplers import ImageSampler, OneCaptionPerImageSampler
from data_pipelines.text import SPECIAL, WordTokenizer
from keras_xmr.losses import SmoothAP, SupervisedContrastive
from keras_xmr.model.objective import relations

IMAGE = ImageOptions(size=16, resize=16)
TEXT = TextOptions(drop_words=0)
TOKENIZER = WordTokenizer([*SPECIAL, *datasets.WORDS.split()], 20)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """13 photos of training with 1 to 4 captions."""
    folder = tmp_path_factory.mktemp("photos")
    section = datasets.csv_photos(folder / "data", images=21)
    rows = [
        [f"photo_{image:03d}.jpg", datasets.sentence(100 * image + number)]
        for image in range(21)
        for number in range(1 + image % 4)
    ]
    datasets.write_csv(folder / "data" / "captions.csv", ["image", "caption"], rows)
    return prepare(DataOptions(source=section, records=folder / "records")).split("train")


def batches(split, sampler, text=TEXT, **options):
    dataset = training_batches(split, sampler, TOKENIZER, IMAGE, text, **options)
    return iter(dataset.as_numpy_iterator())


def captions_of(split, images):
    """The numbers of all captions of images, in order."""
    return [c for i in images for c in np.flatnonzero(split.caption_image == i)]


def test_an_epoch_sees_every_image_once(photos, caplog):
    sampler = ImageSampler(photos, batch_size=4, seed=3)
    epochs = [sampler.epoch(number) for number in range(2)]
    assert [epoch.shape for epoch in epochs] == [(3, 4), (3, 4)]
    for epoch in epochs:
        assert len(set(epoch.ravel())) == 12, "the thirteenth fills no batch"
    assert (epochs[0] != epochs[1]).any()
    np.testing.assert_array_equal(ImageSampler(photos, 4, 3).epoch(1), epochs[1])
    assert ImageSampler(photos, 14, 0).batch_size == 13
    assert "14 is more than the 13 images of the training split" in caplog.text


def test_one_caption_of_each_image_is_drawn(photos, caplog):
    sampler = OneCaptionPerImageSampler(photos, batch_size=4, seed=3)
    epochs = [sampler.epoch(number) for number in range(200)]
    for epoch in epochs:
        images = photos.caption_image[epoch]
        assert images.shape == (3, 4)
        assert len(set(images.ravel())) == 12, "the thirteenth fills no batch"
    drawn = np.bincount(np.concatenate(epochs).ravel(), minlength=photos.num_captions)
    shares = drawn * np.bincount(photos.caption_image)[photos.caption_image]
    np.testing.assert_allclose(shares, 200 * 12 / 13, rtol=0.35)
    assert OneCaptionPerImageSampler(photos, 14, 0).batch_size == 13
    assert "14 is more than the 13 images with captions of the training split" in caplog.text
    ids = next(batches(photos, sampler))[-1]
    np.testing.assert_array_equal(photos.caption_image[ids["caption_id"]], ids["image_id"])


def test_a_batch_holds_each_image_once_and_all_its_captions(photos):
    sampler = ImageSampler(photos, 5, 1)
    counts = set()
    for step, (x, y) in enumerate(itertools.islice(batches(photos, sampler), 4)):
        images = sampler.epoch(step // 2)[step % 2]
        captions = captions_of(photos, images)
        np.testing.assert_array_equal(y["image_id"], images)
        np.testing.assert_array_equal(y["caption_id"], captions)
        np.testing.assert_array_equal(y["caption_image_id"], photos.caption_image[captions])
        assert x["image"].shape == (5, 16, 16, 3)
        texts = [photos.captions[caption].text.removesuffix(" .") for caption in captions]
        assert [TOKENIZER.text(ids) for ids in x["caption"]] == [
            f"<start> {t} <end>" for t in texts
        ]
        counts.add(len(captions))
    assert len(counts) > 1, "images have more captions or fewer"


@pytest.mark.slow
def test_words_of_every_caption_are_dropped_on_their_own(photos):
    _, y = next(batches(photos, ImageSampler(photos, 13, 5)))
    dropped, _ = next(batches(photos, ImageSampler(photos, 13, 5), TextOptions(drop_words=0.5)))
    words = TOKENIZER([photos.captions[caption].text for caption in y["caption_id"]])
    left = (dropped["caption"] > 0).sum(axis=1) - 2
    before = (np.asarray(words) > 0).sum(axis=1) - 2
    np.testing.assert_array_equal(left, before - before // 2)
    blanks = (dropped["caption"] == TOKENIZER.mask_id).sum(axis=1)
    assert len(set(blanks[y["caption_image_id"] == 3])) > 1


@pytest.mark.slow
def test_parts_and_pieces_make_the_whole(photos):
    sampler = ImageSampler(photos, 12, 0)
    relevance = lambda images, captions: np.add.outer(images, captions).astype(np.float32)  # noqa: E731
    options = {"relevance": relevance}
    (x, y), (_, second) = itertools.islice(batches(photos, sampler, **options), 2)
    np.testing.assert_array_equal(y["relevance"], relevance(y["image_id"], y["caption_id"]))
    parts = []
    for number in range(2):
        made = batches(photos, sampler, part=(number, 2), pieces=3, **options)
        parts.append(list(itertools.islice(made, 6)))
    first = [piece for part in parts for piece in part[:3]]
    captions = [row for px, _ in first for row in px["caption"]]
    expected = [TOKENIZER.text(row) for row in x["caption"]]
    assert [TOKENIZER.text(row) for row in captions] == expected
    np.testing.assert_array_equal(np.concatenate([px["image"] for px, _ in first]), x["image"])
    for name in y:
        np.testing.assert_array_equal(np.concatenate([py[name] for _, py in first]), y[name])
    later = [piece["image_id"] for part in parts for _, piece in part[3:]]
    np.testing.assert_array_equal(np.concatenate(later), second["image_id"])
    with pytest.raises(ValueError, match="6 does not split into 4 pieces"):
        batches(photos, sampler, part=(0, 2), pieces=4)


def test_losses_see_every_right_answer_of_a_batch(photos):
    sampler = ImageSampler(photos, 6, 2)
    x, y = next(batches(photos, sampler))
    scores = np.random.default_rng(0).normal(size=(6, len(x["caption"]))).astype(np.float32)
    of = photos.caption_image[y["caption_id"]]
    found = relations(y, "pairs")
    right = y["image_id"][:, None] == of[None, :]
    np.testing.assert_array_equal(found["positives"], right)
    np.testing.assert_array_equal(sampler.positives(), right)
    # With ranks this sharp, smooth average precision is average precision.
    parts = SmoothAP(temperature=1e-4).parts(scores, {}, {}, found)
    expected = [1 - np.mean([average_precision(s, r) for s, r in zip(*both, strict=True)])
                for both in ((scores, right), (scores.T, right.T))]  # fmt: skip
    assert [2 * float(part) for part in parts.values()] == pytest.approx(expected, abs=1e-3)
    parts = SupervisedContrastive(temperature=0.5).parts(scores, {}, {}, found)
    expected = [cross_entropy(s / 0.5, r) for s, r in ((scores, right), (scores.T, right.T))]
    assert [2 * float(part) for part in parts.values()] == pytest.approx(expected, rel=1e-4)


def average_precision(scores, right):
    order = right[np.argsort(-scores)]
    return np.mean(np.cumsum(order)[order] / (np.flatnonzero(order) + 1))


def cross_entropy(logits, right):
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -np.mean([row[of].mean() for row, of in zip(logs, right, strict=True)])


@pytest.mark.slow
def test_labels_come_along(tmp_path):
    section = datasets.cub(tmp_path / "data", classes=5) | {"held_out_share": 0.0}
    birds = prepare(DataOptions(source=section, records=tmp_path / "records")).split("train")
    _, y = next(batches(birds, ImageSampler(birds, 6, 0)))
    of = [birds.labels[image] for image in y["caption_image_id"]]
    np.testing.assert_array_equal(y["caption_labels"], of)
    classes = np.array([birds.labels[image][0] for image in y["image_id"]])
    expected = classes[:, None] == np.ravel(of)[None, :]
    np.testing.assert_array_equal(relations(y, "classes")["positives"], expected)
