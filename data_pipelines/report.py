"""The data report: what the records hold, and what in them may surprise."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from data_pipelines.files import atomic_write
from data_pipelines.options import TextOptions
from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import SPLITS, Problems, Split
from data_pipelines.tables import table
from data_pipelines.text import (
    SPECIAL,
    Tokenizer,
    WordTokenizer,
    make_vocabulary,
    split_words,
)

REPORT = "report.json"


@dataclass(frozen=True)
class SplitReport:
    """What one split holds.

    Attributes:
        images: How many images.
        captions: How many captions.
        captions_per_image: Fewest, mean and most captions of an image.
        words: Shortest, mean, median, 95th percentile and longest caption, in words.
        cut: Captions of which the model does not read all words, or parts of words.
        without_known_words: Captions of which the vocabulary has no word, or part of a word.
        unknown_words: Part of all words, or parts of words, that the vocabulary does not have.
        duplicates: Groups of images of this split with the same pixels or features.
        repeated_captions: Captions whose words another caption of the split has too.
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


@dataclass(frozen=True)
class DataReport:
    """What a data set holds.

    Attributes:
        splits: A report a split.
        leaks: Groups of images in several splits with the same pixels or features, each image
            as `split: key`.
        vocabulary: Words that the model knows, without the special ones; or, with a tokenizer of
            its own, parts of words.
        distinct_words: Different words of the training captions.
        own_tokenizer: Whether the text encoder brings a tokenizer of its own.
        problems: How many items were skipped, by reason.
        examples: A few of them, by reason.
    """

    splits: dict[str, SplitReport]
    leaks: list[list[str]]
    vocabulary: int
    distinct_words: int
    own_tokenizer: bool
    problems: dict[str, int]
    examples: dict[str, list[str]]

    def __str__(self) -> str:
        rows = {
            "images": lambda s: f"{s.images:,}",
            "captions": lambda s: f"{s.captions:,}",
            "captions an image": lambda s: "{} / {:.1f} / {}".format(*s.captions_per_image),
            "words a caption": lambda s: "{} / {:.1f} / {}".format(*np.take(s.words, [0, 1, 4])),
            "captions cut": lambda s: f"{s.cut:,}",
            "captions without known words": lambda s: f"{s.without_known_words:,}",
            "unknown words": lambda s: f"{s.unknown_words:.2%}",
            "groups of duplicate images": lambda s: f"{len(s.duplicates):,}",
            "captions that stand twice": lambda s: f"{s.repeated_captions:,}",
        }
        body = [[name, *(cell(s) for s in self.splits.values())] for name, cell in rows.items()]
        lines = [table(["", *self.splits], body)]
        if self.own_tokenizer:
            vocabulary = (
                f"{self.vocabulary:,} parts of words, which the text encoder brings along; "
                f"{self.distinct_words:,} different words"
            )
        else:
            vocabulary = (
                f"{self.vocabulary:,} of {self.distinct_words:,} different words occur often enough"
            )
        lines.append(f"vocabulary: {vocabulary}")
        if self.leaks:
            lines.append(f"LEAKS: {len(self.leaks):,} images stand in several splits, such as")
            lines += [f"  {' = '.join(group)}" for group in self.leaks[:5]]
        if self.problems:
            lines.append(str(Problems(Counter(self.problems), self.examples)))
        return "\n".join(lines)


def data_report(
    records: Records, options: TextOptions, own_tokenizer: Tokenizer | None = None
) -> DataReport:
    """Reports on records, and writes the report beside them.

    Args:
        records: The records.
        options: Which words the model knows, and how many of a caption it reads.
        own_tokenizer: The tokenizer that the text encoder brings along, if it does; the
            vocabulary is then not made of the captions.
    """
    counts = Counter(dict(records.word_counts()))
    if own_tokenizer is None:
        words = make_vocabulary(counts, options.min_count)
        tokenizer: Tokenizer = WordTokenizer(words, options.max_words)
        vocabulary = len(words) - len(SPECIAL)
    else:
        tokenizer, vocabulary = own_tokenizer, len(own_tokenizer)
    splits: dict[str, SplitRecords] = {}
    for name in SPLITS:
        if name in records.splits:
            splits[name] = records.split(name)
    report = DataReport(
        splits={name: _split_report(split, tokenizer) for name, split in splits.items()},
        leaks=_leaks(splits),
        vocabulary=vocabulary,
        distinct_words=len(counts),
        own_tokenizer=own_tokenizer is not None,
        problems=records.manifest["problems"]["counts"],
        examples=records.manifest["problems"]["examples"],
    )
    content = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    atomic_write(records.folder / REPORT, content.encode())
    return report


def _split_report(split: SplitRecords, tokenizer: Tokenizer) -> SplitReport:
    texts = [caption.text for caption in split.captions]
    pieces = tokenizer.pieces(texts)
    known = pieces.flat_values.numpy() != tokenizer.unknown
    known_counts = np.diff(np.concatenate([[0], np.cumsum(known)])[pieces.row_splits.numpy()])
    words = split_words(texts)
    lengths = words.row_lengths().numpy()
    starts = words.row_splits.numpy()
    keys = words.flat_values.numpy()
    repeated = Counter(b" ".join(keys[a:b]) for a, b in itertools.pairwise(starts))
    per_image = np.diff(split.first_caption)
    groups = _by_digest({split.split: split})
    return SplitReport(
        images=len(split),
        captions=split.num_captions,
        captions_per_image=(int(per_image.min()), float(per_image.mean()), int(per_image.max())),
        words=(
            int(lengths.min()),
            float(lengths.mean()),
            float(np.median(lengths)),
            float(np.percentile(lengths, 95)),
            int(lengths.max()),
        ),
        cut=int((pieces.row_lengths().numpy() > tokenizer.max_words).sum()),
        without_known_words=int((known_counts == 0).sum()),
        unknown_words=float(1 - known.sum() / max(known.size, 1)),
        duplicates=[[key for _, key in group] for group in groups if len(group) > 1],
        repeated_captions=sum(count for count in repeated.values() if count > 1),
    )


def _leaks(splits: dict[str, SplitRecords]) -> list[list[str]]:
    return [
        [f"{split}: {key}" for split, key in group]
        for group in _by_digest(splits)
        if len({split for split, _ in group}) > 1
    ]


def _by_digest(splits: dict[Any, SplitRecords]) -> list[list[tuple[Split, str]]]:
    groups: defaultdict[str, list[tuple[Split, str]]] = defaultdict(list)
    for split in splits.values():
        for item in split.items:
            groups[item.digest].append((split.split, item.key))
    return list(groups.values())
