"""The benchmark that holds the claims of the papers against finished runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmark_modules import benchmark
from finished_runs import finished_run

from keras_xmr.config.loader import packaged_ablations, packaged_configs
from keras_xmr.evaluation.reporting import uncertainty_report
from keras_xmr.evaluation.uncertainty.assessment import Bins
from keras_xmr.evaluation.uncertainty.probes import Occlusion
from keras_xmr.metrics.bootstrap import Estimate

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


def estimate(value: float, deviation: float):
    """A difference whose queries give it so much uncertainty."""
    noise = np.random.default_rng(0).standard_normal(10_000)
    return Estimate(value, value + deviation * noise)


def test_verdicts(bench):
    more = bench.Claim("", "", "a", "b", ("rsum",))
    not_more = bench.Claim("", "", "a", "b", ("rsum",), "no_more")

    def verdicts(value, deviation, correction=1):
        told = []
        for claim in (more, not_more):
            own = estimate(value, deviation)
            (bound,) = claim.bounds("rsum")
            p_value = correction * own.above(bound).difference().p_value
            told.append(claim.verdict("rsum", own.difference(), (p_value,), own.smallest_effect()))
        return told

    unknown = "cannot tell"
    assert verdicts(9, 1) == ["**yes**", "**no**"]
    assert verdicts(-9, 1) == ["**no**", "**yes**"]
    assert verdicts(2, 0.5) == ["**yes**, by little", "**yes**"]  # 5 counts
    assert verdicts(6, 1) == ["**yes**", unknown]
    assert verdicts(0, 1) == [unknown, "**yes**"]
    assert verdicts(0, 9) == [unknown, unknown]
    assert verdicts(9, 3, correction=50) == [unknown, unknown]
    assert verdicts(0, 0) == ["same model", "same model"]


def test_nothing_is_not_observed_that_could_not_have_been(bench):
    claim = bench.Claim("", "", "a", "b", ("rsum",), effects={"rsum": 10.0})

    def verdict(value, deviation):
        (text,) = verdicts_of(bench, {claim: estimate(value, deviation)})
        return text

    # Of ten, four of five tests find 2.8 standard errors.
    assert verdict(1, 3) == "not observed"
    assert verdict(1, 4) == "cannot tell"
    assert verdict(12, 3) == "**yes**"
    assert verdict(-12, 3) == "**no**"
    assert estimate(0, 3).smallest_effect() == pytest.approx((1.96 + 0.84) * 3, rel=0.03)


def verdicts_of(bench, estimates) -> list[str]:
    found = {(claim, "rsum"): (own, "") for claim, own in estimates.items()}
    return [verdict for verdict, *_ in bench._cells(found).values()]


def test_what_differs_by_nothing_that_counts_is_alike(bench):
    claim = bench.Claim("", "", "a", "b", ("rsum",), "alike")
    expected = {(0, 1): "**yes**", (9, 1): "**no**", (-9, 1): "**no**", (4, 1): "cannot tell",
                (0, 4): "cannot tell", (0, 0): "same model"}  # fmt: skip
    for how, verdict in expected.items():
        assert verdicts_of(bench, {claim: estimate(*how)}) == [verdict]


def test_a_family_of_tests_is_a_paper_without_what_cannot_be_tested(bench):
    def claims(paper, count):
        return [bench.Claim(paper, str(n), "a", "b", ("rsum",)) for n in range(count)]

    # 2.3 standard errors: p = 0.02, which two other claims of the paper make 0.06.
    one, two, three = (claims("one", 1), claims("two", 3), claims("three", 3))
    assert verdicts_of(bench, {one[0]: estimate(11.5, 5)}) == ["**yes**"]
    assert "**yes**" not in verdicts_of(bench, {claim: estimate(11.5, 5) for claim in two})
    both = {one[0]: estimate(11.5, 5)} | {claim: estimate(0, 5) for claim in two}
    assert verdicts_of(bench, both)[0] == "**yes**"
    zeros = {three[0]: estimate(11.5, 5)} | {claim: estimate(0, 0) for claim in three[1:]}
    assert verdicts_of(bench, zeros) == ["**yes**", "same model", "same model"]


def test_claims_have_no_mirrored_twins(bench):
    sides = [(c.left, c.right, m) for c in bench.CLAIMS for m in c.metrics]
    assert not {(right, left, metric) for left, right, metric in sides} & {*sides}


def test_the_order_of_wang_is_the_claim_that_it_is(bench):
    (claim,) = [claim for claim in bench.CLAIMS if "L_h matters more than L_d" in claim.text]
    # Without L_h the paper loses more, so what is without L_d has more.
    assert (claim.left, claim.right) == ("msrm_no_distribution", "msrm_no_hypergraph")
    assert claim.effects == {"i2t_r_precision": 1.4, "t2i_r_precision": 1.6}


@pytest.mark.slow
def test_finished_runs_answer(bench, tmp_path):
    skills = {"scenes_vse0-seed1": 1.0, "scenes_vsepp-seed1": 3.0, "scenes_vsepp-seed2": 3.0}
    skills |= {"scenes_vse0-seed2": 1.0, "scenes_vsepp-seed3": 3.0, "scenes_vse0-seed3": 1.0}
    skills |= {"scenes_vsepp-seed4": 3.0}
    for name, skill in skills.items():
        finished_run(tmp_path, name, int(name[-1]), skill)
    finished_run(tmp_path, "scenes_dvse-seed1", 1, 1.0)
    found = rows(bench, {"scenes": bench.of_scenes(tmp_path)})
    for metric in ("RSUM by the truth", "annotated RSUM"):
        verdict, difference, _ = found["the hardest negative is above all negatives", metric]
        assert verdict == "**yes**"
        assert difference.endswith("(seeds: 4 and 3)")
    # What was re-ranked has other scores in these runs.
    verdict, difference, detectable = found["fast re-ranking raises RSUM", "RSUM by the truth"]
    assert verdict == "**yes**"
    assert difference.endswith("(seeds: 1, queries alone)")
    assert 0 < float(detectable) < 100
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


@pytest.mark.slow
def test_the_table_of_finished_runs_is_printed(bench, tmp_path, capsys):
    for name, skill in {"scenes_vse0-seed1": 1.0, "scenes_vsepp-seed1": 3.0}.items():
        finished_run(tmp_path, name, 1, skill)
    bench.main(["--scenes", str(tmp_path)])
    assert "| the hardest negative is above all negatives | " in capsys.readouterr().out


@pytest.mark.slow
def test_what_seeds_change_counts_where_a_method_has_one(bench, tmp_path):
    for seed, skill in enumerate((1.0, 2.0, 3.0)):  # Seeds change much,
        finished_run(tmp_path, f"scenes_msrm-seed{seed}", seed, skill)
    for seed in range(4):  # but not of another family,
        finished_run(tmp_path, f"scenes_pcme-seed{seed}", seed, 2.0)
    finished_run(tmp_path, "scenes_msrm_alpha_0-seed0", 0, 3.0)
    finished_run(tmp_path, "scenes_vsepp-seed0", 0, 3.0)
    finished_run(tmp_path, "scenes_vse0-seed0", 0, 2.0)
    scenes = bench.Scenes(tmp_path)
    each = [scenes.mean([run], "rsum").value for run in scenes.runs("msrm")]
    level = [scenes.mean([run], "rsum").value for run in scenes.runs("pcme")]

    def seeds(left, right):
        left, right = scenes.runs(left), scenes.runs(right)
        apart = scenes.mean(left, "rsum") - scenes.mean(right, "rsum")
        found = scenes.with_seeds(apart, left, right, "rsum")
        return None if found is None else found.seeds

    # One family has one variance, of which both sides have a part;
    (own,) = seeds("msrm", "msrm_alpha_0")
    assert own.variance == pytest.approx(np.var(each, ddof=1) * (1 / 3 + 1))
    assert own.freedom == 2
    # two have one each,
    first, second = seeds("msrm", "pcme")
    assert first.variance == pytest.approx(np.var(each, ddof=1) / 3)
    assert second.variance == pytest.approx(np.var(level, ddof=1) / 4)
    assert (first.freedom, second.freedom) == (2, 3)
    # and of one training each nothing is known: no other family lends its variance.
    assert seeds("vsepp", "vse0") is None
    found = rows(bench, {"scenes": bench.of_scenes(tmp_path)})
    row = found["the hardest negative is above all negatives", "annotated RSUM"]
    assert row[0] == "seeds unknown"


@pytest.mark.slow
def test_configs_that_count_other_negatives_say_nothing_of_heads(bench, tmp_path):
    for method in ("dvse", "pvse"):
        finished_run(tmp_path, f"scenes_{method}-seed0", 0, 2.0)
    found = rows(bench, {"scenes": bench.of_scenes(tmp_path)})
    row = found["DVSE is above PVSE", "annotated RSUM"]
    assert row[:2] == ["not testable", "(mining: mean and hardest)"]
    assert bench.mining_of("csv_pretrained_nt_xent") == "none"


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
             "csv_pretrained_pcme": (0, 0.6)}  # fmt: skip
    found = bench.of_real(
        [result(name, fold, *how) for name, how in names.items() for fold in (0, 1)]
    )
    table = rows(bench, {"real": found})
    verdict, difference, _ = table["the hardest negative is above all negatives", "annotated RSUM"]
    assert (verdict, difference[-10:]) == ("**yes**", "(folds: 2)")
    better = found[claim_of(bench, "the hardest negative is above all negatives"), "rsum"][0]
    # Ranks of 1 to 3 against 11 to 13: only R@1 has chance in it.
    assert 200 + 200 < better.value < 600
    assert better.resampled.mean() == pytest.approx(better.value, rel=0.01)
    assert ("the hardest negative is above all negatives", "RSUM by the truth") not in table
    assert table["fast re-ranking raises RSUM", "annotated RSUM"][0] == "**yes**"
    assert found[claim_of(bench, "DAA raises ASP"), "i2t_asp"][0].value == pytest.approx(10)
    assert table["match probability is above the means", "i2t R-P"][0] == "**yes**"
    both = rows(bench, {"scenes": {}, "real": found})
    assert both["DAA raises ASP", "i2t ASP"][0] == "not run"


def report(folder, recalls, grown):
    """What an evaluation draws of sigma: recalls in bins, and how it grows."""
    folder.mkdir(parents=True)
    recalls = np.array(recalls)
    for side in ("image", "caption"):
        filled = Bins([*range(len(recalls))], recalls.tolist(), 0.0, (-0.1, 0.1))
        ratio = np.array([1.0, grown])
        growth = Occlusion((0.0, 0.7), ratio, ratio - 0.01, ratio + 0.01, 9)
        uncertainty_report._bins(side, filled, recalls - 0.1, recalls + 0.1).write(folder)
        uncertainty_report._occlusion(side, growth).write(folder)


@pytest.mark.slow
def test_reports_say_what_sigma_tells(bench, tmp_path):
    for name in ("scenes_pcme", "csv_pretrained_pcme"):
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
    assert values.value == pytest.approx(60)
    # Four bins, two a half, each with an error of 5.1; both seeds have the same queries.
    assert values.resampled.std() == pytest.approx(2 * 5.1 / 2, rel=0.05)
    values, _ = found["dropping 70 % of the words raises sigma (Fig. 7)", "caption_damage"]
    assert values.value == pytest.approx(40)
    # Student's t of one degree of freedom, of seeds that are 20 apart: half is within 10.
    assert values.half_width(0.5) == pytest.approx(10, rel=0.1)
    both = {
        "scenes": bench.of_sigma(tmp_path, bench.config_on_scenes),
        "real": bench.of_sigma(tmp_path, bench.config_on_photos),
    }
    table = rows(bench, both)
    row = table["the half with the smaller sigma has the higher R@1 (Fig. 6)", "i2t annotated R@1"]
    assert row[0] == row[3] == "**yes**"
    assert not bench.of_sigma(tmp_path / "nothing", bench.config_on_scenes)


@pytest.mark.slow
def test_siblings_that_no_claim_names_do_not_count(bench, tmp_path):
    for seed in range(4):
        finished_run(tmp_path, f"scenes_pcme-seed{seed}", seed, 2.0)
    alone = bench.Scenes(tmp_path)._deviations("rsum", "pcme")
    assert alone[1] == 3
    for seed, skill in enumerate((0.0, 3.0)):  # An ablation of it that is a matter of luck.
        finished_run(tmp_path, f"scenes_pcme_unheard_of-seed{seed}", seed, skill)
    assert bench.Scenes(tmp_path)._deviations("rsum", "pcme") == alone


def test_seeds_count_on_photos_where_training_begins_at_random(bench):
    random = np.random.default_rng(0)

    def result(method, seed, worse):
        ranks = tuple(random.integers(1, 4, count) + worse for count in (20, 100))
        return bench.Result(method, 500, 0, seed, ranks, {})

    claim = claim_of(bench, "the hardest negative is above NT-Xent (VSRN)")
    one = [result("csv_pretrained_vsrn_nt_xent", 0, 9), result("csv_pretrained_vsrn_hardest", 0, 0)]
    assert bench.of_real(one)[claim, "rsum"][0] is None  # Of one seed nothing is known.
    more = [result("csv_pretrained_vsrn_hardest", 1, 9)]
    found = bench.of_real([*one, *more])[claim, "rsum"][0]
    assert found.half_width(0.05) > 10 * 1.96 * found.resampled.std()
    cca = [result("csv_pretrained_vsepp", seed, 9 * seed) for seed in (0, 1)]
    cca.append(result("csv_pretrained_nt_xent", 0, 0))
    claim = claim_of(bench, "the hardest negative is above NT-Xent")
    assert not bench.of_real(cca)[claim, "rsum"][0].seeds


MINE = """
claims:
  - claim: mine is above theirs
    source: my paper
    more: my_method
    less: theirs
    metrics: [t2i_recall_1, rsum]
    effects: {rsum: 5}
