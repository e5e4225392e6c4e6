"""Tar, Parquet and Arrow files, as img2dataset and `datasets` write them."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.photo_files import UnreadableError
from data_pipelines.prepare import prepare
from data_pipelines.sources import AnySource, Problems, SourceError
from data_pipelines.sources.base import (
    draw_split,
)

PHOTOS = [datasets.encoded(datasets.picture(number)) for number in range(6)]
TEXTS = [f"{datasets.sentence(number)} ü" for number in range(6)]


def key_of(number: int) -> str:
    """As img2dataset numbers them: five digits of the file, four of the image."""
    return f"00000{number:04d}"


def write_tar(path: Path, numbers: range, **changed: bytes | None) -> None:
    """A file of img2dataset; `changed` has other contents of files, or None for no such file."""
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            about = {"key": key_of(number), "caption": TEXTS[number], "width": 60, "height": 44}
            files = {"jpg": PHOTOS[number], "txt": TEXTS[number], "json": json.dumps(about)}
            for kind, content in files.items():
                name = f"{key_of(number)}.{kind}"
                data = changed.get(f"{kind}{number}", content)
                if data is not None:
                    member = tarfile.TarInfo(name)
                    data = data.encode() if isinstance(data, str) else data
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def columns(numbers: range) -> dict[str, list]:
    """The columns of a Parquet file of img2dataset. What could not be downloaded has no image."""
    return {
        "url": [f"https://example.org/{number}" for number in numbers],
        "key": [key_of(number) for number in numbers],
        "caption": [TEXTS[number] for number in numbers],
        "status": ["success"] * len(numbers),
        "jpg": [PHOTOS[number] for number in numbers],
    }


def write_arrow(path: Path, numbers: range) -> None:
    """A file that `save_to_disk` writes, where images are pairs and have several captions."""
    path.parent.mkdir()
    table = pa.table(
        {
            "image": [{"bytes": PHOTOS[number], "path": None} for number in numbers],
            "caption": [[TEXTS[number], f"{TEXTS[number]} again"] for number in numbers],
        }
    )
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def read(name, root, **options):
    """The entries of a source by their keys, with their images, and what was skipped."""
    section = {"name": name, "root": str(root), "val_share": 0, "test_share": 0} | options
    source, problems = TypeAdapter(AnySource).validate_python(section), Problems()
    entries = {entry.key: entry for entry in source.entries(problems)}
    return source, entries, problems


def test_tar_files_are_read_by_offset(tmp_path):
    write_tar(tmp_path / "00000.tar", range(4))
    write_tar(tmp_path / "00001.tar", range(4, 6), txt4=None)
    (tmp_path / "00000_stats.json").write_text("{}")
    source, entries, problems = read("webdataset", tmp_path)
    assert list(entries) == [key_of(number) for number in range(6)]
    # The last but one has its caption in the JSON file alone.
    assert [entry.captions[0].text for entry in entries.values()] == TEXTS
    assert [source.read(entry).data for entry in entries.values()] == PHOTOS
    assert problems.total == 0


def test_parts_of_tar_files_that_cannot_be_used_are_counted(tmp_path):
    odd = {"jpg0": None, "txt1": None, "json1": "[]", "txt2": b"\xff\xfe", "json3": "{", "txt4": ""}
    write_tar(tmp_path / "00000.tar", range(6), **odd)
    _, entries, problems = read("webdataset", tmp_path)
    assert list(entries) == [key_of(number) for number in (3, 4, 5)]
    assert problems.counts == {"item without an image": 1, "malformed caption": 2}
    (tmp_path / "00001.tar").write_bytes(b"\x1f\x8b no tar")
    whole = (tmp_path / "00000.tar").read_bytes()
    (tmp_path / "00002.tar").write_bytes(whole[: whole.index(PHOTOS[5]) + 9])
    source, entries, problems = read("webdataset", tmp_path, train="0000[12].tar")
    assert problems.counts["damaged tar file"] >= 1
    last = [entry for entry in entries.values() if entry.key == key_of(5)]
    for entry in last:
        with pytest.raises(UnreadableError, match="ends within an image"):
            source.read(entry)


@pytest.mark.parametrize("left", [0, 100, 512, 700])
def test_a_tar_file_that_ends_within_a_header_is_counted(tmp_path, left):
    path = tmp_path / "00000.tar"
    write_tar(path, range(6))
    with tarfile.open(path) as tar:
        starts = [member.offset for member in tar if member.name == f"{key_of(3)}.jpg"]
    whole = path.read_bytes()
    path.write_bytes(whole[: starts[0] + left])
    _, entries, problems = read("webdataset", tmp_path)
    assert list(entries)[:3] == [key_of(number) for number in range(3)]
    assert problems.counts == {"damaged tar file": 1}
    path.write_bytes(whole[: starts[0]] + b"no header" + whole[starts[0] + 9 :])
    _, entries, problems = read("webdataset", tmp_path)
    assert (len(entries), problems.counts) == (3, {"damaged tar file": 1})
    assert "without an end-of-archive block" in problems.examples["damaged tar file"][0]


def test_padding_after_the_end_of_a_tar_file_does_not_matter(tmp_path):
    path = tmp_path / "00000.tar"
    write_tar(path, range(2))
    path.write_bytes(path.read_bytes().rstrip(b"\0") + bytes(2048))
    with tarfile.open(path) as tar:
        end = tar.getmembers() and tar.offset
    for size in (end + 512, end + 1024, end + 5000):
        path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))
        _, entries, problems = read("webdataset", tmp_path)
        assert (len(entries), problems.total) == (2, 0)


def test_a_tar_file_that_is_not_one_archive_of_files_is_counted(tmp_path):
    path, other = tmp_path / "00000.tar", tmp_path / "other"
    write_tar(path, range(2))
    write_tar(other, range(2, 4))
    for content, count, says in (
        (path.read_bytes() + other.read_bytes(), 2, "goes on after the end of its archive"),
        (bytes(20480), 0, "holds no files"),
    ):
        path.write_bytes(content)
        _, entries, problems = read("webdataset", tmp_path)
        assert (len(entries), problems.counts) == (count, {"damaged tar file": 1})
        assert says in problems.examples["damaged tar file"][0]


def test_a_tar_file_that_was_changed_is_no_image(tmp_path):
    path = tmp_path / "00000.tar"
    write_tar(path, range(2))
    source, entries, _ = read("webdataset", tmp_path)
    path.write_bytes(bytes(100))
    with pytest.raises(UnreadableError, match=r"00000\.tar cannot be read"):
        source.read(entries[key_of(1)])


def test_rows_of_parquet_files(tmp_path):
    table = columns(range(6))
    table["jpg"][2], table["caption"][3] = None, None
    pq.write_table(pa.table(table), tmp_path / "00000.parquet", row_group_size=4)
    source, entries, _ = read("parquet", tmp_path, key_column="key")
    assert list(entries) == table["key"]
    assert [len(entry.captions) for entry in entries.values()] == [1, 1, 1, 0, 1, 1]
    for number in (5, 0, 1, 4, 3, 1):
        assert source.read(entries[key_of(number)]).data == PHOTOS[number]
    with pytest.raises(UnreadableError, match=r"row 2 of 00000\.parquet holds no image"):
        source.read(entries[key_of(2)])


def test_a_parquet_file_without_the_columns_names_those_it_has(tmp_path):
    pq.write_table(pa.table({"image": [b""], "caption": ["a dog"]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"no column 'jpg', but 'image', 'caption'; .*image_colu"):
        read("parquet", tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing")
    assert read("parquet", tmp_path)[2].counts == {"damaged Parquet file": 1}


@pytest.mark.parametrize("value", ["photo.jpg", 3, 1.5, [1], {"path": "photo.jpg"}, None])
def test_a_column_without_bytes_is_no_column_of_images(tmp_path, value):
    table = pa.table({"jpg": [value] * 4, "caption": ["a dog"] * 4})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"column 'jpg' of .*a\.parquet holds .*\.image_column"):
        read("parquet", tmp_path)


def test_data_sets_that_were_saved_by_datasets(tmp_path):
    write_arrow(tmp_path / "train" / "data-00000-of-00001.arrow", range(5))
    write_arrow(tmp_path / "test" / "data-00000-of-00001.arrow", range(5, 6))
    source, entries, _ = read("huggingface", tmp_path, test="test/*.arrow")
    assert [entry.split for entry in entries.values()] == ["train"] * 5 + ["test"]
    assert [source.read(entry).data for entry in entries.values()] == PHOTOS
    fourth = entries["train/data-00000-of-00001.arrow/000000003"]
    assert [caption.text for caption in fourth.captions] == [TEXTS[3], f"{TEXTS[3]} again"]
    assert len({caption.key for e in entries.values() for caption in e.captions}) == 12


def test_their_records_hold_the_images(tmp_path):
    pq.write_table(pa.table(columns(range(6))), tmp_path / "00000.parquet")
    section = {"name": "parquet", "root": str(tmp_path), "val_share": 0.0, "test_share": 0.0}
    options = DataOptions(
        source=section | {"key_column": "key"},
        records=tmp_path / "records",
        images_per_shard=4,
        prepare=PrepareOptions(workers=1),
    )
    split = prepare(options).split("train")
    assert split.texts == TEXTS
    assert [split.encoded(number) for number in range(6)] == PHOTOS


def test_splits_of_their_own_or_by_a_hash(tmp_path):
    write_tar(tmp_path / "a.tar", range(4))
    write_tar(tmp_path / "b.tar", range(4, 6))
    _, entries, _ = read("webdataset", tmp_path, val_share=0.3, test_share=0.3)
    expected = [draw_split(key_of(number), 0.3, 0.3) for number in range(6)]
    assert [entry.split for entry in entries.values()] == expected
    _, entries, _ = read("webdataset", tmp_path, train="a.tar", val="b.tar", val_share=0.9)
    assert [entry.split for entry in entries.values()] == ["train"] * 4 + ["val"] * 2
    for pattern, says in (
        ("c*.tar", r"no file in .* matches c\*\.tar"),
        ("../*.tar", "leads out of"),
    ):
        with pytest.raises(SourceError, match=says):
            read("webdataset", tmp_path, train=pattern)


def test_without_pyarrow_its_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"pip install .*\[parquet\]"):
        read("parquet", tmp_path)
