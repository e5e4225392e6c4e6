"""The rooms of the packages, and which of them may import which."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

# From the highest room to the lowest; those of one line do not import one another, except where
# a pair below says so. A room imports rooms of lower lines alone.
ORDER = (
    ("commands",),
    ("audit", "search"),
    ("training",),
    ("evaluation", "export", "runs"),
    ("model",),
    ("encoders", "heads", "losses", "matchers"),
    ("embeddings",),
    ("layers",),
    ("relevance", "reranking"),
    ("config",),
    ("metrics",),
    ("judgements",),
    ("data_pipelines",),
    ("utils",),
)
LEVELS = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
NEIGHBOURS = {("runs", "evaluation")}


def imports() -> set[tuple[str, str, str]]:
    """The room, the imported room and the file of every import between rooms."""
    found = set()
    for package in ("keras_xmr", "data_pipelines"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            if len(parts) == 2 and package == "keras_xmr":
                continue  # The package itself, and its command line.
            room = "data_pipelines" if package == "data_pipelines" else parts[1]
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                for name in _modules(node):
                    first, _, rest = name.partition(".")
                    other = first if first == "data_pipelines" else rest.partition(".")[0]
                    known = first in ("keras_xmr", "data_pipelines") and other in LEVELS
                    if known and other != room:
                        found.add((room, other, "/".join(parts)))
    return found


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        if node.module == "keras_xmr":
            return [f"keras_xmr.{alias.name}" for alias in node.names]
        return [node.module]
    return []


def test_there_are_at_most_twenty_rooms():
    rooms = {path.parent.name for path in (ROOT / "keras_xmr").glob("*/__init__.py")}
    assert rooms == set(LEVELS) - {"data_pipelines"}
    assert len(rooms) <= 20


def test_imports_run_one_way():
    upward = {
        one
        for one in imports()
        if LEVELS[one[0]] >= LEVELS[one[1]] and (one[0], one[1]) not in NEIGHBOURS
    }
    assert not upward


def test_graphs_are_not_converted_by_autograph():
    """Where it fails, it asks users to report that to the developers of TensorFlow."""
    for package in ("keras_xmr", "data_pipelines"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "tf.function":
                    assert "autograph=False" in ast.unparse(node), path


def test_losses_and_metrics_import_no_framework():
    rooms = ("losses", "matchers", "heads", "embeddings", "layers", "metrics", "judgements")
    found = [
        str(path.relative_to(ROOT))
        for room in (*rooms, "relevance", "reranking")
        for path in (ROOT / "keras_xmr" / room).rglob("*.py")
        if "import tensorflow" in path.read_text("utf-8")
        or "from tensorflow " in path.read_text("utf-8")
    ]
    assert found == ["keras_xmr/layers/tensorflow_paths.py"]
