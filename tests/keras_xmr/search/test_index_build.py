"""Building an index: what is new, changed, removed, broken or twice there, and kills."""

from __future__ import annotations

import io
import os
import shutil

import numpy as np
import odd_images
import pytest
from datasets import encoded
from PIL import Image
from small_index import StubEmbedder, photo, small_index, write_photos

from keras_xmr.search import PhotoIndex, Query, Searcher, index_build
from keras_xmr.search.index_build import build_index
from keras_xmr.search.manifests import write_manifest
from keras_xmr.search.photo_index import VERSION
from keras_xmr.search.photo_table import read_tags
from keras_xmr.search.prediction_sets import PredictionSets
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import checksum

RED = Query(texts=("red",))


@pytest.fixture
def root(tmp_path):
    write_photos(tmp_path / "photos")
    return tmp_path / "photos"


def built(root, stub=None, **options):
    stub = stub or StubEmbedder()
    report = build_index(stub, root, root.parent / "index", **options)
    return report, PhotoIndex.open(root.parent / "index"), stub


def paths(index):
    return [photo.path for photo in index.photos()]


def test_all_photos_are_there_with_what_is_known(root):
    (root / "notes.txt").write_text("no photo")
    (root / ".hidden.jpg").write_bytes(photo("red"))
    report, index, _ = built(root)
    assert (report.photos, report.added, report.kept) == (15, 15, 0)
    assert paths(index) == sorted(paths(index))
    first = index.photo(0)
    assert (first.path, first.width, first.height) == ("blue/0.jpg", 40, 30)
    assert index.photo_path(0).read_bytes() == (root / "blue/0.jpg").read_bytes()
    assert index.folders() == ["blue", "green", "red", "white", "yellow"]
    np.testing.assert_array_equal(index.vectors.ids, index.ids)
    assert index.embeddings([3, 1])["mean"].shape == (2, 3)


@pytest.mark.slow
def test_only_what_is_new_or_changed_is_embedded(root):
    built(root)
    (root / "red/0.jpg").write_bytes(photo("green", 77))
    os.utime(root / "red/1.jpg", (1, 1))  # Another time, the same content.
    (root / "red/2.jpg").unlink()
    (root / "red/3.jpg").write_bytes(photo("red", 78))
    report, index, stub = built(root)
    assert (report.added, report.changed, report.removed, report.kept) == (1, 1, 1, 13)
    assert stub.embedded == 2
    assert len(index) == 15
    assert set(index.vectors.ids) == set(index.ids)
    assert "red/2.jpg" not in paths(index)
    numbers = {p.path: p.id for p in index.photos()}
    assert min(numbers["red/0.jpg"], numbers["red/3.jpg"]) == 15  # An id is not used again.
    report, _, stub = built(root)
    assert (stub.embedded, report.kept) == (0, 15)


