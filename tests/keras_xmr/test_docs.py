"""The documents quote the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "add_a_method.md"


def unindented(text: str) -> str:
    """The lines that are not empty, whatever they are indented by: a formatter knows better."""
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.S)


@pytest.mark.parametrize(
    ("language", "number", "file"),
    [
        ("python", 0, "keras_xmr/matchers/gaussian.py"),
        ("python", 1, "keras_xmr/losses/pcmepp.py"),
        ("python", 2, "keras_xmr/commands/export.py"),
        ("yaml", 0, "configs/scenes_pcmepp.yaml"),
    ],
)
def test_quoted_code_is_the_code(language, number, file):
    quoted = blocks(language)[number]
    assert unindented(quoted) in unindented((ROOT / file).read_text("utf-8"))


def test_named_files_are_there():
    names = re.findall(
        r"`((?:keras_xmr|tests|configs|data_pipelines)/[\w/]+\.\w+)`", PAGE.read_text()
    )
    assert len(names) > 8
    for name in names:
        assert (ROOT / name).is_file(), name
