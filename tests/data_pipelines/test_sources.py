"""Every source reads the files that users have."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from pydantic import TypeAdapter

from data_pipelines.photo_files import UnreadableError
from data_pipelines.sources import AnySource, EncodedImage, Problems, RegionArray, SourceError
from keras_xmr.judgements import read_ground_truth

MINI = Path(__file__).parent.parent.parent.parent / "shared" / "flickr8k_mini"


def read(section):
    """The source, its entries by split, and the problems found."""
    source = TypeAdapter(AnySource).validate_python(section)
    problems = Problems()
    splits = {"train": [], "val": [], "test": []}
    for entry in source.entries(problems):
        splits[entry.split].append(entry)
    return source, splits, problems


def test_a_folder_may_be_named_from_home(tmp_path, monkeypatch):
    section = datasets.csv_photos(tmp_path / "photos")
    monkeypatch.setenv("HOME", str(tmp_path))
    _, splits, _ = read(section | {"root": "~/photos"})
    assert len(splits["val"]) == 4


def test_coco_takes_the_order_and_splits_of_karpathy(tmp_path):
    source, splits, problems = read(datasets.coco(tmp_path))
    assert [e.key for e in splits["train"]] == ["25", "73", "41"]  # 73 is restval
    assert [e.key for e in splits["test"]] == ["9", "32"]
    assert [e.key for e in splits["val"]] == ["80"]
    first = splits["train"][0]
    assert len(first.captions) == 5
    assert first.labels == (1, 2)  # categories 5 and 90 of 2, 5, 90
    assert isinstance(source.read(splits["val"][0]), EncodedImage)
    assert not problems.total


def test_coco_can_leave_restval_out_and_do_without_a_split_file(tmp_path):
    section = datasets.coco(tmp_path)
    _, splits, _ = read(section | {"restval": False})
    assert [e.key for e in splits["train"]] == ["25", "41"]
    _, splits, _ = read(section | {"split_file": None, "instances": []})
    assert [len(splits[s]) for s in ("train", "val", "test")] == [4, 2, 0]
    assert splits["train"][0].labels == ()


def test_coco_can_take_the_first_captions_of_the_split_file(tmp_path):
    section = datasets.coco(tmp_path) | {"captions_per_image": 2}
    path = tmp_path / section["split_file"]
    content = json.loads(path.read_text("utf-8"))
    content["images"][0]["sentences"] = [
        {"sentid": number, "raw": "a dog"} for number in (1024, 1018, 1030)
    ]
    path.write_text(json.dumps(content), "utf-8")
    _, splits, _ = read(section)
    assert [caption.key for caption in splits["train"][0].captions] == ["1024", "1018"]
    # The captions of the annotations are in another order, and of photo 73 the file lists none.
    assert [caption.key for caption in splits["train"][1].captions] == ["1075", "1072"]


def test_flickr30k_reads_captions_from_the_split_file(tmp_path):
    source, splits, _ = read(datasets.flickr30k(tmp_path))
    assert [e.key for e in splits["train"]] == ["0.jpg", "2.jpg", "4.jpg"]
    assert [c.key for c in splits["test"][0].captions] == ["5", "6", "7", "8", "9"]
    assert source.read(splits["val"][0]).data.startswith(b"\xff\xd8")


def test_flickr8k_is_read_as_it_was_released(tmp_path):
    source, splits, problems = read(datasets.flickr8k(tmp_path))
    assert [e.key for e in splits["train"]] == ["train_0.jpg", "train_1.jpg", "train_2.jpg"]
    assert [e.key for e in splits["val"]] == ["dev_0.jpg"]
    assert [e.key for e in splits["test"]] == ["test_0.jpg", "test_1.jpg"]
    keys = [caption.key for caption in splits["test"][1].captions]
    assert keys == [f"test_1.jpg#{k}" for k in range(5)]
    assert source.read(splits["val"][0]).data.startswith(b"\xff\xd8")
    # Also 92 of the released photos are in none.
    assert problems.counts == {"photo in none of the files of names": 2}
    assert set(source.judgement_files()) == {"experts", "crowd"}


def test_flickr8k_counts_what_it_cannot_use(tmp_path):
    section = datasets.flickr8k(tmp_path)
    captions, photos = tmp_path / "Flickr8k.token.txt", tmp_path / "Flickr_8k.devImages.txt"
    captions.write_text(captions.read_text() + "test_0.jpg#0\tagain\ntest_0.jpg#9 no tab\n\n")
    photos.write_text("dev_0.jpg\r\n\r\ntrain_0.jpg\r\nfar.jpg\r\n")
    source, splits, problems = read(section)
    assert [e.key for e in splits["val"]] == ["dev_0.jpg", "far.jpg"]
    assert problems.counts == {
        "duplicate caption id": 1,
        "malformed line of the captions": 1,
        "duplicate photo": 1,
        "photo in none of the files of names": 2,
    }
    with pytest.raises(UnreadableError, match=r"far\.jpg does not exist"):
        source.read(splits["val"][1])
    photos.unlink()
    with pytest.raises(SourceError, match=r"devImages\.txt does not exist; it should hold one"):
        read(section)


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
def test_accents_of_names_may_be_written_in_two_ways(tmp_path, on_disk):
    """As by macOS, and in archives from there."""
    source = datasets.csv_photos(tmp_path, images=12)
    photos = {"NFC": "café.jpg", "NFD": "cafe\u0301.jpg"}
    (tmp_path / "images" / "photo_000.jpg").rename(tmp_path / "images" / photos[on_disk])
    other = photos["NFD" if on_disk == "NFC" else "NFC"]
    for name, row in (("captions.csv", f"{photos[on_disk]},a coffee\n"), ("splits.csv", "")):
        path = tmp_path / name
        path.write_text(path.read_text("utf-8").replace("photo_000.jpg", other) + row, "utf-8")
    made, splits, problems = read(source)
    assert not problems.total
    (entry,) = (e for e in splits["train"] if e.file == other)
    assert len(entry.captions) == 3
    assert made.read(entry).data == datasets.encoded(datasets.picture(0))
    folder = tmp_path / "images"
    (folder / other).with_suffix(".txt").write_text("a coffee")
    (folder / "splits.csv").write_text(f"image,split\n{other},test\n", "utf-8")
    section = {"name": "photo_folder", "root": str(folder), "splits": "splits.csv"}
    _, splits, problems = read(section)
    assert [entry.captions[0].text for entry in splits["test"]] == ["a coffee"]
    assert problems.counts == {"image without a split": 11}


def test_cub_has_a_zero_shot_and_a_seen_setting(tmp_path):
    section = datasets.cub(tmp_path)
    out = tmp_path / "held_out.txt"
    out.write_text("001.Bird_0/Bird_0_1.jpg\n002.Bird_1/Bird_1_5.jpg\n", "utf-8")
    section |= {"held_out": "held_out.txt"}
    _, zero_shot, _ = read(section)
    assert [len(zero_shot[s]) for s in ("train", "val", "test")] == [16, 2, 6]
    assert {e.labels for e in zero_shot["test"]} == {(3,)}
    assert {e.labels for e in zero_shot["train"]} == {(0,), (1,), (2,)}
    _, seen, _ = read(section | {"setting": "seen"})
    assert seen["train"] == zero_shot["train"]
    assert [e.key for e in seen["test"]] == [e.key for e in zero_shot["val"]]
    assert len(seen["test"][0].captions) == 10
    _, whole, _ = read(section | {"setting": "all_classes"})
    assert {e.labels for e in whole["train"]} == {(0,), (1,), (2,), (3,)}
    assert [e.key for e in whole["test"]] == [e.key for e in seen["test"]]
    assert len(whole["train"]) == len(zero_shot["train"]) + len(zero_shot["test"])
    _, drawn, _ = read(
        section | {"setting": "all_classes", "held_out": None, "held_out_share": 0.4}
    )
    assert {e.labels for e in drawn["test"]} > {(3,)}


def test_cub_refuses_classes_on_both_sides(tmp_path):
    section = datasets.cub(tmp_path)
    with pytest.raises(SourceError, match=r"001\.Bird_0"):
        read(section | {"test_classes": "trainvalclasses.txt"})


@pytest.mark.parametrize("name", ["trainvalclasses.txt", "testclasses.txt"])
def test_cub_refuses_class_lists_that_do_not_fit_the_images(tmp_path, name):
    section = datasets.cub(tmp_path)
    path = tmp_path / name
    whole = path.read_text("utf-8")
    path.write_text(f"{whole}009.Cuckoo\n", "utf-8")
    with pytest.raises(SourceError, match=rf"{name}: .* no image .* '009\.Cuckoo'"):
        read(section)
    half = whole[: len(whole) // 2]
    path.write_text(half, "utf-8")
    with pytest.raises(SourceError, match=rf"{name}: .* no image .* '{half.splitlines()[-1]}'"):
        read(section)
    path.write_text("", "utf-8")
    with pytest.raises(SourceError, match=rf"{name} names no class"):
        read(section)


def test_cub_counts_images_of_classes_in_no_list(tmp_path):
    section = datasets.cub(tmp_path)
    path = tmp_path / "trainvalclasses.txt"
    path.write_text("001.Bird_0\n", "utf-8")
    _, splits, problems = read(section)
    assert {entry.labels for entry in splits["train"]} == {(0,)}
    assert problems.counts == {"image of a class in no list": 12}


def test_csv_takes_any_number_of_captions_and_a_split_file(tmp_path):
    section = datasets.csv_photos(tmp_path)
    with (tmp_path / "captions.csv").open("a", encoding="utf-8") as file:
        file.write('photo_000.jpg,"a comma, and a ""quote"""\n')
    source, splits, _ = read(section)
    assert [len(splits[s]) for s in ("train", "val", "test")] == [16, 4, 4]
    assert [len(e.captions) for e in splits["train"][:2]] == [3, 2]
    assert splits["train"][0].captions[2].text == 'a comma, and a "quote"'
    assert source.read(splits["test"][0]).data


