"""The pixels of an image file are the same in records, in evaluation and in exported graphs."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import datasets
import numpy as np
import odd_images
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from data_pipelines import pixels
from data_pipelines.image_decoding import (
    checked_jpeg,
    decode,
    decode_any_for_evaluation,
    decode_for_evaluation,
)
from data_pipelines.image_headers import read_orientation
from data_pipelines.options import ImageOptions
from data_pipelines.photo_files import UnreadableError
from data_pipelines.pixels import MAX_PIXELS, evaluation_pixels, read_pixels

pytestmark = pytest.mark.filterwarnings("ignore:Corrupt EXIF data")

READABLE = odd_images.readable()
PICTURE = odd_images.PICTURE


def pillow(data: bytes) -> np.ndarray:
    """Decodes a file with Pillow alone: upright, and on white."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))


# Of these Pillow alone makes something else: it clips 16 bits, and compares a transparent grey of
# 2 or 4 bits, or a colour of 16, with pixels of 8.
KNOWN_BETTER = (
    "PNG of 16 bits, 1 channels",
    "PNG of 16 bits, one of",
    "PNG grey 2 bits tr",
    "PNG grey 4 bits tr",
)


@pytest.mark.parametrize("name", [n for n in READABLE if not n.startswith(KNOWN_BETTER)])
def test_the_definition_is_what_others_see(name):
    found = read_pixels(READABLE[name], name).astype(int)
    rounding = 1 if "CMYK" in name or "YCCK" in name else 0
    np.testing.assert_allclose(found, pillow(READABLE[name]), rtol=0, atol=rounding)


def test_of_sixteen_bits_the_upper_eight_are_seen():
    values = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    for kind in ("PNG", "TIFF"):
        found = read_pixels(datasets.encoded(Image.fromarray(values), kind), "deep")
        np.testing.assert_array_equal(found[..., 1], values >> 8)


@pytest.mark.parametrize(("bits", "key", "clear"), [(2, 1, 85), (4, 9, 153)])
def test_a_transparent_grey_of_few_bits_is_white(bits, key, clear):
    rows = [bytes([key << 8 - bits])] * 4
    plain = odd_images.png((2, 4), bits, 0, rows)
    keyed = odd_images.png((2, 4), bits, 0, rows, odd_images.chunk(b"tRNS", bytes([0, key])))
    np.testing.assert_array_equal(read_pixels(plain, "a.png")[0, :, 0], [clear, 0])
    np.testing.assert_array_equal(read_pixels(keyed, "a.png")[0, :, 0], [255, 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_of_sixteen_bits_is_compared_with_all_bits(graph, channels):
    values = np.random.default_rng(1).integers(0, 65536, (6, 7, channels)).astype(">u2")
    key = values[2, 3].copy()
    values[0, 0] = values[4, 4] = values[1, 1] = key
    values[0, 0, 0] ^= 1  # All but one of the lower bits.
    values[1, 1, -1] ^= 256
    chunk = odd_images.chunk(b"tRNS", key.tobytes())
    rows = [row.tobytes() for row in values]
    data = odd_images.png((7, 6), 16, {1: 0, 3: 2}[channels], rows, chunk)
    expected = np.broadcast_to(values >> 8, (6, 7, 3)).astype(np.uint8)
    expected[2, 3] = expected[4, 4] = 255
    np.testing.assert_array_equal(read_pixels(data, "a.png"), expected)
    np.testing.assert_array_equal(graph(tf.constant(data)), expected)


@pytest.mark.parametrize("kind", ["WEBP", "TIFF"])
def test_what_graphs_cannot_read_is_prepared_all_the_same(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = PICTURE.copy()
    image.putalpha(Image.fromarray(odd_images.noise(38, 53)))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    found = read_pixels(datasets.encoded(image, kind, exif=exif, **options), "a")
    np.testing.assert_array_equal(
        found, np.rot90(pillow(datasets.encoded(image, "PNG")), 3).astype(np.uint8)
    )


@pytest.mark.parametrize("name", READABLE)
def test_records_hold_these_pixels(name):
    jpeg = checked_jpeg(READABLE[name], name)
    found = tf.io.decode_jpeg(jpeg, channels=3).numpy().astype(int)
    expected = read_pixels(READABLE[name], name)
    assert found.shape == expected.shape
    # Some of the files are noise, which loses most.
    assert np.abs(found - expected).mean() < 9


def bomb() -> bytes:
    """A PNG file of 30,000 times 30,000 pixels, in a few bytes."""
    head = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    rows = odd_images.chunk(b"IDAT", zlib.compress(b"\0" * 100))
    begin = b"\x89PNG\r\n\x1a\n" + odd_images.chunk(b"IHDR", head)
    return begin + rows + odd_images.chunk(b"IEND", b"")


def large_jpeg() -> bytes:
    jpeg = bytearray(datasets.encoded(PICTURE))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 60_000, 60_000)
    return bytes(jpeg)


def test_the_limit_is_exact(monkeypatch):
    monkeypatch.setattr(pixels, "MAX_PIXELS", 53 * 38)
    assert read_pixels(datasets.encoded(PICTURE), "fits").shape == (38, 53, 3)
    monkeypatch.setattr(pixels, "MAX_PIXELS", 53 * 38 - 1)
    with pytest.raises(UnreadableError, match="has more than 2,013 pixels"):
        read_pixels(datasets.encoded(PICTURE), "large")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (datasets.encoded(Image.fromarray(np.ones((9, 9), np.float32)), "TIFF"), "32 bits"),
        (datasets.encoded(Image.fromarray(np.ones((9, 9), np.int32)), "TIFF"), "32 bits"),
        (datasets.encoded(PICTURE, "EPS"), "not an image of a known format"),
        (datasets.encoded(PICTURE, "PPM"), "not an image of a known format"),
        (odd_images.png((5, 4), 8, 3, [bytes(5)] * 4), "its palette is missing"),
    ],
    ids=["float", "int", "eps", "ppm", "palette"],
)
def test_preparation_refuses_what_it_cannot_know(data, says):
    with pytest.raises(UnreadableError, match=f"photo .*{says}"):
        checked_jpeg(data, "photo")


