"""From captions to the words that CIDEr counts."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.installing import install_command

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import RelevanceTokenizer

Tokenize = Callable[[Iterable[str]], list[list[str]]]
"""Makes of each caption the list of its words."""

_DROPPED = frozenset(("'", "''", "`", "``", '"', ".", "?", "!", ",", ":", ";"))
"""Marks that `pycocoevalcap` drops, in addition to runs of dots or dashes; `!!` stays a word."""

_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "--", "—": "--", "…": "...", "½": "1/2"}
    # Brackets become words: `pycocoevalcap` drops `-LRB-`, which is lower-case by then.
    | {"(": " -lrb- ", ")": " -rrb- ", "[": " -lsb- ", "]": " -rsb- "}
    | {"{": " -lcb- ", "}": " -rcb- "}
)

_CONTRACTIONS = (
    (r"\B(n't)\b", r" \1"),
    (r"\b(can)(not)\b", r"\1 \2"),
    (r"\b(gon|wan)(na)\b", r"\1 \2"),
    (r"\b(got)(ta)\b", r"\1 \2"),
    (r"\b(gim|lem)(me)\b", r"\1 \2"),
    (r"('t)(is|was)\b", r"\1 \2"),
    (r"\b(y')(all)\b", r"\1 \2"),
)
_CONTRACTION = tuple((re.compile(p, re.IGNORECASE), r) for p, r in _CONTRACTIONS)

_ABBREVIATIONS = (
    "mr|mrs|ms|dr|st|ave|jr|sr|vs|etc|mt|ft|prof|rev|gen|sen|rep|gov|lt|col|sgt|capt|co|inc|ltd"
    "|corp|dept|blvd|jan|feb|aug|sept|oct|nov|dec"
)
_TOKEN = re.compile(
    rf"""
      -[lr][rsc]b-                                  # a bracket
    | [^\W\d_](?:\.[^\W\d_])+(?![^\W_])\.?          # u.s., p.m.
    | ph\.d\.
    | (?:{_ABBREVIATIONS})\.(?!\w)
    | [^\W\d_]\.(?!\w)                              # an initial
    | n't\b | 't(?=\ (?:is|was)\b) | y'(?=\ all)
    | '(?:s|m|d|ll|re|ve)\b                         # dog's, I'm, they're
    | (?<!\w)'(?:em|til|cause|n'|\d\ds?)(?!\w)      # 'em, rock 'n' roll, '90s
    | (?:o|d|l)'[^\W\d_]+ | ma'am                   # o'clock
    | (?-i:[A-Z]+&[A-Z]+)                           # AT&T
    | [#@][^\W\d_]\w*
    | \d+:\d+ | \.?\d+(?:[.,]\d+)+ | \.\d+          # 10:15, 5,000
    | [^\W_]+(?:(?:[-/_]|(?<=[^\W\d_])\.(?=[^\W\d_]))[^\W_]+)*  # t-shirt, and/or, end.the
    | \.+ | --+ | [!?]+ | \*+ | _+ | '' | ``
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)

_LAST_LINE = "last line"
"""A line that comes out unchanged if the Java program has run to its end."""


def ptb_tokenize(captions: Iterable[str]) -> list[list[str]]:
    """Splits captions into words by the rules that `pycocoevalcap`'s `PTBTokenizer` applies.

    The rules are of the Penn Treebank as Stanford CoreNLP 3.4.1 has them: contractions are
    split ("isn't" is "is n't", "dog's" is "dog 's", "cannot" is "can not"), hyphens and slashes
    inside of words stay, so do the periods of abbreviations ("mr.", "u.s.", "p.m."), brackets
    become words ("-lrb-"). Everything is lower case, and punctuation is left out.

    On 3,500 captions of Flickr8k its words equal the words of the Java program without exception.
    Words differ in rare cases: web and mail addresses, smileys, markup, currencies other than "$",
    fractions other than "½", abbreviations beyond some forty ("mt.", "etc.", but not "no. 5"), and
    "!" or "?" between two letters.

    Args:
        captions: Captions as their authors wrote them.

    Returns:
        The words of each caption; an empty list for an empty one.
    """
    return [[word for piece in caption.split() for word in _words(piece)] for caption in captions]


@lru_cache(maxsize=1 << 16)
def _words(piece: str) -> tuple[str, ...]:
    """Returns the words of a piece of a caption without blanks; most pieces come again and
    again.
    """
    text = piece.translate(_TYPOGRAPHY)
    for pattern, replacement in _CONTRACTION:
        text = pattern.sub(replacement, text)
    words = (word.lower() for word in _TOKEN.findall(text))
    return tuple(w for w in words if w not in _DROPPED and w.strip(".") and w.strip("-"))


def java_tokenize(captions: Iterable[str]) -> list[list[str]]:
    """Splits captions into words by the Java program that `pycocoevalcap` calls.

    Args:
        captions: Captions as their authors wrote them.

    Returns:
        The words of each caption; an empty list for an empty one.

    Raises:
        UserError: If `pycocoevalcap` or Java is missing, or the Java program fails.
    """
    if importlib.util.find_spec("pycocoevalcap") is None:
        raise UserError(
            "relevance.tokenizer: 'java' needs the package pycocoevalcap: "
            f"{install_command('java')}, or choose 'ptb', which needs no package"
        )
    if shutil.which("java") is None:
        raise UserError(
            "relevance.tokenizer: 'java' needs a Java runtime, and `java` is not on the PATH: "
            "install one (8 or later), or choose 'ptb', which needs none"
        )
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    # Any line break that Java accepts would split a caption.
    lines = [*(" ".join(caption.split()) for caption in captions), _LAST_LINE]
    try:
        tokenized = PTBTokenizer().tokenize({0: [{"caption": line} for line in lines]})[0]
    except OSError as error:
        raise UserError(
            f"relevance.tokenizer: the Java program of pycocoevalcap cannot be run: {error}"
        ) from None
    if len(tokenized) != len(lines) or tokenized[-1] != _LAST_LINE:
        raise UserError(
            "relevance.tokenizer: the Java program of pycocoevalcap failed; see its output "
            "above. Check with `java -version` that Java works, or choose 'ptb'"
        )
    return [line.split() for line in tokenized[:-1]]


TOKENIZERS: dict[RelevanceTokenizer, Tokenize] = {"ptb": ptb_tokenize, "java": java_tokenize}
"""The tokenizers, by the names that `relevance.tokenizer` takes."""