def test_csv_splits_by_name_do_not_move_when_photos_are_added(tmp_path):
    section = datasets.csv_photos(tmp_path, images=200, captions=1)
    section |= {"splits": None, "val_share": 0.2, "test_share": 0.1}
    _, before, _ = read(section)
    assert 20 <= len(before["val"]) <= 60
    assert 5 <= len(before["test"]) <= 40
    with (tmp_path / "captions.csv").open("a", encoding="utf-8") as file:
        file.writelines(f"more_{i}.jpg,a dog\n" for i in range(50))
    _, after, _ = read(section)
    for split, entries in before.items():
        assert {e.key for e in entries} <= {e.key for e in after[split]}


def test_csv_columns_can_be_named(tmp_path):
    section = datasets.csv_photos(tmp_path)
    path = tmp_path / "captions.csv"
    path.write_text(path.read_text("utf-8").replace("image,caption", "datei,text", 1), "utf-8")
    with pytest.raises(
        SourceError, match=r"no column 'image': its first line is 'datei,text'.*image_column="
    ):
        read(section)
    _, splits, _ = read(section | {"image_column": "datei", "caption_column": "text"})
    assert len(splits["train"]) == 16
    path.write_text("image;caption\na.jpg;a dog\n", "utf-8")
    with pytest.raises(SourceError, match=r"'image;caption'; separate the columns by commas"):
        read(section)


