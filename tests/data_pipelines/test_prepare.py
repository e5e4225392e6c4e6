"""Writing records: whole, once, resumable, and honest about what was wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import shutil
from collections import Counter
from dataclasses import replace

import datasets
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from data_pipelines import prepare as prepare_module
from data_pipelines import shards
from data_pipelines.batches import image_batches
from data_pipelines.options import MANIFEST, DataOptions, PrepareOptions, TextOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import Records, truth_file
from data_pipelines.report import data_report
from data_pipelines.shards import RecordsError, serialize
from data_pipelines.sources import Entry, Problems, RegionArray, SourceError
from data_pipelines.text import SPECIAL, WordTokenizer


@pytest.fixture
def options(tmp_path):
    """Options for a source; photos of our own by default."""

    def make(section=None, **more):
        section = section or datasets.csv_photos(tmp_path / "photos")
        settings = {"images_per_shard": 5, "max_skipped": 0.2} | more
        return DataOptions(source=section, records=tmp_path / "records", **settings)

    return make


def alone(made):
    """With one thread, so that it is known what is done before what."""
    return made.model_copy(update={"prepare": PrepareOptions(workers=1)})


def visible(folder):
    """Every file but the hidden ones, with its content."""
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_records_hold_everything(options):
    made = options()
    records = prepare(made)
    assert records.splits == ["train", "val", "test"]
    split = records.split("train")
    assert (len(split), split.num_captions, len(split.shards)) == (16, 32, 4)
    entries = [e for e in made.source.entries(prepare_module.Problems()) if e.split == "train"]
    assert split.image_keys == [entry.key for entry in entries]
    assert split.captions == [caption for entry in entries for caption in entry.captions]
    for number in (0, 7, 15):
        parsed = split.parse(tf.constant(split.read(number)))
        assert parsed.numpy() == made.source.read(entries[number]).data
        kept = tf.train.Example.FromString(split.read(number)).features.feature["image/key"]
        assert kept.bytes_list.value == [entries[number].key.encode()]
    read = list(tf.data.TFRecordDataset([str(shard) for shard in split.shards]))
    assert [r.numpy() for r in read] == [split.read(i) for i in range(16)]
    assert not [name for name in visible(made.records) if name.startswith(".")]


def test_regions_are_kept_exactly(options, tmp_path):
    made = options(datasets.regions(tmp_path / "features"))
    records = prepare(made)
    assert (records.holds, records.region_shape) == ("regions", (4, 7))
    features = np.load(tmp_path / "features" / "train_ims.npy")
    train = records.split("train")
    parsed = train.parse(tf.constant(train.read(5)))
    np.testing.assert_array_equal(parsed, features[5])
    # Layers are built from what is known of a shape.
    batches = image_batches(train, made.image, 2)
    assert batches.element_spec.shape.as_list() == [None, 4, 7]


def test_labels_are_kept(options, tmp_path):
    records = prepare(options(datasets.coco(tmp_path / "coco")))
    assert (records.label_kind, records.manifest["num_labels"]) == ("set", 3)
    assert records.split("val").labels == [(1, 2)]


def test_scenes_keep_their_exhaustive_truth(options):
    made = options({"name": "scenes", "train": 6, "val": 0, "test": 9}, images_per_shard=4)
    records = prepare(made)
    split = records.split("test")
    truth = scipy.sparse.load_npz(truth_file(made.records, "test")).toarray()
    assert truth.shape == (9, split.num_captions)
    assert truth[split.caption_image, np.arange(split.num_captions)].all()
    assert not truth_file(made.records, "val").exists()


def test_finished_shards_are_never_written_again(options):
    made = options()
    prepare(made)
    before = {p: p.stat().st_mtime_ns for p in made.records.glob("train-0*")}
    prepare(made)
    assert before == {p: p.stat().st_mtime_ns for p in made.records.glob("train-0*")}


def test_interrupted_preparation_goes_on(options, monkeypatch):
    made = options()
    count = [0]

    def interrupted(entry, image):
        count[0] += 1
        if count[0] > 7:
            raise KeyboardInterrupt
        return serialize(entry, image)

    monkeypatch.setattr(shards, "serialize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(alone(made))
    with pytest.raises(RecordsError, match="no finished records"):
        Records.open(made.records)
    left = visible(made.records) if made.records.exists() else {}
    assert not [name for name in left if name.startswith(".")]
    monkeypatch.undo()
    records = prepare(made)
    finished = visible(made.records)
    assert {name: finished[name] for name in left} == left
    assert len(records.split("train")) == 16


def test_what_a_killed_preparation_left_aside_is_removed(options):
    made = options()
    made.records.mkdir()
    for name in (".train-00000.tfrecord", ".manifest.json"):
        # Its number is that of this process, as in a container.
        (made.records / f"{name}.{os.getpid()}.7").write_bytes(b"half of it")
    prepare(made)
    assert not [name for name in visible(made.records) if name.startswith(".")]


def test_records_of_something_else_are_refused(options, tmp_path):
    section = datasets.csv_photos(tmp_path / "photos")
    prepare(options(section))
    with pytest.raises(RecordsError, match=r"data\.images_per_shard: 5, but it is now 3"):
        prepare(options(section, images_per_shard=3))
    small = {"size": 16, "resize": 16, "store_side": 30}
    with pytest.raises(RecordsError, match=r"data\.image\.store_side: None, but it is now 30"):
        prepare(options(section, image=small))
    with pytest.raises(RecordsError, match=r"data\.source\.splits: splits\.csv, .* now None"):
        prepare(options(section | {"splits": None}))
    moved = tmp_path / "elsewhere"
    (tmp_path / "photos").rename(moved)
    prepare(options(section | {"root": str(moved)}))
    path = moved / "captions.csv"
    path.write_text(path.read_text("utf-8").replace("dog", "wolf"), "utf-8")
    with pytest.raises(RecordsError, match="other images or captions"):
        prepare(options(section | {"root": str(moved)}))


def test_unfinished_records_of_something_else_are_refused(options):
    made = options()
    other = made.model_copy(update={"images_per_shard": 3})
    prepare(made)
    (made.records / MANIFEST).unlink()
    with pytest.raises(RecordsError, match=r"data\.images_per_shard: 5, but it is now 3"):
        prepare(other)


@pytest.mark.parametrize("use", [lambda made: Records.open(made.records), prepare])
def test_records_of_another_version_are_refused(options, use):
    made = options()
    prepare(made)
    path = made.records / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"version": 2}), "utf-8")
    with pytest.raises(RecordsError, match=r"of version 2, but version \d+ is required\. Delete"):
        use(made)


def test_a_truncated_shard_is_named_and_can_be_written_again(options):
    made = options()
    records = prepare(made)
    shard = made.records / "train-00002.tfrecord"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-40])
    with pytest.raises(RecordsError, match=r"train-00002\.tfrecord is damaged: it has \d+ bytes"):
        records.split("train")
    shard.unlink()
    with pytest.raises(RecordsError, match="is missing; run the command `prepare`"):
        records.split("train")
    prepare(made)
    assert shard.read_bytes() == whole


def test_a_flipped_bit_is_found_when_the_record_is_read(options):
    made = options()
    split = prepare(made).split("train")
    shard = made.records / "train-00001.tfrecord"
    content = bytearray(shard.read_bytes())
    content[split.index.columns["offset"][6] + 60] ^= 4
    shard.write_bytes(bytes(content))
    split.read(5)
    with pytest.raises(RecordsError, match=r"train-00001\.tfrecord .*'photo_006\.jpg'"):
        split.read(6)


class TestChangedFiles:
    """Changed files other than shards are not used, and can be written again."""

    @pytest.fixture
    def made(self, options):
        section = {"name": "scenes", "train": 6, "val": 0, "test": 4}
        made = options(section, images_per_shard=3)
        prepare(made)
        return made

    @pytest.mark.parametrize(
        ("name", "use"),
        [
            ("words.tsv", lambda records: dict(records.word_counts())),
            ("test-truth.npz", lambda records: records.truth("test")),
        ],
    )
    def test_files_of_all_shards(self, made, name, use):
        path = made.records / name
        whole = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(RecordsError, match=rf"{name} is not as it was written; delete"):
            use(Records.open(made.records))
        path.unlink()
        with pytest.raises(RecordsError, match=rf"{name} is missing; delete manifest\.json"):
            use(Records.open(made.records))
        assert use(prepare(made))
        assert path.read_bytes() == whole

    @pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b'{"version": 3'])
    def test_a_damaged_manifest_has_a_way_out(self, made, content):
        path = made.records / MANIFEST
        whole = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(RecordsError, match=rf"{MANIFEST} is damaged .*; delete it and run"):
            Records.open(made.records)
        path.unlink()
        prepare(made)
        assert path.read_bytes() == whole

    @pytest.mark.parametrize("damage", ["cut off", "a flipped bit", "another shard's"])
    def test_a_damaged_description_has_a_way_out(self, made, damage):
        path = made.records / "train-00000.npz"
        whole = path.read_bytes()
        content = {"cut off": whole[:-50], "a flipped bit": bytearray(whole)}.get(damage)
        if damage == "a flipped bit":
            content[len(whole) // 2] ^= 8
        path.write_bytes(content or (made.records / "train-00001.npz").read_bytes())
        for use in (lambda: Records.open(made.records).split("train"), lambda: prepare(made)):
            with pytest.raises(RecordsError, match=rf"{path.stem}.*[dD]elete"):
                use()
        path.unlink()
        prepare(made).split("train")
        assert path.read_bytes() == whole


def test_records_are_the_same_bytes_in_every_process():
    record = serialize(Entry("ä.jpg", "train", ()), RegionArray(np.ones((2, 3))))
    names = tf.train.Example.FromString(record).features.feature
    assert len(names) == 3
    # The fields are a map, whose order is drawn anew in every process if nothing sorts it.
    places = [record.index(name.encode()) for name in sorted(names)]
    assert places == sorted(places)


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 3_000, 5_000])
def test_files_that_may_not_grow_lose_nothing(options, tmp_path, size):
    """The system itself refuses to write on, in whichever file comes first."""
    made = options()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(RecordsError, match=r"disk of .* is full"):
            prepare(made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(made.records.rglob(".*"))
    prepare(made)
    whole = made.model_copy(update={"records": tmp_path / "whole"})
    prepare(whole)
    assert visible(made.records) == visible(whole.records)


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (datasets.coco, "annotations/captions_val2014.json", r"cocodataset\.org"),
        (datasets.coco, "annotations/instances_val2014.json", r"data\.source\.instances=\[\] does"),
        (datasets.coco, "dataset.json", r"data\.source\.split_file=null takes"),
        (datasets.flickr30k, "dataset.json", r"docs/how_to/reproduce\.md .*DenotationGraph"),
        (datasets.cub, "testclasses.txt", r"data\.caltech\.edu/records/65de6-vp158$"),
        (datasets.cub, "images.txt", "CUB-200-2011"),
        (datasets.regions, "train_ims.npy", r"docs/how_to/reproduce\.md .*kuanghuei/SCAN"),
        (datasets.regions, "train_caps.txt", "one caption per line"),
        (datasets.bottom_up, "features.tsv.0", r"docs/how_to/data\.md shows"),
        (datasets.csv_photos, "captions.csv", r"docs/how_to/data\.md shows"),
    ],
)
def test_a_missing_file_comes_with_where_to_get_it(options, tmp_path, make, name, says):
    section = make(tmp_path / "data")
    (tmp_path / "data" / name).unlink()
    with pytest.raises(SourceError, match=rf"{name} does not exist; it should hold .*{says}"):
        prepare(options(section))


def test_a_missing_file_of_judgements_is_told_before_records_are_written(options, tmp_path):
    made = options(training_judgements=tmp_path / "judged.csv")
    with pytest.raises(
        SourceError, match=r"data\.training_judgements: .*judged\.csv does not exist"
    ):
        prepare(made)
    assert not made.records.exists()


def test_missing_photos_come_with_where_to_get_them(options, tmp_path):
    section = datasets.coco(tmp_path / "data")
    for folder in ("train2014", "val2014"):
        shutil.rmtree(tmp_path / "data" / folder)
    with pytest.raises(
        SourceError, match=r"6 of 6 images .*(?s:.*)\n.*cocodataset.*\nRepair them$"
    ):
        prepare(options(section))


def test_photos_under_other_names_are_few_examples_and_one_of_a_file(options, tmp_path):
    section = datasets.csv_photos(tmp_path)
    for path in (tmp_path / "images").iterdir():
        path.rename(path.with_suffix(".JPG"))
    with pytest.raises(SourceError, match=r"^24 of 24 images (?s:.*)\nRepair them$") as told:
        prepare(options(section))
    assert str(told.value).count(".jpg does not exist\n") == 10
    assert "\n  and 14 more\n" in str(told.value)
    assert re.search(r"images has files such as photo_\d+\.JPG: captions name", str(told.value))


class TestBadItems:
    """One bad item among many is skipped, counted and reported, up to the limit."""

    @pytest.fixture
    def photos(self, tmp_path):
        section = datasets.csv_photos(tmp_path / "photos")
        images = tmp_path / "photos" / "images"
        good = (images / "photo_001.jpg").read_bytes()
        (images / "photo_001.jpg").write_bytes(good[: len(good) // 2])
        (images / "photo_002.jpg").write_text("this is not an image", "utf-8")
        (images / "photo_003.jpg").unlink()
        return section

    def test_they_are_skipped_and_counted(self, options, photos):
        made = options(photos)
        records = prepare(made)
        assert len(records.split("train")) == 13
        report = data_report(records, TextOptions(min_count=1))
        assert report.problems == {"unreadable image": 3}
        text = str(report)
        assert "skipped: 3 x unreadable image" in text
        examples = " ".join(report.examples["unreadable image"])
        for name in ("photo_001.jpg is a broken", "photo_002.jpg is not an", "photo_003.jpg does"):
            assert name in examples

    def test_a_few_stop_no_run_unless_none_is_allowed(self, options, photos):
        assert len(prepare(options(photos, max_skipped=0.01)).split("train")) == 13
        shutil.rmtree(options(photos).records)
        with pytest.raises(SourceError, match=r"^3 of 24 images cannot be used, and 0 may be left"):
            prepare(options(photos, max_skipped=0))

    def test_too_many_are_named_at_once_with_what_goes_on(self, options, photos, tmp_path):
        for number in range(4, 9):
            (tmp_path / f"photos/images/photo_{number:03d}.jpg").write_bytes(b"")
        with pytest.raises(SourceError) as told:
            prepare(options(photos, max_skipped=0.1))
        assert str(told.value).startswith("8 of 24 images cannot be used, and 5 may be left out")
        for number in range(1, 9):
            assert f"photo_{number:03d}.jpg" in str(told.value)
        (setting,) = re.findall(r"--set data\.max_skipped=(\S+)$", str(told.value))
        records = prepare(options(photos, max_skipped=float(setting)))
        assert sum(len(records.split(split)) for split in ("train", "val", "test")) == 16

    @pytest.mark.slow
    def test_no_training_image_left_is_an_error_whatever_may_be_skipped(self, options, tmp_path):
        section = datasets.csv_photos(tmp_path / "photos")
        paths = sorted((tmp_path / "photos/images").iterdir())
        for path in paths[-4:]:
            path.write_bytes(b"")
        assert prepare(options(section, max_skipped=1)).splits == ["train", "val"]
        shutil.rmtree(options(section).records)
        for path in paths[:-4]:
            path.write_bytes(b"")
        with pytest.raises(SourceError, match=r"^24 of 24 images (?s:.*)\nRepair them$"):
            prepare(options(section, max_skipped=0.1))
        with pytest.raises(SourceError, match=r"no training image can be used\n(?s:.*)skipped: 24"):
            prepare(options(section, max_skipped=1))

    @pytest.mark.slow
    def test_names_do_not_command_the_terminal(self, options, tmp_path):
        section = datasets.csv_photos(tmp_path / "photos")
        names = ["a\nb.jpg", "\u202egpj.exe", "\x1b[31mred.jpg"]
        with (tmp_path / "photos/captions.csv").open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([name, "a dog"] for name in names)
        images = tmp_path / "photos/images"
        shutil.copy(images / "photo_000.jpg", images / names[0])
        shutil.copy(images / "photo_000.jpg", images / "copy\u202e.jpg")
        with (tmp_path / "photos/captions.csv").open("a", encoding="utf-8") as file:
            file.write("copy\u202e.jpg,a dog\n")
        own = section | {"splits": None, "val_share": 0.3, "test_share": 0.3}
        with pytest.raises(SourceError) as told:
            prepare(options(own, max_skipped=0))
        assert "?gpj.exe" in str(told.value)
        records = prepare(options(own, max_skipped=0.5))
        report = data_report(records, TextOptions(min_count=1))
        assert report.leaks, "the copies are in different splits"
        text = str(report)
        assert "evaluation.judgements='[identical_captions]'" not in text
        most = {name: replace(part, repeated_captions=2) for name, part in report.splits.items()}
        advised = str(replace(report, splits=most))
        assert "evaluation.judgements='[identical_captions]'" in advised
        for message in (str(told.value), text, str(Problems(Counter({"x": 1}), {"x": names}))):
            assert all(line.isprintable() for line in message.split("\n"))
        assert f"{names[0]}" not in text

    @pytest.mark.slow
    def test_a_second_start_counts_the_same(self, options, photos):
        first = data_report(prepare(options(photos)), TextOptions(min_count=1))
        assert data_report(prepare(options(photos)), TextOptions(min_count=1)) == first

    def test_captions_are_looked_after_too(self, options, tmp_path):
        section = datasets.csv_photos(tmp_path / "photos")
        with (tmp_path / "photos" / "captions.csv").open("a", encoding="utf-8") as file:
            file.write("photo_000.jpg,\n")
            file.write("photo_000.jpg, ... !\n")
            file.write("photo_000.jpg,🐕\n")
            file.write("photo_000.jpg,一只狗在雪地里\n")
            file.write(f"photo_000.jpg,{'very ' * 399}long\n")
            file.write("photo_000.jpg,too,many,fields\n")
            file.write("gone.jpg,a caption of a missing image\n")
        with (tmp_path / "photos" / "splits.csv").open("a", encoding="utf-8") as file:
            file.write("no_captions.jpg,train\n")
            file.write("photo_001.jpg,test\n")
            file.write("photo_002.jpg,holdout\n")
        records = prepare(options(section))
        report = data_report(records, TextOptions(min_count=1, max_words=40))
        assert report.problems == {
            "caption without words": 3,
            "malformed CSV row": 1,
            "image without a split": 1,
            "image without captions": 1,
            "image in two splits": 1,
            "unknown split": 1,
        }
        assert report.examples["caption without words"][1] == "photo_000.jpg: ' ... !'"
        assert "skipped: 3 x caption without words, such as photo_000.jpg: ''" in str(report)
        assert "report.json in the folder of the records names them" in str(report)
        assert report.splits["train"].cut == 1
        assert report.splits["train"].words[-1] == 400

    def test_ids_given_twice_are_counted(self, options, tmp_path):
        section = datasets.coco(tmp_path / "coco")
        path = tmp_path / "coco" / "annotations" / "captions_train2014.json"
        content = json.loads(path.read_bytes())
        content["images"].append(content["images"][0])
        content["annotations"].append(content["annotations"][0])
        content["annotations"].append({"id": 1, "image_id": 12345, "caption": "a dog"})
        path.write_text(json.dumps(content), "utf-8")
        report = data_report(prepare(options(section)), TextOptions(min_count=1))
        assert report.problems == {
            "duplicate image id": 1,
            "duplicate caption key": 1,
            "caption of an unknown image": 1,
        }

    def test_files_outside_of_the_root_are_not_read(self, options, tmp_path):
        section = datasets.csv_photos(tmp_path / "photos")
        secret = tmp_path / "secret.jpg"
        secret.write_bytes(datasets.encoded(datasets.picture(1)))
        with (tmp_path / "photos" / "captions.csv").open("a", encoding="utf-8") as file:
            file.write("../../secret.jpg,a secret\n")
            file.write(f"{secret},another\n")
        with (tmp_path / "photos" / "splits.csv").open("a", encoding="utf-8") as file:
            file.write(f"../../secret.jpg,train\n{secret},train\n")
        report = data_report(prepare(options(section)), TextOptions(min_count=1))
        assert report.problems == {"unreadable image": 2}
        assert all("outside of" in text for text in report.examples["unreadable image"])


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (datasets.coco, "annotations/captions_val2014.json", "not valid JSON"),
        (datasets.flickr30k, "dataset.json", "not valid JSON"),
        (datasets.regions, "train_ims.npy", "not a complete .npy"),
    ],
)
def test_annotations_that_are_cut_off_are_named(options, tmp_path, make, name, says):
    section = make(tmp_path / "data")
    path = tmp_path / "data" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SourceError, match=says):
        prepare(options(section))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('image,caption\na.jpg,"never closed\n', "not valid CSV"),
        ("a.jpg;a dog\n", "no column 'image'"),
        ("", "no column 'image'"),
        ("image,caption\n\xff\xfe\n", "not UTF-8"),
        ("image,caption,caption\na.jpg,a dog,a cat\n", "has two columns 'caption'; rename or"),
        (f"image,caption\na.jpg,{'x' * 131_073}\n", "longer than 131,072 characters: shorten it"),
    ],
)
def test_malformed_csv_is_explained(options, tmp_path, text, says):
    section = datasets.csv_photos(tmp_path / "photos")
    (tmp_path / "photos" / "captions.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError, match=says):
        prepare(options(section))


def test_report_finds_duplicates_and_leaks(options, tmp_path):
    section = datasets.csv_photos(tmp_path / "photos")
    images = tmp_path / "photos" / "images"
    for copy, original in (("photo_005.jpg", "photo_004.jpg"), ("photo_023.jpg", "photo_004.jpg")):
        (images / copy).write_bytes((images / original).read_bytes())
    made = options(section)
    report = data_report(prepare(made), TextOptions(min_count=2))
    assert report.splits["train"].duplicates == [["photo_004.jpg", "photo_005.jpg"]]
    assert report.leaks == [["train: photo_004.jpg", "train: photo_005.jpg", "test: photo_023.jpg"]]
    assert "LEAKS: 1" in str(report)
    written = json.loads((made.records / "report.json").read_bytes())
    assert written["splits"]["val"]["images"] == 4
    assert report.vocabulary <= report.distinct_words


@pytest.mark.slow
def test_report_counts_captions_without_known_words(options, tmp_path):
    section = datasets.csv_photos(tmp_path / "photos")
    with (tmp_path / "photos" / "captions.csv").open("a", encoding="utf-8") as file:
        file.write("photo_023.jpg,xylophone quartet\n")
    report = data_report(prepare(options(section)), TextOptions(min_count=1))
    assert report.splits["test"].without_known_words == 1
    assert 0 < report.splits["test"].unknown_words < 0.2
    assert "UNKNOWN LANGUAGE" not in str(report)
    assert report.splits["train"].unknown_words == 0


def test_captions_that_the_text_encoder_cannot_read_are_a_warning(options):
    records, of_text = prepare(options()), TextOptions(min_count=1, max_words=2)
    says = str(data_report(records, of_text, WordTokenizer([*SPECIAL, "cheval"], 2)))
    assert "UNKNOWN LANGUAGE: 32 of 32 captions of train have no word" in says
    assert "model.text.encoder.preset" in says
    assert "TRUNCATED: 32 of 32 captions of train have more than 2 word pieces; increase " in says
    says = str(data_report(records, of_text, WordTokenizer([*SPECIAL, "cheval"], 1)))
    assert "the text encoder reads no more (data.text.max_words: 2)" in says
    says = str(data_report(records, of_text))
    assert "UNKNOWN LANGUAGE" not in says
    assert "more than 2 words; increase data.text.max_words, which is 2" in says
    assert "TRUNCATED" not in str(data_report(records, TextOptions(min_count=1)))
