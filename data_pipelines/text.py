"""Tokenizers in TensorFlow, which can be part of an exported model, and word ids of captions."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_xmr.utils.vectors import chunks

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
    (r"(^|\s)\p{M}+", r"\1"),  # accents belong to a letter; marks of emoji remain
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
        words = self.words(texts)
        ids = words.to_tensor(self.pad)
        # A concatenation of ragged tensors takes ten times as many operations.
        if self.end is not None:
            ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=self.pad)
            lengths = words.row_lengths()[:, None]
            ids = tf.where(tf.range(tf.shape(ids, lengths.dtype)[1]) == lengths, self.end, ids)
        if self.start is not None:
            ids = tf.pad(ids, [[0, 0], [1, 0]], constant_values=self.start)
        return ids


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
        # A module of TensorFlow would track every word of a list.
        self.vocabulary = tuple(vocabulary)
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


@dataclass(frozen=True, eq=False)
class CaptionIds:
    """Word ids of captions, in the order of their split.

    Attributes:
        flat: Ids of all words, one caption after another, int32 (W,), without `<start>` and
            `<end>`.
        first: The first word of each caption, and W: int64 (captions + 1,).
        tokenizer: The tokenizer of the ids.
    """

    flat: np.ndarray
    first: np.ndarray
    tokenizer: Tokenizer

    @classmethod
    def from_texts(cls, texts: Sequence[str], tokenizer: Tokenizer) -> CaptionIds:
        """Tokenises captions, many at once: one by one takes far longer."""
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        for chunk in chunks(texts, AT_ONCE):
            words = tokenizer.words(chunk)
            ids.append(words.flat_values.numpy())
            lengths.append(words.row_lengths().numpy())
        return cls(np.concatenate(ids), np.cumsum(np.concatenate(lengths)), tokenizer)

    def batch(
        self, captions: np.ndarray, share: float = 0.0, draws: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns ids int32 (N, L) of captions with start, end and padding of the tokenizer.

        Args:
            captions: Indices of captions, int64 (N,); -1 gives padding alone.
            share: See `drop_words`.
            draws: Likewise; None drops no words.
        """
        ids, lengths = self._words(captions)
        if draws is not None:
            ids, lengths = drop_words(ids, lengths, share, draws, self.tokenizer.mask_id)
        enclosed = self._enclosed(ids, lengths)
        enclosed[captions < 0] = self.tokenizer.pad
        return enclosed

    @property
    def longest(self) -> int:
        """Number of words of the longest caption."""
        return int(np.diff(self.first).max(initial=0))

    def _words(self, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids (N, L), arbitrary after the last word, and the lengths of captions."""
        begin = self.first[captions]
        lengths = np.where(captions < 0, 0, self.first[captions + 1] - begin)
        places = begin[:, None] + np.arange(lengths.max(initial=0))
        return self.flat.take(places, mode="clip"), lengths

    def _enclosed(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Adds start and end ids and padding."""
        start, end, pad = self.tokenizer.start, self.tokenizer.end, self.tokenizer.pad
        before, longest = int(start is not None), lengths.max(initial=0)
        enclosed = np.full((len(ids), longest + before + (end is not None)), pad, np.int32)
        if start is not None:
            enclosed[:, 0] = start
        words = np.where(np.arange(longest) < lengths[:, None], ids[:, :longest], pad)
        enclosed[:, before : before + longest] = words
        if end is not None:
            enclosed[np.arange(len(ids)), before + lengths] = end
        return enclosed


def drop_words(
    ids: np.ndarray, lengths: np.ndarray, share: float, draws: np.ndarray, mask_id: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Drops words of captions at random, as the released code of Chun et al. 2021 does.

    Every word becomes `mask_id` with a probability of `share`; then `floor(share * words)` words,
    drawn at random, are removed.

    Args:
        ids: Ids (N, L) of captions.
        lengths: Number of words per caption, int (N,).
        share: Probability that a word is masked, and share of the words removed after that.
        draws: Two uniform random numbers per word, float (N, 2, L) for at least L words.
        mask_id: `<unk>`, or the mask of a vocabulary that has one; None only removes words.

    Returns:
        Ids (N, L) of the remaining words, in order, and their numbers (N,).
    """
    rate, length = np.float32(share), ids.shape[1]
    mask = np.arange(length) < lengths[:, None]
    if mask_id is not None:
        ids = np.where(draws[:, 0, :length] < rate, np.int32(mask_id), ids)
    order = np.argsort(np.where(mask, draws[:, 1, :length], np.inf), axis=1)
    rank = np.argsort(order, axis=1)
    removed = np.floor(rate * lengths.astype(np.float32)).astype(lengths.dtype)
    kept = mask & (rank >= removed[:, None])
    front = np.argsort(~kept, axis=1, kind="stable")
    return np.take_along_axis(ids, front, axis=1), lengths - removed


def dropped(texts: Sequence[str], share: float) -> list[str]:
    """Removes the given share of the words of captions; at least one stays."""
    random, left = np.random.default_rng(0), []
    for text in texts:
        words = text.split()
        order = random.permutation(len(words))
        removed = min(round(share * len(words)), max(len(words) - 1, 0))
        left.append(_words_at(words, order[removed:]))
    return left


def shortened(texts: Iterable[str]) -> list[str]:
    """Keeps a random 10 to 70 % of the words of captions, at least one."""
    random, left = np.random.default_rng(0), []
    for text in texts:
        words = text.split()
        count = max(round(random.uniform(0.1, 0.7) * len(words)), 1)
        left.append(_words_at(words, random.permutation(len(words))[:count]))
    return left


def _words_at(words: Sequence[str], places: np.ndarray) -> str:
    return " ".join(words[place] for place in np.sort(places))
