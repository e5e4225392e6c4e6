"""Captions in a table, in files beside the photos, or in the photos; and formats of photos."""

from __future__ import annotations

import io
import json
import os
import time

import datasets
import numpy as np
import pytest
from PIL import Image, features
from pydantic import TypeAdapter

from data_pipelines import pixels
from data_pipelines.image_decoding import checked_jpeg
from data_pipelines.options import DataOptions
from data_pipelines.photo_files import UnreadableError
from data_pipelines.prepare import prepare
from data_pipelines.source_changes import source_change
from data_pipelines.sources import AnySource, MissingFileError, Problems, SourceError
from data_pipelines.sources.photo_captions import embedded_captions

PICTURE = datasets.picture(3)
PHOTO = datasets.encoded(PICTURE)

XMP = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF
 xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""
 xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:creator><rdf:Seq><rdf:li>Ann</rdf:li></rdf:Seq>
 </dc:creator><dc:description><rdf:Alt><rdf:li xml:lang="x-default">two dogs &amp; snow</rdf:li>
 </rdf:Alt></dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"""

BOMB = b"""<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><description>&b;</description></x:xmpmeta>"""


def captions_of(root, **options):
    """The captions by photo, and the problems, as `csv` reads a folder."""
    section = {"name": "csv", "root": str(root), "val_share": 0, "test_share": 0} | options
    source, problems = TypeAdapter(AnySource).validate_python(section), Problems()
    entries = list(source.entries(problems))
    assert all(source.read(entry).data == PHOTO for entry in entries if entry.captions)
    return {e.key: [caption.text for caption in e.captions] for e in entries}, problems


def exif(**tags: object) -> Image.Exif:
    found = Image.Exif()
    numbers = {"description": 0x010E, "title": 0x9C9B, "comment": 0x9C9C}
    for name, value in tags.items():
        is_wide = name != "description"
        found[numbers[name]] = f"{value}\0".encode("utf-16-le") if is_wide else value
    return found


def iptc(text: bytes) -> bytes:
    """A JPEG file with a caption of IPTC, as Photoshop writes it."""
    record = b"\x1c\x02\x78" + len(text).to_bytes(2, "big") + text
    block = (
        b"8BIM\x04\x04\0\0" + len(record).to_bytes(4, "big") + record + b"\0" * (len(record) % 2)
    )
    content = b"Photoshop 3.0\0" + block
    segment = b"\xff\xed" + (len(content) + 2).to_bytes(2, "big") + content
    return PHOTO[:2] + segment + PHOTO[2:]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.csv", "image,caption\na.jpg,a dog\na.jpg,it runs\nb.jpg,a cat\n"),
        (
            "captions.json",
            '[{"image": "a.jpg", "caption": "a dog"}, {"image": "a.jpg", "caption": "it runs"},'
            ' {"image": "b.jpg", "caption": "a cat"}]',
        ),
        ("captions.json", '{"a.jpg": ["a dog", "it runs"], "b.jpg": "a cat"}'),
        ("captions.json", '{"a.jpg": {"captions": ["a dog", "it runs"]}, "b.jpg": "a cat"}'),
        (
            "captions.jsonl",
            '{"image": "a.jpg", "caption": ["a dog", "it runs"], "width": 3}\n'
            '\n{"image": "b.jpg", "caption": "a cat"}\n',
        ),
    ],
)
@pytest.mark.parametrize("folder", ["images", "."])
def test_tables_of_captions(tmp_path, name, content, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    for photo in ("a.jpg", "b.jpg"):
        (tmp_path / folder / photo).write_bytes(PHOTO)
    (tmp_path / name).write_text(content)
    assert captions_of(tmp_path)[0] == {"a.jpg": ["a dog", "it runs"], "b.jpg": ["a cat"]}


@pytest.mark.parametrize("folder", ["images", "."])
def test_photos_that_no_row_names_are_counted_and_named(tmp_path, folder):
    for name in ("a.jpg", "trip/b.jpg", ".c.jpg", ".d/e.jpg", "trip/f.txt", "trip/g.png"):
        (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_bytes(PHOTO)
    rows = f"./a.jpg,a dog\n{tmp_path.resolve() / folder / 'trip/b.jpg'},a cat\n"
    (tmp_path / "captions.csv").write_text(f"image,caption\n{rows}")
    _, problems = captions_of(tmp_path.resolve())
    assert problems.examples == {"image without captions": ["trip/g.png"]}


def test_photos_below_the_current_folder_have_their_rows(tmp_path, monkeypatch):
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(PHOTO)
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,a dog\n")
    monkeypatch.chdir(tmp_path)
    _, problems = captions_of(".")
    assert problems.examples == {"image without captions": ["b.jpg"]}


def test_ids_do_not_depend_on_the_layout(tmp_path):
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    section = TypeAdapter(AnySource).validate_python({"name": "csv", "root": str(tmp_path)})
    keys = set()
    for name, content in (
        ("a.txt", "a dog"),
        ("captions.json", '{"a.jpg": "a dog"}'),
        ("captions.csv", "image,caption\na.jpg,a dog\n"),
    ):
        (tmp_path / name).write_text(content)
        ((caption,),) = (entry.captions for entry in section.entries(Problems()))
        keys.add(caption.key)
    assert len(keys) == 1
    (tmp_path / "captions.csv").unlink()
    (tmp_path / "captions.json").write_text('[{"image": "a.jpg", "caption": "x", "caption_id": 7}]')
    ((caption,),) = (entry.captions for entry in section.entries(Problems()))
    assert caption.key == "7"


def test_captions_in_json_that_cannot_be_used(tmp_path):
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    path = tmp_path / "captions.json"
    path.write_text('[{"image": "a.jpg", "caption": "a dog"}, {"image": "a.jpg"}, 3, ["a.jpg"]]')
    found, problems = captions_of(tmp_path)
    assert found == {"a.jpg": ["a dog"]}
    assert problems.counts == {"malformed JSON entry": 3}
    for content, says in (("[", "is not valid JSON"), (b"\xff", "is not UTF-8")):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(SourceError, match=rf"captions\.json {says}"):
            captions_of(tmp_path)


def test_without_a_table_captions_are_beside_the_photos_and_in_them(tmp_path):
    (tmp_path / "trip").mkdir()
    for name in ("a.jpg", "trip/b.jpg"):
        (tmp_path / name).write_bytes(PHOTO)
    (tmp_path / "a.txt").write_text("a dog")
    PICTURE.save(tmp_path / "trip/c.jpg", exif=exif(description="a cat"))
    (tmp_path / "trip/b.nef").write_bytes(b"II*\0")
    source = TypeAdapter(AnySource).validate_python({"name": "csv", "root": str(tmp_path)})
    problems = Problems()
    found = {e.key: [c.text for c in e.captions] for e in source.entries(problems)}
    assert found == {"a.jpg": ["a dog"], "trip/b.jpg": [], "trip/c.jpg": ["a cat"]}
    assert problems.counts == {"RAW file, which is not supported": 1}
    datasets.write_csv(tmp_path / "splits.csv", ["image", "split"], [["a.jpg", "test"]])
    with_splits = source.model_copy(update={"splits": "splits.csv"})
    assert [(e.key, e.split) for e in with_splits.entries(Problems())] == [("a.jpg", "test")]


def test_a_folder_without_any_caption_is_an_error(tmp_path):
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    with pytest.raises(
        MissingFileError, match=r"captions\.csv does not exist; .* Neither has a photo"
    ):
        captions_of(tmp_path)
    with pytest.raises(MissingFileError, match=r"mine\.csv does not exist; it should hold"):
        captions_of(tmp_path, captions="mine.csv")
    (tmp_path / "images").mkdir()
    (tmp_path / "captions.csv").write_text("image,caption\n", "utf-8")
    with pytest.raises(MissingFileError, match=r"There is .*captions\.csv\. Neither"):
        captions_of(tmp_path / "images")


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "TIFF"])
def test_captions_of_exif(tmp_path, kind):
    tags = exif(description="a caf__", title="two dogs", comment="снег")
    data = datasets.encoded(PICTURE, kind, exif=tags)
    # Pillow writes ASCII alone here.
    (tmp_path / "photo").write_bytes(data.replace(b"caf__", "café".encode()))
    assert embedded_captions(tmp_path / "photo") == ["a café", "two dogs", "снег"]


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "AVIF"])
def test_captions_of_xmp(tmp_path, kind):
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    PICTURE.save(tmp_path / "photo", kind, xmp=XMP, exif=exif(description="two dogs  & snow"))
    assert embedded_captions(tmp_path / "photo") == ["two dogs & snow"], "and once"


@pytest.mark.parametrize("content", ["a café".encode(), "a café".encode("latin-1")])
def test_captions_of_iptc(tmp_path, content):
    (tmp_path / "photo.jpg").write_bytes(iptc(content))
    assert embedded_captions(tmp_path / "photo.jpg") == ["a café"]


@pytest.mark.parametrize("text", ["OLYMPUS DIGITAL CAMERA         ", "SONY DSC", " \0", "Default"])
def test_what_cameras_write_is_no_caption(tmp_path, text):
    PICTURE.save(tmp_path / "photo.jpg", exif=exif(description=text))
    assert embedded_captions(tmp_path / "photo.jpg") == []


def test_damaged_metadata_are_no_captions_and_no_errors(tmp_path):
    PICTURE.save(tmp_path / "bomb.jpg", xmp=BOMB)
    PICTURE.save(tmp_path / "whole.jpg", exif=exif(description="a dog"))
    whole = (tmp_path / "whole.jpg").read_bytes()
    at = whole.index(b"Exif")
    (tmp_path / "cut.jpg").write_bytes(whole[: at + 20] + b"\xff" * 60 + whole[at + 80 :])
    (tmp_path / "none.jpg").write_bytes(b"no photo")
    os.mkfifo(tmp_path / "pipe.jpg")
    for name in ("bomb", "cut", "none", "pipe", "gone"):
        assert embedded_captions(tmp_path / f"{name}.jpg") == [], name


def test_a_caption_that_changes_in_a_photo_is_noticed(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(3):
        PICTURE.save(root / f"{number}.jpg", exif=exif(description=f"dog {number}"))
    section = {"name": "csv", "root": str(root), "val_share": 0, "test_share": 0}
    options = DataOptions(source=section, records=tmp_path / "records")
    records = prepare(options)
    assert source_change(options, records) is None
    then = time.time() - 3600
    os.utime(options.records / "manifest.json", (then, then))
    with (root / "1.jpg").open("r+b") as file:  # In place: the folder does not change.
        at = file.read().index(b"dog 1")
        file.seek(at)
        file.write(b"cat 1")
    assert source_change(options, records).endswith("images have other captions, labels or names")


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("kind", ["WEBP", "AVIF", "HEIF"])
def test_formats_of_pillow_and_its_plugins_are_read_upright(kind, orientation):
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    tags = Image.Exif()
    # Files of HEIC are turned by themselves, whatever EXIF says.
    turned = orientation == 6 and kind != "HEIF"
    tags[0x0112] = orientation
    data = datasets.encoded(PICTURE, kind, exif=tags, quality=95)
    upright = PICTURE.transpose(Image.Transpose.ROTATE_270) if turned else PICTURE
    found = pixels.read_pixels(data, "photo")
    assert found.shape == np.asarray(upright).shape
    assert np.abs(found.astype(int) - np.asarray(upright)).mean() < 12
    stored = Image.open(io.BytesIO(checked_jpeg(data, "photo")))
    assert (stored.format, stored.size) == ("JPEG", upright.size)


def test_heic_without_its_plugin_says_what_to_install(monkeypatch):
    monkeypatch.setattr(pixels, "_reads_heif", lambda: False)
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    with pytest.raises(
        UnreadableError, match=r"a\.heic is a HEIC file, .*pip install '.*\[heic\]'"
    ):
        pixels.read_pixels(heic, "a.heic")


def test_films_are_said_to_be_films():
    with pytest.raises(UnreadableError, match=r"a\.mp4 is a video"):
        pixels.read_pixels(b"\0\0\0\x18ftypisom\0\0\0\0", "a.mp4")


@pytest.mark.parametrize("name", ["a.cr2", "a.NEF", "a.arw", "a.dng", "a.cr3", "a.rw2", "a.orf"])
def test_raw_files_are_refused_by_name(name):
    """Many are TIFF files, of which Pillow would read a thumbnail."""
    thumbnail = datasets.encoded(Image.new("RGB", (16, 12)), "TIFF")
    says = rf"^{name} is a camera RAW file, which is not supported; save it as JPEG$"
    with pytest.raises(UnreadableError, match=says):
        pixels.read_pixels(thumbnail, name)
    with pytest.raises(UnreadableError, match=says):
        checked_jpeg(thumbnail, name)
    assert pixels.read_pixels(PHOTO, name).shape == (44, 60, 3), "a JPEG file that is named so"


def test_settings_of_a_network_are_no_caption(tmp_path):
    """Other JSON files beside photos stay what they are."""
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    (tmp_path / "a.txt").write_text("a dog")
    (tmp_path / "settings.json").write_text(json.dumps({"layers": 3}))
    found, problems = captions_of(tmp_path)
    assert (found, problems.total) == ({"a.jpg": ["a dog"]}, 0)
