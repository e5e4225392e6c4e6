"""Every ablation of the papers: a small config that changes few keys of a row, and stands apart."""

from __future__ import annotations

import functools
import re

import methods
import models
import numpy as np
import pytest

from keras_xmr.config.loader import (
    ConfigError,
    find_config,
    find_configs,
    load_config,
    packaged_ablations,
    packaged_configs,
)

ABLATIONS = packaged_ablations()


def test_ablations_stand_apart_from_the_other_configs():
    assert not set(ABLATIONS) & set(packaged_configs())
    assert find_configs("ablations/*") == list(ABLATIONS.values())
    assert not set(find_configs("scenes_*")) & set(ABLATIONS.values())
    of_figure = find_configs("f30k_dvse_regions_beta_*")
    assert of_figure == find_configs("ablations/f30k_dvse_regions_beta_*") != []
    for name in ("cub_pcme_j1", "ablations/cub_pcme_j1", "configs/ablations/cub_pcme_j1.yaml"):
        assert find_config(name).resolve() == ABLATIONS["cub_pcme_j1"].resolve()
    with pytest.raises(ConfigError, match="'cub_pcme_j1'"):
        find_config("cub_pcme_j11")
    with pytest.raises(ConfigError, match="ablations/nothing"):
        find_configs("ablations/nothing_*")


@pytest.fixture(scope="module")
def loaded():
    return {name: load_config(path) for name, path in ABLATIONS.items()}


def row_of(name):
    """The name and the config of the row that an ablation changes."""
    text = ABLATIONS[name].read_text("utf-8")
    (included,) = re.findall(r"^include: \.\./(\w+)\.yaml$", text, re.M)
    return included, load(included)


@functools.cache
def load(name):
    return load_config(packaged_configs()[name])


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablation_changes_little_of_a_row_and_says_what(name, loaded):
    config, (included, row) = loaded[name], row_of(name)
    assert config.name == name
    assert name.startswith(f"{included}_")
    assert re.search(r"20\d\d", config.paper.source)
    assert config.paper.row not in (None, getattr(row.paper, "row", None))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["scenes_dvse_k1", "scenes_msrm_mean_only", "scenes_pcme_no_local_attention"]
)
def test_an_ablation_of_each_kind_trains(name):
    model = methods.build(load_config(find_config(name)), 8)
    model.compile(optimizer="adam", run_eagerly=True)
    x, y = models.batch(8)
    model.train_on_batch(x, y)
    assert np.isfinite(model.last_values.numpy()).all()
