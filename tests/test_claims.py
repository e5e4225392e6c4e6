"""The benchmark that holds the claims of the papers against finished runs."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark
from finished_runs import finished_run

from keras_xmr.config.loader import packaged_ablations, packaged_configs
from keras_xmr.evaluation import card_plots
from keras_xmr.evaluation.damage import Damage
from keras_xmr.evaluation.report_card import SigmaBins
from keras_xmr.evaluation.uncertainty import Bins

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
        assert bench.config_on_scenes(method) in known
        assert bench.config_on_photos(method) in known


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
        verdict, difference = found["the hardest negative is above all negatives", metric]
        assert verdict == "**yes**"
        assert difference.endswith("(seeds: 2 and 1)")
    # What was re-ranked has other scores in these runs.
    verdict, difference = found["fast re-ranking raises RSUM", "RSUM by the truth"]
    assert verdict == "**yes**"
    assert difference.endswith("(seeds: 1, queries alone)")
    assert ("DAA raises ASP", "i2t ASP") not in found


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "name finished runs: --scenes, --real or --real-runs"),
        (["--scenes", "."], "--scenes: there are no finished runs that a claim is about"),
        (["--real", "gone.jsonl"], "--real: there are no finished runs that a claim is about"),
        (["--real-runs", "."], "--real-runs: there are no finished runs that a claim is about"),
    ],
)
def test_without_runs_there_is_no_table(bench, options, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        bench.main(options)
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert says in told.err
    assert not told.out


def test_the_table_of_finished_runs_is_printed(bench, tmp_path, capsys):
    for name, skill in {"scenes_vse0-seed1": 1.0, "scenes_vsepp-seed1": 3.0}.items():
        finished_run(tmp_path, name, 1, skill)
    bench.main(["--scenes", str(tmp_path)])
    assert "| the hardest negative is above all negatives | " in capsys.readouterr().out


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
    assert (
        found["the hardest negative is above all negatives", "annotated RSUM"][0] == "cannot tell"
    )


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
    verdict, difference = table["the hardest negative is above all negatives", "annotated RSUM"]
    assert (verdict, difference[-10:]) == ("**yes**", "(folds: 2)")
    better = found[claim_of(bench, "the hardest negative is above all negatives"), "rsum"][0]
    # Ranks of 1 to 3 against 11 to 13: only R@1 has chance in it.
    assert 200 + 200 < better[0] < 600
    assert better[1:].mean() == pytest.approx(better[0], rel=0.01)
    assert ("the hardest negative is above all negatives", "RSUM by the truth") not in table
    assert table["fast re-ranking raises RSUM", "annotated RSUM"][0] == "**yes**"
    assert found[claim_of(bench, "DAA raises ASP"), "i2t_asp"][0][0] == pytest.approx(10)
    assert table["match probability is above the means", "i2t R-P"][0] == "**yes**"
    both = rows(bench, {"scenes": {}, "real": found})
    assert both["DAA raises ASP", "i2t ASP"][0] == "not run"


def report(folder, recalls, grown):
    """What an evaluation draws of sigma: recalls in bins, and how it grows."""
    folder.mkdir(parents=True)
    recalls = np.array(recalls)
    for side in ("image", "caption"):
        filled = SigmaBins(
            Bins([*range(len(recalls))], recalls.tolist(), 0.0, (-0.1, 0.1)),
            recalls - 0.1,
            recalls + 0.1,
        )
        ratio = np.array([1.0, grown])
        damage = Damage((0.0, 0.7), ratio, ratio - 0.01, ratio + 0.01, 9)
        for picture in (card_plots._bins(side, filled), card_plots._damage(side, damage)):
            picture.write(folder)


def test_reports_say_what_sigma_tells(bench, tmp_path):
    for name in ("scenes_pcme", "csv_pretrained"):
        for seed, grown in enumerate((1.5, 1.3)):
            folder = tmp_path / f"{name}-seed{seed}" / "evaluation" / "test"
            report(folder, [0.9, 0.8, 0.3, 0.2], grown)
    found = {
        (claim.text, metric): f
        for (claim, metric), f in bench.of_sigma(tmp_path, bench.config_on_scenes).items()
    }
    assert len(found) == 4
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
    both = {
        "scenes": bench.of_sigma(tmp_path, bench.config_on_scenes),
        "real": bench.of_sigma(tmp_path, bench.config_on_photos),
    }
    table = rows(bench, both)
    row = table["the half with the smaller sigma has the higher R@1 (Fig. 6)", "i2t annotated R@1"]
    assert row[0] == row[2] == "**yes**"
    assert not bench.of_sigma(tmp_path / "nothing", bench.config_on_scenes)


def test_siblings_that_no_claim_names_do_not_count(bench, tmp_path):
    for seed in range(4):
        finished_run(tmp_path, f"scenes_pcme-seed{seed}", seed, 2.0)
    scenes = bench.Scenes(tmp_path)
    alone = scenes.of_seeds(scenes.runs("pcme"), "rsum", 1)
    for seed, skill in enumerate((0.0, 3.0)):  # An ablation of it that is a matter of luck.
        finished_run(tmp_path, f"scenes_pcme_unheard_of-seed{seed}", seed, skill)
    beside = bench.Scenes(tmp_path)
    found = beside.of_seeds(beside.runs("pcme"), "rsum", 1)
    np.testing.assert_array_equal(alone, found)


def test_seeds_count_on_photos_where_training_begins_at_random(bench):
    random = np.random.default_rng(0)

    def result(method, seed, worse):
        ranks = tuple(random.integers(1, 4, count) + worse for count in (20, 100))
        return bench.Result(method, 500, 0, seed, ranks, {})

    claim = claim_of(bench, "the hardest negative is above NT-Xent (VSRN)")
    one = [result("csv_pretrained_vsrn_nt_xent", 0, 9), result("csv_pretrained_vsrn_hardest", 0, 0)]
    known = bench.of_real(one)[claim, "rsum"][0][1:].std()  # of one seed nothing is known
    more = [result("csv_pretrained_vsrn_hardest", 1, 9)]
    assert bench.of_real([*one, *more])[claim, "rsum"][0][1:].std() > 10 * known
    cca = [result("csv_pretrained_vsepp", seed, 9 * seed) for seed in (0, 1)]
    cca.append(result("csv_pretrained_nt_xent", 0, 0))
    claim = claim_of(bench, "the hardest negative is above NT-Xent")
    assert bench.of_real(cca)[claim, "rsum"][0][1:].std() < 10 * known
