"""Data report: contents and possible problems of records."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from data_pipelines.options import TextOptions
from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import SPLITS, Problems, Split
from data_pipelines.text import (
    AT_ONCE,
    SPECIAL,
    Tokenizer,
    WordTokenizer,
    make_vocabulary,
    split_words,
)
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.tables import on_one_line, table
from keras_xmr.utils.vectors import chunks

_MANY = 0.05
"""Share of repeated captions from which on the report gives advice."""

REPORT = "report.json"

_UNREADABLE = 0.2
"""Share of captions, or words, above which a fault of theirs has a warning."""


@dataclass(frozen=True)
class SplitReport:
    """Statistics of one split.

    Attributes:
        images: Number of images.
        captions: Number of captions.
        captions_per_image: Fewest, mean and most captions of an image.
        words: Shortest, mean, median, 95th percentile and longest caption, in words.
        cut: Number of truncated captions.
        without_known_words: Number of captions without a word, or word piece, of the vocabulary.
        unknown_words: Share of words, or word pieces, that are not in the vocabulary.
        duplicates: Groups of images of this split with the same pixels or features.
        repeated_captions: Number of captions with the same words as another one of the split.
    """

    images: int
    captions: int
    captions_per_image: tuple[int, float, int]
    words: tuple[int, float, float, float, int]
    cut: int
    without_known_words: int
    unknown_words: float
    duplicates: list[list[str]]
    repeated_captions: int

    @property
    def is_unknown(self) -> bool:
        """Whether the vocabulary lacks all words of many captions, or many words."""
        return max(self.without_known_words / self.captions, self.unknown_words) > _UNREADABLE


@dataclass(frozen=True)
class DataReport:
    """Statistics of a data set.

    Attributes:
        splits: One report per split.
        leaks: Groups of images in several splits with the same pixels or features, each image
            as `split: key`.
        vocabulary: Number of words of the vocabulary, without the special ones; or of word pieces
            of the tokenizer of the text encoder.
        distinct_words: Number of different words of the training captions.
        pretrained_tokenizer: Whether the text encoder has its tokenizer.
        max_words: The option `data.text.max_words`.
        most_words: Number of words, or word pieces, after which captions are truncated.
        problems: Number of skipped items, by reason.
        examples: Examples of skipped items, by reason.
    """

    splits: dict[str, SplitReport]
    leaks: list[list[str]]
    vocabulary: int
    distinct_words: int
    pretrained_tokenizer: bool
    max_words: int
    most_words: int
    problems: dict[str, int]
    examples: dict[str, list[str]]

    def __str__(self) -> str:
        span = "{} / {:.1f} / {}".format
        rows = {
            "images": lambda s: f"{s.images:,}",
            "captions": lambda s: f"{s.captions:,}",
            "captions per image (least / mean / most)": lambda s: span(*s.captions_per_image),
            "words per caption (least / mean / most)": lambda s: span(*np.take(s.words, [0, 1, 4])),
            "truncated captions": lambda s: f"{s.cut:,}",
            "captions without known words": lambda s: f"{s.without_known_words:,}",
            "unknown words": lambda s: f"{100 * s.unknown_words:.2f} %",
            "groups of duplicate images": lambda s: f"{len(s.duplicates):,}",
            "repeated captions": lambda s: f"{s.repeated_captions:,}",
        }
        body = [[name, *(cell(s) for s in self.splits.values())] for name, cell in rows.items()]
        lines = [table(["", *self.splits], body)]
        if self.pretrained_tokenizer:
            vocabulary = (
                f"{self.vocabulary:,} word pieces of the text encoder; "
                f"{self.distinct_words:,} different words"
            )
        else:
            vocabulary = (
                f"{self.vocabulary:,} of {self.distinct_words:,} different words occur often enough"
            )
        lines.append(f"vocabulary: {vocabulary}")
        if any(s.repeated_captions > _MANY * s.captions for s in self.splits.values()):
            lines.append(
                "repeated captions count as wrong for images that they were not written for; "
                "with --set evaluation.judgements='[identical_captions]' metrics in which "
                "they are right are reported, too"
            )
        lines += self._warnings()
        if self.leaks:
            lines.append(f"LEAKS: {len(self.leaks):,} images are in several splits, such as")
            lines += [f"  {on_one_line(' = '.join(group))}" for group in self.leaks[:5]]
        if self.problems:
            problems = Problems(Counter(self.problems), self.examples)
            lines.append(str(problems))
            if problems.total > len(self.problems):
                most = f"up to {problems.most_examples} of each kind"
                lines.append(f"{REPORT} in the folder of the records names them, {most}")
        return "\n".join(lines)

    def _warnings(self) -> Iterator[str]:
        """Yields lines on captions that the model cannot read, from the first split."""
        name, split = next(iter(self.splits.items()))
        if self.pretrained_tokenizer and split.is_unknown:
            yield (
                f"UNKNOWN LANGUAGE: {split.without_known_words:,} of {split.captions:,} captions "
                f"of {name} have no word that the vocabulary of the text encoder knows, and "
                f"{100 * split.unknown_words:.0f} % of the word pieces are unknown. It does not "
                "know this language or script: choose a text encoder of the language "
                "(model.text.encoder.preset)"
            )
        if split.cut > _UNREADABLE * split.captions:
            unit = "word pieces" if self.pretrained_tokenizer else "words"
            remedy = f"increase data.text.max_words, which is {self.max_words}"
            if self.most_words < self.max_words:
                remedy = f"the text encoder reads no more (data.text.max_words: {self.max_words})"
            yield (
                f"TRUNCATED: {split.cut:,} of {split.captions:,} captions of {name} have more "
                f"than {self.most_words} {unit}; {remedy}"
            )


def data_report(
    records: Records, options: TextOptions, pretrained_tokenizer: Tokenizer | None = None
) -> DataReport:
    """Reports on records, and writes the report to their folder.

    Args:
        records: The records.
        options: Options of the vocabulary and of truncation.
        pretrained_tokenizer: The tokenizer of the text encoder, if it has one; otherwise the
            vocabulary is made from the captions.
    """
    counts = Counter(dict(records.word_counts()))
    if pretrained_tokenizer is None:
        words = make_vocabulary(counts, options.min_count)
        tokenizer: Tokenizer = WordTokenizer(words, options.max_words)
        vocabulary = len(words) - len(SPECIAL)
    else:
        tokenizer, vocabulary = pretrained_tokenizer, len(pretrained_tokenizer)
    splits = {name: records.split(name) for name in SPLITS if name in records.splits}
    several = _duplicates(list(splits.values()))
    leaks = [group for group in several if len({split for split, _ in group}) > 1]
    report = DataReport(
        splits={name: split_report(split, tokenizer) for name, split in splits.items()},
        leaks=[[f"{split}: {key}" for split, key in group] for group in leaks],
        vocabulary=vocabulary,
        distinct_words=len(counts),
        pretrained_tokenizer=pretrained_tokenizer is not None,
        max_words=options.max_words,
        most_words=tokenizer.max_words,
        problems=records.manifest["problems"]["counts"],
        examples=records.manifest["problems"]["examples"],
    )
    content = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    atomic_write(records.folder / REPORT, content.encode())
    return report


def split_report(split: SplitRecords, tokenizer: Tokenizer) -> SplitReport:
    """Returns the statistics of a split, with the words that a tokenizer knows."""
    words = [_count(chunk, tokenizer) for chunk in chunks(split.texts, AT_ONCE)]
    lengths, same, pieces, known = map(np.concatenate, zip(*words, strict=True))
    _, repeated = np.unique(same, return_counts=True)
    per_image = np.diff(split.first_caption)
    shortest, median, long, longest = np.percentile(lengths, [0, 50, 95, 100]).tolist()
    groups = _duplicates([split])
    return SplitReport(
        images=len(split),
        captions=split.num_captions,
        captions_per_image=(int(per_image.min()), float(per_image.mean()), int(per_image.max())),
        words=(int(shortest), float(lengths.mean()), median, long, int(longest)),
        cut=int((pieces > tokenizer.max_words).sum()),
        without_known_words=int((known == 0).sum()),
        unknown_words=float(1 - known.sum() / max(pieces.sum(), 1)),
        duplicates=[[key for _, key in group] for group in groups],
        repeated_captions=int(repeated[repeated > 1].sum()),
    )


def _count(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, ...]:
    """Returns per caption: number of words, hash of the words, number of pieces, and number of
    known pieces."""
    words = split_words(texts)
    starts, content = words.row_splits.numpy(), words.flat_values.numpy()
    same = [hash(b" ".join(content[a:b])) for a, b in itertools.pairwise(starts)]
    pieces = tokenizer.pieces(texts)
    is_known = pieces.flat_values.numpy() != tokenizer.unknown
    known = np.diff(np.concatenate([[0], np.cumsum(is_known)])[pieces.row_splits.numpy()])
    return words.row_lengths().numpy(), np.array(same), pieces.row_lengths().numpy(), known


def _duplicates(splits: Sequence[SplitRecords]) -> list[list[tuple[Split, str]]]:
    """Returns groups of images with the same digest, in the order of the first of each group."""
    digests = np.concatenate([split.index.columns["digest"] for split in splits])
    _, group_of, sizes = np.unique(digests, return_inverse=True, return_counts=True)
    first = np.cumsum([0, *map(len, splits)])
    groups: dict[int, list[tuple[Split, str]]] = {}
    for image in np.flatnonzero(sizes[group_of] > 1):
        number = int(np.searchsorted(first, image, side="right")) - 1
        key = splits[number].image_keys[int(image - first[number])]
        groups.setdefault(int(group_of[image]), []).append((splits[number].split, key))
    return list(groups.values())
