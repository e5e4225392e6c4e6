"""Building an index: what is new, changed, removed, broken or twice there, and kills."""

from __future__ import annotations

import io
import json
import os
import shutil

import numpy as np
import odd_images
import pytest
from datasets import encoded
from PIL import Image
from small_index import StubEmbedder, photo, small_index, write_photos

from data_pipelines import pixels as pixels_module
from data_pipelines.pixels import pixels_of
from data_pipelines.sources import UnreadableError
from keras_xmr.search import PhotoIndex, Query, Searcher, build
from keras_xmr.search.answer_sets import AnswerSets
from keras_xmr.search.build import build_index
from keras_xmr.search.manifests import write_manifest
from keras_xmr.search.photo_index import Calibration
from keras_xmr.search.photos import read_photo, read_tags
from keras_xmr.search.query_reranking import Reranking
from keras_xmr.utils.errors import UserError

RED = Query(texts=("red",))


@pytest.fixture
def root(tmp_path):
    write_photos(tmp_path / "photos")
    return tmp_path / "photos"


def built(root, stub=None, **options):
    stub = stub or StubEmbedder()
    report = build_index(stub, root, root.parent / "index", **options)
    return report, PhotoIndex.open(root.parent / "index"), stub


def without_checksums(path):
    """An index as earlier versions made it."""
    return PhotoIndex(path, {**PhotoIndex.open(path).content, "checksums": {}})


def paths(index):
    return [photo.path for photo in index.photos()]


def calibrated(monkeypatch, times):
    """Lets indexes be calibrated with what a stub knows; `times` is told of each."""
    monkeypatch.setattr(build, "has_validation", lambda model: True)

    def calibrate(model):
        times.append(1)
        files = {
            "reference.npz": {"mean": np.ones((4, 3), np.float32)},
            "captions.npz": {"mean": np.eye(3, dtype=np.float32)},
        }
        return Calibration(AnswerSets(0.8, 2, 2), None, Reranking(3.0, 0.5, 0.6)), files

    monkeypatch.setattr(build, "calibrate_run", calibrate)


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


