"""Region features with boxes: TSV files of bottom-up attention, and arrays in SCAN's layout."""

from __future__ import annotations

import base64
import json

import datasets
import numpy as np
import pytest
import tensorflow as tf

from data_pipelines.batches import image_batches, training_batches
from data_pipelines.options import DataOptions, ImageOptions, TextOptions
from data_pipelines.prepare import prepare
from data_pipelines.samplers import PairSampler
from data_pipelines.shards import RecordsError
from data_pipelines.sources import SourceError
from data_pipelines.sources.regions import with_boxes
from data_pipelines.text import SPECIAL, WordTokenizer


@pytest.fixture
def options(tmp_path):
    """Options for a source."""

    def make(section, **more):
        settings = {"images_per_shard": 2, "max_skipped": 0.4} | more
        return DataOptions(source=section, records=tmp_path / "records", **settings)

    return make


def columns(root, name, row):
    """The columns of a row, decoded by other means than the source."""
    parts = (root / name).read_text("ascii").splitlines()[row].split("\t")
    count = int(parts[3])
    arrays = [np.array(memoryview(base64.b64decode(part)).cast("f")) for part in parts[4:]]
    return parts[0], arrays[0].reshape(count, 4), arrays[1].reshape(count, -1)


def kept(split, number):
    return split.parse(tf.constant(split.read(number))).numpy()


def test_rows_are_found_in_any_file_and_keep_their_numbers(options, tmp_path):
    records = prepare(options(datasets.bottom_up(tmp_path / "data")))
    assert records.holds == "regions"
    assert records.region_shape == (None, 7)
    train = records.split("train")
    assert train.image_keys == ["100", "101", "102", "105"]
    for image, (name, row) in enumerate([("1", 0), ("1", 1), ("1", 2), ("0", 2)]):
        key, _, features = columns(tmp_path / "data", f"features.tsv.{name}", row)
        assert key == train.image_keys[image]
        np.testing.assert_array_equal(kept(train, image), features)
    assert [len(records.split(split)) for split in ("val", "test")] == [1, 1]
    assert records.split("test").captions[0].text == datasets.sentence(20)


def test_a_fixed_number_of_regions_is_known(options, tmp_path):
    section = datasets.bottom_up(tmp_path / "data", counts=(3,) * 6, width=5)
    assert prepare(options(section)).region_shape == (3, 5)


def test_boxes_are_parts_of_the_image(options, tmp_path):
    records = prepare(options(datasets.bottom_up(tmp_path / "data") | {"boxes": True}))
    assert records.region_shape == (None, 12)
    found = kept(records.split("train"), 1)
    _, boxes, features = columns(tmp_path / "data", "features.tsv.1", 1)
    np.testing.assert_array_equal(found[:, :7], features)
    np.testing.assert_allclose(found[:, 7:11], boxes / [60, 44, 60, 44], rtol=1e-6)
    x1, y1, x2, y2 = boxes.T
    np.testing.assert_allclose(found[:, 11], (x2 - x1) * (y2 - y1) / (60 * 44), rtol=1e-5)
    with pytest.raises(RecordsError, match=r"data\.source\.boxes: True, but it is now False"):
        prepare(options(datasets.bottom_up(tmp_path / "data")))


@pytest.mark.slow
def test_images_are_padded_with_zeros_to_the_longest_of_a_batch(options, tmp_path):
    records = prepare(options(datasets.bottom_up(tmp_path / "data")))
    split = records.split("train")
    (regions,) = image_batches(split, ImageOptions(), 4)
    assert regions.shape == (4, 6, 7)
    expected = [4, 6, 5, 5]
    np.testing.assert_array_equal(np.any(regions.numpy() != 0, axis=2).sum(axis=1), expected)
    for number, count in enumerate(expected):
        np.testing.assert_array_equal(regions[number, :count], kept(split, number))
    sampler = PairSampler(split, 4, seed=0)
    tokenizer = WordTokenizer([*SPECIAL, "dog", "cat"], 9)
    batches = training_batches(split, sampler, tokenizer, ImageOptions(), TextOptions())
    x, y = next(iter(batches))
    counts = np.any(x["image"].numpy() != 0, axis=2).sum(axis=1)
    np.testing.assert_array_equal(counts, np.take(expected, y["image_id"]))


def test_broken_rows_are_skipped_and_counted(options, tmp_path):
    section = datasets.bottom_up(tmp_path / "data")
    path = tmp_path / "data" / "features.tsv.1"
    rows = path.read_bytes().splitlines(keepends=True)
    cut = rows[1].split(b"\t")
    cut[5] = cut[5][:41] + b"\n"
    path.write_bytes(rows[0] + b"\n" + b"\t".join(cut) + rows[0])
    records = prepare(options(section))
    assert records.split("train").image_keys == ["100", "105"]
    problems = records.manifest["problems"]
    assert problems["counts"] == {"duplicate row of an image": 1, "unreadable image": 2}
    examples = " ".join(problems["examples"]["unreadable image"])
    assert "101: its row in features.tsv.1" in examples
    assert "is broken: it is not base64" in examples
    assert "102 has no row in features.tsv.0, features.tsv.1" in examples


