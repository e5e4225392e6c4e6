"""Batches of images, each with its captions, of which there are more or fewer."""

from __future__ import annotations

import itertools

import datasets
import numpy as np
import pytest

from data_pipelines.batches import training_batches
from data_pipelines.options import DataOptions, ImageOptions, TextOptions
from data_pipelines.prepare import prepare
from data_pipelines.samplers import ImageSampler
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


@pytest.mark.parametrize("count", [None, 1, 2])
def test_an_epoch_sees_every_image_once(photos, caplog, count):
    sampler = ImageSampler(photos, batch_size=4, seed=3, captions=count)
    epochs = [sampler.epoch(number) for number in range(200)]
    own = np.bincount(photos.caption_image)
    sizes = own if count is None else np.minimum(own, count)
    for epoch in epochs:
        images = np.stack([sampler.images(batch) for batch in epoch])
        assert images.shape == (3, 4)
        assert len(set(images.ravel())) == 12, "the thirteenth fills no batch"
        captions = epoch.reshape(3, 4, -1)
        np.testing.assert_array_equal((captions >= 0).sum(axis=-1), sizes[images])
        assert len(set(captions[captions >= 0])) == sizes[images].sum(), "a caption is once in it"
        of = np.where(captions < 0, images[..., None], photos.caption_image[captions])
        np.testing.assert_array_equal(of, np.broadcast_to(images[..., None], of.shape))
    assert (epochs[0] != epochs[1]).any()
    drawn = np.concatenate(epochs).ravel()
    shares = np.bincount(drawn[drawn >= 0], minlength=photos.num_captions) / 200
    expected = (sizes / own)[photos.caption_image] * 12 / 13
    np.testing.assert_allclose(shares, expected, atol=0.15)
    np.testing.assert_array_equal(ImageSampler(photos, 4, 3, captions=count).epoch(1), epochs[1])
    assert ImageSampler(photos, 14, 0).batch_size == 13
    assert "14 is more than the 13 images with captions of the training split" in caplog.text


@pytest.mark.parametrize("count", [1, 2])
def test_drawn_captions_come_with_their_images(photos, count):
    sampler = ImageSampler(photos, 4, 3, captions=count)
    _, y = next(batches(photos, sampler))
    drawn = sampler.epoch(0)[0]
    np.testing.assert_array_equal(y["caption_id"], drawn[drawn >= 0])
    np.testing.assert_array_equal(y["image_id"], sampler.images(drawn))
    assert ("caption_image_id" in y) == (count > 1), "pairs have none"


def test_a_batch_holds_each_image_once_and_all_its_captions(photos):
    sampler = ImageSampler(photos, 5, 1)
    counts = set()
    for step, (x, y) in enumerate(itertools.islice(batches(photos, sampler), 4)):
        images = sampler.images(sampler.epoch(step // 2)[step % 2])
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
    terms = SmoothAP(temperature=1e-4).terms(scores, {}, {}, found)
    expected = [1 - np.mean([average_precision(s, r) for s, r in zip(*both, strict=True)])
                for both in ((scores, right), (scores.T, right.T))]  # fmt: skip
    assert [2 * float(term) for term in terms.values()] == pytest.approx(expected, abs=1e-3)
    terms = SupervisedContrastive(temperature=0.5).terms(scores, {}, {}, found)
    expected = [cross_entropy(s / 0.5, r) for s, r in ((scores, right), (scores.T, right.T))]
    assert [2 * float(term) for term in terms.values()] == pytest.approx(expected, rel=1e-4)


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
