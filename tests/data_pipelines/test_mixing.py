"""Mixed training images."""

from __future__ import annotations

import datasets
import numpy as np
import pytest

from data_pipelines.batches import training_batches
from data_pipelines.images import draw_mix, mix_pixels
from data_pipelines.options import DataOptions, ImageOptions, TextOptions
from data_pipelines.prepare import prepare
from data_pipelines.samplers import PairSampler
from data_pipelines.text import SPECIAL, WordTokenizer

PLAIN = {"size": 32, "resize": 32, "crop": "center", "flip": False, "cutout": 0}
MIXED = ImageOptions(**PLAIN, mixup=0.4, cutmix=0.4)
TOKENIZER = WordTokenizer([*SPECIAL, *datasets.WORDS.split()], 20)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    section = datasets.csv_photos(folder / "data")
    return prepare(DataOptions(source=section, records=folder / "records")).split("train")


def batches(split, image, count=3, **options):
    sampler, text = PairSampler(split, 8, 3), TextOptions(drop_words=0)
    dataset = training_batches(split, sampler, TOKENIZER, image, text, **options)
    return list(dataset.take(count).as_numpy_iterator())


def test_draws_follow_the_probabilities_and_the_area():
    draws = [draw_mix(64, MIXED, 0, step) for step in range(50)]
    ratio = np.concatenate([mix.ratio for mix in draws])
    area = np.concatenate([mix.box[:, 2] * mix.box[:, 3] for mix in draws])
    cut = area > 0
    np.testing.assert_allclose(ratio[cut], 1 - area[cut] / 32**2, rtol=1e-6)
    assert np.mean((ratio < 1) & ~cut) == pytest.approx(0.4, abs=0.04)
    assert np.mean(cut) == pytest.approx(0.4, abs=0.04)
    assert ((ratio >= 0) & (ratio <= 1)).all()
    for mix in draws:
        assert (mix.box >= 0).all()
        assert (mix.box[:, :2] + mix.box[:, 2:] <= 32).all()
        assert (mix.partner != np.arange(64)).all()


def test_pixels_are_blended_or_replaced():
    image, other = np.full((4, 4, 3), 10, np.uint8), np.full((4, 4, 3), 50, np.uint8)
    blended = mix_pixels(image, other, 0.75, np.zeros(4, np.int32)).numpy()
    np.testing.assert_array_equal(blended, np.full((4, 4, 3), 20))
    cut = mix_pixels(image, other, 0.875, np.array([1, 2, 1, 2], np.int32)).numpy()[..., 0]
    np.testing.assert_array_equal(cut, [[10] * 4, [10, 10, 50, 50], [10] * 4, [10] * 4])


@pytest.mark.slow
def test_batches_hold_mixed_images_of_known_partners(photos):
    plain, mixed = batches(photos, ImageOptions(**PLAIN)), batches(photos, MIXED)
    changed = 0
    for step, ((x, y), (mixed_x, mixed_y)) in enumerate(zip(plain, mixed, strict=True)):
        np.testing.assert_array_equal(mixed_y["image_id"], y["image_id"])
        np.testing.assert_array_equal(mixed_x["caption"], x["caption"])
        np.testing.assert_array_equal(mixed_y["mix_image_id"], np.roll(y["image_id"], -1))
        mix = draw_mix(8, MIXED, 3, step)
        np.testing.assert_array_equal(mixed_y["mix_ratio"], mix.ratio)
        others = np.roll(x["image"], -1, axis=0)
        for i, ratio in enumerate(mix.ratio):
            expected = x["image"][i]
            if ratio < 1:
                expected = mix_pixels(x["image"][i], others[i], ratio, mix.box[i])
                changed += 1
            np.testing.assert_array_equal(mixed_x["image"][i], expected)
    assert changed > 5
    assert "mix_ratio" not in plain[0][1]


@pytest.mark.slow
def test_starting_later_and_parts_make_the_same_batches(photos):
    whole = batches(photos, MIXED, 3)
    later = batches(photos, MIXED, 1, start=2)
    np.testing.assert_array_equal(later[0][0]["image"], whole[2][0]["image"])
    parts = [batches(photos, MIXED, 1, part=(number, 2)) for number in (0, 1)]
    for key in ("mix_ratio", "mix_image_id"):
        joined = np.concatenate([part[0][1][key] for part in parts])
        np.testing.assert_array_equal(joined, whole[0][1][key])
    joined = np.concatenate([part[0][0]["image"] for part in parts])
    np.testing.assert_array_equal(joined, whole[0][0]["image"])


@pytest.mark.slow
def test_labels_of_the_partner_come_along(tmp_path):
    section = datasets.cub(tmp_path / "data") | {"held_out_share": 0.0}
    split = prepare(DataOptions(source=section, records=tmp_path / "records")).split("train")
    _, y = batches(split, MIXED, 1)[0]
    np.testing.assert_array_equal(y["mix_labels"], np.roll(y["labels"], -1, axis=0))


def test_more_than_every_image_is_refused():
    with pytest.raises(ValueError, match="must not add up to more than 1"):
        ImageOptions(mixup=0.7, cutmix=0.4)
