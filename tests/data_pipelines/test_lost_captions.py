"""No caption of a file is lost without being counted."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import datasets
import pytest
from pydantic import TypeAdapter

from data_pipelines.sources import AnySource, Problems
from keras_xmr.judgements.ground_truth import read_ground_truth

SOURCE = TypeAdapter(AnySource)
PHOTO = datasets.encoded(datasets.picture(1))


def read(name: str, root: Path, **options) -> tuple[dict[str, list[str]], dict[str, int]]:
    """The captions of each image of a source, and the counts of problems."""
    problems = Problems()
    source = SOURCE.validate_python({"name": name, "root": str(root), **options})
    entries = list(source.entries(problems))
    assert len({entry.key for entry in entries}) == len(entries)
    captions = {entry.key: [caption.text for caption in entry.captions] for entry in entries}
    return captions, dict(problems.counts)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"0.jpg": ["a dog"], "1.jpg": ["b"], "0.jpg": ["another"]}', ["a dog", "another"]),
        ('{"0.jpg": "a dog", "1.jpg": "b", "0.jpg": "another"}', ["a dog", "another"]),
        (
            '{"0.jpg": {"caption": "a dog"}, "1.jpg": "b", "0.jpg": {"captions": ["another"]}}',
            ["a dog", "another"],
        ),
        (
            '[{"image": "0.jpg", "caption": "a dog", "caption": "another"},'
            ' {"image": "1.jpg", "caption": "b"}]',
            ["a dog", "another"],
        ),
        (
            '[{"image": "0.jpg", "caption": "a", "captions": ["b", "c"]},'
            ' {"image": "1.jpg", "caption": "b"}]',
            ["a", "b", "c"],
        ),
    ],
    ids=["lists", "texts", "objects", "caption", "caption and captions"],
)
def test_repeated_keys_of_captions_keep_all_captions(tmp_path, content, expected):
    (tmp_path / "images").mkdir()
    for name in ("0.jpg", "1.jpg"):
        (tmp_path / "images" / name).write_bytes(PHOTO)
    (tmp_path / "captions.json").write_text(content)
    captions, problems = read("csv", tmp_path)
    assert captions == {"0.jpg": expected, "1.jpg": ["b"]}
    assert problems == {}


def test_an_entry_with_two_images_is_counted(tmp_path):
    (tmp_path / "captions.json").write_text(
        '[{"image": "0.jpg", "image": "1.jpg", "caption": "a"}]'
    )
    captions, problems = read("csv", tmp_path)
    assert captions == {}
    assert problems == {"malformed JSON entry": 1}


def test_a_file_per_photo_may_have_both_keys(tmp_path):
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    (tmp_path / "a.json").write_text('{"caption": "one", "caption": "two", "captions": ["three"]}')
    captions, problems = read("photo_folder", tmp_path)
    assert captions == {"a.jpg": ["one", "two", "three"]}
    assert problems == {}


def test_photos_whose_names_differ_in_their_unicode_form_have_their_own_captions(tmp_path):
    for name, text in (("\u00e9", "composed"), ("e\u0301", "decomposed")):
        (tmp_path / f"{name}.jpg").write_bytes(PHOTO)
        (tmp_path / f"{name}.txt").write_text(text)
    captions, problems = read("photo_folder", tmp_path)
    assert captions == {"e\u0301.jpg": ["decomposed"], "\u00e9.jpg": ["composed"]}
    assert problems == {}


def test_a_second_caption_file_of_one_kind_is_counted(tmp_path):
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    for name in ("a.TXT", "a.txt"):
        (tmp_path / name).write_text(name)
    captions, problems = read("photo_folder", tmp_path)
    assert captions == {"a.jpg": ["a.TXT"]}
    assert problems == {"second caption file of a photo": 1}


def test_other_captions_of_a_second_file_are_counted(tmp_path):
    """Files of img2dataset have the caption of the text file once more, which is not lost."""
    for name, text in (("a", "one"), ("b", "another")):
        (tmp_path / f"{name}.jpg").write_bytes(PHOTO)
        (tmp_path / f"{name}.txt").write_text("one")
        (tmp_path / f"{name}.json").write_text(json.dumps({"caption": text, "width": 3}))
    captions, problems = read("photo_folder", tmp_path)
    assert captions == {"a.jpg": ["one"], "b.jpg": ["one"]}
    assert problems == {"second caption file of a photo": 1}


def test_a_file_of_one_object_has_one_caption(tmp_path):
    path = tmp_path / "captions.json"
    path.write_text('{"image": "0.jpg", "caption": "a"}')
    assert read("csv", tmp_path) == ({"0.jpg": ["a"]}, {})
    path.write_text('[{"image": true, "caption": "a"}]')
    assert read("csv", tmp_path) == ({}, {"malformed JSON entry": 1})


def read_flickr8k(folder, captions):
    """Reads captions of Flickr8K, whose only photo in the files of names is 0.jpg."""
    (folder / "Flickr8k.token.txt").write_text(captions)
    for name in ("train", "dev", "test"):
        names = "0.jpg\n" if name == "train" else ""
        (folder / f"Flickr_8k.{name}Images.txt").write_text(names)
    return read("flickr8k", folder)


def test_a_tab_within_a_caption_is_not_taken_for_the_separator(tmp_path):
    captions, problems = read_flickr8k(tmp_path, "  0.jpg#0\ta dog \n0.jpg#1 a cat\tsits\n")
    assert captions == {"0.jpg": ["a dog"]}
    assert problems == {"malformed line of the captions": 1}


def test_a_captioned_photo_that_a_cut_file_of_names_lacks_is_counted(tmp_path):
    captions, problems = read_flickr8k(tmp_path, "0.jpg#0\ta dog\n1.jpg#0\ta cat\n")
    assert captions == {"0.jpg": ["a dog"]}
    assert problems == {"photo in none of the files of names": 1}


def repeat_annotations(path: Path) -> None:
    """Writes the list of annotations of a file in two halves under one key."""
    content = json.loads(path.read_text())
    annotations = content.pop("annotations")
    halves = annotations[:7], annotations[7:]
    lists = ", ".join(f'"annotations": {json.dumps(half)}' for half in halves)
    path.write_text(f"{json.dumps(content)[:-1]}, {lists}, " + '"annotations": []}')


def test_a_repeated_list_of_coco_keeps_all_annotations(tmp_path):
    section = datasets.coco(tmp_path)
    del section["name"], section["root"]
    expected, _ = read("coco", tmp_path, **section)
    path = tmp_path / "annotations" / "captions_train2014.json"
    before = read_ground_truth(path)
    repeat_annotations(path)
    captions, problems = read("coco", tmp_path, **section)
    assert captions == expected
    assert problems == {}
    assert read_ground_truth(path).texts == before.texts


def test_a_repeated_key_of_an_annotation_is_counted(tmp_path):
    section = datasets.coco(tmp_path)
    del section["name"], section["root"]
    path = tmp_path / "annotations" / "captions_train2014.json"
    text = path.read_text()
    assert '"caption": ' in text
    path.write_text(text.replace('"caption": ', '"caption": "first", "caption": ', 1))
    _, problems = read("coco", tmp_path, **section)
    assert problems == {"malformed entry of the annotations": 1}


def test_categories_of_coco_have_one_numbering(tmp_path):
    """The validation file lacks the first category."""
    section = datasets.coco(tmp_path)
    path = tmp_path / "annotations" / "instances_val2014.json"
    content = json.loads(path.read_text())
    content["categories"] = [c for c in content["categories"] if c["id"] != 2]
    path.write_text(json.dumps(content))
    source = SOURCE.validate_python(section)
    labels = {entry.key: entry.labels for entry in source.entries(Problems())}
    assert set(labels.values()) == {(1, 2)}


def tar(path: Path, *files: tuple[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("files", "texts", "counts"),
    [
        (
            ["a.jpg", "a.txt", "a.jpg", "a.txt"],
            ["caption 1"],
            {"repeated file of an item": 2},
        ),
        (["a.jpg", "a.png", "a.txt"], ["caption 2"], {"second image of an item": 1}),
        (
            ["a.b.jpg", "a.b.txt", "a.c.jpg", "a.c.txt"],
            ["caption 1"],
            {"repeated file of an item": 2},
        ),
    ],
    ids=["twice", "two images", "dots"],
)
def test_files_of_an_item_that_are_not_used_are_counted(tmp_path, files, texts, counts):
    contents = [
        f"caption {number}".encode() if name.endswith("txt") else PHOTO
        for number, name in enumerate(files)
    ]
    tar(tmp_path / "0.tar", *zip(files, contents, strict=True))
    captions, problems = read("webdataset", tmp_path)
    assert list(captions.values()) == [texts]
    assert problems == counts


def test_repeated_captions_of_an_item_are_kept(tmp_path):
    content = b'{"caption": "one", "caption": ["two", "three"]}'
    tar(tmp_path / "0.tar", ("a.jpg", PHOTO), ("a.json", content))
    captions, problems = read("webdataset", tmp_path)
    assert captions == {"a": ["one", "two", "three"]}
    assert problems == {}
