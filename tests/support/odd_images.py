"""Image files as cameras, editors and old programs write them."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from datasets import encoded, picture
from PIL import Image

PICTURE = picture(5, (53, 38))
"""What most of the files show."""


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, shape, np.uint8)


def exif(orientation: int, order: str = "<", entries_before: int = 2) -> bytes:
    """EXIF data of some tags, the last of which is the orientation."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 12) + b"gap."
    tags = [struct.pack(f"{order}HHIHH", 0x0100 + i, 3, 1, 7, 0) for i in range(entries_before)]
    tags.append(struct.pack(f"{order}HHIHH", 0x0112, 3, 1, orientation, 0))
    return head + struct.pack(f"{order}H", len(tags)) + b"".join(tags) + b"\0\0\0\0"


def segment(marker: int, content: bytes) -> bytes:
    """A segment of a JPEG file."""
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def with_segments(jpeg: bytes, *segments: bytes) -> bytes:
    """A JPEG file with more segments at its beginning."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def rotated(orientation: int, order: str = "<") -> bytes:
    """A photo as a camera writes it that is held in some way."""
    content = b"Exif\0\0" + exif(orientation, order)
    return with_segments(encoded(PICTURE), segment(0xE1, content))


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file."""
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def png(
    size: tuple[int, int],
    depth: int,
    colours: int,
    rows: list[bytes],
    *more: bytes,
    after: bytes = b"",
) -> bytes:
    """A PNG file of rows as they are stored, with more chunks before or after them."""
    head = struct.pack(">IIBBBBB", *size, depth, colours, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [chunk(b"IHDR", head), *more, chunk(b"IDAT", pixels), after, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def deep_png(channels: int, *more: bytes, after: bytes = b"") -> bytes:
    """A PNG file of 16 bits a channel: grey, grey with opacity, colour, colour with opacity."""
    rows = [row.tobytes() for row in noise(20, 30 * channels * 2)]
    return png((30, 20), 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], rows, *more, after=after)


def without_adobe(jpeg: bytes, transform: int | None = None) -> bytes:
    """A CMYK JPEG file without its Adobe segment, or with another transform in it."""
    begin = jpeg.index(b"\xff\xee")
    end = begin + 2 + int.from_bytes(jpeg[begin + 2 : begin + 4], "big")
    if transform is None:
        return jpeg[:begin] + jpeg[end:]
    return jpeg[: end - 1] + bytes([transform]) + jpeg[end:]


def transparent_gif(**options: int) -> bytes:
    image = PICTURE.quantize(16)
    return encoded(image, "GIF", transparency=image.getpixel((20, 20)), **options)


def animation() -> bytes:
    frames = [picture(seed, (40, 30)).quantize(8) for seed in (6, 7, 8)]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], comment=b"x" * 700)


def readable() -> dict[str, bytes]:
    """Files that the graph reads, by what is odd about them."""
    opacity = Image.fromarray(noise(38, 53), "L")
    rgba, grey, palette = PICTURE.copy(), PICTURE.convert("L"), PICTURE.quantize(16)
    rgba.putalpha(opacity)
    cmyk = encoded(Image.fromarray(noise(38, 53, 4), "CMYK"), quality=60)
    comment, profile = (
        segment(0xFE, b"a comment"),
        segment(0xE2, b"ICC_PROFILE\0" + b"\xff\xd8" * 90),
    )
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0tiff:Orientation='3'")
    turned = segment(0xE1, b"Exif\0\0" + exif(8, ">"))
    files = {f"orientation {o} {order}": rotated(o, order) for o in range(1, 9) for order in "<>"}
    files |= {
        "orientation after others": with_segments(encoded(PICTURE), comment, profile, xmp, turned),
        "orientation of 9": rotated(9),
        "EXIF that is cut off": with_segments(
            encoded(PICTURE), segment(0xE1, b"Exif\0\0" + exif(6)[:30])
        ),
        "EXIF of Pillow": encoded(PICTURE, exif=_exif_of_pillow(6)),
        "two EXIF segments": with_segments(rotated(1), segment(0xE1, b"Exif\0\0" + exif(6))),
        "JPEG progressive": encoded(PICTURE, progressive=True),
        "JPEG grey": encoded(grey),
        "JPEG grey rotated": encoded(grey, exif=_exif_of_pillow(5)),
        "JPEG CMYK": cmyk,
        "JPEG YCCK": without_adobe(cmyk, transform=2),
        "JPEG with fill bytes": with_segments(encoded(PICTURE), b"\xff\xff\xff" + comment),
        "JPEG and more after it": encoded(PICTURE) + b"\0" * 100,
        "PNG": encoded(PICTURE, "PNG"),
        "PNG RGBA": encoded(rgba, "PNG"),
        "PNG LA": encoded(rgba.convert("LA"), "PNG"),
        "PNG palette": encoded(palette, "PNG"),
        "PNG palette transparent": encoded(palette, "PNG", transparency=bytes(range(0, 256, 16))),
        "PNG one colour transparent": encoded(
            PICTURE, "PNG", transparency=PICTURE.getpixel((20, 20))
        ),
        "PNG grey one transparent": encoded(grey, "PNG", transparency=grey.getpixel((20, 20))),
        "PNG 1 bit": encoded(PICTURE.convert("1"), "PNG"),
        "PNG rotated": encoded(PICTURE, "PNG", exif=_exif_of_pillow(6)),
        "PNG rotated RGBA": encoded(rgba, "PNG", exif=_exif_of_pillow(7)),
        "PNG EXIF at the end": deep_png(3, after=chunk(b"eXIf", exif(5, ">"))),
        "GIF": encoded(palette, "GIF"),
        "GIF not interlaced": encoded(palette, "GIF", interlace=0),
        "GIF transparent": transparent_gif(),
        "GIF animated": animation(),
        "BMP": encoded(PICTURE, "BMP"),
    }
    files |= {f"PNG of 16 bits, {c} channels": deep_png(c) for c in range(1, 5)}
    for channels in (1, 3):
        first = noise(20, 30 * channels * 2)[0, : channels * 2].tobytes()
        key = chunk(b"tRNS", first)
        files[f"PNG of 16 bits, one of {channels} transparent"] = deep_png(channels, key)
    for depth in (1, 2, 4):
        rows = [row.tobytes() for row in noise(20, (30 * depth + 7) // 8)]
        files[f"PNG grey {depth} bits"] = png((30, 20), depth, 0, rows)
        key = chunk(b"tRNS", b"\0\1")
        files[f"PNG grey {depth} bits transparent"] = png((30, 20), depth, 0, rows, key)
    return files


def _exif_of_pillow(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[0x010F] = "a camera"
    found[0x0112] = orientation
    return found