def test_broken_photos_are_named_and_tried_again_once_they_change(root):
    whole = photo("red", 5)
    (root / "cut.jpg").write_bytes(whole[: len(whole) // 8])
    (root / "empty.png").write_bytes(b"")
    report, index, _ = built(root)
    assert report.photos == 15
    assert sorted(report.broken) == ["cut.jpg", "empty.png"] == sorted(index.broken())
    assert "cut.jpg is" in report.broken["cut.jpg"]
    (root / "cut.jpg").write_bytes(whole)
    report, index, stub = built(root)
    assert stub.embedded == 1
    assert list(report.broken) == ["empty.png"]
    (root / "red/0.jpg").rename(root / "empty.png")  # The content of a photo of the index.
    report, index, stub = built(root)
    assert (report.broken, stub.embedded, index.changes()) == ({}, 0, "")


def test_photos_of_all_kinds_are_found_or_it_is_said_why_not(tmp_path):
    """As they lie in a folder: rotated, transparent, for print, deep, broken, twice, of a phone."""
    root = tmp_path / "photos"
    root.mkdir()
    whole, heic = odd_images.rotated(6), b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    colours = Image.new("RGBA", (30, 20), (200, 20, 20, 128))
    files = {
        "rotated.JPG": whole,
        "twice.jpg": whole,
        "transparent.png": encoded(colours, "PNG"),
        "print.jpg": encoded(Image.new("CMYK", (30, 20), (0, 220, 220, 30))),
        "deep.png": odd_images.deep_png(3),
        "named.heic": photo("red", 5),
        "cut.jpg": whole[: len(whole) // 8],
        "empty.jpg": b"",
        "phone.heic": heic,
        "phone.jpg": heic,
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    os.mkfifo(root / "pipe.jpg")  # Nobody will ever write to it.
    (root / "odd_\udcff.jpg").write_bytes(whole)
    report, index, _ = built(root)
    assert "is not UTF-8" in report.broken.pop("odd_\udcff.jpg")
    assert report.broken.pop("pipe.jpg") == "pipe.jpg cannot be read: it is not a regular file"
    found = {p.path: p for p in index.photos()}
    assert set(found) | set(report.broken) == set(files)
    assert "cut.jpg is a broken image" in report.broken.pop("cut.jpg")
    assert report.broken.pop("empty.jpg") == "empty.jpg is empty: its file has no bytes"
    for name in ("phone.heic", "phone.jpg"):
        assert report.broken.pop(name) == f"{name} is a broken image: it is cut off"
    assert report.broken == {}
    assert (found["rotated.JPG"].width, found["rotated.JPG"].height) == (38, 53)
    assert index.duplicate_of(found["twice.jpg"].id) == found["rotated.JPG"].id
    first = Searcher(index, embedder=StubEmbedder()).search(RED, count=3).hits
    assert {hit.path for hit in first} == {"transparent.png", "print.jpg", "named.heic"}


def test_a_photo_that_breaks_is_gone(root):
    built(root)
    (root / "red/0.jpg").write_bytes(b"nothing of a photo")
    report, index, _ = built(root)
    assert (len(index), list(report.broken)) == (14, ["red/0.jpg"])
    assert set(index.vectors.ids) == set(index.ids)


@pytest.mark.slow
def test_a_killed_build_goes_on(root, monkeypatch):
    monkeypatch.setattr(index_build, "_LEAST", 4)
    stub = StubEmbedder()
    embed = stub.embed_pixels

    def killed(pixels):
        if stub.embedded >= 8:
            raise KeyboardInterrupt
        return embed(pixels)

    stub.embed_pixels = killed
    with pytest.raises(KeyboardInterrupt):
        built(root, stub)
    (root.parent / "index/000009.mean.npy").touch()  # As if it was killed before the manifest.
    assert len(PhotoIndex.open(root.parent / "index")) == 8
    report, index, stub = built(root)
    assert stub.embedded == 7
    assert (report.kept, report.added, len(index)) == (8, 7, 15)
    assert set(index.vectors.ids) == set(index.ids)
    assert {path.name for path in index.path.glob("0*")} == set(index.content["files"])


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit of an array": lambda array, photos, paths: flip_bit(array),
    "an array that is gone": lambda array, photos, paths: array.unlink(),
    "an array of fewer photos": lambda array, photos, paths: np.save(array, np.zeros((1, 3))),
    "photos without fields": lambda array, photos, paths: np.save(photos, np.zeros(15)),
    "photos in another order": lambda array, photos, paths: np.save(photos, np.load(photos)[::-1]),
    "photos that are no array": lambda array, photos, paths: photos.write_text("5"),
    "photos that are a folder": lambda array, photos, paths: (photos.unlink(), photos.mkdir()),
    "fewer paths": lambda array, photos, paths: paths.write_bytes(b"red/0.jpg\0"),
    "paths that are not UTF-8": lambda array, photos, paths: paths.write_bytes(15 * b"\xff\0"),
}


@pytest.mark.parametrize("has_checksum", [True, False])
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_index_is_named_and_embedded_again(root, name, has_checksum):
    _, before, _ = built(root)
    files = [before.path / file for file in sorted(before.content["files"])]
    array, names, photos = files
    DAMAGE[name](array, photos, names)
    if not has_checksum and array.is_file() and photos.is_file() and "bit" not in name:
        sums = {path.name: checksum(path) for path in files}
        write_manifest(before.path, VERSION, {**before.content, "files": sums})
    with pytest.raises(UserError, match=r"\.(npy|txt) is damaged .*run `index` again"):
        PhotoIndex.open(before.path)
    report, index, stub = built(root)
    assert sorted(report.damaged) == files
    assert (stub.embedded, report.kept, report.added) == (15, 0, 15)
    assert paths(index) == paths(before)
    assert set(index.vectors.ids) == set(index.ids)
    red = [hit.path for hit in Searcher(index, embedder=StubEmbedder()).search(RED, 3).hits]
    assert all(path.startswith("red/") for path in red)
    assert built(root)[0].damaged == []


def test_an_index_of_the_former_version_is_refused(root):
    _, index, _ = built(root)
    write_manifest(index.path, 1, {"parts": [], "root": str(root)})
    for use in (lambda: PhotoIndex.open(index.path), lambda: built(root)):
        with pytest.raises(UserError, match="has version 1, not 6; move the folder away and build"):
            use()


@pytest.mark.parametrize("renamed", ["", "other"])
def test_photos_that_were_moved_keep_their_embeddings(root, renamed):
    """The folder of all photos, or a folder of some of them."""
    _, before, _ = built(root, tags={"red/0.jpg": ["mine"]})
    if renamed:
        (root / "red").rename(root / renamed)
    else:
        root = root.rename(root.parent / "elsewhere")
    (root / "new.jpg").write_bytes(photo("red", 300))
    report, index, stub = built(root)
    assert (stub.embedded, report.added, report.kept, report.removed) == (1, 1, 15, 0)
    moved = {path.replace("red/", f"{renamed}/") if renamed else path for path in paths(before)}
    assert set(paths(index)) == moved | {"new.jpg"}
    assert index.root == root
    np.testing.assert_array_equal(
        index.embeddings(before.ids)["mean"], before.embeddings(before.ids)["mean"]
    )
    assert index.content["tags"] == before.content["tags"]
    assert built(root)[2].embedded == 0


@pytest.mark.parametrize("root_moves", [True, False])
def test_files_of_equal_size_and_time_that_change_places_are_seen(root, root_moves):
    data = photo("red", 500), photo("blue", 501)
    size = max(map(len, data))
    files = root / "red/a.jpg", root / "red/b.jpg"
    for path, content in zip(files, data, strict=True):
        path.write_bytes(content.ljust(size, b"\0"))
        os.utime(path, (9, 9))
    _, before, _ = built(root)
    third = root / "red/c"
    files[0].rename(third)
    files[1].rename(files[0])
    third.rename(files[1])
    if root_moves:
        root = root.rename(root.parent / "elsewhere")
    _, index, stub = built(root)
    ids = {photo.path: photo.id for photo in index.photos()}
    former = {photo.path: photo.id for photo in before.photos()}
    assert (ids["red/a.jpg"], ids["red/b.jpg"]) == (former["red/b.jpg"], former["red/a.jpg"])
    assert stub.embedded == 0


def test_a_manifest_of_something_else_is_named(root):
    _, index, _ = built(root)
    own, other = index.path / "manifest.json", index.vectors_path / "manifest.json"
    contents = own.read_bytes(), other.read_bytes()
    for path, content in (
        (own, contents[1]),
        (other, contents[0]),
        (own, contents[0].replace(b'"version"', b'"versiom"')),
    ):
        own.write_bytes(contents[0])
        path.write_bytes(content)
        said = rf"{path} is damaged; move the folder|{path.parent} has version ., not .; move"
        with pytest.raises(UserError, match=said):
            PhotoIndex.open(index.path)
    replace_by_a_folder(own)
    with pytest.raises(UserError, match=r"manifest\.json is damaged; move the folder"):
        PhotoIndex.open(index.path)


def replace_by_a_folder(path):
    path.unlink()
    path.mkdir()


def replace_by_a_loop(path):
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "damage"),
    [
        *(("exact", damage) for damage in (flip_bit, replace_by_a_folder, replace_by_a_loop)),
        ("faiss_hnsw", flip_bit),
    ],
)
def test_damaged_vectors_are_named_and_made_again(root, backend, damage):
    if backend != "exact":
        pytest.importorskip("faiss", reason="the extra for it is not installed")
    _, index, _ = built(root, backend=backend)
    folder = index.vectors_path
    damage(sorted(folder.glob("0*"))[-1])
    with pytest.raises(UserError, match=r"is missing or damaged .*run `index` again"):
        PhotoIndex.open(index.path)
    report, index, stub = built(root, backend=backend)
    assert (stub.embedded, report.damaged) == (0, [folder])
    np.testing.assert_array_equal(index.vectors.ids, index.ids)
    shutil.rmtree(folder)
    _, index, stub = built(root, backend=backend)
    assert (stub.embedded, set(index.vectors.ids)) == (0, set(index.ids))


def calibrated(times):
    """A calibration with what a stub knows; `times` is told of each."""

    def calibrate(model):
        times.append(1)
        return PredictionSets(0.8, 2, 2), {"mean": np.ones((4, 3), np.float32)}

    return calibrate


def test_a_damaged_calibration_is_named_and_made_again(root, monkeypatch):
    times = []
    calibrate = calibrated(times)
    _, before, _ = built(root, calibrate=calibrate)
    (name,) = before.content["reference"]
    np.savez(before.path / name, mean=np.eye(3, dtype=np.float32))
    with pytest.raises(UserError, match=r"reference.npz is damaged .*run `index` again"):
        PhotoIndex.open(before.path)
    report, index, _ = built(root, calibrate=calibrate)
    assert report.damaged == [before.path / name]
    assert len(times) == 2
    assert index.prediction_sets == before.prediction_sets
    assert Searcher(index, embedder=StubEmbedder()).search(RED).prediction_set
    damaged = next(index.path.glob("*.reference.npz"))
    damaged.write_bytes(b"")
    report, index, _ = built(root)
    assert report.damaged == [damaged]
    found = Searcher(index, embedder=StubEmbedder()).search(RED)
    assert (found.prediction_set, len(times)) == (None, 2)


def test_near_duplicates_are_marked(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    random = np.random.default_rng(3)
    picture = Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8)).resize((90, 90))
    (root / "a.jpg").write_bytes(encoded(picture))
    (root / "b.jpg").write_bytes(encoded(picture.resize((64, 64)), quality=70))
    (root / "c.png").write_bytes(encoded(picture, "PNG"))
    turned = Image.Exif()
    turned[0x0112] = 6
    (root / "d.jpg").write_bytes(encoded(picture.transpose(Image.Transpose.ROTATE_90), exif=turned))
    (root / "e.jpg").write_bytes(encoded(picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)))
    for name in ("f", "g"):  # Plain areas are like any other.
        (root / f"{name}.png").write_bytes(encoded(Image.new("RGB", (50, 50), "red"), "PNG"))
    Image.new("RGB", (50, 50), "blue").save(root / "h.png")
    report, index, _ = built(root)
    assert [index.duplicate_of(i) for i in range(8)] == [None, 0, 0, 0, None, None, 5, None]
    assert report.duplicates == 4
    (root / "i.jpg").write_bytes(encoded(picture, quality=60))
    report, index, _ = built(root)
    assert (report.kept, report.duplicates, index.duplicate_of(8)) == (8, 5, 0)
    (root / "a.jpg").unlink()
    report, index, _ = built(root)
    assert [index.duplicate_of(i) for i in range(1, 9)] == [None, 1, 1, None, None, 5, None, 1]


