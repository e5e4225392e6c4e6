"""Tables of results say of each row whether it is as published or adapted."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_modules import benchmark

from keras_xmr.config.fidelity import fidelity_text
from keras_xmr.config.loader import ConfigError, find_config, load_config, packaged_ablations
from keras_xmr.config.yaml_file import read_yaml

study = benchmark("published_or_adapted", "studies")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "results" / "rows.md"]
TABLES = [
    path for path in (ROOT / "docs" / "tables").glob("*.csv") if "methods.csv" not in path.name
]


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PAGES, *TABLES], ids=lambda path: path.name)
def test_rows_of_the_docs_say_what_is_adapted(study, path):
    text = path.read_text("utf-8")
    assert study.with_column(text, path.suffix) == text, (
        "python studies/published_or_adapted.py docs/results/*.md docs/tables/*.csv"
    )


def test_a_table_of_configs_gets_the_column(study):
    page = "\n".join(
        [
            "| group | method | RSUM |",
            "| ---: | --- | ---: |",
            "| 1 | `vsepp` | 3 |",
            "| 2 | chance | |",
            "",
            "| what | RSUM |",
            "| --- | ---: |",
            "| chance | 1 |",
        ]
    )
    adapted = study.with_column(page, ".md")
    assert adapted.splitlines()[:4] == [
        "| group | method | published or adapted | RSUM |",
        "| ---: | --- | --- | ---: |",
        "| 1 | `vsepp` | as published | 3 |",
        "| 2 | chance |  | |",
    ]
    assert adapted.splitlines()[4:] == page.splitlines()[4:]
    assert study.with_column(adapted, ".md") == adapted
    table = "method,RSUM\nscenes_dvse,3\nchance,1\n"
    adapted = study.with_column(table, ".csv")
    text = study.fidelity_of("scenes_dvse")
    assert adapted == f"method,published or adapted,RSUM\nscenes_dvse,{text},3\nchance,,1\n"
    assert study.with_column(adapted, ".csv") == adapted


def test_a_row_of_several_configs_names_those_that_differ(study):
    page = "| row | COCO | CUB |\n| --- | --- | --- |\n| VSE0 | `coco_pcme` | `cub_vse0` |\n"
    cell = study.with_column(page, ".md").splitlines()[2].split(" | ")[1]
    assert cell == (
        "`coco_pcme`: as published; `cub_vse0`: adapted: schedule of PCME, as none is published"
    )


def test_ablations_inherit_what_is_adapted(study):
    config = read_yaml(packaged_ablations()["scenes_dvse_no_mask"]).data
    assert fidelity_text(config["fidelity"]) == study.fidelity_of("scenes_dvse")


def test_another_word_for_it_is_refused():
    for text in ("'adopted: all'", "adapted", "{sigma: a | b}"):
        with pytest.raises(ConfigError, match="fidelity"):
            load_config(find_config("scenes_pcme"), [f"fidelity={text}"])
