"""The README and the docs stay short, and their sentences readable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]

LONGEST_SENTENCE = 30
MOST_NUMBERS = 3
# An estimate with its interval or deviation is one number.
ESTIMATE = re.compile(r"[+-]?[\d.]+ (?:\[[^\]]*\]|± [\d.]+)")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d.,]*(?:e[+-]?\d+)?")
# Names with digits that count nothing: references to papers, and the two tables of COCO.
NO_NUMBERS = re.compile(
    r"et al\. \d{4}|\(?\b(?:19|20)\d\d\b\)?|\b[15]K\b|(?:Eq|Fig)\. \d+|Table \w+"
)
PRIVATE_WORDS = re.compile(
    r"\b(?:that of|those of|anew|beside|so many|embedded data set|right answers|told|aside"
    r"|what (?:holds|stands)|the page asks|asks for candidates)\b"
)


def prose(text: str) -> str:
    """A page without code, tables, headings, pictures and the targets of links."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.S)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "\n\n", text)
    text = re.sub(r"^(?:\s*\|| {4,}\S|:::|#).*$", "\n", text, flags=re.M)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"^\s*(?:\*|-|\d+\.) ", "\n\n", text, flags=re.M)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, each on one line, with `code` as one word."""
    for paragraph in re.split(r"\n\s*\n", prose(text)):
        line = re.sub(r"`[^`]*`", "CODE", " ".join(paragraph.split()))
        yield from filter(None, re.split(r"(?<=[.!?:;])(?:\*\*)?\s+(?=\**[A-Z(\"])", line))


def count_numbers(sentence: str) -> int:
    """Returns how many numbers a sentence has."""
    return len(NUMBER.findall(ESTIMATE.sub(" 1 ", NO_NUMBERS.sub(" ", sentence))))


def test_sentences_are_counted_as_a_reader_does():
    text = (
        "# A title 1 2 3 4\n\nOne is 2.0 [1.0, 3.0] of `four` in 2023. Two has 3, 4 and 5.\n| 1 |\n"
    )
    found = list(sentences(text))
    assert found == ["One is 2.0 [1.0, 3.0] of CODE in 2023.", "Two has 3, 4 and 5."]
    assert [count_numbers(sentence) for sentence in found] == [1, 3]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_sentences_are_short(path):
    found = list(sentences(path.read_text("utf-8")))
    assert [s for s in found if len(s.split()) > LONGEST_SENTENCE] == []
    assert [s for s in found if count_numbers(s) > MOST_NUMBERS] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_words_are_those_of_the_field(path):
    assert PRIVATE_WORDS.findall(prose(path.read_text("utf-8"))) == []


def test_the_texts_are_not_long():
    """Tables count, too: long ones are CSV files in docs/tables.

    Pages of `integrations` are recipes, each of at most 60 lines: tests/test_integrations.py. The
    tables of signatures and of backends are generated.
    """
    generated = [ROOT / "docs" / "reference" / f"{name}.md" for name in ("signatures", "matrix")]
    pages = [p for p in DOCS if p.parent.name != "integrations" and p not in generated]
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90
    assert sum(len(path.read_text("utf-8").splitlines()) for path in pages) <= 3000


def test_findings_are_short_and_say_what_they_do_not_show():
    page = (ROOT / "docs" / "results" / "index.md").read_text("utf-8").rpartition("Also here:")[0]
    findings = re.split(r"^## ", page, flags=re.M)[1:]
    assert len(findings) == 5
    for finding in findings:
        heading, _, text = finding.partition("\n")
        shown, _, missing = text.partition("*Not shown*: ")
        assert len(prose(shown).split()) <= 60, heading
        assert sum(map(count_numbers, sentences(shown))) <= 8, heading
        assert prose(missing).strip(), heading
        assert text.count("![") <= 1, heading
