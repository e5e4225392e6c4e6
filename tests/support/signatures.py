"""Writes docs/reference/signatures.md: `python tests/support/signatures.py`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "signatures.md"
MODULES = (
    *("losses", "matchers", "heads", "heads.pooling", "metrics", "judgements"),
    *("relevance", "reranking", "optimizers", "embeddings", "encoders"),
)
HEADER = (
    "# Signatures\n\nEvery public name, with its options and their defaults. `python "
    "tests/support/signatures.py` writes this page; the other\npages of the reference have the "
    "arguments, results and errors.\n"
)


def text() -> str:
    """The page."""
    return "".join([HEADER, *(_section(name) for name in ("", *MODULES))])


def _section(name: str) -> str:
    module = importlib.import_module(f"keras_xmr.{name}".rstrip("."))
    rows = list(_rows(module))
    heading = f"\n## {module.__name__}\n\n| name | |\n| --- | --- |\n"
    return heading + "".join(f"| `{signature}` | {line} |\n" for signature, line in rows)


def _rows(module: Any) -> Iterator[tuple[str, str]]:
    for name in sorted(module.__all__, key=str.lower):
        part = getattr(module, name)
        if not callable(part):
            continue
        line = (inspect.getdoc(part) or "").partition("\n")[0].replace("|", r"\|")
        yield f"{name}{_arguments(part)}".replace("|", r"\|"), line


def _arguments(part: Any) -> str:
    """The parameters without their types; the options of every Keras layer are left out."""
    try:
        parameters = inspect.signature(part).parameters.values()
    except (TypeError, ValueError):
        return ""
    kept = [
        p.replace(annotation=p.empty)
        for p in parameters
        if p.kind is not p.VAR_KEYWORD and not (p.kind is p.VAR_POSITIONAL and p.name == "args")
    ]
    return str(inspect.Signature(kept)).replace("PosixPath", "Path").replace("WindowsPath", "Path")


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