def test_csv_captions_keep_their_ids_when_rows_are_added(tmp_path):
    section = datasets.csv_photos(tmp_path)
    path = tmp_path / "captions.csv"
    header, *rows = path.read_text("utf-8").splitlines()

    def ids(*lines):
        path.write_text("\n".join(lines) + "\n", "utf-8")
        _, splits, _ = read(section)
        return [caption.key for entry in splits["train"] for caption in entry.captions]

    before = ids(header, *rows)
    assert len(set(before)) == len(before) == 32
    assert ids(header, "photo_000.jpg,a new caption", *rows)[1:] == before
    twice = ids(header, rows[0], *rows)
    assert twice[:3] == [before[0], f"{before[0]}-2", before[1]]
    assert twice[3:] == before[2:]


def test_csv_captions_may_have_ids_of_their_own(tmp_path):
    section = datasets.csv_photos(tmp_path)
    path = tmp_path / "captions.csv"
    path.write_text("caption_id,image,nr,caption\nx7, photo_000.jpg,1,a dog\n,photo_000.jpg,2,\n")
    _, splits, _ = read(section)
    first, second = splits["train"][0].captions
    assert (first.key, first.text, len(second.key)) == ("x7", "a dog", 16)
    _, splits, _ = read(section | {"id_column": "nr"})
    assert [caption.key for caption in splits["train"][0].captions] == ["1", "2"]
    with pytest.raises(SourceError, match="no column 'number'"):
        read(section | {"id_column": "number"})