def test_an_index_of_something_else_is_refused(root, tmp_path):
    built(root)
    with pytest.raises(UserError, match=r"was made by another model .*--index"):
        built(root, StubEmbedder("other"))
    (tmp_path / "other").mkdir()
    for _ in range(2):
        with pytest.raises(UserError, match=r"has the photos of .* 0 of these 15; use another fol"):
            build_index(StubEmbedder(), tmp_path / "other", root.parent / "index")
        (tmp_path / "other/a.jpg").write_bytes(photo("red", 400))


def test_a_folder_that_is_suddenly_empty_empties_no_index(root):
    built(root)
    root.rename(root.parent / "elsewhere")
    root.mkdir()
    with pytest.raises(UserError, match=r"has no photos, but.*--images=FOLDER"):
        built(root)
    assert len(PhotoIndex.open(root.parent / "index")) == 15


def test_links_that_lead_out_of_the_folder_are_not_followed(root, tmp_path):
    (tmp_path / "secret.jpg").write_bytes(photo("red", 9))
    (root / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (root / "inner.jpg").symlink_to(root / "red/0.jpg")
    (root / "nothing.jpg").symlink_to(root / "nowhere.jpg")
    report, index, _ = built(root)
    assert list(report.broken) == ["link.jpg", "nothing.jpg"]
    assert "points outside" in report.broken["link.jpg"]
    assert report.broken["nothing.jpg"].startswith("nothing.jpg cannot be read: No such file")
    assert "inner.jpg" in paths(index)


def test_a_path_of_a_changed_index_stays_inside_the_root(tmp_path):
    index = small_index(tmp_path)
    path = next(index.path.glob("*.paths.txt"))
    _, _, others = path.read_bytes().partition(b"\0")
    path.write_bytes(b"../secret.jpg\0" + others)
    (tmp_path / "secret.jpg").write_bytes(photo("red"))
    with pytest.raises(UserError, match=r"paths\.txt is damaged .*checksum"):
        PhotoIndex.open(index.path)
    files = {**index.content["files"], path.name: checksum(path)}
    index = PhotoIndex(index.path, {**index.content, "files": files})
    with pytest.raises(UserError, match="points outside"):
        index.photo_path(0)
    with pytest.raises(UserError, match="points outside"):
        index.thumbnail(0)


def test_thumbnails_are_small_upright_and_on_white(tmp_path):
    index = small_index(tmp_path)
    shown = Image.open(io.BytesIO(index.thumbnail(0, size=20)))
    assert (shown.format, shown.size) == ("JPEG", (20, 15))
    index.photo_path(0).unlink()
    with pytest.raises(UserError, match="run `index` again"):
        index.thumbnail(0)


def test_dates_are_those_of_exif(root):
    taken = Image.Exif()
    taken[0x0132] = "2024:01:01 00:00:00"  # When a program changed it.
    taken.get_ifd(0x8769)[0x9003] = "2019:07:03 10:20:30"
    (root / "red/0.jpg").write_bytes(encoded(Image.new("RGB", (30, 30)), exif=taken))
    broken = Image.Exif()
    broken.get_ifd(0x8769)[0x9003] = "no date"
    (root / "red/1.jpg").write_bytes(encoded(Image.new("RGB", (30, 30)), exif=broken))
    _, index, _ = built(root)
    dates = {p.path: p.taken for p in index.photos()}
    assert dates["red/0.jpg"] == "2019-07-03T10:20:30"
    assert (dates["red/1.jpg"], dates["red/2.jpg"]) == ("", ""), "not when the file was written"


def test_tags_are_read_and_kept(root, tmp_path):
    file = tmp_path / "tags.csv"
    file.write_text("image,tag\nred/0.jpg,warm;old\nred/0.jpg,mine\nnowhere.jpg,lost\n")
    _, index, _ = built(root, tags=read_tags(file))
    number = next(p.id for p in index.photos() if p.path == "red/0.jpg")
    assert index.tags_of(number) == ("mine", "old", "warm")
    assert built(root)[1].tags() == ["mine", "old", "warm"]
    file.write_text("photo,tag\n")
    with pytest.raises(UserError, match="no column 'image'"):
        read_tags(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "library"),
    [("faiss_hnsw", "faiss"), ("faiss_ivf_pq", "faiss"), ("milvus", "milvus_lite")],
)
def test_other_backends_are_brought_up_to_date(backend, library, root):
    pytest.importorskip(library, reason=f"the extra for {backend} is not installed")
    built(root, backend=backend)
    (root / "red/0.jpg").unlink()
    (root / "new.jpg").write_bytes(photo("blue", 55))
    _, index, _ = built(root, backend=backend)
    assert set(index.vectors.ids) == set(index.ids)
    with pytest.raises(UserError, match="has the backend"):
        built(root)


def test_only_milvus_asks_a_server(root):
    with pytest.raises(UserError, match=r"faiss_hnsw uses no server: use --uri with --backend"):
        built(root, backend="faiss_hnsw", uri="http://localhost:19530")
