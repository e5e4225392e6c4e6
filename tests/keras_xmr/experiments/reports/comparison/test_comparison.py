"""Comparisons of methods: which runs, what they found, and what differs."""

from __future__ import annotations

import csv
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from finished_runs import CAPTIONS, IMAGES, OWNER, finished_run
from matplotlib.figure import Figure
from models import tiny_config
from PIL import Image
from tiny_runs import RECURRENT, copy_of

from data_pipelines.prepare import prepare
from keras_xmr.commands import _cli as cli
from keras_xmr.commands._comparison import _run, compare, plan_runs
from keras_xmr.experiments.config.fidelity import fidelity_of
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.reports.comparison.comparison_report import (
    SplitComparison,
    compare_runs,
    required_resamples,
)
from keras_xmr.experiments.reports.comparison.method_tables import (
    deviation_of,
    is_significant,
    mean_of,
    relevance_tables,
)
from keras_xmr.experiments.reports.comparison.run_results import ComparisonError, read_runs
from keras_xmr.experiments.reports.comparison.side_by_side import wins
from keras_xmr.experiments.reports.pages import explain
from keras_xmr.experiments.reports.result_tables import (
    embedding_lines,
    plain_lines,
    result_tables,
    verdict_line,
)
from keras_xmr.experiments.runs.configs import is_evaluated, write_config
from keras_xmr.metrics.bootstrap import difference, holm, resampled_means
from keras_xmr.metrics.results import Results
from keras_xmr.utils.directions import DIRECTIONS, full_name
from keras_xmr.utils.errors import ConfigError, UserError

SKILLS = {"good": 3.0, "fair": 1.5, "twin": 1.5}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Two seeds of three methods, of which two are equally good. Only to be read."""
    folder = tmp_path_factory.mktemp("finished")
    for seed in (0, 1):
        for name, skill in SKILLS.items():
            uncertainty = 0.1 * seed + 0.5 if name == "good" else None
            # Not the same noise as the other.
            twin = {"noise_seed": 50 + seed, "is_alone": True} if name == "twin" else {}
            run = f"{name}-seed{seed}"
            finished_run(folder, run, seed, skill, uncertainty=uncertainty, **twin)
    return folder


@pytest.fixture
def folders(finished, tmp_path) -> list[Path]:
    """A copy of the runs of `finished`."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return [tmp_path / f"{name}-seed{seed}" for seed in (0, 1) for name in SKILLS]


@pytest.fixture
def methods(folders):
    return read_runs(folders)["test"]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def tables_of(methods) -> dict:
    tables = SplitComparison("test", methods).tables
    return {(t.judgements, t.is_own, t.results[0].reranker): t for t in tables}


def test_means_and_deviations_over_seeds(methods):
    found = tables_of(methods)
    recalls = [
        run.results.select(method="model", matcher="match_probability", reranker="", queries="all")
        .select(judgements="annotated")
        .summary()["i2t_recall_1"]
        for run in methods["good"]
    ]
    runs = found["annotated", True, ""].rows["good"]["i2t_recall_1"]
    assert mean_of(runs) == pytest.approx(np.mean(recalls))
    assert deviation_of(runs) == pytest.approx(abs(recalls[0] - recalls[1]) / np.sqrt(2))
    assert deviation_of(runs[:1]) is None
    truth = found["truth", True, ""]
    assert mean_of(truth.rows["good"]["t2i_uncertainty_of_truth"]) == pytest.approx(0.55)
    assert "t2i_uncertainty_of_truth" not in truth.rows["fair"]
    wide = truth.wide_table("test", Results())
    row = next(r for r in wide.rows if r[0] == "good")
    assert row[1] == "2"
    assert row[-1] == "+0.55 ±0.07"
    assert wide.rows[1][-1] == "-"
    assert wide.header[:3] == ["method", "runs", "i2t\nR@1"]