def test_folders_are_no_part_of_the_names_of_karpathy(tmp_path):
    files = [("val2014", "a.jpg"), ("val2014", "b.jpg"), ("val2014", "c.jpg"), ("more", "c.jpg")]
    sentences = [[{"raw": "a dog", "sentid": number}] for number in range(4)]
    for layout in (
        lambda folder, name: {"filepath": folder, "filename": name},
        lambda folder, name: {"filename": f"{folder}/{name}"},
        lambda folder, name: {"filename": name if name != "c.jpg" else f"{folder}/{name}"},
    ):
        images = [
            layout(*file) | {"split": "test", "sentences": own}
            for file, own in zip(files, sentences, strict=True)
        ]
        path = datasets.karpathy(tmp_path, images)
        _, splits, _ = read({"name": "flickr30k", "root": str(tmp_path), "split_file": path.name})
        keys = [entry.key for entry in splits["test"]]
        assert keys == ["a.jpg", "b.jpg", "val2014/c.jpg", "more/c.jpg"]
        assert read_ground_truth(path).image_ids == keys


@pytest.mark.parametrize("repeated", [False, True])
def test_regions_take_images_once_or_once_a_caption(tmp_path, repeated):
    source, splits, _ = read(datasets.regions(tmp_path, repeated))
    assert [len(splits[s]) for s in ("train", "val", "test")] == [8, 3, 3]
    features = np.load(tmp_path / "test_ims.npy")
    for number, entry in enumerate(splits["test"]):
        found = source.read(entry)
        assert isinstance(found, RegionArray)
        np.testing.assert_array_equal(found.features, features[number * (5 if repeated else 1)])


def test_the_test_split_of_regions_may_be_in_other_files(tmp_path):
    section = datasets.regions(tmp_path)
    np.save(tmp_path / "testall_ims.npy", np.load(tmp_path / "train_ims.npy"))
    (tmp_path / "testall_caps.txt").write_text((tmp_path / "train_caps.txt").read_text("utf-8"))
    _, splits, _ = read(section | {"test": "testall"})
    assert [len(splits[s]) for s in ("train", "val", "test")] == [8, 3, 8]
    assert splits["test"][0].captions[0].key == "testall/0"
    (tmp_path / "testall_caps.txt").write_text("one caption\n", "utf-8")
    with pytest.raises(SourceError, match=r"testall_ims\.npy has 8 rows"):
        read(section | {"test": "testall"})


def test_a_split_of_regions_without_features_is_counted(tmp_path):
    section = datasets.regions(tmp_path)
    (tmp_path / "test_ims.npy").unlink()
    assert read(section)[2].counts == {"split without features": 1}
    (tmp_path / "test_caps.txt").unlink()
    assert read(section)[2].total == 0


def test_regions_explain_lengths_that_do_not_fit(tmp_path):
    section = datasets.regions(tmp_path)
    (tmp_path / "test_caps.txt").write_text("one caption\n", "utf-8")
    with pytest.raises(SourceError, match=r"3 rows .* 1 lines, but 15 lines"):
        read(section)
    (tmp_path / "test_ims.npy").write_bytes((tmp_path / "test_ims.npy").read_bytes()[:-50])
    with pytest.raises(SourceError, match=r"test_ims\.npy is not a complete"):
        read(section)


@pytest.mark.skipif(not MINI.exists(), reason="the sample photos are not on this machine")
@pytest.mark.parametrize(
    ("section", "sizes"),
    [
        ({"name": "csv", "root": MINI, "splits": "splits.csv"}, [500, 100, 100]),
        (
            {
                "name": "flickr30k",
                "root": MINI,
                "images": "images",
                "split_file": "dataset_flickr8k_mini.json",
            },
            [40, 10, 10],
        ),
        (
            {
                "name": "coco",
                "root": MINI,
                "images": ["images"],
                "captions": ["captions_train_mini.json", "captions_val_mini.json"],
                "instances": ["instances_val_mini.json"],
                "split_file": None,
            },
            [40, 20, 0],
        ),
        ({"name": "cub", "root": MINI / "cub_mini"}, [18, 2, 10]),
        ({"name": "regions", "root": MINI / "precomp_mini"}, [300, 100, 100]),
        ({"name": "regions", "root": MINI / "features_256"}, [500, 100, 100]),
    ],
    ids=["csv", "flickr30k", "coco", "cub", "regions", "features"],
)
def test_samples_of_real_data_are_read(section, sizes):
    source, splits, problems = read(section)
    assert [len(entries) for entries in splits.values()] == sizes
    assert not problems.total
    for entries in splits.values():
        for entry in entries[:3]:
            assert source.read(entry) is not None
