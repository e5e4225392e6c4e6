"""What the files of the project say of it is so."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from imported_names import missing_names

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


def test_the_light_installation_has_what_searches_import_without_scipy_and_keras():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    light = {line for line in read("deploy/search.txt").splitlines() if line[0] != "#"}
    heavy = {name for name in project["dependencies"] if name.startswith(("keras", "scipy"))}
    assert len(heavy) == 2
    extra = set(project["optional-dependencies"]["search"])
    assert light == (set(project["dependencies"]) | extra) - heavy


def dataclasses_of_arrays() -> Iterator[tuple[str, ast.expr]]:
    """Place and decorator of each data class that has arrays, or sparse matrices, as fields."""
    arrays = re.compile(r"\b(ndarray|\w+_array|Arrays|Matrix|Tensor)\b")
    for room in ("keras_xmr", "data_pipelines"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.ClassDef):
                    continue
                types = [
                    ast.unparse(f.annotation) for f in node.body if isinstance(f, ast.AnnAssign)
                ]
                # Functions of arrays are compared as any other.
                if any(arrays.search(text.partition("Callable[")[0]) for text in types):
                    for decorator in node.decorator_list:
                        if ast.unparse(decorator).startswith("dataclass"):
                            yield f"{path.relative_to(ROOT)}: {node.name}", decorator


@pytest.mark.slow
def test_studies_and_benchmarks_import_names_that_exist():
    """Some import what they need in functions that no other test calls."""
    for path in (p for folder in ("benchmarks", "studies") for p in (ROOT / folder).glob("*.py")):
        assert not missing_names(path.read_text("utf-8")), path.name


@pytest.mark.slow
def test_data_classes_of_arrays_are_not_compared_by_their_arrays():
    """`==` of arrays is no truth value: a generated `__eq__` would raise, and so would `in`."""
    found = dict(dataclasses_of_arrays())
    assert len(found) > 30
    assert [place for place, how in found.items() if "eq=False" not in ast.unparse(how)] == []


def test_the_wheel_has_the_configs_and_the_pages_that_are_named(monkeypatch):
    made = {}
    monkeypatch.setattr("setuptools.setup", made.update)
    monkeypatch.chdir(ROOT)
    exec(compile(read("setup.py"), "setup.py", "exec"), {})
    data = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]["package-data"]
    for package, folder in (("keras_xmr.configs", "configs"), ("keras_xmr.docs", "docs")):
        assert package in made["packages"]
        assert made["package_dir"][package] == folder
    assert "**/*.md" in data["keras_xmr.docs"]
    named = set()
    for room in ("keras_xmr", "data_pipelines", "configs"):
        for path in (ROOT / room).rglob("*.*"):
            if path.suffix in (".py", ".yaml"):
                text = path.read_text("utf-8")
                named |= set(re.findall(r"\bdocs/((?:\w+/)*\w+\.md)", text))
                named |= set(re.findall(r"\bpage\(['\"]([\w/]+\.md)['\"]\)", text))
    assert len(named) > 6
    assert [name for name in sorted(named) if not (ROOT / "docs" / name).is_file()] == []
