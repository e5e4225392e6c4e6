"""Searches an index: candidates by vectors, then scores by the matcher of the model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from data_pipelines.photo_files import UnreadableError
from data_pipelines.training_words import untrained_words
from keras_xmr.search.augmentations import Reference
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.photo_index import UNFINISHED, PhotoIndex
from keras_xmr.search.prediction_sets import centre_and_scale
from keras_xmr.search.query import (
    MAX_COUNT,
    Filters,
    Hit,
    PredictionSet,
    Query,
    QueryError,
    SearchResult,
)
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import Arrays, chunks, concatenate, select

_FEW = 2000
"""Minimum number of candidates; a gallery of this size is scored completely."""

_MOST = 32_000
"""Maximum number of candidates."""

_TILE = 2000
_ALL = Filters()


class Searcher:
    """Answers queries on an index. Thread-safe.

    Args:
        index: The index.
        embedder: Embeds and scores instead of the embedder of the index.
        few_texts: Whether a few texts will be embedded, of which the start counts most.

    Attributes:
        embedder: The embedder, if it was loaded.
    """

    def __init__(
        self, index: PhotoIndex, embedder: Any | None = None, few_texts: bool = False
    ) -> None:
        self.index, self._few_texts = index, few_texts
        self.embedder: Any = embedder
        self._lock = Lock()
        # The same filters are used repeatedly, as while a user types.
        self._passed = lru_cache(8)(lambda filters: filters.allowed(index))

    @property
    def model(self) -> Embedder:
        """The embedder of the index.

        Raises:
            UserError: If it is missing, or another.
        """
        with self._lock:
            return self._model

    @cached_property
    def _model(self) -> Embedder:
        if self.embedder is None:
            self.embedder = Embedder.open(self.index.embedder_path, self._few_texts)
        if self.embedder.fingerprint != self.index.fingerprint:
            raise UserError(
                f"{self.index.embedder_path} is the embedder of another index than "
                f"{self.index.path}; copy the index again, or build it again"
            )
        model: Embedder = self.embedder
        return model

    def warm_up(self) -> None:
        """Loads the model, and answers a query, so that the next one is fast.

        Raises:
            UserError: If the embedder is missing, or of another index.
        """
        if len(self.index):
            self.search(Query(texts=("a photo",)), count=1)

    def search(self, query: Query, count: int = 20, filters: Filters = _ALL) -> SearchResult:
        """Finds the photos that match a query best.

        Args:
            query: The query.
            count: Number of hits, at most `MAX_COUNT`.
            filters: Filters of the photos.

        Raises:
            UserError: If the query cannot be answered, or the model is another.
        """
        begin = time.perf_counter()
        query.check()
        if not 1 <= count <= MAX_COUNT:
            raise QueryError(f"the number of results must be 1 to {MAX_COUNT:,}, got {count:,}")
        allowed = self._passed(filters)
        if query.ids:
            allowed = np.setdiff1d(allowed, query.ids)
        if len(allowed):
            result = self._search(query, count, allowed)
        else:
            result = SearchResult(notes=tuple(self._why_nothing()))
        notes = (*filters.unknown(self.index), *result.notes)
        return replace(result, notes=notes, seconds=time.perf_counter() - begin)

    def _search(self, query: Query, count: int, allowed: np.ndarray) -> SearchResult:
        """Searches among some photos, at least one."""
        ranking = self._rank(query, count, allowed)
        texts, trained = (*query.texts, *query.unlike), self.index.training_words
        return SearchResult(
            hits=tuple(self._hits(ranking, count)),
            searched=ranking.searched,
            prediction_set=self._prediction_set(ranking),
            unknown_words=tuple(dict.fromkeys(chain(*map(self.model.unknown_words, texts)))),
            untrained_words=()
            if trained is None
            else tuple(dict.fromkeys(word for t in texts for word in untrained_words(t, trained))),
            certified=ranking.certified,
            notes=tuple(self._notes(ranking)),
        )

    def _rank(self, query: Query, count: int, allowed: np.ndarray) -> _Ranking:
        """Ranks ever more candidates, until they are proven to have the best, or are too many."""
        parts = self._embed(query)
        wanted = max(4 * count, _FEW)
        while True:
            ids, similarities = self._candidates(parts, wanted, allowed)
            ranking = self._score(query, parts, ids, len(allowed))
            ranking.certified = self._certify(ranking, similarities, count)
            is_short = ranking.certified is False or 0 < len(ids) == ranking.set_size
            if len(ids) == len(allowed) or wanted >= _MOST or not is_short:
                return ranking
            wanted *= 4

    def _embed(self, query: Query) -> dict[str, np.ndarray]:
        """Returns the embeddings of all parts of a query; texts not to match are last."""
        if self.index.kind == "tokens" and (query.images or query.ids):
            raise QueryError(
                f"{self.index.matcher} compares regions with words, not photos: use a text"
            )
        parts = []
        if query.texts:
            parts.append(self.model.embed_texts(list(query.texts)))
        if query.images:
            try:
                parts.append(self.model.embed_images(list(query.images)))
            except UnreadableError as error:
                raise QueryError(str(error)) from None
        if query.ids:
            try:
                parts.append(self.index.embeddings(query.ids))
            except KeyError as error:
                raise QueryError(f"the index has no photo {error.args[0]}") from None
        if query.unlike:
            parts.append(self.model.embed_texts(list(query.unlike)))
        if len({frozenset(part) for part in parts}) > 1:
            # Where texts are points and photos are sets, a point is a set of one.
            parts = [p if "points" in p else {"points": p["mean"][:, None]} for p in parts]
        return concatenate(parts)

    def _candidates(
        self, parts: Arrays, wanted: int, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns ids of photos to score, and their similarities (parts, candidates), or None."""
        index = self.index
        if len(allowed) <= wanted or not index.has_vectors:
            return allowed, None
        stored = index.vectors
        known = Reference(self.model.search_constants(), index.sample)
        vectors = index.augmentation.query_vectors(self.model.prepare(parts, "text"), known)
        if not index.is_finished:
            # Photos may have been added and removed since the vectors were written.
            allowed = np.intersect1d(allowed, stored.ids)
        nearest = stored.search(vectors, wanted, None if len(allowed) == len(stored) else allowed)
        # `np.unique` imports masked arrays, which takes as long as the search.
        ids = np.sort(nearest.ids[nearest.ids >= 0])
        return ids[np.diff(ids, prepend=-1) > 0], nearest.scores

    def _score(self, query: Query, parts: Arrays, ids: np.ndarray, searched: int) -> _Ranking:
        """Scores photos by all parts of a query, the best first."""
        tiles = map(self.index.embeddings, chunks(ids, _TILE))
        count = len(next(iter(parts.values())))
        scores = np.concatenate(
            [np.empty((0, count), np.float32), *(self.model.score(t, parts) for t in tiles)]
        )
        mean, deviation = centre_and_scale(self.model.score(self.index.reference, parts).T)
        by_part = (scores - mean) / deviation
        unlike = len(query.unlike)
        standard = by_part[:, : count - unlike].mean(axis=1)
        if unlike:
            # A photo that matches it less than others do gets no bonus.
            standard = standard - np.maximum(by_part[:, -unlike:], 0.0).max(axis=1)
        final = scores[:, 0] if count == 1 else standard
        order = np.lexsort((ids, -final))
        sets, set_size, cutoff = self.index.prediction_sets, 0, -np.inf
        if sets is not None and query.is_one_text:
            set_size = int(np.sum(standard >= sets.cutoff))
            cutoff = float(mean[0] + sets.cutoff * deviation[0])
        return _Ranking(
            query, parts, ids[order], final[order], standard[order], searched, set_size, cutoff
        )

    def _certify(
        self, ranking: _Ranking, similarities: np.ndarray | None, count: int
    ) -> bool | None:
        """Returns whether photos without scores can be neither hits nor in the prediction set."""
        if similarities is None:
            return True
        index = self.index
        is_certain = index.is_finished and index.vectors.is_exact
        if not is_certain or len(similarities) > 1:
            return None
        if index.reduces:
            return True
        one_photo = select(index.sample, slice(1))
        bound = self.model.score_bound(similarities[:, -1], one_photo, ranking.parts)
        count = min(max(count, ranking.set_size), len(ranking.scores))
        return None if bound is None else bool(ranking.scores[count - 1] >= bound[0])

    def _prediction_set(self, ranking: _Ranking) -> PredictionSet | None:
        """Returns the prediction set; None without a calibration for such a query."""
        sets = self.index.prediction_sets
        if sets is None or not (ranking.query.is_one_text and len(ranking.ids)):
            return None
        return PredictionSet(
            size=ranking.set_size,
            is_least=ranking.set_size == len(ranking.ids) < ranking.searched,
            cutoff=ranking.cutoff if np.isfinite(ranking.cutoff) else None,
            share=sets.share,
            confidence=sets.confidence,
        )

    def _hits(self, ranking: _Ranking, count: int) -> Iterator[Hit]:
        index, top = self.index, ranking.scores[:count]
        is_one_text, sets = ranking.query.is_one_text, index.prediction_sets
        matches = self.model.probability(top) if is_one_text else None
        for rank, (number, score) in enumerate(zip(ranking.ids[:count].tolist(), top, strict=True)):
            photo = index.photo(number)
            yield Hit(
                id=number,
                path=photo.path,
                score=float(score),
                probability=None if matches is None else float(matches[rank]),
                in_prediction_set=(
                    bool(ranking.standard[rank] >= sets.cutoff) if sets and is_one_text else None
                ),
                taken=photo.taken,
                width=photo.width,
                height=photo.height,
                duplicate_of=index.duplicate_of(number),
                tags=index.tags_of(number),
            )

    def _why_nothing(self) -> Iterator[str]:
        """Yields sentences on a search without any photo, for which no model is loaded."""
        if len(self.index):
            yield "No photo passes the filters."
        else:
            yield f"The index has no photos{'' if self.index.is_finished else ' yet'}."
        if not self.index.is_finished:
            yield UNFINISHED

    def _notes(self, ranking: _Ranking) -> Iterator[str]:
        """Yields sentences on a ranking."""
        if not self.index.is_finished:
            yield UNFINISHED
        if len(ranking.ids) < ranking.searched and ranking.certified is not True:
            yield (
                f"{len(ranking.ids):,} of {ranking.searched:,} photos were scored by "
                f"{self.index.matcher}; others may be better."
            )


@dataclass(eq=False)
class _Ranking:
    """Scored photos, the best first.

    Attributes:
        query: The query.
        parts: The embeddings of its parts.
        ids: Of the photos.
        scores: The scores of their ranking.
        standard: The same in deviations of the reference.
        searched: Number of photos that passed the filters.
        set_size: Number of these photos in the prediction set.
        cutoff: The lowest score of the prediction set; -inf without one, or if it has every photo.
        certified: Whether these are proven to be the best.
    """

    query: Query
    parts: Mapping[str, np.ndarray]
    ids: np.ndarray
    scores: np.ndarray
    standard: np.ndarray
    searched: int
    set_size: int
    cutoff: float
    certified: bool | None = None
