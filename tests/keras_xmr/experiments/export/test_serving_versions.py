"""The versions of an export: numbered, kept as many as wanted."""

from __future__ import annotations

import pytest

from keras_xmr.experiments.export.saved_model import next_version, remove_old_versions, versions


@pytest.fixture
def serving(tmp_path):
    """A folder with versions, and other things."""
    for name in ("2", "10", "9", ".11.5.5", "notes"):
        (tmp_path / name / "variables").mkdir(parents=True)
    (tmp_path / "12").write_text("a file")
    return tmp_path


def test_the_next_version_is_the_largest(serving, tmp_path):
    assert next_version(serving).name == "11"
    assert next_version(tmp_path / "nothing" / "yet").name == "1"


@pytest.mark.parametrize(("keep", "kept"), [(1, ["10"]), (2, ["9", "10"]), (5, ["2", "9", "10"])])
def test_old_versions_are_removed(serving, keep, kept):
    remove_old_versions(serving, keep)
    assert [path.name for path in versions(serving)] == kept
    others = {path.name for path in serving.iterdir()} - set(kept)
    assert others == {".11.5.5", "notes", "12"}
