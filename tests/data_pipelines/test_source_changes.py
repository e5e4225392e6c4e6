"""Records are compared with their source before they are used."""

from __future__ import annotations

import os
import re
import shutil
import time

import datasets
import models
import numpy as np
import pytest

from data_pipelines import source_changes
from data_pipelines.options import MANIFEST, DataOptions
from data_pipelines.prepare import prepare
from data_pipelines.shards import RecordsError
from data_pipelines.source_changes import source_change
from keras_xmr.experiments.experiment import Experiment

MAKERS = {
    make.__name__: make
    for make in (
        *(datasets.csv_photos, datasets.photo_folder, datasets.coco, datasets.flickr30k),
        *(datasets.cub, datasets.regions, datasets.bottom_up),
    )
}


@pytest.fixture
def options(tmp_path):
    """Options for a source, of which every file is older than records."""

    def make(name):
        section = MAKERS[name](tmp_path / "data")
        made = DataOptions(source=section, records=tmp_path / "data" / "records")
        return made, prepare(made)

    return make


def age(options, seconds):
    """Makes records younger or older than they are, as the clock of a file system is coarse."""
    then = time.time() + seconds
    os.utime(options.records / MANIFEST, (then, then))


def change_of(options, records):
    age(options, -3600)
    return source_change(options, records)


@pytest.mark.parametrize("name", MAKERS)
def test_a_source_that_is_as_it_was_is_read_once(options, name, monkeypatch):
    made, records = options(name)
    assert change_of(made, records) is None
    age(made, 5)
    monkeypatch.setattr(source_changes, "_compare", lambda *_: pytest.fail("it was read again"))
    assert source_change(made, records) is None


def test_rows_that_were_added_and_photos_that_are_gone_are_told(options, tmp_path):
    made, records = options("csv_photos")
    captions = tmp_path / "data" / "captions.csv"
    before = captions.read_text()
    captions.write_text(before + "photo_000.jpg,another caption\n")
    assert change_of(made, records).endswith("train has 33 captions, not 32")
    images = tmp_path / "data" / "images"
    for number in range(3):
        shutil.copy(images / "photo_000.jpg", images / f"more_{number}.jpg")
    more = "".join(f"more_{number}.jpg,a dog\n" for number in range(3))
    captions.write_text(before + more)
    (tmp_path / "data" / "splits.csv").open("a").write(more.replace("a dog", "train"))
    assert "train has 19 images, not 16, train has 35 captions, not 32" in change_of(made, records)
    captions.write_text(before)
    (images / "photo_003.jpg").unlink()
    assert "1 of the images are gone, such as photo_003.jpg" in change_of(made, records)
    assert "has changed since" in change_of(made, records), "it is told each time"


def other_photo(images):
    (images / "photo_002.jpg").write_bytes(datasets.encoded(datasets.picture(99)))


def swapped(images):
    """Two files of equal size and time, which change places."""
    paths = [images / f"photo_00{number}.jpg" for number in (2, 4)]
    shutil.move(paths[0], images / "moved")
    shutil.move(paths[1], paths[0])
    shutil.move(images / "moved", paths[1])


def garbage(images):
    (images / "photo_002.jpg").write_bytes(b"no photo")


def repaired(images):
    (images / "photo_009.jpg").write_bytes(datasets.encoded(datasets.picture(9)))


