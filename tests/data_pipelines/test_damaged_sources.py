"""Damaged files of data sets end in a sentence, or are counted."""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import os
import random as python_random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import scipy.sparse
from pydantic import TypeAdapter

from data_pipelines.options import DataOptions
from data_pipelines.photo_files import UnreadableError
from data_pipelines.prepare import prepare
from data_pipelines.sources import AnySource, Entry, Problems, SourceError
from data_pipelines.sources.coco import read_captions_file
from keras_xmr.judgements import read_ground_truth, read_judgements, read_labels
from keras_xmr.utils.errors import UserError

ODD_VALUES = (
    *(None, True, -1, 10**30, 1.5, "", "x", "train", "\ud800", "\0", "../../x"),
    *([], [1], {}, {"id": 1}),
)
ODD_BYTES = (b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b'"', b",", b"\n", b"\r", b"[" * 9000, b"9" * 30)


def use(section: dict[str, Any]) -> None:
    """Reads every entry of a source, and every image."""
    source = TypeAdapter(AnySource).validate_python(section)
    for entry in source.entries(Problems()):
        with contextlib.suppress(UnreadableError):
            source.read(entry)


def use_ground_truth(path: Path) -> None:
    """Reads a file of captions in all ways in which that is done."""
    for read in (lambda: read_captions_file(path, Problems()), lambda: read_ground_truth(path)):
        with contextlib.suppress(UserError):
            read()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value, and every key or number in it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def mutated_json(content: bytes, random: python_random.Random) -> bytes:
    """Another value, or none, in one place."""
    value = json.loads(content)
    container, key = random.choice(list(places(value)))
    if random.random() < 0.3:
        del container[key]
    else:
        container[key] = random.choice(ODD_VALUES)
    return json.dumps(value).encode()


def mutated_bytes(content: bytes, random: python_random.Random) -> bytes:
    """A part is cut out, or something odd put in; or all is written in another way."""
    if random.random() < 0.1:
        return content.decode("latin-1").encode(random.choice(["utf-16", "utf-16-le", "utf-8-sig"]))
    start, end = sorted(random.choices(range(len(content) + 1), k=2))
    odd = random.choice([*ODD_BYTES, random.randbytes(3)])
    return content[:start] + odd + content[random.choice([start, end]) :]


def mutations(path: Path, count: int = 15) -> Iterator[bytes]:
    """Writes a file in one damaged way after another; in the end it is whole again."""
    random = python_random.Random(path.name)
    whole = path.read_bytes()
    for _ in range(count):
        is_json = path.suffix == ".json" and random.random() < 0.7
        damaged = (mutated_json if is_json else mutated_bytes)(whole, random)
        path.write_bytes(damaged)
        yield damaged
    path.write_bytes(whole)


def read(section: dict[str, Any]) -> tuple[list[Entry], Problems]:
    """The entries of a source, and what was skipped."""
    problems = Problems()
    return list(TypeAdapter(AnySource).validate_python(section).entries(problems)), problems


@pytest.mark.parametrize("name", ["trainvalclasses.txt", "images.txt", "image_class_labels.txt"])
def test_a_byte_order_mark_is_no_part_of_a_list(tmp_path, name):
    section = datasets.cub(tmp_path, classes=2, images=2)
    whole = read(section)
    path = tmp_path / name
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert read(section) == whole


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize(
    ("make", "name"), [(datasets.regions, "train_caps.txt"), (datasets.cub, "testclasses.txt")]
)
def test_text_in_another_encoding_is_refused(tmp_path, make, name, encoding):
    section = make(tmp_path)
    text = (tmp_path / name).read_text("utf-8").replace("r", "ä")
    (tmp_path / name).write_bytes(text.encode(encoding))
    with pytest.raises(SourceError, match=rf"{name} is not UTF-8 \(.*\); save it as UTF-8"):
        read(section)


