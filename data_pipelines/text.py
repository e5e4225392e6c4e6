"""Tokenizers in TensorFlow, which can be part of an exported model."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from data_pipelines.vectors import chunks

PAD, UNKNOWN, START, END = "<pad>", "<unk>", "<start>", "<end>"
SPECIAL = (PAD, UNKNOWN, START, END)
"""First words of every vocabulary; `<pad>` has the id 0."""

AT_ONCE = 8192
"""Number of captions that are split at once."""

VOCABULARY = "vocabulary.txt"
"""File of a run with its vocabulary."""

_REWRITES = (
    ("[’ʼ`´]", "'"),
    (r"[^\p{L}\p{M}\p{N}']+", " "),
    (r"(^|\s)\p{M}+", r"\1"),  # accents belong to a letter; those of emoji remain
    (r"(^|\s)'+", r"\1"),  # an apostrophe at either end of a word is a quotation mark
    (r"'+(\s|$)", r"\1"),
    (r"(\p{L})n't\b", r"\1 n't"),
    (r"(\p{L})'(s|m|d|ll|re|ve)\b", r"\1 '\2"),
    # In scripts that are written without spaces every character is a word.
    (r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}])", r" \1 "),
)
"""Regular expressions of RE2 and their replacements, in order."""


def split_words(texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
    """Splits captions into lower-case words.

    A word is a run of letters, marks and digits; punctuation and symbols are removed. English
    contractions are split as in the GloVe vectors ("isn't" is "is n't", "dog's" is "dog 's").

    Args:
        texts: Strings (N,), UTF-8.

    Returns:
        Ragged strings (N, words).
    """
    text = tf.strings.lower(texts, encoding="utf-8")
    for pattern, replacement in _REWRITES:
        text = tf.strings.regex_replace(text, pattern, replacement)
    return tf.strings.split(text)


def count_words(texts: Sequence[str]) -> Counter[str]:
    """Counts the words of captions."""
    counts: Counter[str] = Counter()
    for chunk in chunks(texts, AT_ONCE):
        words, _, occurrences = tf.unique_with_counts(split_words(chunk).flat_values)
        for word, count in zip(words.numpy(), occurrences.numpy().tolist(), strict=True):
            counts[word.decode("utf-8")] += count
    return counts


def make_vocabulary(counts: Counter[str], min_count: int) -> list[str]:
    """Returns the special words, then the frequent words by decreasing count."""
    frequent = [word for word, count in counts.items() if count >= min_count]
    return [*SPECIAL, *sorted(frequent, key=lambda word: (-counts[word], word))]


def read_vocabulary(path: Path) -> list[str]:
    """Reads a vocabulary file with one word per line.

    Raises:
        ValueError: If it does not begin with the special words, or repeats a word.
    """
    words = path.read_text("utf-8").split("\n")[:-1]
    if tuple(words[: len(SPECIAL)]) != SPECIAL:
        raise ValueError(f"{path} is not a vocabulary: it must begin with {', '.join(SPECIAL)}")
    if len(set(words)) != len(words):
        raise ValueError(f"{path} repeats a word")
    return words


class Tokenizer(tf.Module, abc.ABC):
    """Base class of tokenizers, which convert captions to ids and back in TensorFlow.

    An id is a word or a word piece. Batches of captions are padded with a reserved id, from which
    the mask of the padding is derived.

    Attributes:
        vocabulary: Words or word pieces by id.
        max_words: Longer captions are truncated; `<start>` and `<end>` do not count.
        pad: Id of the padding.
        start: Id of the start of a caption, or None.
        end: Id of its end, or None.
        unknown: Id of words that are not in the vocabulary, or None.
        mask_id: Id of masked words in random caption word dropping, or None.
    """

    vocabulary: Sequence[str]
    max_words: int
    pad: int
    start: int | None
    end: int | None
    unknown: int | None
    mask_id: int | None

    def __len__(self) -> int:
        return len(self.vocabulary)

    @abc.abstractmethod
    def pieces(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Returns ids int32 (N, words) of whole captions, without `<start>` and `<end>`."""

    @abc.abstractmethod
    def text(self, ids: np.ndarray) -> str:
        """Returns a caption from its ids (L,), without padding."""

    @abc.abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """Returns the files to rebuild it from: content by path in the folder of a run."""

    def words(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Returns ids int32 (N, words) of truncated captions, without `<start>` and `<end>`."""
        return self.pieces(texts)[:, : self.max_words]

    def __call__(self, texts: tf.Tensor | Sequence[str]) -> tf.Tensor:
        """Returns ids int32 (N, L) of captions between `<start>` and `<end>`, padded with `pad`."""
        ids = self.words(texts)

        def column(value: int | None) -> list[tf.Tensor]:
            return [] if value is None else [tf.fill([ids.nrows(), 1], value)]

        return tf.concat([*column(self.start), ids, *column(self.end)], 1).to_tensor(self.pad)


class WordTokenizer(Tokenizer):
    """Tokenizer of words.

    Args:
        vocabulary: Words by id, beginning with the special words.
        max_words: Longer captions are truncated.
    """

    pad, start, end = (SPECIAL.index(word) for word in (PAD, START, END))
    unknown = mask_id = SPECIAL.index(UNKNOWN)

    def __init__(self, vocabulary: Sequence[str], max_words: int) -> None:
        super().__init__()
        self.vocabulary = list(vocabulary)
        self.max_words = max_words
        keys = tf.constant(self.vocabulary, tf.string)
        ids = tf.range(len(self.vocabulary), dtype=tf.int64)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids), default_value=self.unknown
        )

    def pieces(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Returns ids int32 (N, words) of all words of captions, without `<start>` and `<end>`."""
        return tf.cast(self.table.lookup(split_words(texts)), tf.int32)

    def text(self, ids: np.ndarray) -> str:
        """Returns the words of a caption from its ids (L,), without padding."""
        return " ".join(self.vocabulary[i] for i in ids if i != self.pad)

    def files(self) -> Mapping[str, bytes]:
        """Returns the vocabulary, one word per line."""
        words = "".join(f"{word}\n" for word in self.vocabulary)
        return {VOCABULARY: words.encode("utf-8")}
