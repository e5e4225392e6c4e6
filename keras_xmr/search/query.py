"""Queries of an index, their filters and results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.json_entries import has_words, is_text
from keras_xmr.utils.messages import nearest

if TYPE_CHECKING:
    from keras_xmr.search.photo_index import PhotoIndex

MAX_COUNT, MAX_TEXT, MAX_PARTS = 1000, 2000, 16
"""Maximum number of photos of a result, characters of a text, and parts of a query."""


class QueryError(UserError):
    """Error of an invalid query."""


@dataclass(frozen=True)
class Query:
    """A query: texts and photos that results should match, or not.

    Attributes:
        texts: Texts to match; several are averaged.
        images: Bytes of image files to match.
        ids: Ids of photos of the index to match.
        unlike: Texts that results should not match.
    """

    texts: tuple[str, ...] = ()
    images: tuple[bytes, ...] = ()
    ids: tuple[int, ...] = ()
    unlike: tuple[str, ...] = ()

    def check(self) -> None:
        """Validates the query.

        Raises:
            QueryError: If the query is empty or too large, or a text is invalid or has no words.
        """
        wanted = len(self.texts) + len(self.images) + len(self.ids)
        if wanted == 0:
            raise QueryError("the query is empty: use a text or a photo")
        if wanted + len(self.unlike) > MAX_PARTS:
            raise QueryError(f"a query has at most {MAX_PARTS} parts")
        for text in (*self.texts, *self.unlike):
            if len(text) > MAX_TEXT:
                raise QueryError(f"a text has at most {MAX_TEXT:,} characters, not {len(text):,}")
            if not is_text(text):
                raise QueryError(f"the text {text!a} is not UTF-8")
            if not has_words(text):
                raise QueryError(
                    f"the text {text!r} has no words: say in words what the photo shows"
                )

    @property
    def is_one_text(self) -> bool:
        """Whether prediction sets are calibrated for such a query."""
        return len(self.texts) == 1 and not (self.images or self.ids or self.unlike)


@dataclass(frozen=True)
class Filters:
    """Filters of the photos to search.

    Attributes:
        folder: A folder relative to the root, with its subfolders; None for all.
        since: The first day of the shot; photos without a day are excluded.
        until: The last day, likewise.
        tags: Required tags.
    """

    folder: str | None = None
    since: date | None = None
    until: date | None = None
    tags: tuple[str, ...] = ()

    @property
    def _prefix(self) -> str:
        """The beginning of the paths in the folder; empty for all."""
        folder = (self.folder or "").strip("/")
        return "" if folder in ("", ".") else f"{folder}/"

    def allowed(self, index: PhotoIndex) -> np.ndarray:
        """Returns ids of the photos that pass, int64 ascending."""
        if self == Filters():
            return index.ids
        photos = index.photos()
        passed = np.ones(len(photos), bool)
        if prefix := self._prefix:
            passed &= np.array([path.startswith(prefix) for path in photos.paths], bool)
        if self.since or self.until:
            taken = photos.column("taken")
            since = b"0" if self.since is None else self.since.isoformat().encode()
            # After all digits.
            until = b"~" if self.until is None else f"{self.until.isoformat()}T99".encode()
            passed &= (since <= taken) & (taken <= until)
        if self.tags:
            wanted, tagged = set(self.tags), index.content["tags"]
            has_all = [wanted.issubset(tagged.get(path, ())) for path in photos.paths]
            passed &= np.array(has_all, bool)
        return index.ids[passed]

    def unknown(self, index: PhotoIndex) -> list[str]:
        """Returns sentences on the folder, days and tags without photos."""
        known, prefix = index.tags() if self.tags else [], self._prefix
        messages = [
            f"No photo has the tag {tag!r}.{nearest(tag, known) if known else ''}"
            for tag in self.tags
            if tag not in known
        ]
        if (self.since or self.until) and not index.photos().column("taken").any():
            messages.append("No photo has the day of the shot (EXIF).")
        folders = [folder for folder in index.folders() if folder] if prefix else []
        if prefix and not any(f"{folder}/".startswith(prefix) for folder in folders):
            name = prefix.removesuffix("/")
            others = nearest(name, folders) if folders else " The index has no folders."
            messages.append(f"No photo is in the folder {name!r}.{others}")
        return messages


@dataclass(frozen=True)
class Hit:
    """A photo of a result.

    Attributes:
        id: Of the photo.
        path: Path relative to the root of the photos, with `/`.
        score: Score by the matcher of the model; for a query of several parts, deviations above
            other photos.
        probability: Probability of a match, if scores are log-odds.
        in_prediction_set: Whether it is in the prediction set; None without one.
        taken: Time of the shot, ISO; empty if unknown.
        width: In pixels, the right way up.
        height: Likewise.
        duplicate_of: The id of its first near-duplicate.
        tags: The tags.
    """

    id: int
    path: str
    score: float
    probability: float | None
    in_prediction_set: bool | None
    taken: str
    width: int
    height: int
    duplicate_of: int | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class PredictionSet:
    """The conformal prediction set of a query.

    Attributes:
        size: Number of photos in the prediction set.
        is_least: Whether the set may have more photos, since not all were scored.
        cutoff: The lowest score of the prediction set; None if every photo is in it.
        share: The guaranteed share of the right photos.
        confidence: The share of queries with that guarantee.
    """

    size: int
    is_least: bool
    cutoff: float | None
    share: float
    confidence: float


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        hits: The photos, the best first.
        searched: Number of photos that passed the filters.
        prediction_set: The conformal prediction set; None without a calibration for such a query.
        unknown_words: Words that the model does not know.
        untrained_words: Words that say something about a photo, and that no training caption has,
            if the index knows the words of these.
        certified: Whether no other photo can be among these or in the prediction set, by the
            matcher of the model. None without a bound.
        notes: Further sentences.
        seconds: Time of the search.
    """

    hits: tuple[Hit, ...] = ()
    searched: int = 0
    prediction_set: PredictionSet | None = None
    unknown_words: tuple[str, ...] = ()
    untrained_words: tuple[str, ...] = ()
    certified: bool | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