def test_captions_of_one_bird_in_another_encoding_are_skipped(tmp_path):
    section = datasets.cub(tmp_path, classes=2, images=2)
    path = tmp_path / "text_c10" / "001.Bird_0" / "Bird_0_1.txt"
    text = path.read_text("utf-8")
    path.write_bytes(text.encode("utf-16-le"))
    entries, problems = read(section)
    assert [len(entry.captions) for entry in entries] == [10, 0, 10, 10]
    assert problems.counts == {"unreadable caption file": 1}
    path.write_bytes(text.encode() + b"a caf\xe9\n")  # Some of the real ones have such bytes.
    assert read(section)[0][1].captions[-1].text == "a caf\ufffd"


def test_one_caption_a_line_has_no_other_line_breaks(tmp_path):
    section = datasets.regions(tmp_path)
    path = tmp_path / "train_caps.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", "\u2028x\x0cx\r\n".encode()))
    entries, _ = read(section)
    assert all(caption.text.endswith("\u2028x\x0cx") for caption in entries[0].captions)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda path: np.savez(path.open("wb"), np.ones((8, 4, 7))), "is an archive of arrays"),
        (lambda path: np.save(path, np.ones((8, 0, 7), np.float32)), "with at least one region"),
        (lambda path: np.save(path, np.ones((8, 4, 0), np.float32)), "with at least one region"),
        (
            lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x04\x00{'a\n"),
            "not a complete .npy array",
        ),
        (lambda path: path.write_bytes(path.read_bytes() + bytes(40)), "has 40 bytes after its"),
    ],
)
def test_features_that_are_no_regions_are_refused(tmp_path, write, says):
    section = datasets.regions(tmp_path)
    write(tmp_path / "train_ims.npy")
    with pytest.raises(SourceError, match=rf"train_ims\.npy .*{says}"):
        read(section)


def test_names_and_captions_that_are_no_text_are_skipped(tmp_path):
    section = datasets.flickr30k(tmp_path)
    (tmp_path / "flickr30k-images" / "loop.jpg").symlink_to("loop.jpg")
    path = tmp_path / "dataset.json"
    content = json.loads(path.read_bytes())
    content["images"][0]["sentences"][0]["raw"] = "half of \ud83d"
    content["images"][2]["sentences"][1]["raw"] = "a dog \0"
    for number, name in enumerate(["loop.jpg", "n\0l.jpg", "half \ud83d.jpg", "x" * 300 + ".jpg"]):
        sentences = [{"raw": "a dog", "sentid": 100 + number}]
        content["images"].append({"filename": name, "split": "train", "sentences": sentences})
    path.write_text(json.dumps(content), "utf-8")
    records = prepare(DataOptions(source=section, records=tmp_path / "records", max_skipped=0.5))
    assert records.manifest["problems"]["counts"] == {
        "caption that is not text": 2,
        "image name that is not text": 2,
        "unreadable image": 2,
    }
    assert records.split("train").num_captions == 13


@pytest.mark.parametrize(
    ("make", "name"), [(datasets.flickr30k, "dataset.json"), (datasets.csv_photos, "splits.csv")]
)
def test_splits_that_are_misspelt_are_told(tmp_path, make, name):
    section = make(tmp_path)
    path = tmp_path / name
    path.write_text(path.read_text("utf-8").replace("train", "trian"), "utf-8")
    with pytest.raises(SourceError, match=r"no training images\n(?s:.*)skipped: .*'trian'"):
        prepare(DataOptions(source=section, records=tmp_path / "records"))