@pytest.mark.parametrize("data", [bomb(), large_jpeg()])
def test_preparation_refuses_bombs_whatever_the_filters_of_warnings(data, monkeypatch):
    # As if another thread had just put the filters back.
    monkeypatch.setattr(warnings, "simplefilter", lambda *_, **__: None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
        with pytest.raises(UnreadableError, match=f"bomb has more than {MAX_PIXELS:,} pixels"):
            checked_jpeg(data, "bomb")


@pytest.fixture(scope="module")
def graph():
    """Pixels of a file, as an exported graph decodes it."""
    signature = [tf.TensorSpec([], tf.string)]

    def upright(data: tf.Tensor) -> tf.Tensor:
        return decode(data, read_orientation(data))

    return tf.function(upright, input_signature=signature, autograph=False)


IN_GRAPHS = [n for n, data in READABLE.items() if data.startswith((b"\xff\xd8", b"\x89PNG"))]


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_the_graph_sees_the_pixels_of_the_definition(graph, name):
    found = graph(tf.constant(READABLE[name])).numpy().astype(int)
    np.testing.assert_allclose(found, read_pixels(READABLE[name], name), rtol=0, atol=2)


OPTIONS = {
    "centre": ImageOptions(size=24, resize=30),
    "whole": ImageOptions(size=24, resize=30, fit="stretch"),
    "CLIP": ImageOptions(size=24, resize=24, interpolation="bicubic"),
    "enlarged": ImageOptions(size=64, resize=72),
    "stored small": ImageOptions(size=16, resize=17, store_side=18),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_records_and_graphs_show_a_model_the_pixels_of_the_definition(options):
    """All uses of a model decode a file by one of these three functions."""
    options = OPTIONS[options]
    size = options.size
    any_file = tf.function(
        lambda data: decode_any_for_evaluation(data, options),
        input_signature=[tf.TensorSpec([], tf.string)],
        autograph=False,
    )
    for name, data in READABLE.items():
        expected = evaluation_pixels(data, name, options).astype(int)
        assert expected.shape == (size, size, 3)
        jpeg = checked_jpeg(data, name, options.store_side)
        seen = [decode_for_evaluation(tf.constant(jpeg), options)]
        if name in IN_GRAPHS:
            seen.append(any_file(tf.constant(data)))
        for pixels_seen in seen:
            gap = np.abs(pixels_seen.numpy() - expected)
            # Of some pixels near a half the rounding differs, and a JPEG may spread that.
            assert gap.max() <= (1 if options.store_side is None else 2), name
            assert (gap > 0).mean() < 0.1, name


def test_a_png_with_thousands_of_chunks_is_turned(graph):
    comments = [odd_images.chunk(b"tEXt", b"a\0eXIf tRNS")] * 5000
    data = odd_images.deep_png(3, *comments, after=odd_images.chunk(b"eXIf", odd_images.exif(6)))
    np.testing.assert_array_equal(graph(tf.constant(data)), read_pixels(data, "a.png"))


def test_what_follows_a_png_is_ignored(graph):
    plain = odd_images.encoded(PICTURE, "PNG")
    exif = odd_images.chunk(b"eXIf", odd_images.exif(6))
    for beyond in (exif, b"\x7f\xff\xff\xffnope" + exif):
        np.testing.assert_array_equal(graph(tf.constant(plain + beyond)), np.asarray(PICTURE))


@pytest.mark.parametrize("data", [bomb(), large_jpeg(), b"GIF89a", b"", b"text"])
def test_the_graph_refuses_other_files_and_bombs(data):
    options = ImageOptions(size=32, resize=64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="photo 3 is not a JPEG or a PNG, or"):
        decode_any_for_evaluation(tf.constant(data), options, "photo 3")
