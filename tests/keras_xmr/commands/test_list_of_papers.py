"""The configs of a paper, listed by its tables."""

from __future__ import annotations

import itertools
import re
from argparse import Namespace
from pathlib import Path

import pytest

from keras_xmr.commands import list as listing
from keras_xmr.experiments.config import packaged_configs as known
from keras_xmr.utils.errors import ConfigError


@pytest.fixture
def few(monkeypatch):
    """The configs of a few rows, in place of all."""
    configs, ablations = known.packaged_configs(), known.packaged_ablations()
    rows = ("cub_pcme", "scenes_dive", "f30k_dvse_regions", "f30k_pvse", "cub_msrm_seen")
    changed = ("f30k_dvse_regions_no_mask", "scenes_dvse_no_mask")
    monkeypatch.setattr(listing, "packaged_configs", lambda: {n: configs[n] for n in rows})
    monkeypatch.setattr(listing, "packaged_ablations", lambda: {n: ablations[n] for n in changed})


@pytest.mark.slow
def test_rows_stand_under_their_tables_with_what_they_aim_at(few, capsys):
    listing.run(Namespace(pattern="*", paper="wei2023"))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert [line for line in lines if not line.startswith(" ")] == [
        "Wei et al. 2023, Table II, Faster R-CNN + Bi-GRU",
        "Wei et al. 2023, Table II, ResNet-152 + Bi-GRU",
        "Wei et al. 2023, Table V",
        "Wei et al. 2023, Table V (on Flickr30K)",
    ]
    assert lines[1:3] == [
        "  f30k_dvse_regions: DVSE",
        "      adapted: the mask selects sub-embeddings, in Eq. 4 and in the embedding (our "
        "reading); cosines",
    ]
    assert "      DVSE + RR, reciprocal_neighbours: rsum=514" in lines
    at = lines.index("  f30k_dvse_regions_no_mask: combination 2: without DM")
    own = itertools.takewhile(lambda line: line.startswith(" " * 6), lines[at + 1 :])
    assert "      rsum=502.8" in own
    assert "  scenes_dvse_no_mask: combination 2: without DM" in lines[at:]


@pytest.mark.slow
def test_every_row_says_whether_it_was_run_and_at_which_size(few, monkeypatch, capsys):
    runs = {"scenes_dvse": "9 images", "scenes_dvse_no_mask": "8 images"}
    monkeypatch.setattr(listing, "packaged_runs", lambda: runs)
    listing.run(Namespace(pattern="*", paper="wei2023"))
    lines = capsys.readouterr().out.splitlines()
    said = [line.strip() for line in lines if "run here" in line]
    assert [text.partition(". It differs: ")[0] for text in said] == [
        "not run here; a relative was: scenes_dvse, 9 images",
        "not run here",
        "not run here; a relative was: scenes_dvse_no_mask, 8 images",
        "run here: 8 images",
    ]
    assert all(len(line) <= 100 for line in lines)


def test_what_was_run_has_a_config_and_a_page_with_its_row():
    configs = known.packaged_configs() | known.packaged_ablations()
    for name, run in known.packaged_runs().items():
        assert name in configs
        page = Path(__file__).parents[3] / re.search(r"\((docs/[\w/]+\.(?:md|csv))\)", run)[1]
        text = page.read_text("utf-8")
        # Rows have names of methods, in the table itself or in a table that the page links.
        assert page.suffix == ".csv" or re.search(r"\]\((\S+\.csv)\)", text)


@pytest.mark.slow
def test_a_paper_that_is_not_here_is_told(few):
    with pytest.raises(ConfigError, match=r"'wei2023'\?.*chun2021, wang2023, wei2023"):
        listing.run(Namespace(pattern="*", paper="wey2023"))
