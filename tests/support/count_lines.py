"""Counts lines of code in Python files: without docstrings, comments and blank lines.

    python tests/support/count_lines.py keras_xmr data_pipelines

A line counts if it has a token of code. Docstrings are those of modules, classes and functions;
texts that document a field count.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Sequence
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def count_lines(text: str) -> int:
    """Lines of code of the text of a Python file."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstrings(text))


def _docstrings(text: str) -> set[int]:
    """The lines of the docstrings of the module, its classes and its functions."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def count_folder(folder: Path) -> dict[str, int]:
    """Lines of code of each subpackage of a folder, and of each of its own files, by name."""
    counts: dict[str, int] = {}
    for path in sorted(folder.rglob("*.py")):
        name = f"{folder}/{path.relative_to(folder).parts[0]}"
        counts[name] = counts.get(name, 0) + count_lines(path.read_text("utf-8"))
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the lines of each subpackage, and of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", default=["keras_xmr", "data_pipelines"], type=Path)
    total = 0
    for folder in parser.parse_args(arguments).folders:
        counts = count_folder(Path(folder))
        for name, count in counts.items():
            print(f"{count:7,}  {name}")
        total += sum(counts.values())
    print(f"{total:7,}  all")


if __name__ == "__main__":
    main()
