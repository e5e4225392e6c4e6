"""Every ablation of the papers: a row of a grid that changes few keys of a config."""

from __future__ import annotations

import functools
import re

import pytest
import yaml

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import (
    config_title,
    find_config,
    find_configs,
    packaged_ablations,
    packaged_configs,
)
from keras_xmr.experiments.config.yaml_file import split_row
from keras_xmr.utils.errors import ConfigError

ABLATIONS = packaged_ablations()


def test_ablations_stand_apart_from_the_other_configs():
    assert not set(ABLATIONS) & set(packaged_configs())
    assert find_configs("ablations/*") == list(ABLATIONS.values())
    assert not set(find_configs("scenes_*")) & set(ABLATIONS.values())
    of_figure = find_configs("f30k_dvse_regions_beta_*")
    assert of_figure == find_configs("ablations/f30k_dvse_regions_beta_*") != []
    for name in (
        "cub_pcme_j1",
        "ablations/cub_pcme_j1",
        "configs/ablations/chun2021.yaml#cub_pcme_j1",
    ):
        assert find_config(name).resolve() == ABLATIONS["cub_pcme_j1"].resolve()
    with pytest.raises(ConfigError, match="'cub_pcme_j1'"):
        find_config("cub_pcme_j11")
    with pytest.raises(ConfigError, match="ablations/nothing"):
        find_configs("ablations/nothing_*")


def test_a_grid_of_ones_own_has_rows(tmp_path):
    base = ABLATIONS["cub_pcme_j1"].parent.parent / "scenes_vse0.yaml"
    (tmp_path / "mine.yaml").write_text(f"include: {base}\nname: mine\n")
    (tmp_path / "grid.yaml").write_text(
        "mine:\n  narrow:\n    title: Few dimensions\n    model.dimension: 8\n"
        "  wrong:\n    title: A mistake\n    model.dimensions: 8\n"
        "  untitled: {model.dimension: 8}\n"
    )
    grid = f"{tmp_path}/grid.yaml"
    assert config_title(find_config(f"{grid}#narrow")) == "Few dimensions"
    assert config_title(find_config(f"{grid}#untitled")) == ""
    config = load_config(find_config(f"{grid}#narrow"))
    assert (config.name, config.model.dimension) == ("narrow", 8)
    for read in (config_title, load_config):
        with pytest.raises(ConfigError, match=r"unknown row 'narow'\. Did you mean 'narrow'\?"):
            read(find_config(f"{grid}#narow"))
    with pytest.raises(ConfigError, match=r"grid\.yaml:7: model\.dimensions: unknown key"):
        load_config(find_config(f"{grid}#wrong"))


@pytest.fixture(scope="module")
def loaded():
    return {name: load_config(path) for name, path in ABLATIONS.items()}


def row_of(name):
    """The name and the config of the row that an ablation changes."""
    grid, row = split_row(ABLATIONS[name])
    groups = yaml.safe_load(grid.read_text("utf-8"))
    (base,) = [base for base, rows in groups.items() if row in rows]
    return base, load(base)


@functools.cache
def load(name):
    return load_config(packaged_configs()[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_ablation_changes_little_of_a_row_and_says_what(name, loaded):
    config, (included, row) = loaded[name], row_of(name)
    assert config.name == name
    assert name.startswith(f"{included}_")
    assert re.search(r"20\d\d", config.paper.source)
    assert config.paper.row not in (None, getattr(row.paper, "row", None))
    if config.paper.figures:
        assert config.paper.images == row.paper.images
    # The data is the same, and something else is not.
    assert config.data == row.data
    kept = {"name", "paper"}
    assert config.model_dump(exclude=kept) != row.model_dump(exclude=kept)
    assert not (name.startswith("scenes_") and config.paper.figures), "figures of other data"


def test_tables_of_the_papers_are_complete(loaded):
    rows = [config.paper for config in loaded.values()]
    for source, count in (
        ("Wei et al. 2023, Table V", 6),
        ("Wei et al. 2023, Table VI", 12),
        ("Wang et al. 2023, Table 4", 3),
    ):
        printed = [paper for paper in rows if paper.source == source]
        assert len(printed) == count
        assert all(paper.figures for paper in printed)