@pytest.mark.slow
@pytest.mark.parametrize("gone", [0, 10])
def test_many_small_parts_are_written_as_few(root, monkeypatch, gone):
    monkeypatch.setattr(build, "_PART", 8)
    monkeypatch.setattr(build, "_SMALL_PARTS", 3)
    for number in range(4 * (gone == 0)):
        (root / f"{number}.jpg").write_bytes(photo("red", 200 + number))
        _, before, _ = built(root)
    if gone:
        _, before, _ = built(root)
        for path in paths(before)[:gone]:
            (root / path).unlink()
    os.utime(root / "yellow/2.jpg", (1, 1))
    (root / "last.jpg").write_bytes(photo("blue", 300))
    _, index, stub = built(root)
    count = 16 - gone + 4 * (gone == 0)
    assert len(index) == len(index.vectors.ids) == count
    assert len(index.parts) == -(-count // 8)
    assert index.content["removed"] == []
    kept = np.intersect1d(before.ids, index.ids)
    np.testing.assert_array_equal(
        index.embeddings(kept)["mean"], before.embeddings(kept)["mean"]
    )  # Who has it open goes on.
    assert built(root, stub)[0].kept == count
    assert len(list((root.parent / "index/parts").iterdir())) == len(index.parts)


@pytest.mark.slow
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
    (root / "empty.png").unlink()
    assert built(root)[0].broken == {}


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
    monkeypatch.setattr(build, "_PART", 4)
    stub = StubEmbedder()
    embed = stub.embed_pixels

    def killed(pixels):
        if stub.embedded >= 8:
            raise KeyboardInterrupt
        return embed(pixels)

    stub.embed_pixels = killed
    with pytest.raises(KeyboardInterrupt):
        built(root, stub)
    (root.parent / "index/parts/000009").mkdir()  # As if it was killed before the manifest.
    assert len(PhotoIndex.open(root.parent / "index")) == 8
    report, index, stub = built(root)
    assert stub.embedded == 7
    assert (report.kept, report.added, len(index)) == (8, 7, 15)
    assert set(index.vectors.ids) == set(index.ids)
    assert len(list((root.parent / "index/parts").iterdir())) == 4


@pytest.mark.slow
def test_vectors_that_were_lost_are_made_again(root):
    built(root)
    shutil.rmtree(root.parent / "index/vectors")
    _, index, stub = built(root)
    assert stub.embedded == 0
    np.testing.assert_array_equal(index.vectors.ids, index.ids)


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit of an array": lambda part: flip_bit(part / "mean.npy"),
    "an array that is gone": lambda part: (part / "mean.npy").unlink(),
    "an array of fewer photos": lambda part: np.save(part / "mean.npy", np.zeros((1, 3))),
    "another array": lambda part: np.save(part / "other.npy", np.zeros((4, 3), np.float32)),
    "a key of another name": lambda part: (part / "photos.json").write_text(
        (part / "photos.json").read_text().replace("path", "qath", 1)
    ),
    "photos that are no list": lambda part: (part / "photos.json").write_text("5"),
    "a part that is gone": shutil.rmtree,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_part_is_named_and_embedded_again(root, monkeypatch, name):
    monkeypatch.setattr(build, "_PART", 4)
    _, before, _ = built(root)
    photos = sorted(paths(before))
    part = root.parent / "index/parts/000001"
    DAMAGE[name](part)
    with pytest.raises(UserError, match=r"parts/000001 is damaged .*run `index` again"):
        Searcher(PhotoIndex.open(before.path), embedder=StubEmbedder()).search(RED)
    report, index, stub = built(root)
    assert report.damaged == [part]
    assert (stub.embedded, report.kept, report.added) == (4, 11, 4)
    assert sorted(paths(index)) == photos
    assert set(index.vectors.ids) == set(index.ids)
    red = [hit.path for hit in Searcher(index, embedder=StubEmbedder()).search(RED, 3).hits]
    assert all(path.startswith("red/") for path in red)
    assert built(root)[0].damaged == []


@pytest.mark.parametrize(
    "name",
    ["an array that is gone", "an array of fewer photos", "a key of another name"],
)
def test_an_index_without_checksums_is_checked_as_far_as_it_goes(root, name):
    _, index, _ = built(root)
    DAMAGE[name](root.parent / "index/parts/000000")
    with pytest.raises(UserError, match=r"parts/000000 is damaged"):
        Searcher(without_checksums(index.path), embedder=StubEmbedder()).search(RED)


def test_an_index_without_checksums_gets_them(root):
    _, index, _ = built(root)
    before = index.content["checksums"]
    write_manifest(index.path, 1, {k: v for k, v in index.content.items() if k != "checksums"})
    report, index, stub = built(root)
    assert (stub.embedded, report.damaged) == (0, [])
    assert index.content["checksums"] == before


def test_a_manifest_of_something_else_is_named(root):
    _, index, _ = built(root)
    own, other = index.path / "manifest.json", index.path / "vectors/manifest.json"
    contents = own.read_bytes(), other.read_bytes()
    for path, content in (
        (own, contents[1]),
        (other, contents[0]),
        (own, contents[0].replace(b'"version"', b'"versiom"')),
    ):
        own.write_bytes(contents[0])
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{path} is damaged; delete the folder"):
            _ = PhotoIndex.open(index.path).vectors


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["exact", "faiss_hnsw"])
def test_damaged_vectors_are_named_and_made_again(root, backend):
    if backend != "exact":
        pytest.importorskip("faiss", reason="the extra for it is not installed")
    _, index, _ = built(root, backend=backend)
    folder = index.path / "vectors"
    flip_bit(sorted(folder.glob("0*"))[-1])
    with pytest.raises(UserError, match=r"is missing or damaged .*run `index` again"):
        _ = PhotoIndex.open(index.path).vectors
    report, index, stub = built(root, backend=backend)
    assert (stub.embedded, report.damaged) == (0, [folder])
    np.testing.assert_array_equal(index.vectors.ids, index.ids)


