"""From captions to word ids, in TensorFlow, so that it can live inside an exported model."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import tensorflow as tf

PAD, UNKNOWN, START, END = "<pad>", "<unk>", "<start>", "<end>"
SPECIAL = (PAD, UNKNOWN, START, END)
"""The words that every vocabulary begins with; `<pad>` has the id 0."""

VOCABULARY = "vocabulary.txt"
"""The file of a run that holds its vocabulary."""

_REWRITES = (
    ("[’ʼ`´]", "'"),
    (r"[^\p{L}\p{M}\p{N}']+", " "),
    (r"(^|\s)\p{M}+", r"\1"),  # accents belong to a letter; those of emoji are left over
    (r"(^|\s)'+", r"\1"),  # an apostrophe at either end of a word is a quotation mark
    (r"'+(\s|$)", r"\1"),
    (r"(\p{L})n't\b", r"\1 n't"),
    (r"(\p{L})'(s|m|d|ll|re|ve)\b", r"\1 '\2"),
    # In scripts that are written without spaces every character is a word.
    (r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}])", r" \1 "),
)
"""Regular expressions of RE2 and what they are replaced with, one after another."""


def split_words(texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
    """Splits captions into lower-case words.

    A word is a run of letters, marks and digits; punctuation and symbols are left out. English
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


def count_words(texts: Iterable[str], batch: int = 8192) -> Counter[str]:
    """How often each word occurs in some captions."""
    counts: Counter[str] = Counter()
    texts = iter(texts)
    while chunk := list(islice(texts, batch)):
        words, _, found = tf.unique_with_counts(split_words(chunk).flat_values)
        for word, count in zip(words.numpy(), found.numpy().tolist(), strict=True):
            counts[word.decode("utf-8")] += count
    return counts


def make_vocabulary(counts: Counter[str], min_count: int) -> list[str]:
    """The special words, then the words that occur often enough, the most frequent first."""
    frequent = [word for word, count in counts.items() if count >= min_count]
    return [*SPECIAL, *sorted(frequent, key=lambda word: (-counts[word], word))]


def read_vocabulary(path: Path) -> list[str]:
    """Reads a vocabulary file, one word a line.

    Raises:
        ValueError: If it does not begin with the special words, or has a word twice.
    """
    words = path.read_text("utf-8").split("\n")[:-1]
    if tuple(words[: len(SPECIAL)]) != SPECIAL:
        raise ValueError(f"{path} is not a vocabulary: it must begin with {', '.join(SPECIAL)}")
    if len(set(words)) != len(words):
        raise ValueError(f"{path} has a word twice")
    return words


class Tokenizer(tf.Module, abc.ABC):
    """Captions to ids and back, in TensorFlow.

    An id stands for a word, or for a part of one. A batch of captions is padded with an id that
    stands for nothing, so that the mask of the padding can be told from the ids.

    Attributes:
        vocabulary: What the ids stand for, by id.
        max_words: Longer captions are cut; `<start>` and `<end>` do not count.
        pad: The id of the padding.
        start: The id that begins a caption; None for none.
        end: The id that ends it; None for none.
        unknown: The id of words that are not in the vocabulary; None if there are none.
        mask_id: The id that a word becomes in random caption word dropping; None for none.
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
        """Ids int32 (N, words) of whole captions, without `<start>` and `<end>`."""

    @abc.abstractmethod
    def text(self, ids: np.ndarray) -> str:
        """One caption from its ids (L,), without padding."""

    @abc.abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """What it is rebuilt from: the content of files, by their path in the folder of a run."""

    def words(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Ids int32 (N, words) of captions that are cut, without `<start>` and `<end>`."""
        return self.pieces(texts)[:, : self.max_words]

    def __call__(self, texts: tf.Tensor | Sequence[str]) -> tf.Tensor:
        """Ids int32 (N, L) of captions, between `<start>` and `<end>`, padded with `pad`."""
        ids = self.words(texts)

        def column(value: int | None) -> list[tf.Tensor]:
            return [] if value is None else [tf.fill([ids.nrows(), 1], value)]

        return tf.concat([*column(self.start), ids, *column(self.end)], 1).to_tensor(self.pad)


class WordTokenizer(Tokenizer):
    """Captions to ids of words.

    Args:
        vocabulary: Words by id, beginning with the special words.
        max_words: Longer captions are cut.
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
        """Ids int32 (N, words) of all words of captions, without `<start>` and `<end>`."""
        return tf.cast(self.table.lookup(split_words(texts)), tf.int32)

    def text(self, ids: np.ndarray) -> str:
        """The words of one caption from its ids (L,), without padding."""
        return " ".join(self.vocabulary[i] for i in ids if i != self.pad)

    def files(self) -> Mapping[str, bytes]:
        """The vocabulary, one word a line."""
        words = "".join(f"{word}\n" for word in self.vocabulary)
        return {VOCABULARY: words.encode("utf-8")}
