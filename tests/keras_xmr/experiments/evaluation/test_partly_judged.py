"""Pairs that nobody judged stay so from the files to the report, the comparison and the audit."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import datasets
import numpy as np
import pytest

from data_pipelines.prepare import prepare
from keras_xmr.commands._comparison import compare
from keras_xmr.experiments.config.evaluation_section import LabelFiles
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.evaluate import evaluate_matrices, ground_truth
from keras_xmr.experiments.evaluation.external_scores import ExternalScores, run
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.evaluation_report import write_report
from keras_xmr.experiments.reports.result_tables import result_tables
from keras_xmr.experiments.runs.loading import check_files
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.utils.errors import ConfigError, UserError

TEST = 6


@pytest.fixture
def config(tmp_path):
    datasets.flickr8k(tmp_path / "photos", test=TEST)
    base = str(find_config("csv_pcme").parent / "bases" / "flickr8k.yaml")
    path = tmp_path / "small.yaml"
    path.write_text(f"include: [{find_config('csv_pcme')}, {base}]\nname: small\n")
    settings = (f"data.source.root={tmp_path / 'photos'}", f"data.records={tmp_path / 'records'}")
    return load_config(path, settings)


@pytest.mark.usefixtures("undrawn")
def test_a_report_names_what_was_judged_and_what_was_not(config, random, tmp_path):
    records = prepare(config.data)
    part = records.split("test")
    scores = [("one", ScoreMatrices(random.normal(size=(TEST, 5 * TEST)).astype(np.float32)))]
    evaluation = evaluate_matrices(scores, records, part, config)
    found = evaluation.ground_truth.extra
    assert list(found) == ["experts", "crowd", "crowd_pool"]
    # The first pair is missing from the file of the experts, but it is annotated.
    assert found["experts"].judged.nnz == found["crowd"].judged.nnz == TEST**2
    results = results_of(evaluation)
    tables = result_tables(results)
    titles = " ".join(table.title for table in tables)
    assert "judged by experts, condensed lists" in titles
    assert "annotated pairs, condensed lists" not in titles
    page = write_report(evaluation, results, part, "small", tmp_path / "report", "verdict")
    html = page.read_text("utf-8")
    assert "<dt>condensed lists</dt>" in html
    assert "<dt>bpref</dt>" in html
    with np.load(tmp_path / "report" / "queries-test.npz") as arrays:
        np.testing.assert_array_equal(arrays["one/crowd/i2t_judged"], TEST)
        judged = arrays["one/crowd/t2i_judged"]
    np.testing.assert_array_equal(judged[2::5], TEST)
    assert judged.sum() == TEST**2


def test_a_source_without_labels_takes_them_from_files(config, random, tmp_path):
    """Of regions the ids are known, one per line of each caption, and COCO has the labels."""
    records = prepare(config.data)
    part = records.split("test")
    numbers = 100 + np.arange(TEST)
    (tmp_path / "ids.txt").write_text("\n".join(map(str, np.repeat(numbers, 5))))
    pairs = [(number, number % 3) for number in numbers] + [(100, 0), (101, 0)]
    annotations = [{"image_id": int(i), "category_id": int(c)} for i, c in pairs if i != 102]
    content = {"categories": [{"id": c} for c in range(3)], "annotations": annotations}
    (tmp_path / "instances.json").write_text(json.dumps(content))
    files = {"instances": tmp_path / "instances.json", "ids": tmp_path / "ids.txt"}
    options = config.evaluation.model_copy(update={"labels": LabelFiles(**files)})
    config = config.model_copy(update={"evaluation": options})
    scores = [("one", ScoreMatrices(random.normal(size=(TEST, 5 * TEST))))]
    evaluation = evaluate_matrices(scores, records, part, config)
    known = {number for number, _ in pairs if number != 102}
    assert [bool(labels) for labels in evaluation.ground_truth.labels] == [
        number in known for number in numbers
    ]
    assert "t2i_pmrp" in evaluation.matchers[0].metrics.summary
    (tmp_path / "ids.txt").write_text("1 2 3 4 5 6 7 8 9 10 11")
    with pytest.raises(UserError, match=r"ids.txt has 11 ids; expected one for each of 6"):
        evaluate_matrices(scores, records, part, config)
    (tmp_path / "ids.txt").unlink()
    with pytest.raises(ConfigError, match=r"evaluation\.labels\.ids: .*ids.txt does not exist"):
        check_files(config)


@pytest.mark.usefixtures("undrawn")
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
    np.save(tmp_path / "relevance.npy", random.random(truth.shape))
    own = ExternalScores(captions, scores=tmp_path / "two.npy")
    run(replace(own, relevance=tmp_path / "relevance.npy"))
    with pytest.raises(UserError, match=r"relevance.measure is cider in one, and .*relevance\.npy"):
        compare([], [tmp_path / f"{name}-evaluation" for name in ("one", "two")])
