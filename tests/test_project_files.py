"""What the files of the project say of it is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import keras_xmr

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_version_and_license_are_the_same_everywhere():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    citation = yaml.safe_load(read("CITATION.cff"))
    assert re.search(r"^## (\S+?),? ", read("CHANGELOG.md"), re.M)[1] == keras_xmr.__version__
    assert str(citation["version"]) == keras_xmr.__version__
    assert project["dynamic"] == ["version"]
    assert citation["license"] == project["license"] == "Apache-2.0"
    text = read("LICENSE")
    assert re.match(r"\s+Apache License\s+Version 2\.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_five_papers_are_cited_with_their_authors():
    papers = yaml.safe_load(read("CITATION.cff"))["references"]
    assert [len(paper["authors"]) for paper in papers] == [5, 6, 6, 6, 2]
    for paper in papers:
        assert paper["title"]
        assert all({"given-names", "family-names"} <= author.keys() for author in paper["authors"])


def test_commands_and_files_that_are_named_are_there():
    text = read("CONTRIBUTING.md")
    targets = re.findall(r"^make (\w+)", text, re.M)
    assert len(targets) == 4
    assert all(f"\n{target}:" in read("Makefile") for target in targets)
    for page in ("CONTRIBUTING.md", "README.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", read(page))
        named = re.findall(r"(?:tests|docs)/[\w/]+\.\w+", read(page))
        assert links
        for name in (*links, *named):
            assert (ROOT / name).exists(), f"{page}: {name}"
