"""What is asked of an index, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.json_entries import is_text
from data_pipelines.sources.text_files import has_words
from keras_xmr.config.messages import nearest
from keras_xmr.index.verdict import Count

if TYPE_CHECKING:
    from keras_xmr.index.photo_index import PhotoIndex

MAX_COUNT, MAX_TEXT, MAX_PARTS = 1000, 2000, 16
"""Most photos of an answer, characters of a text, and parts of a query."""


Verdict = Literal["some", "none", "unknown"]
"""Photos are right, probably none is, or nothing is known of such a query."""


class QueryError(UserError):
    """A query cannot be answered; the message says what is wrong with it."""


@dataclass(frozen=True)
class Query:
    """What photos should fit, and what not.

    Attributes:
        texts: Texts that they should fit; of several the mean counts.
        images: Bytes of image files that they should be like.
        ids: Photos of the index that they should be like.
        unlike: Texts that they should not fit.
    """

    texts: tuple[str, ...] = ()
    images: tuple[bytes, ...] = ()
    ids: tuple[int, ...] = ()
    unlike: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuses what cannot be answered.

        Raises:
            QueryError: If nothing is asked, or too much, or a text has no words or is no text.
        """
        wanted = len(self.texts) + len(self.images) + len(self.ids)
        if wanted == 0:
            raise QueryError("nothing is asked: give a text, or a photo")
        if wanted + len(self.unlike) > MAX_PARTS:
            raise QueryError(f"a query has at most {MAX_PARTS} parts")
        for text in (*self.texts, *self.unlike):
            if len(text) > MAX_TEXT:
                raise QueryError(f"a text has at most {MAX_TEXT:,} characters, not {len(text):,}")
            if not is_text(text):
                raise QueryError(f"the text {text!a} is not UTF-8")
            if not has_words(text):
                raise QueryError(f"the text {text!r} has no words")

    @property
    def is_one_text(self) -> bool:
        """Whether it is what answer sets were calibrated for."""
        return len(self.texts) == 1 and not (self.images or self.ids or self.unlike)


@dataclass(frozen=True)
class Filters:
    """Which photos are looked at.

    Attributes:
        folder: A folder under the root, with all that is in it; None for all.
        since: The first day on which they were taken; those without a day do not pass.
        until: The last day, likewise.
        tags: Tags that they must all have.
    """

    folder: str | None = None
    since: date | None = None
    until: date | None = None
    tags: tuple[str, ...] = ()

    def allowed(self, index: PhotoIndex) -> np.ndarray | None:
        """The ids of the photos that pass, int64 ascending; None for all."""
        if self == Filters():
            return None
        folder = (self.folder or "").strip("/")
        prefix = f"{folder}/" if folder not in ("", ".") else ""
        since = "" if self.since is None else self.since.isoformat()
        has_day = bool(self.since or self.until)
        until = "9999" if self.until is None else f"{self.until.isoformat()}T99"
        passed = [
            photo.id
            for photo in index.photos()
            if photo.path.startswith(prefix)
            and since <= photo.taken <= until
            and (photo.taken or not has_day)
            and set(self.tags) <= set(index.tags_of(photo.id))
        ]
        return np.array(passed, np.int64)

    def unknown(self, index: PhotoIndex) -> list[str]:
        """Which of a folder, days and tags no photo has, in sentences."""
        known, folder = index.tags() if self.tags else [], (self.folder or "").strip("/")
        found = [
            f"No photo has the tag {tag!r}.{nearest(tag, known) if known else ''}"
            for tag in self.tags
            if tag not in known
        ]
        if (self.since or self.until) and not any(photo.taken for photo in index.photos()):
            found.append("No photo says on which day it was taken (EXIF).")
        if folder in ("", "."):
            return found
        folders = [f for f in index.folders() if f]
        if not any(f"{f}/".startswith(f"{folder}/") for f in folders):
            others = nearest(folder, folders) if folders else " There are no folders."
            found.append(f"No photo is in the folder {folder!r}.{others}")
        return found


@dataclass(frozen=True)
class Hit:
    """A photo that was found.

    Attributes:
        id: Of the photo.
        path: Under the root of the photos, with `/`.
        score: By the model's own matcher; of a query of several parts, how many deviations it lies
            above other photos.
        probability: Of a match, where scores are log-odds.
        in_answer: Whether it is in the answer set; None if there is none.
        right: The probability that it is right, if any is; None where that is not known.
        taken: When it was taken, ISO; empty where that is not known.
        width: In pixels, the right way up.
        height: Likewise.
        duplicate_of: The id of the first photo that it looks like.
        tags: Its tags.
    """

    id: int
    path: str
    score: float
    probability: float | None
    in_answer: bool | None
    right: float | None
    taken: str
    width: int
    height: int
    duplicate_of: int | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """How many photos are to be believed.

    Attributes:
        size: How many photos are in the answer set.
        is_least: Whether there may be more: not all were scored.
        cutoff: The lowest score of the answer set; None if every photo is in it.
        share: The part of the right photos that it holds.
        confidence: For what part of the queries.
        verdict: Whether there is a right photo at all.
        right: How many of the hits are right; None unless the verdict is "some".
        unfamiliar: Words that no training caption has, where they keep it from being known.
        sentence: The verdict for people; empty where nothing is known of any query.
    """

    size: int
    is_least: bool
    cutoff: float | None
    share: float
    confidence: float
    verdict: Verdict
    right: Count | None
    unfamiliar: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class SearchResult:
    """What a search has found.

    Attributes:
        hits: The photos, the best first.
        searched: How many photos passed the filters.
        answer: How many of them are to be believed; None without a calibration for such a query.
        unknown_words: Words that the model does not know.
        uncertainty: How uncertain the query is, as a percentile of the captions of training;
            None where uncertainty was not measured to tell anything.
        certified: Whether no other photo can be among these or in the answer set, by the model's
            own matcher; with a re-ranker, among all that were re-ranked. None where no bound is
            known.
        notes: What else to know, in sentences.
        seconds: How long it took.
    """

    hits: tuple[Hit, ...]
    searched: int
    answer: Answer | None
    unknown_words: tuple[str, ...]
    uncertainty: float | None
    certified: bool | None
    notes: tuple[str, ...]
    seconds: float

    def as_dict(self) -> Mapping[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def sentence(verdict: Verdict, right: Count | None, unfamiliar: Sequence[str]) -> str:
    """The verdict for people."""
    if unfamiliar:
        words = ", ".join(f"“{word}”" for word in unfamiliar)
        return (
            f"The model has learned from captions without {words}: how many photos are right is "
            "not known."
        )
    if verdict == "none":
        return "Probably none of the photos is right."
    if right is None:
        return ""
    if right.of == 1:
        return f"This photo is right with a probability of {100 * right.expected:.0f} %."
    if right.high == 0:
        return f"Probably none of these {right.of:,} is right."
    expected = round(right.expected)
    many = f"About {expected:,}" if expected else "Hardly any"
    said = f"{'All' if right.low == right.of else many} of these {right.of:,} are right"
    return f"{said}." if right.low == right.high else f"{said} ({right.low:,} to {right.high:,})."