def test_pairs_are_those_of_a_bootstrap_of_their_own(methods):
    methods = {name: runs[:1] for name, runs in methods.items()}
    pairs = {
        (row.judgements, row.name, row.method, row.minus): row
        for row in compare_runs("test", methods)
    }

    def per_query(name: str, metric: str) -> np.ndarray:
        return methods[name][0].queries.values["truth"][metric]

    found = pairs["truth", "t2i_map_at_r", "fair", "good"]
    left, right = per_query("fair", "t2i_map_at_r"), per_query("good", "t2i_map_at_r")
    apart = (left - right)[:, None]
    level = 0.05 * found.p / found.p_holm
    alone = difference(apart.mean(), resampled_means(apart, OWNER)[:, 0], level)
    assert found.value == pytest.approx(alone.value, abs=1e-6)
    assert found.low == pytest.approx(alone.low, abs=1e-6)
    assert found.high == pytest.approx(alone.high, abs=1e-6)
    family = [p for k, p in pairs.items() if k[:2] == ("truth", "t2i_map_at_r") and p.minus]
    assert len(family) == 3
    np.testing.assert_allclose([p.p_holm for p in family], holm([p.p for p in family]))
    rsum = pairs["annotated", "rsum", "fair", "good"]
    rows = tables_of(methods)["annotated", True, ""].rows
    own = {name: mean_of(rows[name]["rsum"]) for name in ("good", "fair")}
    assert rsum.value == pytest.approx(own["fair"] - own["good"], abs=1e-4)
    assert is_significant(rsum)
    assert not is_significant(pairs["annotated", "rsum", "twin", "fair"])
    assert ("annotated", "i2t_asp", "fair", "good") in pairs


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_only_what_all_runs_have_is_tested(folders, tmp_path):
    queries = folders[0] / "evaluation" / "test" / "queries-test.npz"
    arrays = {n: v for n, v in np.load(queries).items() if "truth" not in n and "asp" not in n}
    # Written before captions had an image, and with label vectors of which one finds nobody.
    del arrays["caption_image"], arrays["captions"]
    np.savez(queries, **arrays)
    for number, folder in enumerate(folders):
        path = folder / "evaluation" / "test" / "queries-test.npz"
        more = {f"i2t_pmrp_{zeta}": np.full(IMAGES, 0.1 * number) for zeta in range(2)}
        more["i2t_pmrp_2"] = np.full(IMAGES, np.nan)
        prefixed = {f"match_probability/{name}": values for name, values in more.items()}
        np.savez(path, **np.load(path), **prefixed)
    methods = read_runs(folders)["test"]
    pairs = [row for row in compare_runs("test", methods) if row.minus]
    assert {pair.judgements for pair in pairs} == {"annotated"}
    assert not [pair for pair in pairs if pair.metric == "asp"]
    (note,) = [note for note in SplitComparison("test", methods).notes if "not tested" in note]
    assert note.startswith("ASP is not tested: its value per query")
    pmrp = [pair.value for pair in pairs if pair.name == "i2t_pmrp"]
    np.testing.assert_allclose(pmrp, [0.1, 0.2, 0.1], atol=1e-6)
    found = wins(methods, "annotated")
    assert {win.text for of_pair in found.values() for win in of_pair} == {""}
    compare([], folders, tmp_path / "out")


def test_many_methods_get_enough_resamples():
    assert required_resamples(13) == 10_000
    for count in (2, 30, 60):
        pairs = count * (count - 1) / 2
        assert 2 / (required_resamples(count) + 1) * pairs < 0.05


def test_a_run_that_ties_many_pairs_is_named(methods):
    assert not [line for line in SplitComparison("test", methods).notes if "ties" in line]
    run = methods["fair"][0]
    tied = [r._replace(value=0.4) if (r.metric, r.matcher) == ("tied", "elk") else r
            for r in run.results]  # fmt: skip
    vars(run)["results"] = Results(tied)
    (line,) = [n for n in SplitComparison("test", methods | {"fair": [run]}).notes if "ties" in n]
    assert line.startswith("fair: elk ties 40 % of the pairs")


