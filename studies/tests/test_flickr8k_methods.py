"""The study of all methods on Flickr8K, on a few photos of its layout."""

from __future__ import annotations

import csv
import functools
import json

import datasets
import numpy as np
import pytest
import tiny_presets
from benchmark_modules import benchmark

bench = benchmark("flickr8k_methods", "studies")
tables = benchmark("methods_table", "studies")

SMALL = {
    "data.image.size": 32,
    "data.image.resize": 32,
    "model.dimension": 10,
    "model.image.pooling.closed_form": 2,
    "model.text.pooling.closed_form": 2,
    "model.image.encoder.levels": "null",
    "model.text.encoder.layers": "[1, 2]",
    "train.batch_size": 4,
    "train.phases.0.epochs": 1,
    "train.validate_every": 1,
}


def made_up_line(tables, name: str, seed: int, rank: int) -> dict:
    """100 photos with five captions, all at about one rank."""
    random = np.random.default_rng(seed)
    ranks = [(rank + random.integers(0, 3, size)).tolist() for size in (100, 500)]
    sides = {
        "i2t": {"queries": [3], "values": [0.5]},
        "t2i": {"queries": [0, 7], "values": [1.0, 0.0]},
    }
    judged = {people: dict.fromkeys(tables.JUDGED, sides) for people in ("crowd", "experts")}
    numbers = {"val": 300.0, "processor_s": 60.0}
    return {"method": name, "seed": seed, "ranks": ranks, "judged": judged} | numbers


def test_methods_are_ordered_and_compared_with_the_baseline(tables):
    ranks = {"chance": 90, "cca": 4, "csv_pretrained": 1, "csv_pretrained_pcme": 1}
    lines = [
        made_up_line(tables, name, seed + 10 * number, rank)
        for number, (name, rank) in enumerate(ranks.items())
        for seed in range(3)
    ]
    rows = list(tables.rows_of(tables.methods_of(lines)))
    labels = [row["method"] for row in rows]
    assert set(labels[:2]) == {"`csv_pretrained`", "`pcme`"}
    assert labels[2:] == ["CCA", "chance"]
    best = rows[0]
    assert best["seeds"] == "3"
    assert best["crowd i2t R-P"] == "50.0"
    assert best["experts t2i R-P"] == "50.0"
    value, low, high = (float(part.strip("[],")) for part in best["to CCA"].split())
    assert 0 < low < value < high
    assert "to CCA" not in next(row for row in rows if row["method"] == "CCA")


def test_parts_are_measured_with_and_without(tables):
    names = {"pcme": 1, "mean_only": 5, "vsepp": 2}
    lines = [
        made_up_line(tables, f"csv_pretrained_{name}", seed, rank)
        for name, rank in names.items()
        for seed in range(2)
    ]
    (row,) = tables.parts_of(tables.methods_of(lines))
    assert row["part"].startswith("PCME: ")
    assert row["seeds"] == "2 and 2"
    value, low, high = (float(part.strip("[],")) for part in row["difference of RSUM"].split())
    assert value == pytest.approx(float(row["with"]) - float(row["without"]), abs=0.11)
    assert low < value < high


def test_results_of_a_part_of_the_photos_have_rows_without_people(tables):
    lines = [made_up_line(tables, name, 0, rank) for name, rank in (("cca", 1), ("sum", 2))]
    for line in lines:
        del line["judged"]
    rows = list(tables.rows_of(tables.methods_of(lines)))
    assert [row["method"] for row in rows] == ["CCA", "CCA + linear InfoNCE"]
    assert not [column for row in rows for column in row if "R-P" in column]


