"""The command `relevance`: files, counts, and captions in the files that users have."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import models
import numpy as np
import pytest

from data_pipelines.sources import Problems, SourceError
from data_pipelines.sources.coco import read_captions_file
from keras_xmr.experiments.config.schema import RelevanceOptions
from keras_xmr.experiments.evaluation import relevance_files
from keras_xmr.experiments.evaluation.relevance_files import (
    PairCounts,
    write_file_relevance,
    write_relevance,
)
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.relevance import RelevanceMatrix, ptb_tokenize, weigh
from keras_xmr.utils.errors import UserError


@pytest.fixture
def captions(tmp_path) -> Path:
    """A CSV file of 24 photos, two captions each."""
    datasets.csv_photos(tmp_path / "photos")
    return tmp_path / "photos" / "captions.csv"


def expected(path: Path, measure: str) -> np.ndarray:
    entries = read_captions_file(path, Problems())
    words = ptb_tokenize(caption.text for entry in entries for caption in entry.captions)
    owner = np.repeat(np.arange(len(entries)), [len(entry.captions) for entry in entries])
    return RelevanceMatrix(weigh(words, owner, len(entries), measure)).dense()


@pytest.mark.parametrize("measure", ["cider", "cider_d", "tf_idf"])
def test_a_captions_file_becomes_a_matrix(captions, tmp_path, capsys, measure):
    output = tmp_path / "found" / "relevance.npz"
    write_file_relevance(captions, output, ("test",), RelevanceOptions(measure=measure))
    whole = expected(captions, measure)
    with np.load(output) as found:
        np.testing.assert_allclose(found["relevance"], whole, rtol=1e-6)
        assert found["relevance"].shape == (24, 48)
        assert found["images"][3] == "photo_003.jpg"
        np.testing.assert_array_equal(found["image_of_caption"], np.arange(48) // 2)
        assert len(set(found["captions"])) == 48
    assert [path.name for path in output.parent.iterdir()] == ["relevance.npz"]
    threshold = 3 if measure == "cider_d" else 0.3
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    row = next(line for line in lines if line[:1] == [f"{threshold}"])
    pairs = np.count_nonzero(whole > np.float32(threshold))
    own = np.count_nonzero(whole[np.arange(48) // 2, np.arange(48)] > np.float32(threshold))
    assert row == [f"{threshold}", f"{pairs}", f"{pairs / 24:.2f}", f"{own}", f"{pairs - own}"]


def test_a_large_matrix_is_mapped(captions, tmp_path, monkeypatch):
    monkeypatch.setattr(relevance_files, "LARGE", 1000)
    output = tmp_path / "relevance.npz"
    write_file_relevance(captions, output, ("test",), RelevanceOptions())
    mapped = np.load(output.with_suffix(".npy"), mmap_mode="r")
    np.testing.assert_allclose(mapped, expected(captions, "cider"), rtol=1e-6)
    with np.load(output) as found:
        assert set(found) == {"image_of_caption", "images", "captions"}


def test_a_full_disk_is_told_before_the_work(captions, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"24 images and 48 captions takes 0\.0 GB"):
        write_file_relevance(captions, tmp_path / "x.npz", ("test",), RelevanceOptions())
    assert not (tmp_path / "x.npz").exists()


def test_nothing_is_left_behind_when_the_work_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(relevance_files, "LARGE", 0)
    matrix = RelevanceMatrix(weigh([["dog"], ["cat"]], np.arange(2), 2))
    monkeypatch.setattr(matrix, "rows", lambda start, stop: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_relevance(tmp_path / "x.npz", matrix, PairCounts(np.arange(2), 2, 1.0), {})
    assert list(tmp_path.iterdir()) == []


def test_of_a_split_file_the_splits_of_the_evaluation_are_taken(tmp_path):
    datasets.flickr30k(tmp_path / "flickr")
    path = tmp_path / "flickr" / "dataset.json"
    entries = read_captions_file(path, Problems())
    wanted = [entry.key for entry in entries if entry.split == "test"]
    assert 0 < len(wanted) < len(entries)
    output = tmp_path / "x.npz"
    write_file_relevance(path, output, ("test",), RelevanceOptions())
    with np.load(output) as found:
        assert found["images"].tolist() == wanted
    with pytest.raises(UserError, match=r"--set evaluation\.splits"):
        write_file_relevance(path, None, (), RelevanceOptions())


def test_files_that_are_none_are_told(tmp_path):
    with pytest.raises(SourceError, match="does not exist"):
        read_captions_file(tmp_path / "nothing.json", Problems())
    (tmp_path / "empty.csv").write_text("image,caption\n")
    with pytest.raises(SourceError, match="holds no captions"):
        read_captions_file(tmp_path / "empty.csv", Problems())
    (tmp_path / "list.json").write_text(json.dumps([1, 2]))
    with pytest.raises(SourceError, match="split file"):
        read_captions_file(tmp_path / "list.json", Problems())


def test_output_must_be_npz(captions, tmp_path):
    with pytest.raises(UserError, match=r"should end in \.npz"):
        write_file_relevance(captions, tmp_path / "x.csv", ("test",), RelevanceOptions())


def test_the_records_of_a_run_become_a_matrix(tmp_path, trained):
    records = f"data.records={trained.config.data.records}"
    run = Experiment(models.tiny_config(tmp_path, records, "evaluation.splits=[val, test]"))
    run.write_relevance()
    for name in ("val", "test"):
        split = run.records.split(name)
        words = ptb_tokenize(caption.text for caption in split.captions)
        whole = RelevanceMatrix(weigh(words, split.caption_image, len(split))).dense()
        with np.load(run.folder.path / "relevance" / f"{name}.npz") as found:
            np.testing.assert_allclose(found["relevance"], whole, rtol=1e-6)
            assert found["images"].tolist() == split.image_keys
