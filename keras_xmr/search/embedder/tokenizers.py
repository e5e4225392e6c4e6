"""Tokenizers of texts to search for, without TensorFlow.

Ids are as of the tokenizers of training (`data_pipelines.text`, and KerasHub), for every text. In
regular expressions of TensorFlow `\\s` is ASCII alone, which is written out here.
"""

from __future__ import annotations

import heapq
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import regex

from keras_xmr.search.embedder.text_tokenizer import (
    NEWER,
    SPACE,
    TextTokenizer,
    fold,
    lower,
    split_words,
    without_newer,
)

_CACHED = 1 << 14
"""Number of words with known ids."""


class WordIds(TextTokenizer):
    """Tokenizer of words.

    Args:
        vocabulary: Words by id.
        **options: Options of `TextTokenizer`.
    """

    def __init__(self, vocabulary: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._ids = {word: number for number, word in enumerate(vocabulary)}

    def pieces(self, text: str) -> list[int]:
        ids, unknown = self._ids, self.unknown
        return [ids.get(word, unknown) for word in split_words(text)]  # type: ignore[misc]


_PUNCTUATION = rf"(?:[!-/:-@\[-`{{-~]|(?![{NEWER}])\p{{P}})"
_CJK = (
    r"[\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002B73F\U0002B740-\U0002B81F"
    r"\U0002B820-\U0002CEAF\uF900-\uFAFF\U0002F800-\U0002FA1F]"
)
_ACCENTS = rf"(?![{NEWER}])[\p{{Mn}}\U0001171E]"
_MOST_BYTES = 100
"""Length of the longest word that WordPiece splits; longer ones are unknown."""


class WordPiece(TextTokenizer):
    """WordPiece, with the words of BERT.

    Args:
        vocabulary: Pieces by id.
        lowercase: Whether case is folded.
        strip_accents: Whether accents are removed.
        split_on_cjk: Whether every CJK character is a word.
        suffix: Mark of pieces that do not begin a word.
        **options: Options of `TextTokenizer`.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        lowercase: bool,
        strip_accents: bool,
        split_on_cjk: bool,
        suffix: str,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._longest = max(map(len, self._ids), default=0)
        self._lowercase, self._strip_accents = lowercase, strip_accents
        self._split_on_cjk, self._suffix = split_on_cjk, suffix
        kept = f"{_PUNCTUATION}|{_CJK}" if split_on_cjk else _PUNCTUATION
        # Spaces that are not ASCII belong to words.
        self._word = regex.compile(rf"{kept}|(?:(?!{kept})[^{SPACE}\p{{Cc}}\p{{Cf}}])+")
        self._cjk, self._accents = regex.compile(_CJK), regex.compile(_ACCENTS)
        self._word_pieces = lru_cache(_CACHED)(self._split)

    def pieces(self, text: str) -> list[int]:
        if self._split_on_cjk:
            text = self._cjk.sub(r" \g<0> ", text)
        if self._strip_accents and not text.isascii():
            text = self._accents.sub("", unicodedata.normalize("NFD", text))
        words = self._word.findall(text)
        return [number for word in words for number in self._word_pieces(word)]

    def _split(self, word: str) -> list[int]:
        """Returns the ids of the longest pieces of a word, one after another."""
        word = fold(word) if self._lowercase else word
        unknown = [self.unknown] if self.unknown is not None else []
        if len(word.encode()) > _MOST_BYTES:
            return unknown
        ids, begin = [], 0
        while begin < len(word):
            prefix = self._suffix if begin else ""
            for end in range(min(len(word), begin + self._longest), begin, -1):
                number = self._ids.get(prefix + word[begin:end])
                if number is not None:
                    ids.append(number)
                    begin = end
                    break
            else:
                return unknown
        return ids


_SPECIAL = r"<\|startoftext\|>|<\|endoftext\|>"
_BLANKS = "\u00a0\u2009\u202f\u3000"
_MARK = "\u096c"
"""A digit that KerasHub writes before blanks, and removes where it is alone."""

_PIECES = (
    rf"'s|'t|'re|'ve|'m|'ll|'d|[{SPACE}{_BLANKS}]+[\n\r\t\f{_MARK}{_BLANKS}]"
    rf"| ?\p{{L}}+| ?\p{{N}}+| ?[^{SPACE}\p{{L}}\p{{N}}{_BLANKS}]+"
)
_LAST_BLANK = rf"[ \t\r\f\v{_MARK}{_BLANKS}]\Z"


def _split_at(pattern: str, text: str) -> Iterator[str]:
    """Yields the parts of a text that a pattern matches, and the parts between them."""
    end = 0
    for match in _pattern(pattern).finditer(text):
        yield from filter(None, (text[end : match.start()], match.group()))
        end = match.end()
    if end < len(text):
        yield text[end:]


@lru_cache
def _pattern(pattern: str) -> Any:
    return regex.compile(pattern)


class ClipPairs(TextTokenizer):
    """Byte-pair encoding of CLIP.

    Args:
        vocabulary: Ids by piece.
        merges: Pairs of pieces, joined by a space, the first to merge first.
        **options: Options of `TextTokenizer`.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[str], **options: Any
    ) -> None:
        super().__init__(**options)
        self._ids = dict(vocabulary)
        pairs = (tuple(merge.split(" ")) for merge in merges if "#version:" not in merge)
        self._ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._word_pieces = lru_cache(_CACHED)(self._merge)

    def pieces(self, text: str) -> list[int]:
        return [number for word in _clip_words(text) for number in self._word_pieces(word)]

    def _merge(self, word: str) -> list[int]:
        """Returns the ids of the pieces of a word, of which the first pair is merged first."""
        letters = _byte_letters()
        pieces: list[str] = [letters[byte] for byte in word.encode()]
        pieces[-1] += "</w>"
        after = [*range(1, len(pieces)), -1]
        before = list(range(-1, len(pieces) - 1))
        queue: list[tuple[int, int, str, str]] = []

        def offer(left: int) -> None:
            if left >= 0 and (right := after[left]) >= 0:
                rank = self._ranks.get((pieces[left], pieces[right]))
                if rank is not None:
                    heapq.heappush(queue, (rank, left, pieces[left], pieces[right]))

        for left in range(len(pieces) - 1):
            offer(left)
        while queue:
            _, left, first, second = heapq.heappop(queue)
            right = after[left]
            if right < 0 or (pieces[left], pieces[right]) != (first, second):
                continue  # One of both has been merged with another.
            pieces[left], pieces[right] = first + second, ""
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            offer(before[left])
            offer(left)
        # A small vocabulary may lack bytes.
        return [self._ids[piece] for piece in pieces if piece in self._ids]


