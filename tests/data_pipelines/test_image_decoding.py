"""Image files become JPEG records, and records become pixels."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_pipelines.image_decoding import (
    DCT,
    checked_jpeg,
    cutout,
    decode_any_for_evaluation,
    decode_for_evaluation,
    decode_for_training,
)
from data_pipelines.options import ImageOptions
from data_pipelines.photo_files import UnreadableError

PICTURE = datasets.picture(1, (80, 60))


def pixels(jpeg: bytes) -> np.ndarray:
    return tf.io.decode_jpeg(jpeg, channels=3).numpy().astype(int)


def test_plain_jpegs_stay_as_they_are():
    for data in (datasets.encoded(PICTURE), datasets.encoded(PICTURE.convert("L"))):
        assert checked_jpeg(data, "a.jpg") is data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (datasets.encoded(PICTURE, "PNG"), PICTURE),
        (datasets.encoded(PICTURE.convert("CMYK")), PICTURE),
        (datasets.encoded(PICTURE, "WEBP", lossless=True), PICTURE),
        (datasets.encoded(PICTURE.quantize(16), "PNG"), PICTURE),
        (
            datasets.encoded(PICTURE.convert("I;16") if 0 else PICTURE.convert("1"), "PNG"),
            PICTURE.convert("1"),
        ),
    ],
    ids=["png", "cmyk", "webp", "palette", "bilevel"],
)
def test_other_formats_become_rgb_jpegs(data, expected):
    found = pixels(checked_jpeg(data, "a.png"))
    assert np.abs(found - np.array(expected.convert("RGB")).astype(int)).mean() < 6


def test_transparency_becomes_white():
    image = Image.new("RGBA", (40, 30), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 20, 30))
    palette = image.convert("P")
    palette.info["transparency"] = palette.getpixel((30, 15))
    for data in (
        datasets.encoded(image, "PNG"),
        datasets.encoded(palette, "PNG", transparency=palette.getpixel((30, 15))),
    ):
        found = pixels(checked_jpeg(data, "a.png"))
        assert np.abs(found[15, 10] - [0, 0, 255]).max() < 12
        assert found[15, 33].min() > 240


def test_a_cameras_rotation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = datasets.encoded(PICTURE, exif=exif)
    assert pixels(checked_jpeg(data, "a.jpg")).shape == (80, 60, 3)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (datasets.encoded(PICTURE)[:400], "broken image"),
        (datasets.encoded(PICTURE, "PNG")[:-200], "broken image"),
        (b"image,caption\nphoto.jpg,a dog\n", "not an image"),
        (b"", "empty: its file has no bytes"),
    ],
    ids=["truncated jpeg", "truncated png", "text", "empty"],
)
def test_broken_files_are_named(data, says):
    with pytest.raises(UnreadableError, match=rf"photo\.jpg is (a )?{says}"):
        checked_jpeg(data, "photo.jpg")


def test_an_image_of_the_right_size_is_not_resized(monkeypatch):
    jpeg = datasets.encoded(datasets.picture(2, (48, 48)))
    decoded = tf.io.decode_jpeg(jpeg, dct_method=DCT)
    resized = np.round(tf.image.resize(decoded, [48, 48], antialias=True))
    np.testing.assert_array_equal(decoded, resized)
    monkeypatch.setattr(tf.image, "resize", None)
    found = decode_for_evaluation(tf.constant(jpeg), ImageOptions(size=48, resize=48))
    np.testing.assert_array_equal(found, decoded)


@pytest.mark.parametrize("size", [(131, 97), (97, 131), (20, 26)], ids=["wide", "high", "small"])
@pytest.mark.parametrize("fit", ["center", "stretch"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_whole_photo_is_scaled_as_pillow_does(size, fit, interpolation):
    if (fit, interpolation) == ("center", "bilinear"):
        pytest.skip("scales the centre alone")
    options = ImageOptions(size=32, resize=36, fit=fit, interpolation=interpolation)
    data = datasets.encoded(datasets.picture(3, size), quality=98)
    resample = Image.Resampling[interpolation.upper()]
    width, height = (32, 32) if fit == "stretch" else (s * 36 // min(size) for s in size)
    image = Image.fromarray(tf.io.decode_jpeg(data, dct_method=DCT).numpy())
    # Two calls: versions of Pillow differ in which of the two comes first.
    scaled = image.resize((width, image.height), resample).resize((width, height), resample)
    left, top = (width - 32) // 2, (height - 32) // 2
    expected = np.asarray(scaled.crop((left, top, left + 32, top + 32))).astype(int)
    gap = np.abs(decode_for_evaluation(tf.constant(data), options).numpy() - expected)
    assert gap.max() <= 1
    assert (gap > 0).mean() < 0.05


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"crop": "center", "crop_area": (0.5, 1.0)}, "crop_area has no effect with crop 'center'"),
        ({"cutout": 0, "cutout_area": (0.1, 0.2)}, "cutout_area has no effect with cutout 0"),
    ],
)
def test_areas_of_what_is_off_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        ImageOptions(**options)
    on = ImageOptions(crop_area=(0.5, 1.0), cutout_area=(0.1, 0.2))
    assert ImageOptions(**on.model_dump()) == on
    ImageOptions(crop="center", cutout=0)


def test_what_evaluation_sees_names_no_default():
    assert ImageOptions().seen == {"size": 224, "resize": 256}
    assert ImageOptions(fit="stretch").seen != ImageOptions(interpolation="bicubic").seen


@pytest.mark.slow
def test_training_crops_flips_and_erases_by_seed():
    jpeg = tf.constant(datasets.encoded(datasets.picture(3, (90, 70))))
    options = ImageOptions(size=24, resize=24)

    def train(seed):
        return decode_for_training(jpeg, options, tf.constant([1, seed])).numpy()

    views = [train(seed) for seed in range(12)]
    assert all(view.shape == (24, 24, 3) and view.dtype == np.uint8 for view in views)
    np.testing.assert_array_equal(train(5), views[5])
    assert len({view.tobytes() for view in views}) > 9


def test_photos_are_stored_small_where_that_is_asked_for():
    large = datasets.picture(4, (900, 600))
    data = datasets.encoded(large, quality=95)
    assert checked_jpeg(data, "a.jpg", 600) is data
    small = pixels(checked_jpeg(data, "a.jpg", 300))
    assert small.shape == (300, 450, 3)
    expected = np.array(large.resize((450, 300))).astype(int)
    assert np.abs(small - expected).mean() < 3
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = checked_jpeg(datasets.encoded(large, exif=exif), "a.jpg", 300)
    assert pixels(turned).shape == (450, 300, 3)
    with pytest.raises(ValueError, match=r"store_side \(200\) must not be below resize \(256\)"):
        ImageOptions(store_side=200)


def test_without_augmentation_training_sees_what_evaluation_sees():
    jpeg = tf.constant(datasets.encoded(datasets.picture(3, (90, 70))))
    options = ImageOptions(size=24, resize=32, crop="center", flip=False, cutout=0)
    np.testing.assert_array_equal(
        decode_for_training(jpeg, options, tf.constant([1, 2])),
        decode_for_evaluation(jpeg, options),
    )


@pytest.mark.slow
def test_flip_mirrors_half_of_the_images():
    image = Image.new("RGB", (40, 40), "black")
    image.paste("white", (20, 0, 40, 40))
    jpeg = tf.constant(datasets.encoded(image))
    options = ImageOptions(size=16, resize=16, crop="center", cutout=0)
    decode = tf.function(lambda seed: decode_for_training(jpeg, options, seed), autograph=False)
    right = [decode(tf.constant([0, seed])).numpy()[8, 13, 0] > 128 for seed in range(50)]
    assert 12 < sum(right) < 38


@pytest.mark.slow
def test_cutout_erases_a_rectangle_of_the_right_size_with_the_right_odds():
    image = tf.zeros([40, 50, 3], tf.uint8)
    erase = tf.function(lambda seed: cutout(image, 0.4, (0.05, 0.2), seed), autograph=False)
    areas = []
    for seed in range(150):
        erased = erase(tf.constant([0, seed])).numpy()
        hole = np.any(erased != 0, axis=-1)
        if hole.any():
            rows, columns = np.flatnonzero(hole.any(1)), np.flatnonzero(hole.any(0))
            box = hole[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert box.all()
            np.testing.assert_array_equal(erased[hole][0], [124, 116, 104])
            areas.append(hole.mean())
    assert 0.3 < len(areas) / 150 < 0.5
    assert min(areas) > 0.03
    assert max(areas) < 0.23


@pytest.mark.slow
def test_evaluation_sees_the_centre():
    image = Image.new("RGB", (90, 50), "black")
    image.paste("white", (32, 12, 58, 38))
    options = ImageOptions(size=32, resize=64)
    jpeg = datasets.encoded(image, quality=98)
    found = decode_for_evaluation(tf.constant(jpeg), options).numpy()
    assert found.shape == (32, 32, 3)
    assert found.dtype == np.uint8
    assert found.min() > 225
    for data in (jpeg, datasets.encoded(image, "PNG")):
        other = decode_any_for_evaluation(tf.constant(data), options).numpy()
        assert np.abs(other.astype(int) - found).max() < 12
