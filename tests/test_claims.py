"""The benchmark that holds the claims of the papers against finished runs."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark
from finished_runs import finished_run

from keras_xmr.config.loader import packaged_ablations, packaged_configs

bench = benchmark("claims")


def rows(bench, columns) -> dict[tuple[str, str], list[str]]:
    lines = [line for line in bench.table(columns) if line.startswith("| ")]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {(row[0], row[1]): row[2:] for row in cells}


def claim_of(bench, text):
    return next(claim for claim in bench.CLAIMS if claim.text == text)


def test_every_method_has_a_config(bench):
    known = packaged_configs() | packaged_ablations()
    claims = (*bench.CLAIMS, *bench.OF_SIGMA)
    names = {name for claim in claims for name in (claim.left, claim.right) if name}
    for name in names:
        method = name.partition(bench.BY)[0]
        assert bench.SCENES.get(method, f"scenes_{method}") in known
        assert bench.REAL.get(method, f"csv_pretrained_{method}") in known


def test_verdicts(bench):
    more = bench.Claim("", "", "a", "b", ("rsum",))
    not_more = bench.Claim("", "", "a", "b", ("rsum",), more=False)
    random = np.random.default_rng(0)

    def verdicts(value, deviation, correction=1):
        values = value + deviation * np.r_[0, random.standard_normal(10_000)]
        told = []
        for claim in (more, not_more):
            apart, p_value = bench._tested(claim, "rsum", values)
            told.append(claim.verdict("rsum", apart, correction * p_value))
        return told

    unknown = "cannot tell"
    assert verdicts(9, 1) == ["**yes**", "**no**"]
    assert verdicts(-9, 1) == ["**no**", "**yes**"]
    assert verdicts(2, 0.5) == ["**yes**, by little", "**yes**"]  # 5 counts
    assert verdicts(6, 1) == ["**yes**", unknown]
    assert verdicts(0, 1) == [unknown, "**yes**"]
    assert verdicts(0, 9) == [unknown, unknown]
    assert verdicts(9, 3, correction=50) == [unknown, unknown]
    assert verdicts(0, 0) == [unknown, unknown]  # Both are the same model.


def test_finished_runs_answer(bench, tmp_path):
    skills = {"scenes_vse0-seed1": 1.0, "scenes_vsepp-seed1": 3.0, "scenes_vsepp-seed2": 3.0}
    for name, skill in skills.items():
        finished_run(tmp_path, name, int(name[-1]), skill)
    finished_run(tmp_path, "scenes_dvse-seed1", 1, 1.0)
    found = rows(bench, {"scenes": bench.of_scenes(tmp_path)})
    for metric in ("RSUM by the truth", "annotated RSUM"):
        verdict, difference = found["the hardest negative is above all", metric]
        assert verdict == "**yes**"
        assert difference.endswith("(seeds: 2 and 1)")
    # What was re-ranked has other scores in these runs.
    verdict, difference = found["fast re-ranking raises RSUM", "RSUM by the truth"]
    assert verdict == "**yes**"
    assert difference.endswith("(seeds: 1, queries alone)")
    assert ("DAA raises ASP", "i2t ASP") not in found


def test_what_seeds_change_counts_where_a_method_has_one(bench, tmp_path):
    for seed, skill in enumerate((1.0, 2.0, 3.0)):  # Seeds change much,
        finished_run(tmp_path, f"scenes_nt_xent-seed{seed}", seed, skill)
    for seed in range(4):  # but not of another family,
        finished_run(tmp_path, f"scenes_pcme-seed{seed}", seed, 2.0)
    finished_run(tmp_path, "scenes_vsepp-seed0", 0, 3.0)
    finished_run(tmp_path, "scenes_vse0-seed0", 0, 2.0)
    scenes = bench.Scenes(tmp_path)
    each = [scenes.means([run], "rsum")[0] for run in scenes.runs("nt_xent")]
    level = [scenes.means([run], "rsum")[0] for run in scenes.runs("pcme")]
    freedom = 2 + 3  # NT-Xent alone has too few,
    pooled = np.sqrt((2 * np.var(each, ddof=1) + 3 * np.var(level, ddof=1)) / freedom)
    # Half of Student's draws are within 0.7267 of five degrees of freedom, 0.7649 of three.
    drawn = scenes.of_seeds(scenes.runs("nt_xent"), "rsum", 1)
    assert np.median(np.abs(drawn)) == pytest.approx(0.7267 * pooled / np.sqrt(3), rel=0.05)
    drawn = scenes.of_seeds(scenes.runs("pcme")[:1], "rsum", 1)
    assert np.median(np.abs(drawn)) == pytest.approx(0.7649 * np.std(level, ddof=1), rel=0.05)
    found = rows(bench, {"scenes": bench.of_scenes(tmp_path)})
    # so of one each nothing can be told.
    assert found["the hardest negative is above all", "annotated RSUM"][0] == "cannot tell"


def test_results_on_photos_answer(bench):
    random = np.random.default_rng(0)

    def result(method, fold, worse, asp):
        ranks = tuple(random.integers(1, 4, count) + worse for count in (20, 100))
        measures = {"asp": (np.full(20, asp), np.r_[np.nan, np.full(99, asp)])}
        measures["r_precision"] = tuple((side == 1).astype(float) for side in ranks)
        measures["mean_only_r_precision"] = tuple(np.zeros(len(side)) for side in ranks)
        measures |= {
            f"fast_reranking_recall_{k}": tuple(r - worse <= k for r in ranks) for k in (1, 5, 10)
        }
        return bench.Result(method, 500, fold, 0, ranks, measures)

    names = {"csv_pretrained_vsepp": (0, 0.5), "csv_pretrained_vse0": (10, 0.5),
             "csv_pretrained_dvse": (10, 0.5), "csv_pretrained_daa": (0, 0.7),
             "csv_pretrained": (0, 0.6)}  # fmt: skip
    found = bench.of_real(
        [result(name, fold, *how) for name, how in names.items() for fold in (0, 1)]
    )
    table = rows(bench, {"real": found})
    verdict, difference = table["the hardest negative is above all", "annotated RSUM"]
    assert (verdict, difference[-10:]) == ("**yes**", "(folds: 2)")
    better = found[claim_of(bench, "the hardest negative is above all"), "rsum"][0]
    # Ranks of 1 to 3 against 11 to 13: only R@1 has chance in it.
    assert 200 + 200 < better[0] < 600
    assert better[1:].mean() == pytest.approx(better[0], rel=0.01)
    assert ("the hardest negative is above all", "RSUM by the truth") not in table
    assert table["fast re-ranking raises RSUM", "annotated RSUM"][0] == "**yes**"
    assert found[claim_of(bench, "DAA raises ASP"), "i2t_asp"][0][0] == pytest.approx(10)
    assert table["match probability is above the means", "i2t R-P"][0] == "**yes**"
    both = rows(bench, {"scenes": {}, "real": found})
    assert both["DAA raises ASP", "i2t ASP"][0] == "not run"


def report(folder, recalls, grown):
    """What an evaluation writes of sigma: recalls in bins, and how it grows."""
    folder.mkdir(parents=True)
    for side in ("image", "caption"):
        rows = [
            f"-{4 - i},{recall},{recall - 0.1},{recall + 0.1}" for i, recall in enumerate(recalls)
        ]
        (folder / f"sigma_bins_{side}.csv").write_text(
            "\n".join(["log_sigma,recall_1,low,high", *rows])
        )
        rows = ["0,1,1,1", f"0.7,{grown},{grown - 0.01},{grown + 0.01}"]
        (folder / f"sigma_damage_{side}.csv").write_text(
            "\n".join(["share,sigma_ratio,low,high", *rows])
        )
    names = ["halves, in their mixture", "other images, in the mixture"]
    names += ["whole images, in their left half", "other images, in the left half"]
    rows = [f'"{name}",{10 * i},{10 * i - 1},{10 * i + 1}' for i, name in enumerate(names)]
    (folder / "set_algebra.csv").write_text(
        "\n".join(["inner_in_outer,divergence,low,high", *rows])
    )


def test_reports_say_what_sigma_tells(bench, tmp_path):
    report(tmp_path / "scenes_pcme-seed1" / "evaluation" / "test", [0.9, 0.8, 0.3, 0.2], 1.5)
    report(tmp_path / "scenes_pcme-seed2" / "evaluation" / "test", [0.9, 0.8, 0.3, 0.2], 1.3)
    found = {(claim.text, metric): f for (claim, metric), f in bench.of_sigma(tmp_path).items()}
    assert len(found) == 6
    values, runs = found[
        "the half with the smaller sigma has the higher R@1 (Fig. 6)", "image_surer_recall_1"
    ]
    assert runs == "seeds: 2"
    assert values[0] == pytest.approx(60)
    # Four bins, two a half, each with an error of 5.1; both seeds have the same queries.
    assert values[1:].std() == pytest.approx(2 * 5.1 / 2, rel=0.05)
    values, _ = found["dropping 70 % of the words raises sigma (Fig. 7)", "caption_damage"]
    assert values[0] == pytest.approx(40)
    # Student's t of one degree of freedom, of seeds that are 20 apart: half is within 10.
    assert np.median(np.abs(values[1:] - 40)) == pytest.approx(10, rel=0.1)
    assert found["a mixture includes its halves more than others (Fig. 8)", "mixture"][0][0] == 10
    table = rows(bench, {"scenes": bench.of_sigma(tmp_path)})
    text = "half of an image includes it more than others (Fig. 8)"
    assert table[text, "KL divergence"] == ["**yes**", "+10.0 [+8.6, +11.4] (seeds: 2)"]
    assert not bench.of_sigma(tmp_path, {"pcme": "csv_pretrained"})