def test_rows_and_notes_say_what_is_adapted(folders, tmp_path):
    fidelity = fidelity_of(load_config(find_config("scenes_pcme")))
    changed = finished_run(tmp_path, "changed", 0, 1.0, fidelity=fidelity)
    comparison = SplitComparison("test", read_runs([folders[0], changed.path])["test"])
    for table in comparison.tables:
        names = [row[0] for row in table.table("").rows]
        label = f"changed ({fidelity.label})"
        assert {label, f"{label}, elk"} & set(names)
        assert names[0].startswith("good")
    assert f"changed: {fidelity.sentence}" in comparison.notes


def test_wins_are_the_queries_furthest_ahead(methods):
    found = wins(methods, "truth", count=3)
    for direction, ids in zip(DIRECTIONS, (IMAGES, CAPTIONS), strict=True):
        reciprocal = {
            name: np.mean(
                [1 / r.queries.values["truth"][full_name(direction, "rank")] for r in runs], axis=0
            )
            for name, runs in methods.items()
        }
        ahead = reciprocal["good"] - reciprocal["fair"]
        assert len(ahead) == ids
        own = [win for win in found["good", "fair"] if win.direction == direction]
        assert {(win.winner, win.loser) for win in own} == {("good", "fair")}
        assert len(own) == 3
        numbers = [int(win.query.split()[1]) for win in own]
        np.testing.assert_allclose(ahead[numbers], np.sort(ahead)[::-1][:3])
        assert own[0].ranks[0] == pytest.approx(1 / reciprocal["good"][numbers[0]])
        assert [w.text for w in own] == [
            f"text of {n}" if direction == "text_to_image" else "" for n in numbers
        ]


@pytest.mark.parametrize(
    ("skills", "begins"),
    [
        ({"bad": -1.0, "worse": -2.0}, "No method is better than chance. bad has an RSUM of "),
        ({"bad": -1.0}, "bad is not better than chance. bad has an RSUM of "),
        ({"good": 3.0, "bad": -1.0}, "bad is not better than chance. good has an RSUM of "),
        ({"good": 3.0}, "good has an RSUM of "),
        ({"a": 3.0, "b": 3.0, "bad": -1.0}, "bad is not better than chance. a and b have the "),
    ],
)
def test_what_is_no_better_than_chance_is_not_called_the_highest(skills, begins, tmp_path):
    runs = [finished_run(tmp_path, name, 0, skill) for name, skill in skills.items()]
    verdict = SplitComparison("test", read_runs([run.path for run in runs])["test"]).verdict
    assert verdict.startswith(begins)
    assert (", the highest; " in verdict) == (list(skills) == ["good", "bad"])
    assert "A random ranking has " in verdict
    assert (", the highest. The difference of 0.0 " in verdict) == (len(skills) == 3)