def _clip_words(text: str) -> Iterator[str]:
    """Yields the words of a text as KerasHub splits it in a graph, where blanks are rare words."""
    # CLIP reads digits one by one.
    text = _pattern(r"(\p{N})").sub(r" \1 ", lower(without_newer(text)))
    text = _pattern(rf"( )([^{SPACE}{_BLANKS}])").sub(rf"{_MARK}\1\2", text)
    for section in _split_at(_SPECIAL, text):
        if _pattern(_SPECIAL).fullmatch(section):
            yield section
            continue
        for piece in _split_at(_PIECES, section):
            for word in _split_at(_LAST_BLANK, piece):
                if word != _MARK and (stripped := word.strip(" \t\n\v\f\r")):
                    yield stripped


@lru_cache
def _byte_letters() -> tuple[str, ...]:
    """Returns the printable letter of every byte in the vocabularies of byte-pair encoding."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


class SentencePieces(TextTokenizer):
    """SentencePiece, as SigLIP and Gemma use it.

    Args:
        model: The content of its file.
        strip_punctuation: Whether ASCII punctuation is removed, as for SigLIP.
        lowercase: Whether texts are lowered.
        **options: Options of `TextTokenizer`.
    """

    def __init__(
        self, model: bytes, lowercase: bool, strip_punctuation: bool, **options: Any
    ) -> None:
        super().__init__(**options)
        import sentencepiece

        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._lowercase, self._strips = lowercase, strip_punctuation

    def pieces(self, text: str) -> list[int]:
        if self._lowercase:
            text = lower(text)
        if self._strips:
            text = regex.sub(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]", "", text)
            text = regex.sub(rf"[{SPACE}]+", " ", text).strip("\t\n\v\f\r ")
        ids: list[int] = self._processor.encode(text)
        return ids


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8").split("\n")[:-1]


def _pairs(files: Mapping[str, bytes], options: dict[str, Any]) -> TextTokenizer:
    merges = [line.rstrip() for line in files["merges.txt"].decode("utf-8").splitlines()]
    return ClipPairs(json.loads(files["vocabulary.json"]), merges, **options)


def _from_json(files: Mapping[str, bytes], options: dict[str, Any]) -> TextTokenizer:
    from keras_xmr.search.embedder.tokenizer_json import json_tokenizer

    return json_tokenizer(files, options)


_KINDS: Mapping[str, Callable[[Mapping[str, bytes], dict[str, Any]], TextTokenizer]] = {
    "words": lambda files, options: WordIds(_lines(files["vocabulary.txt"]), **options),
    "wordpiece": lambda files, options: WordPiece(
        files["vocabulary.txt"].decode("utf-8").splitlines(), **options
    ),
    "clip": _pairs,
    "json": _from_json,
    "sentencepiece": lambda files, options: SentencePieces(files["vocabulary.spm"], **options),
}


def make_tokenizer(kind: str, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Any:
    """Makes a tokenizer.

    Args:
        kind: The kind: words, wordpiece, clip, sentencepiece, or json of published models.
        files: The files: content by name.
        options: The options.

    Raises:
        ValueError: If the kind is unknown, or a file or an option does not fit.
        KeyError: If a file is missing.
        TypeError: If an option is missing or unknown.
    """
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of tokenizer {kind!r}")
    return _KINDS[kind](files, dict(options))
