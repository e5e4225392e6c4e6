"""The rooms of the packages, and which of them may import which."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_STANDARD = set(sys.stdlib_module_names)

# From the highest room to the lowest; those of one line do not import one another. A room imports
# rooms of lower lines alone. The library is from `model` on.
ORDER = (
    ("commands",),
    ("experiments.experiment",),
    ("experiments.run_evaluation", "experiments.run_exports"),
    ("experiments.run_texts",),
    ("experiments.audit", "experiments.export", "experiments.training"),
    ("experiments.run_contents",),
    ("experiments.trained_model",),
    ("experiments.reports", "experiments.runs"),
    ("experiments.evaluation",),
    ("experiments.build",),
    ("experiments.config",),
    ("model",),
    ("encoders", "heads", "losses", "matchers", "optimizers"),
    ("embeddings",),
    ("layers",),
    ("relevance", "reranking"),
    ("linear",),
    ("metrics",),
    ("judgements",),
    ("search",),
    ("data_pipelines",),
    ("parts",),
    ("utils",),
)
LEVELS = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
APPLICATION = ("commands", "search", "experiments")
LIBRARY = [room for room in LEVELS if not room.startswith(APPLICATION) and room != "data_pipelines"]

# Rooms of plain arrays, and what they import besides the standard library and lower rooms.
OF_ARRAYS = ("utils", "judgements", "metrics", "linear", "relevance", "reranking")
ARRAYS = {"numpy", "scipy", "pydantic", "tqdm"}

# Packages that an installation without a framework does not have: imported where they are used.
OPTIONAL = {
    "judgements": {"eccv_caption"},
    "relevance": {"pycocoevalcap"},
    "metrics": {"keras", "pandas"},
    "utils": {"threadpoolctl"},
}


def rooms_of(module: str) -> str:
    """The room of a module; empty if it is in none."""
    parts = module.split(".")
    if parts[0] == "data_pipelines":
        return "data_pipelines"
    if parts[0] != "keras_xmr" or len(parts) == 1:
        return ""
    return ".".join(parts[1 : 3 if parts[1] == "experiments" else 2])


@cache
def modules() -> dict[str, Path]:
    """All modules of both packages, with their files."""
    found = {}
    for package in ("keras_xmr", "data_pipelines"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


@cache
def imported(path: Path) -> list[str]:
    """The modules, and names of modules, that a file imports anywhere."""
    return list(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules() else node.module for name in names)


@cache
def imports() -> set[tuple[str, str, str]]:
    """The room, the imported room and the module of every import between rooms."""
    return {
        (room, other, module)
        for module, path in modules().items()
        for name in imported(path)
        if (room := rooms_of(module)) in LEVELS
        and (other := rooms_of(name)) != room
        and other in LEVELS
    }


def test_every_module_is_in_a_room():
    outside = {"keras_xmr", "keras_xmr.__main__", "keras_xmr.experiments"}
    assert {one for one in modules() if rooms_of(one) not in LEVELS} == outside
    assert {rooms_of(one) for one in modules()} - {"", "__main__", "experiments"} == set(LEVELS)
    files = {room for room in LEVELS if (ROOT / f"keras_xmr/{room.replace('.', '/')}.py").exists()}
    assert len(LEVELS.keys() - files) <= 25


def test_a_name_of_a_file_occurs_once_without_need():
    # Base classes of families; a command and what it does; a head and the matcher of its kind.
    needed = {"__init__", "base"}
    needed |= {"audit", "evaluate", "prepare", "search", "train"} | {
        "gaussian",
        "point",
        "rectangle",
    }
    counts = Counter(path.stem for path in modules().values())
    assert {name for name, count in counts.items() if count > 1} == needed


def test_imports_run_one_way():
    assert not {one for one in imports() if LEVELS[one[0]] >= LEVELS[one[1]]}


def test_no_files_import_one_another():
    later = {
        module: {name for name in imported(path) if name in modules()} - {module}
        for module, path in modules().items()
    }
    while ends := {module for module, names in later.items() if not names}:
        later = {module: names - ends for module, names in later.items() if module not in ends}
    assert not later


def test_the_library_knows_no_experiments():
    found = [
        (module, name)
        for module, path in modules().items()
        if rooms_of(module) in LIBRARY or rooms_of(module) == "data_pipelines"
        for name in imported(path)
        if name.startswith("keras_xmr.") and name.split(".")[1] in APPLICATION
    ]
    assert not found


@pytest.mark.parametrize("room", OF_ARRAYS)
def test_rooms_of_arrays_import_no_framework(room):
    outside = {
        name.partition(".")[0]
        for module, path in modules().items()
        if rooms_of(module) == room
        for name in imported(path)
    }
    assert outside <= ARRAYS | OPTIONAL.get(room, set()) | _STANDARD | {"keras_xmr"}
    lower = {other for one, other, _ in imports() if one == room}
    assert lower <= {*OF_ARRAYS, "parts"}


def test_pyplot_is_left_to_users():
    """Its settings are of the whole process, such as how a notebook shows drawings."""
    drawn = [module for module, path in modules().items() if "matplotlib.pyplot" in imported(path)]
    assert not drawn


def test_graphs_are_not_converted_by_autograph():
    """Where it fails, it asks users to report that to the developers of TensorFlow."""
    for path in modules().values():
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tf.function":
                assert "autograph=False" in ast.unparse(node), path


def test_losses_and_metrics_import_no_framework():
    apart = ("encoders", "model", "optimizers")  # These need TensorFlow.
    found = [
        str(path.relative_to(ROOT))
        for module, path in modules().items()
        if rooms_of(module) in LIBRARY and rooms_of(module) not in apart
        if any(name.partition(".")[0] == "tensorflow" for name in imported(path))
    ]
    assert sorted(found) == [
        f"keras_xmr/layers/{name}.py" for name in ("packed_gru", "tensorflow_paths")
    ]