"""


@pytest.mark.slow
def test_claims_of_ones_own_are_a_yaml_file(bench, tmp_path, capsys):
    for name, skill in {"my_method": 3.0, "theirs": 1.0}.items():
        for seed in range(4):
            finished_run(tmp_path, f"{name}-seed{seed}", seed, skill)
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    bench.main(["--claims", str(path), "--runs", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "**my paper**" in printed
    assert "| mine is above theirs | annotated RSUM | **yes** | +" in printed
    assert "| mine is above theirs | t2i annotated R@1 | **yes** | +" in printed
    bench.main(["--claims", str(path), "--runs", str(tmp_path), "--latex"])
    printed = capsys.readouterr().out
    assert r"mine is above theirs & annotated RSUM & \textbf{yes} & +" in printed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("metrics: [t2i", "metrics: [t2x"), "claims.0.metrics: Value error, unknown metric 't2x_"),
        (("    less: theirs", ""), "claims.0.less: Field required"),
        (("effects", "kind: better\n    effects"), "claims.0.kind: Input should be 'more', 'no_"),
        (("source", "sauce"), "claims.0.sauce: Extra inputs are not permitted"),
        (("claims:", "claims: ["), "is not valid YAML"),
        ((MINE, ""), "file: Input should be a valid dictionary"),
        (("more: my_method", "more: !!python/object:os.x {}"), "is not valid YAML"),
    ],
)
def test_mistakes_in_a_file_of_claims_are_named(bench, change, says, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE.replace(*change))
    with pytest.raises(SystemExit):
        bench.main(["--claims", str(path), "--runs", str(tmp_path)])
    told = capsys.readouterr().err
    assert says in told
    assert str(path) in told


def test_the_claims_of_the_docs_are_valid(bench, tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "how_to" / "compare.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    (tmp_path / "mine.yaml").write_text(block)
    (claim,) = bench.read_claims(tmp_path / "mine.yaml")
    assert (claim.left, claim.right, claim.kind) == ("my_method", "vse0", "more")


def test_claims_need_runs(bench, tmp_path, capsys):
    with pytest.raises(SystemExit):
        bench.main(["--claims", str(tmp_path / "mine.yaml")])
    assert "--claims and --runs go together" in capsys.readouterr().err
