"""docs/tables/fidelity.csv against configs and code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keras_xmr.experiments.config.fidelity_table import VERDICTS, fidelity, rows
from keras_xmr.experiments.config.packaged_configs import packaged_ablations, packaged_configs
from keras_xmr.experiments.config.yaml_file import read_yaml

ROOT = Path(__file__).parents[4]
ROWS = rows()


@pytest.fixture(scope="module")
def drafts():
    paths = packaged_configs() | packaged_ablations()
    return {name: read_yaml(path) for name, path in paths.items()}


def test_every_row_has_a_verdict_and_words_where_it_needs_them():
    assert len(ROWS) > 290
    for row in ROWS:
        assert row.verdict in VERDICTS, row
        assert row.paper
        assert row.item
        if row.verdict != "exact":
            assert row.words, row
        assert not row.when or row.config, row
        if row.config and row.verdict == "deviates":
            assert not re.search(r"[|;\n]", row.words), row


def test_every_row_is_about_a_config_of_today(drafts):
    """No pattern without a config, and no condition that none fulfils."""
    spare = ("=sub_embeddings_in_loss", "=coordinates", "sigma=query", "sigma_of=scores")
    for row in ROWS:
        if not row.config:
            continue
        named = {name: d for name, d in drafts.items() if row.names(d.names)}
        assert named, row
        for pattern in row.config:
            assert any(
                re.fullmatch(pattern.lstrip("!").replace("*", ".*"), name)
                for draft in drafts.values()
                for name in draft.names
            ), (pattern, row)
        # Options that no packaged config takes are for configs of users.
        is_option = any(condition.endswith(spare) for condition in row.when)
        holds = any(row.holds(draft.data) for draft in named.values())
        assert holds is not is_option, row


def test_code_is_there():
    text = "".join(
        path.read_text("utf-8")
        for package in ("keras_xmr", "data_pipelines")
        for path in (ROOT / package).rglob("*.py")
    )
    defined = set(re.findall(r"^ *(?:class|def) (\w+)|^([A-Z_]+)\b", text, re.M))
    names = {name for pair in defined for name in pair} | {"RandomErasing"}
    assert [(code, row.item) for row in ROWS for code in row.code if code not in names] == []


def test_every_row_of_the_papers_has_a_fidelity(drafts):
    for name, draft in drafts.items():
        if draft.data.get("paper") or name.startswith(("coco_", "f30k_")):
            assert fidelity(draft.names, draft.data) is not None, name


def test_no_config_states_a_fidelity_of_its_own(drafts):
    assert [name for name, draft in drafts.items() if "fidelity" in draft.data] == []