def test_too_many_broken_rows_stop_the_run(options, tmp_path):
    section = datasets.bottom_up(tmp_path / "data")
    (tmp_path / "data" / "features.tsv.1").write_bytes(b"")
    with pytest.raises(SourceError, match=r"3 of 6 images .*2 may be left(?s:.*)has no row in"):
        prepare(options(section))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        (3, b"5", r"16 numbers for 5 boxes"),
        (3, b"many", r"invalid literal"),
        (1, b"0", r"an image of 0 x 44"),
        (5, base64.b64encode(np.full(28, np.nan, "<f4")), r"not finite, or all 0"),
        (5, base64.b64encode(np.zeros(28, "<f4")), r"not finite, or all 0"),
        (5, base64.b64encode(np.ones(27, "<f4")), r"27 numbers for the features of 4 boxes"),
        (5, b"AAAA\tAAAA", r"7 columns, not 6"),
        (4, base64.b64encode(np.tile(np.float32([0, 0, 90, 9]), 4)), r"outside of its image of 60"),
        (4, base64.b64encode(np.tile(np.float32([9, 0, 5, 9]), 4)), r"not left, top, right"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(options, tmp_path, column, value, says):
    section = datasets.bottom_up(tmp_path / "data") | {"boxes": True}
    path = tmp_path / "data" / "features.tsv.1"
    first, *others = path.read_bytes().splitlines(keepends=True)
    parts = first.rstrip(b"\n").split(b"\t")
    parts[column] = value
    path.write_bytes(b"\t".join(parts) + b"\n" + b"".join(others))
    with pytest.raises(SourceError, match=rf"100: its row in .*{says}"):
        prepare(options(section, max_skipped=0))


def test_captions_can_come_from_a_file_a_split(options, tmp_path):
    section = datasets.bottom_up(tmp_path / "data")
    content = {
        "images": [{"id": 101, "file_name": "x.jpg"}, {"id": 103, "file_name": "y.jpg"}],
        "annotations": [
            {"id": 7, "image_id": 101, "caption": "a dog"},
            {"id": 8, "image_id": 103, "caption": "a cat"},
        ],
    }
    (tmp_path / "data" / "train.json").write_text(json.dumps(content), "utf-8")
    rows = [["104.jpg", "a tree"], ["105.jpg", "a house"], ["x.jpg", "nothing of it"]]
    datasets.write_csv(tmp_path / "data" / "val.csv", ["image", "caption"], rows)
    records = prepare(options(section | {"captions": ["train.json", "val.csv"]}))
    assert records.split("train").image_keys == ["101", "103"]
    assert records.split("val").image_keys == ["104.jpg", "105.jpg"]
    _, _, features = columns(tmp_path / "data", "features.tsv.0", 1)
    np.testing.assert_array_equal(kept(records.split("val"), 0), features)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"features": ["gone.tsv"]}, r"gone\.tsv does not exist; .*TSV with image_id, image_w"),
        ({"captions": ["gone.json"]}, r"gone\.json does not exist"),
        ({"captions": ["dataset.json"] * 4}, "a file for each of train, val and test"),
    ],
)
def test_missing_files_are_named(options, tmp_path, change, says):
    with pytest.raises(SourceError, match=says):
        prepare(options(datasets.bottom_up(tmp_path / "data") | change))


@pytest.mark.parametrize("in_pixels", [True, False])
@pytest.mark.parametrize("repeated", [True, False])
def test_boxes_beside_arrays(options, tmp_path, in_pixels, repeated):
    root = tmp_path / "data"
    section = datasets.regions(root, repeated) | {"boxes": True}
    expected = None
    for name in ("train", "dev", "test"):
        rows, count, _ = np.load(root / f"{name}_ims.npy").shape
        corners = np.random.default_rng(rows).random((rows, count, 2, 2))
        boxes = np.sort(corners, axis=2).reshape(rows, count, 4).astype(np.float32)
        expected = boxes if name == "test" else expected
        if in_pixels:
            boxes = boxes * np.float32([50, 40, 50, 40])
            np.save(root / f"{name}_sizes.npy", np.tile([50, 40], (rows, 1)))
        np.save(root / f"{name}_boxes.npy", boxes)
    records = prepare(options(section))
    assert records.region_shape == (4, 12)
    found = kept(records.split("test"), 1)
    np.testing.assert_allclose(found[:, 7:11], expected[5 if repeated else 1], rtol=1e-5)


def test_boxes_that_do_not_fit_the_arrays_are_named(options, tmp_path):
    root = tmp_path / "data"
    section = datasets.regions(root) | {"boxes": True}
    with pytest.raises(SourceError, match=r"train_boxes\.npy does not exist; it should hold boxes"):
        prepare(options(section))
    np.save(root / "train_boxes.npy", np.zeros((8, 3, 4)))
    with pytest.raises(SourceError, match=r"\(8, 3, 4\), but the features have 8 .* of 4 regions"):
        prepare(options(section))


def test_a_box_of_one_pixel_too_many_is_cut_off():
    found = with_boxes(np.zeros((1, 0), np.float32), np.array([[-0.5, 0, 60.5, 22]]), (60, 44))
    np.testing.assert_allclose(found, [[0, 0, 1, 0.5, 0.5]])