@pytest.mark.parametrize("is_folder", [True, False])
def test_vectors_that_are_a_folder_or_a_loop_are_named_and_made_again(root, is_folder):
    _, index, _ = built(root)
    folder = index.path / "vectors"
    path = next(folder.glob("*.vectors.npy"))
    path.unlink()
    path.mkdir() if is_folder else path.symlink_to(path.name)
    with pytest.raises(UserError, match=r"is missing or damaged .*run `index` again"):
        _ = PhotoIndex.open(index.path).vectors
    report, index, stub = built(root)
    assert (stub.embedded, report.damaged) == (0, [folder])
    np.testing.assert_array_equal(index.vectors.ids, index.ids)


def test_a_manifest_that_is_a_folder_is_named(root):
    _, index, _ = built(root)
    (index.path / "manifest.json").unlink()
    (index.path / "manifest.json").mkdir()
    with pytest.raises(UserError, match=r"manifest\.json is damaged; delete the folder"):
        PhotoIndex.open(index.path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reference.npz", "captions.npz"])
def test_a_damaged_calibration_is_named_and_made_again(root, monkeypatch, name):
    times = []
    calibrated(monkeypatch, times)
    _, before, _ = built(root, calibrate=True)
    other = "reference.npz" if name == "captions.npz" else "captions.npz"
    shutil.copy(before.path / other, before.path / name)
    searcher = Searcher(PhotoIndex.open(before.path), embedder=StubEmbedder())
    with pytest.raises(UserError, match=rf"{name} is damaged .*run `index` again"):
        searcher.search(RED, rerank="fast_reranking")
    report, index, _ = built(root, calibrate=True)
    assert report.damaged == [index.path / name]
    assert len(times) == 2
    assert index.content == before.content
    assert Searcher(index, embedder=StubEmbedder()).search(RED, rerank="fast_reranking").answer
    (index.path / name).write_bytes(b"")
    report, index, _ = built(root)
    assert report.damaged == [index.path / name]
    found = Searcher(index, embedder=StubEmbedder()).search(RED)
    assert (found.answer, len(times)) == (None, 2)


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


def test_an_index_of_something_else_is_refused(root, tmp_path):
    built(root)
    with pytest.raises(UserError, match=r"was made by another model .*--index"):
        built(root, StubEmbedder("other"))
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="has the photos of"):
        build_index(StubEmbedder(), tmp_path / "other", root.parent / "index")


def test_a_folder_that_is_suddenly_empty_empties_no_index(root):
    built(root)
    root.rename(root.parent / "elsewhere")
    root.mkdir()
    with pytest.raises(UserError, match="has no photos, but"):
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


def test_a_name_that_no_answer_could_hold_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match=r"'odd_\\udcff.jpg' has a name that is not UTF-8"):
        read_photo(tmp_path, "odd_\udcff.jpg")


def test_a_path_of_a_changed_index_stays_inside_the_root(tmp_path):
    index = small_index(tmp_path)
    part = next((tmp_path / "index/parts").iterdir()) / "photos.json"
    items = json.loads(part.read_text())
    items[0]["path"] = "../secret.jpg"
    part.write_text(json.dumps(items))
    (tmp_path / "secret.jpg").write_bytes(photo("red"))
    with pytest.raises(UserError, match=r"parts/000000 is damaged .*checksum"):
        PhotoIndex.open(tmp_path / "index").photo_path(0)
    index = without_checksums(tmp_path / "index")
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


def test_a_newer_state_is_noticed(root):
    _, index, _ = built(root)
    assert index.is_current()
    (root / "new.jpg").write_bytes(photo("blue", 55))
    built(root)
    assert not index.is_current()


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


def test_a_thumbnail_of_a_large_photo_is_decoded_small(monkeypatch):
    sizes = []

    def noted(image, data):
        sizes.append(image.size)
        return pixels_of(image, data)

    monkeypatch.setattr(pixels_module, "pixels_of", noted)
    large = photo("red", size=(3200, 1600))
    small = Image.open(io.BytesIO(pixels_module.thumbnail(large, "large.jpg", 256)))
    assert (small.size, sizes) == ((256, 128), [(800, 400)])
    thin = pixels_module.thumbnail(photo("red", size=(3000, 2)), "thin.jpg", 256)
    assert Image.open(io.BytesIO(thin)).size == (256, 1)