def test_entries_without_ids_are_skipped_and_told(tmp_path):
    section = datasets.coco(tmp_path)
    path = tmp_path / "annotations" / "captions_train2014.json"
    content = json.loads(path.read_bytes())
    del content["annotations"][0]["id"], content["annotations"][1]["caption"]
    content["annotations"][2] = content["images"][1]["id"] = None
    path.write_text(json.dumps(content), "utf-8")
    entries, problems = read(section)
    assert "25" not in {entry.key for entry in entries}
    assert problems.counts["malformed entry of the annotations"] == 4
    examples = problems.examples["malformed entry of the annotations"]
    assert examples[:2] == [
        f"{path} images[1]: invalid id None",
        f"{path} annotations[0]: it has no 'id'",
    ]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (datasets.csv_photos, "captions.csv"),
        (datasets.photo_folder, "photo_1.json"),
        (datasets.flickr30k, "dataset.json"),
        (datasets.cub, "text_c10/001.Bird_0/Bird_0_0.txt"),
        (datasets.regions, "dev_ims.npy"),
    ],
)
def test_a_pipe_is_not_waited_for(tmp_path, make, name):
    section = make(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    told = []
    try:
        told.append(read(section)[1].examples)
    except SourceError as error:
        told.append(error)
    assert "it is not a regular file" in str(told)


# Whatever else can be wrong: a few hundred files that chance has damaged.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "names"),
    [
        (functools.partial(datasets.csv_photos, images=10), ["captions.csv", "splits.csv"]),
        (datasets.photo_folder, ["photo_0.txt", "photo_1.json"]),
        (datasets.flickr30k, ["dataset.json"]),
        (datasets.flickr8k, ["Flickr8k.token.txt", "Flickr_8k.trainImages.txt"]),
        (
            datasets.coco,
            [
                "dataset.json",
                "annotations/captions_train2014.json",
                "annotations/instances_val2014.json",
            ],
        ),
        (
            functools.partial(datasets.cub, classes=2, images=3),
            [
                "images.txt",
                "image_class_labels.txt",
                "testclasses.txt",
                "text_c10/001.Bird_0/Bird_0_0.txt",
            ],
        ),
        (datasets.regions, ["train_caps.txt", "train_ims.npy", "test_ims.npy"]),
        (datasets.bottom_up, ["dataset.json", "features.tsv.0"]),
    ],
)
def test_damaged_files_end_in_a_sentence(tmp_path, make, names):
    section = make(tmp_path)
    for name in names:
        for damaged in mutations(tmp_path / name):
            try:
                use(section)
            except UserError:
                pass
            except Exception as error:
                pytest.fail(f"{name}: {error!r} of {damaged[:300]!r}")


def test_damaged_judgements_end_in_a_sentence(tmp_path):
    datasets.coco(tmp_path)
    captions = tmp_path / "annotations" / "captions_train2014.json"
    truth = read_ground_truth(captions)
    csv, matrix = tmp_path / "judged.csv", tmp_path / "judged.npz"
    csv.write_text("image,caption,grade\n9,1003,2\n25,1018,0.5\n")
    scipy.sparse.save_npz(matrix, truth.judgements.grades)
    datasets.flickr8k(tmp_path / "flickr8k")
    flickr8k = [f"test_{n}.jpg" for n in range(2)], [f"test_{n}.jpg#2" for n in range(2)]
    for path, read in (
        (captions, use_ground_truth),
        (tmp_path / "dataset.json", use_ground_truth),
        (tmp_path / "annotations" / "instances_train2014.json", lambda p: read_labels(p, truth)),
        (csv, lambda p: read_judgements(p, truth.image_ids, truth.caption_ids)),
        (
            tmp_path / "flickr8k" / "ExpertAnnotations.txt",
            lambda p: read_judgements(p, *flickr8k, unjudged="left_out"),
        ),
        (
            tmp_path / "flickr8k" / "CrowdFlowerAnnotations.txt",
            lambda p: read_judgements(p, *flickr8k),
        ),
        (matrix, lambda p: read_judgements(p, truth.image_ids, truth.caption_ids)),
    ):
        for damaged in mutations(path):
            try:
                read(path)
            except UserError:
                pass
            except Exception as error:
                pytest.fail(f"{path.name}: {error!r} of {damaged[:300]!r}")