def test_a_random_order_has_its_expectation(tables):
    expected = {people: {"i2t": 0.25, "t2i": 0.5} for people in tables.PEOPLE}
    lines = [made_up_line(tables, "chance", 0, 9) | {"expected": expected}]
    (row,) = tables.rows_of(tables.methods_of(lines))
    # 5 of 500 captions are right: 1 - (495 * 494 * ...) / (500 * 499 * ...).
    missed = np.cumprod([(495 - n) / (500 - n) for n in range(10)])[[0, 4, 9]]
    assert float(row["RSUM"]) == pytest.approx(100 * (3 - missed.sum()) + 16, abs=0.05)
    assert (row["crowd i2t R-P"], row["experts t2i R-P"]) == ("25.0", "50.0")


def test_the_weights_of_a_sum_are_chosen_on_dev(bench):
    """One part knows photos 0 to 3, the other one 4 to 7; only both know all."""
    ids = np.arange(8)
    same = np.eye(8)
    known = [np.where((ids < 4)[:, None] == half, same, 0) for half in (True, False)]
    parts = [[(vectors, same)] * 3 for vectors in known]
    dev = bench.Pairs(same, same, ids)
    reached, scores = bench.measure_baseline(parts, "", dev)
    assert reached == 600
    assert (scores.argmax(axis=1) == ids).all()
    assert max(bench.measure_baseline([part], "", dev)[0] for part in parts) < 600


def test_a_part_of_the_training_photos_is_in_each_larger_part(bench, tmp_path):
    datasets.flickr8k(tmp_path / "raw")
    lists = {path.name: path.read_text() for path in (tmp_path / "raw").glob("*Images.txt")}
    whole = set(lists.pop("Flickr_8k.trainImages.txt").split())
    drawn = [set()]
    for photos in (1, 2):
        arguments = [f"--flickr8k={tmp_path / 'raw'}", f"--work={tmp_path / 'work'}"]
        options = bench.parser_of(None).parse_args([*arguments, f"--photos={photos}"])
        options = bench.with_fewer_photos(options)
        drawn.append(set((options.flickr8k / "Flickr_8k.trainImages.txt").read_text().split()))
        assert len(drawn[-1]) == photos
        assert drawn[-2] < drawn[-1] <= whole
        assert all((options.flickr8k / name).read_text() == text for name, text in lists.items())
        assert options.results.name == f"flickr8k_{photos}_photos.jsonl"


@pytest.mark.heavy
@pytest.mark.slow
def test_runs_are_measured_once_beside_baselines(bench, tables, tmp_path, capsys, monkeypatch):
    datasets.flickr8k(tmp_path / "raw")
    encoder = functools.partial(bench.dual_encoder, epochs=1)
    monkeypatch.setitem(bench.EMBEDDERS, "dual_encoder", encoder)
    arguments = [f"--flickr8k={tmp_path / 'raw'}", f"--work={tmp_path / 'work'}", "--seeds=1"]
    arguments += [f"--results={tmp_path / 'results.jsonl'}", f"--csv={tmp_path / 'table.csv'}"]
    arguments += [f"--image-preset={tiny_presets.resnet(tmp_path / 'resnet')}"]
    arguments += [
        f"--text-preset={tiny_presets.bert(tmp_path / 'bert')}",
        "--methods=csv_pretrained_msrm",
    ]
    arguments += [f"--set={key}={value}" for key, value in SMALL.items()]
    bench.main(arguments)
    first = capsys.readouterr().out
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    methods = [f"csv_pretrained_msrm{correction}" for correction in (", CSLS", "")]
    assert [json.loads(line)["method"] for line in lines] == [*bench.PLAIN, *methods]
    judged = json.loads(lines[-1])["judged"]["crowd"]["r_precision"]
    assert judged["i2t"]["queries"]
    assert len(judged["i2t"]["queries"]) == len(judged["i2t"]["values"])
    with (tmp_path / "table.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(lines)
    assert not list((tmp_path / "work" / "runs").iterdir())
    monkeypatch.setattr(bench, "train", None)
    bench.main(arguments)
    again = capsys.readouterr().out
    assert again[again.index("| method") :] == first[first.index("| method") :]
