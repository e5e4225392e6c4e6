"""The embedder of a run, and searches with it: the tiny run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
import scipy.stats
import tensorflow as tf
from tiny_runs import copy_of

from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.export.calibration import (
    calibrate_run,
    calibration_of,
    standardised_split,
)
from keras_xmr.experiments.export.run_embedder import choose_example, run_embedder
from keras_xmr.parts.registry import components
from keras_xmr.search import PhotoIndex, Query, Searcher
from keras_xmr.search.embedder import Embedder, EmbedderError
from keras_xmr.search.index_build import build_index
from keras_xmr.utils.errors import UserError


@pytest.fixture(scope="module")
def embedder(trained):
    return run_embedder(trained.folder.path)


@pytest.fixture(scope="module")
def photos(trained, tmp_path_factory):
    """The test photos of the run as files."""
    root = tmp_path_factory.mktemp("photos")
    records = trained.records.split("test")
    for number in range(len(records)):
        encoded = records.parse(records.read(number))
        (root / f"{number:03d}.jpg").write_bytes(encoded.numpy())
    return root


@pytest.fixture(scope="module")
def embedded(trained):
    """The test split as evaluation embeds it."""
    part = trained.records.split("test")
    with graphs.eager():
        return embed_split(trained.retriever, part, trained.tokenizer, trained.config)


@pytest.fixture(scope="module")
def index(trained, embedder, photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    calibrate = calibration_of(trained.folder.path)
    report = build_index(embedder, photos.resolve(), path, calibrate=calibrate)
    assert not report.broken
    return PhotoIndex.open(path)


@pytest.fixture(scope="module")
def searcher(index):
    return Searcher(index)


def test_embeddings_are_those_of_evaluation(trained, embedder, embedded):
    part = trained.records.split("test")
    files = [part.encoded(number) for number in range(len(part))]
    for side, expected in (
        (embedder.embed_images(files), embedded.images),
        (embedder.embed_texts(part.texts), embedded.captions),
    ):
        assert side.keys() == expected.keys()
        for name, values in side.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=1e-4)


def test_photos_are_scored_as_evaluation_scores_them(trained, embedded, searcher):
    part = trained.records.split("test")
    scores = score_tiles(
        trained.retriever.matcher,
        embedded.images,
        embedded.captions,
        trained.config.evaluation.tile,
    ).dense()
    for caption in (0, 7):
        found = searcher.search(Query(texts=(part.captions[caption].text,)), count=len(part))
        own = {int(hit.path[:3]): hit.score for hit in found.hits}
        told = [own[number] for number in range(len(part))]
        np.testing.assert_allclose(told, scores.image_to_text[:, caption], rtol=1e-3, atol=1e-3)
        assert found.certified


def test_an_example_and_the_words_are_of_the_training_captions(trained, embedder):
    texts = [caption.text for caption in trained.records.split("train").captions]
    assert embedder.example in texts
    assert embedder.training_words >= set(embedder.example.lower().split())


@pytest.mark.parametrize(
    ("captions", "example"), [(["1", "a bb", "a blue dog", "a dog"], "a dog"), (["12", "3"], "3")]
)
def test_the_example_of_a_search_has_a_word_if_a_caption_has(captions, example):
    assert choose_example(captions) == example


def test_the_snippet_of_the_docs_searches(index, tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[4] / "docs" / "how_to" / "search.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
    (tmp_path / "saved_models" / "csv_pretrained").mkdir(parents=True)
    (tmp_path / "saved_models" / "csv_pretrained" / "index").symlink_to(index.path)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(page), "exec"), {})
    hits = capsys.readouterr().out.splitlines()
    assert len(hits) == 5
    scores = [float(line.split()[1]) for line in hits]
    assert scores == sorted(scores, reverse=True)


def test_prediction_sets_are_calibrated_and_cover_the_exhaustive_truth(trained, embedder, index):
    sets, reference = calibrate_run(trained.config, embedder)
    assert index.prediction_sets == sets
    scores, right, groups = standardised_split(
        trained.config, embedder, trained.records, "test", reference
    )
    assert right.sum() > len(right)  # Captions are true of several photos.
    kept = ((scores >= sets.cutoff) & right).sum(axis=1) >= sets.share * right.sum(axis=1) - 1e-9
    # Captions of one photo are not independent.
    photos = [kept[groups == group].mean() for group in np.unique(groups)]
    test = scipy.stats.binomtest(round(sum(photos)), len(photos), sets.confidence, "less")
    assert test.pvalue > 0.01, np.mean(photos)


def test_records_of_other_data_are_refused(trained, embedder):
    source = trained.config.data.source.model_copy(update={"seed": 99})
    data = trained.config.data.model_copy(update={"source": source})
    with pytest.raises(UserError, match=r"holds records made with data\.source\.seed: .* now 99"):
        calibrate_run(trained.config.model_copy(update={"data": data}), embedder)


def test_a_query_of_words_reads_no_image_tower(index):
    plain = Searcher(index)
    assert plain.search(Query(texts=("a red circle",)), count=3).hits
    assert "_image_tower" not in vars(plain.model)


def test_odd_words_and_photos(index, searcher):
    found = searcher.search(Query(texts=("a red flurb",)), count=1)
    assert found.unknown_words == ("flurb",)
    own = index.photo_path(3).read_bytes()
    (hit,) = searcher.search(Query(images=(own,)), count=1).hits
    assert hit.id == 3


def test_an_index_is_whole_without_its_run_and_shares_its_files(trained, embedder, index, tmp_path):
    for path in index.embedder_path.glob("*.onnx"):
        assert path.samefile(embedder.folder / path.name)
    copy = tmp_path / "elsewhere" / "index"
    shutil.copytree(index.path, copy)
    query = Query(texts=("a red circle",))
    expected = Searcher(index).search(query, count=5)
    found = Searcher(PhotoIndex.open(copy)).search(query, count=5)
    assert [hit.score for hit in found.hits] == [hit.score for hit in expected.hits]


def test_the_snippet_of_the_docs_embeds(trained, embedder, index, tmp_path, monkeypatch):
    page = Path(__file__).parents[4] / "docs" / "how_to" / "inference.md"
    (block,) = re.findall(r"```python\n(from pathlib.*?)```", page.read_text("utf-8"), re.S)
    (tmp_path / "saved_models").mkdir()
    (tmp_path / "saved_models" / "scenes_pcme").symlink_to(trained.folder.path)
    shutil.copy(index.photo_path(2), tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(block, str(page), "exec"), names)
    text, photo = embedder.embed_texts(["a red circle"]), index.embeddings([2])
    np.testing.assert_allclose(names["scores"], embedder.score(photo, text), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["text_tower.onnx", "text_tower.onnx.data", "vocabulary.txt", "score.onnx"]
)
@pytest.mark.parametrize("damage", [b"\0", None])
def test_damaged_files_are_named(index, tmp_path, name, damage):
    copy = tmp_path / "index"
    shutil.copytree(index.path, copy)
    path = PhotoIndex.open(copy).embedder_path / name
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(content[:-1] + damage)
    with pytest.raises(EmbedderError, match=rf"{re.escape(str(path))} is missing or damaged"):
        Searcher(PhotoIndex.open(copy)).search(Query(texts=("red",)))


def test_damaged_files_are_replaced_by_the_next_build(embedder, index, photos, tmp_path):
    copy = tmp_path / "index"
    shutil.copytree(index.path, copy)
    folder = PhotoIndex.open(copy).embedder_path
    (folder / "text_tower.onnx").write_bytes(b"")
    report = build_index(embedder, photos.resolve(), copy)
    assert report.damaged == [folder]
    assert Searcher(PhotoIndex.open(copy)).search(Query(texts=("red",))).hits


def test_a_missing_embedder_and_that_of_another_index_are_refused(index, tmp_path):
    copy = tmp_path / "index"
    shutil.copytree(index.path, copy)
    opened = PhotoIndex.open(copy)
    shutil.rmtree(opened.embedder_path)
    with pytest.raises(EmbedderError, match="is missing, or not whole: an index is searched by"):
        Searcher(opened).search(Query(texts=("red",)))
    other = Embedder.open(index.embedder_path)
    other.fingerprint = "another"
    with pytest.raises(UserError, match="is the embedder of another index"):
        Searcher(index, other).search(Query(texts=("red",)))


def test_a_missing_or_old_onnxruntime_is_named(index, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.9.2")
    with pytest.raises(UserError, match=r"onnxruntime 1\.9\.2 is too old; .*pip install .*search"):
        Searcher(index).search(Query(texts=("red",)))
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"searches need onnxruntime.* pip install .*search"):
        Searcher(index).search(Query(texts=("red",)))


@pytest.mark.slow
def test_other_weights_make_another_embedder(trained, embedder, tmp_path):
    other = copy_of(trained, tmp_path)
    assert run_embedder(other.folder.path).fingerprint == embedder.fingerprint
    manifest = other.folder.path / "onnx" / "manifest.json"
    before = manifest.stat().st_mtime_ns
    run_embedder(other.folder.path)
    assert manifest.stat().st_mtime_ns == before
    for weights in other.folder.path.glob("*.weights.h5"):
        weights.write_bytes(weights.read_bytes() + b"\0")
    with pytest.raises(UserError, match="is damaged: its checksum is not the one in"):
        run_embedder(other.folder.path)


def test_a_vocabulary_of_another_run_is_refused(trained, tmp_path):
    other = copy_of(trained, tmp_path)
    vocabulary = other.folder.path / "vocabulary.txt"
    *words, last, end = vocabulary.read_text().splitlines()
    vocabulary.write_text("\n".join([*words, end, last, ""]))
    with pytest.raises(UserError, match=r"vocabulary\.txt is damaged: its checksum"):
        run_embedder(other.folder.path)


def test_a_matcher_that_does_not_say_how_it_is_searched_is_refused(trained, monkeypatch):
    monkeypatch.setattr(components("matcher")["match_probability"], "SEARCH", None)
    with pytest.raises(UserError, match="match_probability does not declare how it"):
        run_embedder(trained.folder.path)


def test_a_run_without_training_is_refused(trained, tmp_path):
    run = copy_of(trained, tmp_path)
    run.folder.done.unlink()
    with pytest.raises(UserError, match="has no finished training"):
        run_embedder(run.folder.path)


def test_the_empty_text_and_padding_change_no_other_text(embedder):
    texts = ["a red circle", "", "two blue squares left of a green triangle"]
    together = embedder.embed_texts(texts)
    for number, text in enumerate(texts):
        alone = embedder.embed_texts([text])
        for name, values in alone.items():
            np.testing.assert_allclose(values[0], together[name][number], rtol=1e-3, atol=1e-4)


def test_ids_are_those_of_the_tokenizer_of_the_training(trained, embedder):
    texts = trained.records.split("train").texts
    expected = trained.tokenizer.words(tf.constant(texts)).to_list()
    assert [embedder.tokenizer.pieces(text)[:48] for text in texts] == expected


def test_a_tower_that_is_loaded_as_it_is_embeds_alike(embedder):
    texts = ["a red circle", "two blue squares left of a green triangle"]
    few = Embedder.open(embedder.folder, few_texts=True).embed_texts(texts)
    for name, values in embedder.embed_texts(texts).items():
        np.testing.assert_allclose(few[name], values, rtol=1e-5, atol=1e-6)


def test_weights_of_the_towers_are_files_of_their_own(embedder):
    for name in ("image_tower.onnx", "text_tower.onnx"):
        tower, data = embedder.folder / name, embedder.folder / f"{name}.data"
        weights = onnx.load(tower, load_external_data=False).graph.initializer
        apart = {w.name for w in weights if w.data_location == onnx.TensorProto.EXTERNAL}
        assert apart == {w.name for w in weights if 4 * np.prod(w.dims) >= 1024}
        assert data.stat().st_mode == tower.stat().st_mode


def weights_of(path):
    return onnx.load(path).graph.initializer


def test_weights_in_half_precision_make_another_embedder_of_half_the_size(trained, embedder):
    halves = run_embedder(trained.folder.path, "float16")
    assert (halves.precision, embedder.precision) == ("float16", "float32")
    assert halves.fingerprint != embedder.fingerprint
    assert run_embedder(trained.folder.path, "float16").fingerprint == halves.fingerprint
    towers = [each.folder / "image_tower.onnx" for each in (halves, embedder)]
    kinds = {w.data_type for w in weights_of(towers[0]) if np.prod(w.dims) >= 1024}
    assert kinds == {onnx.TensorProto.FLOAT16}
    sizes = [path.with_name(f"{path.name}.data").stat().st_size for path in towers]
    assert sizes[0] < sizes[1]
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    for name, values in embedder.embed_pixels(pixels).items():
        other = halves.embed_pixels(pixels)[name]
        assert np.abs(other - values).max() > 0  # the weights were rounded
        np.testing.assert_allclose(other, values, atol=0.02 * np.abs(values).max())
    with pytest.raises(UserError, match=r"--precision=int8: models of runs have the weights float"):
        run_embedder(trained.folder.path, "int8")
