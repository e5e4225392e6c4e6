"""Pairs that nobody judged stay so from the files to the report, the comparison and the audit."""

from __future__ import annotations

import csv

import datasets
import numpy as np
import pytest

from data_pipelines.prepare import prepare
from keras_xmr.audit.candidates import judged_pairs
from keras_xmr.commands._comparison import compare
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.evaluation.evaluate import evaluate_matrices, ground_truth
from keras_xmr.evaluation.external_scores import ExternalScores, run
from keras_xmr.evaluation.reporting.evaluation_report import write_report
from keras_xmr.evaluation.reporting.result_tables import result_tables
from keras_xmr.metrics import ScoreMatrices

TEST = 6


@pytest.fixture
def config(tmp_path):
    datasets.flickr8k(tmp_path / "photos", test=TEST)
    base = str(find_config("csv_pcme").parent / "bases" / "flickr8k.yaml")
    path = tmp_path / "small.yaml"
    path.write_text(f"include: [{find_config('csv_pcme')}, {base}]\nname: small\n")
    settings = (f"data.source.root={tmp_path / 'photos'}", f"data.records={tmp_path / 'records'}")
    return load_config(path, settings)


@pytest.mark.slow
def test_a_report_names_what_was_judged_and_what_was_not(config, random, tmp_path):
    records = prepare(config.data)
    part = records.split("test")
    scores = [("one", ScoreMatrices(random.normal(size=(TEST, 5 * TEST)).astype(np.float32)))]
    evaluation = evaluate_matrices(scores, records, part, config)
    found = evaluation.ground_truth.extra
    assert list(found) == ["experts", "crowd", "crowd_pool"]
    # The first pair is missing from the file of the experts, but it is annotated.
    assert found["experts"].judged.nnz == found["crowd"].judged.nnz == TEST**2
    tables = result_tables(evaluation)
    titles = " ".join(table.title for table in tables)
    assert "judged by experts, condensed lists" in titles
    assert "annotated pairs, condensed lists" not in titles
    page = write_report(evaluation, part, "small", tmp_path / "report", "verdict", tables)
    html = page.read_text("utf-8")
    assert "<dt>condensed lists</dt>" in html
    assert "<dt>bpref</dt>" in html
    with np.load(tmp_path / "report" / "queries-test.npz") as arrays:
        np.testing.assert_array_equal(arrays["one/crowd/i2t_judged"], TEST)
        judged = arrays["one/crowd/t2i_judged"]
    np.testing.assert_array_equal(judged[2::5], TEST)
    assert judged.sum() == TEST**2


def test_what_people_judged_is_not_asked_by_an_audit(config):
    records = prepare(config.data)
    truth = ground_truth(records, records.split("test"), "pairs", config.judgements_of("test"))
    known = judged_pairs([truth.judgements, *truth.extra.values()])
    assert known.sum() == TEST**2 + 4 * TEST


@pytest.mark.slow
def test_a_comparison_says_that_lists_are_condensed(config, random, tmp_path, capsys):
    truth = ground_truth((records := prepare(config.data)), records.split("test"), "pairs")
    captions = tmp_path / "captions.csv"
    with captions.open("w", newline="") as file:
        rows = zip(truth.caption_image, truth.caption_ids, truth.texts, strict=True)
        named = [[truth.image_ids[image], id_, text] for image, id_, text in rows]
        csv.writer(file).writerows([["image", "caption_id", "caption"], *named])
    crowd = str(tmp_path / "photos" / "CrowdFlowerAnnotations.txt")
    for name in ("one", "two"):
        np.save(tmp_path / f"{name}.npy", random.normal(size=truth.shape))
        run(ExternalScores(captions, scores=tmp_path / f"{name}.npy", judgements=[crowd]))
    capsys.readouterr()
    compare([], [tmp_path / f"{name}-evaluation" for name in ("one", "two")], tmp_path / "both")
    printed = capsys.readouterr().out
    assert "judged by the crowd, condensed lists" in printed
    page = (tmp_path / "both" / "test" / "report.md").read_text("utf-8")
    table = page.partition("judged by the crowd, condensed lists")[2].partition("\n#")[0]
    assert "bpref" in table
    chance = next(line for line in table.splitlines() if line.startswith("| chance"))
    assert chance.count(" - ") <= 2
