"""Docstrings have one grammar."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Words that are nouns at the start of a docstring, although they end as verbs do.
NOUNS = re.compile(
    "As|Figures|Files|Images|Is|Labels|Lines|Losses|Means|Metrics|Options|Others|Pages|Pairs|Parts|"
    "Positions|Queries|Results|Rows|Tables|These|This|Those|Values|Vectors|Weights|Words"
)
# Verbs, unless they are counted or owned: "Scores a batch", and not "Scores (N, M) of a batch".
BOTH = re.compile("Counts|Names|Numbers|Ranks|Runs|Scores|Sums")


def docstrings() -> Iterator[tuple[str, str]]:
    """Place and text of the docstring of each function; a property has a noun, as a field has."""
    for package in ("keras_xmr", "data_pipelines"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                text = ast.get_docstring(node)
                if text and "property" not in decorators:
                    yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", text


def begins_with_a_verb(text: str) -> bool:
    first = text.split()[0].rstrip(",")
    if BOTH.fullmatch(first):
        return not re.match(r"\w+( of\b| \()", text)
    is_verb = re.fullmatch(r"[A-Z][a-z]+(-[a-z]+)?s", first)
    return bool(is_verb) and not NOUNS.fullmatch(first)


def test_the_docstring_of_a_function_says_what_it_does():
    assert [place for place, text in docstrings() if not begins_with_a_verb(text)] == []


def sources() -> Iterator[tuple[Path, str]]:
    for package in ("keras_xmr", "data_pipelines"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text("utf-8")


def test_nouns_are_repeated_where_a_pronoun_would_send_the_reader_back():
    found = [
        f"{path}: {line.strip()}"
        for path, text in sources()
        for line in text.splitlines()
        if re.search(r"\b(that|those) of\b", line, re.I)
    ]
    assert found == []


def test_no_docstring_paragraph_or_argument_begins_with_a_pronoun():
    begin = r'(?:"""|\n\n *|\n +[a-z_]+: |(?:Returns|Yields|Raises):\n *)'
    pronoun = rf"{begin}(?:It|Its|They|Their|Them|Those|These|Such (?:is|are)|That is)\b.*"
    found = [f"{path}: {place}" for path, text in sources() for place in re.findall(pronoun, text)]
    assert found == []


def test_nouns_are_found():
    for text in ("The loss of a batch.", "Scores (N, M).", "Means of rows.", "`x` again."):
        assert not begins_with_a_verb(text)
    for text in ("Scores a batch.", "Re-ranks a gallery.", "Ranks, and returns them."):
        assert begins_with_a_verb(text)
