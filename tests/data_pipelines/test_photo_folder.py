"""Photos with their captions beside them."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest
from pydantic import TypeAdapter

from data_pipelines.options import DataOptions
from data_pipelines.prepare import prepare
from data_pipelines.sources import AnySource, Problems, SourceError


def read(section):
    """The source, its entries by key, and the problems found."""
    source, problems = TypeAdapter(AnySource).validate_python(section), Problems()
    return source, {entry.key: entry for entry in source.entries(problems)}, problems


def texts(entry):
    return [caption.text for caption in entry.captions]


def test_captions_stand_beside_the_photos(tmp_path):
    section = datasets.photo_folder(tmp_path)
    source, entries, problems = read(section)
    names = [f"photo_{number}.jpg" for number in (0, 1, 3, 4)]
    assert list(entries) == [*names, "more/photo_2.jpg", "more/photo_5.jpg"]
    for key, entry in entries.items():
        number = int(Path(key).stem[-1])
        assert [*map(str.strip, texts(entry))] == [
            datasets.sentence(100 * number).strip(),
            datasets.sentence(100 * number + 1).strip(),
        ]
        assert source.read(entry).data == datasets.encoded(datasets.picture(number))
    assert problems.total == 0


def test_folders_of_img2dataset_and_of_generators(tmp_path):
    photo = datasets.encoded(datasets.picture(0))
    (tmp_path / "00000").mkdir()
    for name in ("00000/000000000.jpg", "a.b.JPG", "both.png", "both.jpg"):
        (tmp_path / name).write_bytes(photo)
    (tmp_path / "00000" / "000000000.txt").write_text("a dog")
    (tmp_path / "00000" / "000000000.json").write_text('{"caption": "a dog", "status": "success"}')
    (tmp_path / "00000_stats.json").write_text('{"count": 1}')
    (tmp_path / "a.b.caption").write_bytes(b"\xef\xbb\xbfa cat\r\n\r\n it sleeps \r\n")
    (tmp_path / "both.json").write_text('{"caption": "a tree"}')
    (tmp_path / ".hidden.txt").write_text("nothing")
    _, entries, problems = read({"name": "photo_folder", "root": str(tmp_path)})
    assert {key: texts(entry) for key, entry in entries.items()} == {
        "a.b.JPG": ["a cat", "it sleeps"],
        "both.jpg": ["a tree"],
        "both.png": ["a tree"],
        "00000/000000000.jpg": ["a dog"],
    }
    assert problems.total == 0


def test_what_cannot_be_used_is_counted_and_named(tmp_path):
    section = datasets.photo_folder(tmp_path, images=12)
    (tmp_path / "photo_0.txt").unlink()
    (tmp_path / "photo_1.json").write_text('{"caption"')
    (tmp_path / "photo_3.json").write_text('["a dog"]')
    (tmp_path / "photo_4.txt").write_bytes("a caf\xe9".encode("latin-1"))
    (tmp_path / "photo_6.txt").write_text("\n \n")
    (tmp_path / "photo_7.jpg").unlink()
    (tmp_path / "photo_9.json").unlink()
    (tmp_path / "photo_9.txt").symlink_to("/etc/hostname")
    (tmp_path / "photo_10.jpg").write_bytes(b"no photo")
    (tmp_path / "alone.txt").write_text("a dog")
    records = prepare(DataOptions(source=section, records=tmp_path / "records", max_skipped=0.2))
    found = records.manifest["problems"]
    assert found["counts"] == {
        "image without captions": 1,
        "unreadable caption file": 4,
        "empty caption file": 1,
        "caption file without a photo": 2,
        "unreadable image": 1,
    }
    assert found["examples"]["caption file without a photo"] == ["alone.txt", "photo_7.json"]
    broken = "\n".join(found["examples"]["unreadable caption file"])
    for says in ("photo_1.json: Expecting", "photo_3.json: it is not a JSON object with the key"):
        assert says in broken
    for says in ("photo_4.txt: 'utf-8' codec can't decode", "photo_9.txt' points outside of"):
        assert says in broken
    assert records.split("train").image_keys == [f"more/photo_{n}.jpg" for n in (11, 2, 5, 8)]


def test_splits_are_those_of_a_file_or_of_a_hash(tmp_path):
    section = datasets.photo_folder(tmp_path)
    rows = [["photo_0.jpg", "test"], ["more/photo_2.jpg", "dev"], ["gone.jpg", "train"]]
    datasets.write_csv(tmp_path / "splits.csv", ["image", "split"], rows)
    _, entries, problems = read(section | {"splits": "splits.csv"})
    assert {key: entry.split for key, entry in entries.items()} == {
        "photo_0.jpg": "test",
        "more/photo_2.jpg": "val",
    }
    assert problems.counts == {"image without a split": 4, "missing photo of the split file": 1}
    hashed = {"val_share": 0.4, "test_share": 0.3}
    before = {key: entry.split for key, entry in read(section | hashed)[1].items()}
    (tmp_path / "photo_0.jpg").rename(tmp_path / "new.jpg")
    after = {key: entry.split for key, entry in read(section | hashed)[1].items()}
    assert len(set(before.values())) > 1
    assert before | after == after | {"photo_0.jpg": before["photo_0.jpg"]}


def test_captions_keep_their_ids_when_others_are_added(tmp_path):
    section = datasets.photo_folder(tmp_path)
    keys = [caption.key for caption in read(section)[1]["photo_1.jpg"].captions]
    path = tmp_path / "photo_1.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({"captions": ["new", *told["captions"]]}))
    assert [caption.key for caption in read(section)[1]["photo_1.jpg"].captions][1:] == keys


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(SourceError, match=r"gone is not a folder; it should hold photos"):
        read({"name": "photo_folder", "root": str(tmp_path / "gone")})