@pytest.mark.slow
def test_reports(folders, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(Figure, "tight_layout", lambda self: None)  # It draws all twice.
    compare([], folders, tmp_path / "out")
    printed = capsys.readouterr().out
    for text in ("exhaustive truth", "±", "transductive", "Holm", "differences in RSUM"):
        assert text in printed
    verdict, _, tables = printed.strip().partition("\n\n")
    assert max(map(len, tables.split("Differences: ")[0].splitlines())) < 150
    assert verdict.startswith("good has an RSUM of ")
    assert re.search(
        r"The difference of \+\S+ \(95 % interval \+\S+ to \+\S+\) is significant", verdict
    )
    folder = tmp_path / "out" / "test"
    results = Results.read(folder / "results.csv")
    own = results.select(judgements="truth", metric="rsum", minus="", seed=[0, 1])
    assert {(r.method, r.matcher, r.reranker) for r in own} == {
        *((name, "match_probability", "") for name in SKILLS),
        *((name, "elk", "") for name in ("good", "fair")),
        *((name, "match_probability", "fast_reranking") for name in ("good", "fair")),
        ("chance", "", ""),
    } - {("chance", "", "")}
    assert len([row for row in results if row.minus]) == 3 * (2 * 13 + 2)
    assert {r["caption"][:4] for r in read_csv(folder / "wins.csv")} == {"", "text"}
    markdown = (folder / "report.md").read_text("utf-8")
    for row in re.findall(r"^\|.*\|$", markdown, re.M):
        assert row.count("|") > 3
    assert "### test, exhaustive truth" in markdown
    page = (folder / "report.html").read_text("utf-8")
    pictures = list(folder.glob("*.png"))
    assert page.count("data:image/png") == page.count("<figcaption>") == len(pictures) == 6
    assert all(Image.open(path).width <= 1000 for path in pictures)  # the page is 1,100 wide
    assert page.count("<details>") == 6
    assert "hatched" in page
    assert "hatched" not in explain("compared_bars", 1)
    assert page.index("transductive") > page.index("<h2>Other matchers, and re-ranking</h2>")
    assert "Content-Security-Policy" in page.partition("<title>")[0]
    assert "not significant" in page
    assert f'<p class="verdict">{verdict}</p>' in page
    assert "<dt>fast_reranking</dt>" in page
    truth = re.search(r"### test, exhaustive truth\n\n.*?\n\n", markdown, re.S)[0]
    rows = {row.split(" | ")[0]: row.split(" | ") for row in truth.strip().splitlines()[4:]}
    assert list(rows) == ["| good", "| fair", "| twin", "| chance"]
    assert rows["| good"][2].startswith("**")
    assert not re.search(r"\*\*", "".join([*rows["| fair"], *rows["| chance"]]))
    # Of 120 captions four are right for an image.
    assert rows["| chance"][2] == "3.3"
    assert {r["method"] for r in read_csv(folder / "recall.csv")} == {*SKILLS, "chance"}


def test_the_file_alone_has_all_figures_of_a_report(finished, tmp_path, monkeypatch, capsys):
    """Also those that the page on measuring reads."""
    page = (Path(__file__).parents[5] / "docs" / "how_to" / "measure.md").read_text("utf-8")
    block = next(b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "results.csv" in b)
    whole = finished / "good-seed0" / "evaluation" / "test"
    folder = tmp_path / "saved_models" / "scenes_pcme" / "evaluation" / "test"
    folder.mkdir(parents=True)
    shutil.copy(whole / "results.csv", folder)  # Nothing else of the run.
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("pandas")
    exec(compile(block, "measure.md", "exec"), {})
    assert "image_to_text match_probability" in capsys.readouterr().out
    results = Results.read(folder / "results.csv")
    text = "\n".join([*plain_lines(results), verdict_line(results), *embedding_lines(results)])
    assert "better than chance: RSUM" in text
    titles = [table.title for table in result_tables(results)]
    assert "test: 60 images, 120 captions, exhaustive truth" in titles
    assert any("re-ranked by fast_reranking" in title for title in titles)


@pytest.mark.usefixtures("undrawn")
def test_one_method_alone_has_no_differences(folders, tmp_path):
    compare([], folders[:1], tmp_path / "out")
    assert {path.suffix for path in (tmp_path / "out" / "test").iterdir()} == {
        ".csv", ".html", ".md", ".png", ".tex"}  # fmt: skip
    assert not any(row.minus for row in Results.read(tmp_path / "out" / "test" / "results.csv"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name: x", r"x: its config has no evaluation\.splits"),
        (b"evaluation: {splits: 5}", r"x: its config has no evaluation\.splits"),
        (b"evaluation: 5", r"x: its config has no evaluation\.splits"),
        (b"evaluation: {splits: [test]}", "x: its config has no evaluation"),
        (b"a: [", r"config\.yaml:\d: not valid YAML"),
        (b"\xff", r"config\.yaml: not valid YAML"),
    ],
)
def test_a_run_with_a_damaged_config_is_named(tmp_path, content, says):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/config.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        read_runs([tmp_path / "x"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation/test/results.csv", b""),
        ("evaluation/test/results.csv", b"\xff"),
        ("evaluation/test/results.csv", b"[]"),
        ("evaluation/test/queries-test.npz", b"PK"),
        ("evaluation/test/queries-test.npz", b"PK\5\6" + bytes(18)),
        ("logs/training.csv", b"step,val_rsum\n1,\xff\n"),
        ("logs/training.csv", b"step,val_rsum\n1,x\n"),
        ("logs/training.csv", b"stup,val_rsum\n1,2\n"),
    ],
)
def test_damaged_files_of_a_run_are_named(finished, tmp_path, name, content):
    run = Path(shutil.copytree(finished / "fair-seed0", tmp_path / "b"))
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(content)

    def read():
        return [
            own.training_log
            for (own,) in read_runs([finished / "good-seed0", run])["test"].values()
        ]

    with pytest.raises(ComparisonError, match=f"b/{name} is damaged"):
        read()


@pytest.mark.slow
def test_a_changed_figure_is_noticed(folders):
    path = folders[1] / "evaluation" / "test" / "results.csv"
    changed = [r._replace(value=0.1) if r.metric == "recall_5" else r for r in Results.read(path)]
    Results(changed).write(path)
    with pytest.raises(ComparisonError, match=r"results\.csv was changed; evaluate this run again"):
        read_runs(folders)


@pytest.mark.slow
def test_runs_that_cannot_be_compared(folders, tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        read_runs([*folders, tmp_path / "nothing"])
    with pytest.raises(ConfigError, match="two runs are named good-seed0"):
        read_runs([folders[0], folders[0]])
    val = ("evaluation.splits=[val]",)
    other = finished_run(tmp_path, "val", 0, 1.0, val, split="val")
    with pytest.raises(ConfigError, match="no evaluated split in common"):
        read_runs([folders[0], other.path])
    cider_d = finished_run(tmp_path, "cider_d", 0, 1.0, ("relevance.measure=cider_d",))
    with pytest.raises(ConfigError, match=r"relevance\.measure is cider in one, and cider_d"):
        read_runs([folders[0], cider_d.path])
    moved = finished_run(tmp_path, "moved", 0, 1.0, prefix="new ")
    with pytest.raises(ComparisonError, match="different test sets: 120 image ids are in only one"):
        read_runs([folders[0], moved.path])
    moved.queries("test").unlink()
    with pytest.raises(ComparisonError, match="evaluate this run again"):
        read_runs([folders[0], moved.path])


def test_every_config_runs_with_every_seed():
    runs = plan_runs(["scenes_vse*", "scenes_pcme"], [0, 3], ["train.batch_size=32"])
    assert [run.config.name for run in runs] == [
        f"{name}-seed{seed}"
        for seed in (0, 3)
        for name in ("scenes_vse0", "scenes_vsepp", "scenes_pcme")
    ]
    assert {run.config.seed for run in runs} == {0, 3}
    assert {run.config.train.batch_size for run in runs} == {32}
    assert runs[0].arguments("train")[:1] == ["train"]
    overrides = [a.removeprefix("--set=") for a in runs[-1].arguments("train") if "--set" in a]
    assert load_config(runs[-1].source, overrides) == runs[-1].config


@pytest.mark.slow
def test_all_methods_on_scenes_can_be_compared():
    runs = plan_runs(["scenes_*"], [0])
    assert len(runs) > 10
    assert len({run.config.data.records for run in runs}) == 1


def test_plans_that_make_no_sense(tmp_path):
    for patterns, seeds, overrides, says in (
        (["scenes_pcem"], [0], [], "Did you mean 'scenes_pcme'"),
        (["nothing_*"], [0], [], "no config matches 'nothing_\\*'"),
        (["scenes_vsepp", "scenes_vse*"], [0], [], "both named 'scenes_vsepp'"),
        (["scenes_pcme"], [1, 1], [], "duplicate seed"),
        (["scenes_pcme"], [0], ["seed=3"], "use --seeds"),
        (["scenes_pcme"], [0], ["name=x"], "names its runs itself"),
        (["scenes_pcme", "cub_pcme"], [0], [], "data.judgements is pairs in one, and classes"),
    ):
        with pytest.raises(ConfigError, match=says):
            plan_runs(patterns, seeds, overrides)
    finished_run(tmp_path, "scenes_pcme-seed0", 0, 1.0, ("train.batch_size=32",))
    with pytest.raises(ConfigError, match="holds a run with another config"):
        plan_runs(["scenes_pcme"], [0], [f"output={tmp_path}"])


class Command:
    """Stands for the command line: notes what is started, and fails where it is told to."""

    def __init__(self, output: Path, fails: tuple[str, str] = ("", "")) -> None:
        self.output, self.fails = output, fails
        self.started: list[tuple[str, str]] = []

    def __call__(self, command, **options) -> int:
        assert not options.get("shell")
        mode = command[3]
        values = dict(a.removeprefix("--set=").split("=", 1) for a in command if "--set=" in a)
        self.started.append((mode, values["name"]))
        code = int(self.fails == (mode, values["name"]))
        if mode == "prepare":
            Path(values["data.records"]).mkdir(exist_ok=True)
            (Path(values["data.records"]) / "manifest.json").write_text("{}")
        elif mode == "evaluate" and not code:
            finished_run(
                self.output, values["name"], int(values["seed"]), 2.0,
                (f"data.records={values['data.records']}",),
            )  # fmt: skip
        return code


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_only_what_is_missing_is_done(tmp_path, monkeypatch):
    overrides = [f"output={tmp_path}", f"data.records={tmp_path / 'records'}"]
    plan = ["scenes_pcme"], [0, 1, 2], overrides
    command = Command(tmp_path, ("train", "scenes_pcme-seed1"))
    monkeypatch.setattr("keras_xmr.commands._comparison._run", command)
    with pytest.raises(UserError, match=r"1 of 3 runs failed(.|\n)*seed1: `train` ended"):
        compare(plan_runs(*plan), [])
    names = [f"scenes_pcme-seed{seed}" for seed in range(3)]
    assert command.started == [
        ("prepare", names[0]),
        ("train", names[0]),
        ("evaluate", names[0]),
        ("train", names[1]),
        ("train", names[2]),
        ("evaluate", names[2]),
    ]
    results = Results.read(tmp_path / "comparison" / "test" / "results.csv")
    assert set(results.select(method="scenes_pcme").distinct("seed")) == {0, 2, None}

    command = Command(tmp_path)
    monkeypatch.setattr("keras_xmr.commands._comparison._run", command)
    compare(plan_runs(*plan), [])
    assert command.started == [("train", names[1]), ("evaluate", names[1])]


def test_a_comparison_that_is_told_to_end_ends_its_run_first(tmp_path):
    script = (
        "import os, signal, sys, time\n"
        "def end(*_):\n"
        "    open(sys.argv[1], 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # This process is to outlive a failure.
    try:
        with pytest.raises(SystemExit) as ended:
            _run([sys.executable, "-c", script, str(tmp_path / "ended")])
        assert ended.value.code == 128 + signal.SIGTERM
        assert (tmp_path / "ended").exists()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def interruptible():
    """A process that was started in the background may ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_comparison_that_is_interrupted_ends_its_run_first(interruptible):
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(60)\n"
    )
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _run([sys.executable, "-c", script])
    assert time.monotonic() - begin < 30


def test_records_that_cannot_be_written_fail_all_their_runs(tmp_path, monkeypatch):
    overrides = [f"output={tmp_path}", f"data.records={tmp_path / 'records'}"]
    runs = plan_runs(["scenes_vse*"], [0, 1], overrides)
    command = Command(tmp_path, ("prepare", "scenes_vse0-seed0"))
    monkeypatch.setattr("keras_xmr.commands._comparison._run", command)
    with pytest.raises(UserError, match="4 of 4 runs failed"):
        compare(runs, [])
    assert command.started == [("prepare", "scenes_vse0-seed0")]


@pytest.mark.slow
def test_other_test_sets_are_seen_before_the_training(tmp_path, monkeypatch):
    runs = []
    for name, test in (("few", 4), ("many", 5)):
        source = f"data.source={{name: scenes, train: 4, val: 4, test: {test}}}"
        config = tiny_config(tmp_path, f"name={name}", source, f"data.records={tmp_path / name}")
        prepare(config.data)
        (tmp_path / f"{name}.yaml").write_text(dump_config(config))
        runs += plan_runs([str(tmp_path / f"{name}.yaml")], [0])
    command = Command(tmp_path)
    monkeypatch.setattr("keras_xmr.commands._comparison._run", command)
    with pytest.raises(ComparisonError, match=r"few-seed0 and many-seed0(.|\n)*test/000004"):
        compare(runs, [])
    assert not command.started


@pytest.mark.slow
def test_another_evaluation_is_done_again(tmp_path):
    run = finished_run(tmp_path, "run", 0, 1.0)
    config = load_config(run.config)
    assert is_evaluated(run, config)
    more = load_config(run.config, ["evaluation.matchers=[elk]"])
    assert not is_evaluated(run, more)
    write_config(run, config)
    assert is_evaluated(run, config), "the same config again changes nothing"
    write_config(run, more)
    assert not is_evaluated(run, more), "these figures are older than the config"
    assert load_config(run.config) == more
    run.done.unlink()
    assert not is_evaluated(run, config)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare"], "give --configs, or --runs"),
        (
            ["evaluate", "--configs=scenes_pcme"],
            "has no option --configs. Did you mean '--config'?",
        ),
        (["compare", "--configs=scenes_pcme", "--seeds=0,x"], "'x' is not a valid integer"),
        (["compare", "--runs=a", "--seeds=1"], "--seeds needs --configs"),
        (["compare", "--config=scenes_pcme"], "Did you mean '--configs'?"),
        (["compare", "--runs=saved_models/a"], "saved_models/a holds no run"),
        (["compare", "--configs=scenes_pcem"], "error: --configs: scenes_pcem is neither a file"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["main.py", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("eager", "undrawn")
def test_from_a_config_and_a_run_to_a_report(tmp_path, trained, monkeypatch, capsys):
    splits = "evaluation.splits=[test]"
    first = copy_of(trained, tmp_path / "first", splits, "name=first-seed0")
    first.folder.config.write_text(dump_config(first.config))
    overrides = (f"output={tmp_path / 'first' / 'saved_models'}", "name=first", splits)
    records = f"data.records={first.config.data.records}"
    (tmp_path / "first.yaml").write_text(
        dump_config(tiny_config(tmp_path, RECURRENT, records, *overrides))
    )
    arguments = ["main.py", "compare", "--configs=first.yaml"]

    def in_this_process(command, **_):
        cli.main(["main.py", *command[3:]])
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keras_xmr.commands._comparison._run", in_this_process)
    cli.main(arguments)
    assert "[1/1] first-seed0" in capsys.readouterr().err
    other = shutil.copytree(first.folder.path, tmp_path / "other")
    monkeypatch.setattr(
        "keras_xmr.commands._comparison._run", lambda *_, **__: pytest.fail("trained")
    )
    cli.main([*arguments, f"--runs={other}"])
    assert capsys.readouterr().err.count("trained and evaluated before") == 1
    folder = tmp_path / "first" / "saved_models" / "comparison" / "test"
    differences = [row for row in Results.read(folder / "results.csv") if row.minus]
    assert {row.value for row in differences} == {0.0}


def test_r_precision_by_the_number_of_relevant_items(tmp_path):
    """By the truth of these runs captions of some photos have three more that are right."""
    uneven = {}
    for name, skill in (("good", 3.0), ("bad", 0.0)):
        run = finished_run(tmp_path, name, 0, skill)
        uneven[name] = run.path
    comparison = SplitComparison("test", read_runs(list(uneven.values()))["test"])
    # Each image has two right captions, and by the truth four: all queries of a side are alike.
    assert comparison.by_relevance == []
    truth = comparison.runs.select(judgements="truth", queries="all", metric="r_precision")
    more = [row._replace(queries="5 to 8", value=0.25, n=7) for row in truth]
    known = comparison.runs + Results(more)
    own, titles = dict.fromkeys(uneven, "match_probability"), {"good": "good (adapted)"}
    (table,) = relevance_tables(known, own, titles, "test")
    assert table.header == [
        "method",
        *("i2t\nR = 3 to 4", "i2t\nR = 5 to 8"),
        *("t2i\nR = 2", "t2i\nR = 5 to 8"),
    ]
    assert [row[0] for row in table.rows] == ["good (adapted)", "bad", "queries"]
    assert table.rows[0][2] == "25.0"
    assert table.rows[-1] == ["queries", "60", "7", "120", "7"]
    assert float(table.rows[0][1]) > float(table.rows[1][1])