def touched(images):
    for path in images.iterdir():
        os.utime(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "count"), [(other_photo, 1), (swapped, 2), (garbage, 1), (repaired, 1), (touched, 0)]
)
def test_other_contents_under_the_same_names_are_told(tmp_path, change, count):
    section = datasets.csv_photos(tmp_path / "data")
    images = tmp_path / "data" / "images"
    size = max(path.stat().st_size for path in images.iterdir())
    for path in images.iterdir():
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
        os.utime(path, (1e9, 1e9))
    (images / "photo_009.jpg").write_bytes(b"broken")
    made = DataOptions(source=section, records=tmp_path / "records", images_per_shard=5)
    records = prepare(made)
    time.sleep(1.1)  # Records are dated a second back, so that no change is missed.
    assert prepare(made).manifest == records.manifest
    assert source_change(made, records) is None
    change(images)
    if not count:
        assert source_change(made, records) is None
        assert prepare(made).manifest == records.manifest
        return
    says = rf"{count} of the images have other contents, such as photo_00[29]\.jpg$"
    for _ in range(2):
        assert re.search(says, source_change(made, records))
        with pytest.raises(RecordsError, match=r"contents of \d images, .* Delete it and run"):
            prepare(made)
    shutil.rmtree(made.records)
    assert source_change(made, prepare(made)) is None


def test_other_contents_of_a_file_of_many_images_are_told(options, tmp_path):
    made, records = options("regions")
    path = tmp_path / "data" / "train_ims.npy"
    features = np.load(path)
    np.save(path, features)
    assert change_of(made, records) is None
    features[1] += 1
    np.save(path, features)
    made = DataOptions.model_validate(made.model_dump())  # Without the mapped array.
    assert "1 of the images have other contents, such as train/1" in change_of(made, records)


def test_a_change_is_told_after_a_preparation_that_was_refused(options, tmp_path):
    made, records = options("csv_photos")
    with (tmp_path / "data" / "captions.csv").open("a") as file:
        file.write("photo_000.jpg,another caption\n")
    age(made, -3600)
    with pytest.raises(RecordsError, match="other images or captions"):
        prepare(made)
    assert "train has 33 captions" in source_change(made, records)


def test_a_change_of_one_text_beside_a_photo_is_told(options, tmp_path):
    made, records = options("photo_folder")
    text = tmp_path / "data" / "photo_0.txt"
    text.write_text(text.read_text().replace(" ", " very ", 1))
    assert change_of(made, records).endswith("images have other captions, labels or names")


def test_records_serve_without_their_source(options, tmp_path, caplog):
    made, records = options("csv_photos")
    (tmp_path / "data" / "images").rename(tmp_path / "images")
    assert change_of(made, records) is None
    (tmp_path / "data" / "captions.csv").unlink()
    assert change_of(made, records) is None
    assert "cannot be compared" in caplog.text
    made = made.model_copy(
        update={"source": made.source.model_copy(update={"root": tmp_path / "nowhere"})}
    )
    assert change_of(made, records) is None


def test_photos_behind_links_are_there(tmp_path):
    section = datasets.csv_photos(tmp_path / "data")
    images = tmp_path / "data" / "images"
    images.rename(tmp_path / "elsewhere")
    images.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "data")
    made = DataOptions(source=section, records=tmp_path / "records")
    assert change_of(made, prepare(made)) is None


def test_a_split_that_was_skipped_altogether_is_no_change(tmp_path):
    section = datasets.csv_photos(tmp_path / "data")
    for path in sorted((tmp_path / "data" / "images").iterdir())[-4:]:
        path.write_bytes(b"")
    made = DataOptions(source=section, records=tmp_path / "records", max_skipped=1)
    assert change_of(made, prepare(made)) is None


@pytest.mark.slow
def test_a_training_does_not_begin_on_records_of_other_data(tmp_path, caplog):
    section = datasets.csv_photos(tmp_path / "photos")
    config = models.tiny_config(tmp_path, f"data.source={section}".replace("'", '"'))
    Experiment(config).prepare()
    with (tmp_path / "photos" / "captions.csv").open("a") as file:
        file.write("photo_000.jpg,another caption\n")
    age(config.data, -3600)
    with pytest.raises(RecordsError, match=r"photos has changed since .* Delete .*records and"):
        Experiment(config).train()
    run = Experiment(config)
    run.folder.checkpoints.mkdir(parents=True)
    (run.folder.checkpoints / "checkpoint").touch()
    assert len(run.records.split("train")) == 16
    assert "has changed since" in caplog.text
    assert "uses the records that it began with" in caplog.text
