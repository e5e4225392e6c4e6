"""The commands of docs/how_to/reproduce.md run on samples; docs/tables/rows.csv lists the rows.

Its commands are those that train one config of each family of the papers, so this is where that
is tested. No model is exported here; test_saved_model.py and test_pretrained_run.py do that.
"""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import raw_data
import tiny_presets
from matplotlib.figure import Figure

from keras_xmr.commands import command_names
from keras_xmr.commands._comparison import plan_runs
from keras_xmr.experiments.config.fidelity import fidelity_text
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config, packaged_configs
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.metrics.results import Results

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "how_to" / "reproduce.md"

# VSE0 is made of the parts of VSE++.
FAMILIES = ("pcme_bert", "sgraf", "dvse", "msrm", "vsepp", "vsrn", "pvse")


def commands() -> list[list[str]]:
    """The arguments of every command of the guide."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    parsed = [shlex.split(line, comments=True) for line in lines if line.strip()]
    assert all(line[0] == "keras-xmr" for line in parsed)
    return [line[1:] for line in parsed]


def command_of(arguments: list[str]) -> str:
    """The command of a line."""
    return "run" if arguments[0].startswith("-") else arguments[0]


def options(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """The flags of a line, and what it sets."""
    flags, overrides, rest = {}, [], arguments[not arguments[0].startswith("-") :]
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        value = value if equals else rest.pop(0)
        if name == "--set":
            overrides.append(value)
        else:
            flags[name] = value
    return flags, overrides


RUNS = [line for line in commands() if command_of(line) in ("run", "prepare")]
ALWAYS = "f30k_dvse_regions"
"""The config that the suite trains. The others are heavy."""


def _heavy_if_other(line: list[str]) -> Any:
    trains = command_of(line) == "run" and options(line)[0]["--config"] != ALWAYS
    return pytest.param(line, marks=pytest.mark.heavy if trains else ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    raw_data.write_raw_data(folder)
    tiny_presets.bert(folder / "bert")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [*map(_heavy_if_other, RUNS)], ids=" ".join)
def test_guide_can_be_followed_with_samples(arguments, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    flags, overrides = options(arguments)
    assert set(flags) <= {"--config"}
    name, prepares = flags["--config"], command_of(arguments) == "prepare"
    # What the command sets comes last, and counts.
    small = raw_data.small_overrides(name, folder / "bert")
    config = load_config(find_config(name), [*small, *overrides])
    monkeypatch.setattr(Experiment, "export", lambda self: None)
    # test_evaluation.py draws a report; to arrange and to draw a dozen pictures takes seconds.
    monkeypatch.setattr(Figure, "tight_layout", lambda self: None)
    monkeypatch.setattr(Figure, "savefig", lambda self, path, dpi: path.write_bytes(b""))
    experiment = Experiment(config)
    if prepares:
        experiment.prepare()
    else:
        experiment.run()
    printed = capsys.readouterr().out
    assert config.data.is_prepared
    if prepares:
        assert "captions" in printed
        return
    check_paper_column(config, printed)


def check_paper_column(config, printed):
    """The figures of the paper stand beside ours: in the terminal, in JSON and on the page."""
    evaluation = config.folder / "evaluation" / "test"
    results = Results.read(evaluation / "results.csv")
    page = (evaluation / "report.html").read_text("utf-8")
    source = f"reported: {config.paper.source}"
    printed_rows = [r for r in results if r.method.startswith(f"{source}: ")]
    assert len(printed_rows) == sum(len(f.values) for f in config.paper.figures)
    for row in printed_rows:
        key = {name: getattr(row, name) for name in ("matcher", "reranker", "queries", "metric")}
        ours = results.select(method="model", judgements="annotated", minus="", **key)
        # Regions have no labels.
        unknown = row.metric == "pmrp" and config.data.source.holds == "regions"
        assert (not ours.select(direction=row.direction)) == unknown, row.name
        assert f"{row.matcher}: difference" in printed
    if config.paper.figures:
        assert f"compared with {config.paper.source}" in printed
        assert f"compared with {config.paper.source}" in page


def test_guide_has_a_run_of_every_family():
    runs = [options(line)[0] for line in RUNS if command_of(line) == "run"]
    names = {flags["--config"].partition("_")[2] for flags in runs}
    for family in FAMILIES:
        assert any(name.startswith(family) for name in names), family


def test_guide_compares_and_lists_what_is_there():
    others = {command_of(line): options(line)[0] for line in commands() if line not in RUNS}
    assert set(others) == {"compare", "evaluate"} < set(command_names())
    compare, together = others["compare"], others["evaluate"]
    planned = plan_runs(compare["--configs"].split(","), [0, 1, 2])
    assert len(planned) == 6
    text = GUIDE.read_text("utf-8")
    for name in re.findall(r"`((?:coco|f30k|cub)_\w+)`", text):
        assert name in packaged_configs() or name.endswith("_precomp"), name
    for run_folder in together["--runs"].split(","):
        config = load_config(find_config(Path(run_folder).name))
        assert run_folder == str(config.folder)
        assert config.data == load_config(find_config(together["--config"])).data


@pytest.mark.slow
def test_guide_and_table_have_every_row():
    """Where its files are looked for, and what deviates from its paper."""
    text = GUIDE.read_text("utf-8")
    found = {}
    for name in packaged_configs():
        if name.startswith(("coco_", "f30k_", "cub_")):
            config = load_config(find_config(name))
            assert f"{config.data.source.root}/" in text, name
            vectors = getattr(config.model.text.encoder, "vectors", None)
            assert vectors is None or vectors in text
            if "pretrained" not in name:
                found[name] = fidelity_text(config.fidelity)
    with (ROOT / "docs" / "tables" / "rows.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["config"]: row["published or adapted"] for row in table} == found
    assert len(table) == len(found)
