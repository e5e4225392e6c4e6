"""Searches an index: candidates by vectors, then scores by the matcher of the model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from data_pipelines.sources import UnreadableError
from keras_xmr.search.answer_sets import centre_and_scale
from keras_xmr.search.augmentations import Reference
from keras_xmr.search.photo_index import UNFINISHED, PhotoIndex
from keras_xmr.search.query import (
    MAX_COUNT,
    Answer,
    Filters,
    Hit,
    Query,
    QueryError,
    SearchResult,
)
from keras_xmr.search.query_reranking import FIRST, RERANKERS, Reranking
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import chunks, concatenate, select

if TYPE_CHECKING:
    from keras_xmr.search.run_model import RunModel

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
        run: The run of the index, if it was moved.
        embedder: Embeds and scores instead of the model of the run.
        compiled: Whether the model is compiled, which is faster from the second query on.
        matcher: Another matcher, which scores the candidates of that of the index. Results
            then lack answer sets and re-ranking, which were calibrated for that one.

    Attributes:
        by_matcher: Makes a searcher by another matcher, once for each.
    """

    def __init__(
        self,
        index: PhotoIndex,
        run: Path | None = None,
        embedder: Any | None = None,
        compiled: bool = True,
        matcher: str = "",
    ) -> None:
        self.index, self._matcher = index, matcher
        self._compiled = compiled
        self._run = index.run if run is None else run
        self._embedder: Any = embedder
        self._lock = Lock()
        # The same filters are used repeatedly, as while a user types.
        self._passed = lru_cache(8)(lambda filters: filters.allowed(index))
        self.by_matcher = cache(lambda name: Searcher(index, run, embedder, compiled, name))

    def warm_up(self) -> None:
        """Loads the model, and answers a query, so that the next one is fast.

        Raises:
            UserError: If the run is missing, or its model is not that of the index.
        """
        if len(self.index):
            self.search(Query(texts=("a photo",)), count=1)

    @property
    def model(self) -> RunModel:
        """The model of the index.

        Raises:
            UserError: If the run is missing, or its model is another.
        """
        with self._lock:
            return self._model

    @cached_property
    def _model(self) -> RunModel:
        if self._embedder is None:
            from keras_xmr.search.run_model import RunModel

            self._embedder = RunModel(self._run, self._compiled)
        if self._embedder.fingerprint != self.index.fingerprint:
            raise UserError(
                f"{self.index.path} was made by another model than that of {self._run}; build "
                "it again with this run, or use --run with the run of the index"
            )
        model: RunModel = self._embedder
        return model

    @cached_property
    def _scorer(self) -> RunModel:
        """The model with the matcher that scores."""
        return self.model.with_matcher(self._matcher) if self._matcher else self.model

    def search(
        self,
        query: Query,
        count: int = 20,
        filters: Filters = _ALL,
        rerank: str | None = None,
    ) -> SearchResult:
        """Finds the photos that match a query best.

        Args:
            query: The query.
            count: Number of hits, at most `MAX_COUNT`.
            filters: Filters of the photos.
            rerank: One of `RERANKERS`, which re-ranks the top photos; None for no re-ranking.

        Raises:
            UserError: If the query cannot be answered, or the model is another.
        """
        begin = time.perf_counter()
        query.check()
        reranking = None if rerank is None else self._reranking(query, rerank)
        if not 1 <= count <= MAX_COUNT:
            raise QueryError(f"the number of results must be 1 to {MAX_COUNT:,}, got {count:,}")
        allowed = self._passed(filters)
        if query.ids:
            allowed = np.setdiff1d(allowed, query.ids)
        if not len(allowed):
            return self._nothing(filters, begin)
        # All photos that are re-ranked can be among the results.
        scored = self._find(query, count if reranking is None else max(count, FIRST), allowed)
        if reranking is not None and len(scored.ids):
            self._rerank(scored, reranking)
        answer = self._answer(scored)
        texts = (*query.texts, *query.unlike)
        return SearchResult(
            hits=tuple(self._hits(scored, answer, count)),
            searched=scored.searched,
            answer=answer,
            unknown_words=tuple(dict.fromkeys(chain(*map(self.model.unknown_words, texts)))),
            uncertainty=self._uncertainty(scored),
            certified=scored.certified,
            notes=(*filters.unknown(self.index), *self._notes(scored, reranking)),
            seconds=time.perf_counter() - begin,
        )

    def _nothing(self, filters: Filters, begin: float) -> SearchResult:
        """The result without any photo, for which no model is loaded."""
        if len(self.index):
            why = "No photo passes the filters."
        else:
            why = f"The index has no photos{'' if self.index.is_finished else ' yet'}."
        notes = (*filters.unknown(self.index), why, *self._unfinished())
        return SearchResult(notes=notes, seconds=time.perf_counter() - begin)

    def _reranking(self, query: Query, rerank: str) -> Reranking:
        """The re-ranking of a name; refused where it was not tuned."""
        if self._matcher:
            raise QueryError(
                f"{rerank} was tuned for {self.index.matcher}, not for {self._matcher}; use it "
                "without another matcher"
            )
        if rerank not in RERANKERS:
            raise QueryError(
                f"unknown re-ranker {rerank!r} of a search; use {', '.join(RERANKERS)}"
            )
        if not query.is_one_text:
            raise QueryError(f"{rerank} is for a single text")
        if self.index.reranking is None:
            raise QueryError(
                f"{self.index.path} has no captions for re-ranking: `index` stores them with "
                "answer sets, except for matchers of regions and words"
            )
        return self.index.reranking

    def _rerank(self, scored: _Scored, reranking: Reranking) -> None:
        """Re-ranks the top photos."""
        first = scored.ids[:FIRST]
        sample_scores = self._scorer.score(self.index.embeddings(first), self.index.captions)
        order = reranking.order(scored.scores[:FIRST], sample_scores)
        for values in (scored.ids, scored.scores, scored.standard):
            values[: len(first)] = values[:FIRST][order]

    def _find(self, query: Query, count: int, allowed: np.ndarray) -> _Scored:
        parts = self._parts(query)
        wanted = max(4 * count, _FEW)
        while True:
            ids, similarities = self._candidates(parts, wanted, allowed)
            scored = self._score(query, parts, ids, len(allowed))
            scored.certified = self._certify(scored, similarities, count)
            is_short = scored.certified is False or 0 < len(ids) == scored.set_size
            if len(ids) == len(allowed) or wanted >= _MOST or not is_short:
                return scored
            wanted *= 4

    def _parts(self, query: Query) -> dict[str, np.ndarray]:
        """The embeddings of all parts of a query; texts not to match are last."""
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
        return _join(parts)

    def _candidates(
        self, parts: Mapping[str, np.ndarray], wanted: int, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Ids of photos to score, and their similarities (parts, candidates); None for all."""
        if len(allowed) <= wanted:
            return allowed, None
        index, stored = self.index, self.index.vectors
        known = Reference(self.model.search_constants(), index.sample)
        vectors = index.augmentation.query_vectors(self.model.prepare(parts, "caption"), known)
        if not index.is_finished:
            # Photos may have been added and removed since the vectors were written.
            allowed = np.intersect1d(allowed, stored.ids)
        nearest = stored.search(vectors, wanted, None if len(allowed) == len(stored) else allowed)
        return np.unique(nearest.ids[nearest.ids >= 0]), nearest.scores

    def _score(
        self, query: Query, parts: Mapping[str, np.ndarray], ids: np.ndarray, searched: int
    ) -> _Scored:
        """Scores photos by all parts of a query, the best first."""
        tiles = map(self.index.embeddings, chunks(ids, _TILE))
        count = len(next(iter(parts.values())))
        scores = np.concatenate(
            [np.empty((0, count), np.float32), *(self._scorer.score(t, parts) for t in tiles)]
        )
        mean, deviation = centre_and_scale(self._scorer.score(self.index.reference, parts).T)
        standard = (scores - mean) / deviation
        unlike = len(query.unlike)
        total = standard[:, : count - unlike].mean(axis=1)
        if unlike:
            # A photo that matches it less than others do gets no bonus.
            total = total - np.maximum(standard[:, -unlike:], 0.0).max(axis=1)
        ranking_scores = scores[:, 0] if count == 1 else total
        order = np.lexsort((ids, -ranking_scores))
        sets, set_size = self.index.answer_sets, 0
        if sets is not None and query.is_one_text:
            set_size = int(np.sum(total >= sets.cutoff))
        return _Scored(
            query,
            parts,
            ids[order],
            ranking_scores[order],
            total[order],
            (float(mean[0]), float(deviation[0])),
            searched,
            set_size,
        )

    def _certify(self, scored: _Scored, similarities: np.ndarray | None, count: int) -> bool | None:
        """Whether photos without scores cannot be among the best, or in the answer set."""
        if similarities is None:
            return True
        index = self.index
        is_certain = index.is_finished and index.vectors.is_exact and not self._matcher
        if not is_certain or len(similarities) > 1:
            return None
        if index.reduces:
            return True
        one_photo = select(index.sample, slice(1))
        bound = self.model.score_bound(similarities[:, -1], one_photo, scored.parts)
        count = min(max(count, scored.set_size), len(scored.scores))
        return None if bound is None else bool(scored.scores[count - 1] >= bound[0])

    def _answer(self, scored: _Scored) -> Answer | None:
        """The answer set, if it is known."""
        sets = self.index.answer_sets
        if sets is None or self._matcher or not (scored.query.is_one_text and len(scored.ids)):
            return None
        mean, deviation = scored.background
        return Answer(
            size=scored.set_size,
            is_least=scored.set_size == len(scored.ids) < scored.searched,
            cutoff=mean + float(sets.cutoff) * deviation if np.isfinite(sets.cutoff) else None,
            share=sets.share,
            confidence=sets.confidence,
        )

    def _hits(self, scored: _Scored, answer: Answer | None, count: int) -> Iterator[Hit]:
        top, index = scored.scores[:count], self.index
        matches = self._scorer.probability(top) if scored.query.is_one_text else None
        cutoff = -np.inf if index.answer_sets is None else index.answer_sets.cutoff
        for rank, (number, score) in enumerate(zip(scored.ids[:count].tolist(), top, strict=True)):
            photo = index.photo(number)
            yield Hit(
                id=number,
                path=photo.path,
                score=float(score),
                probability=None if matches is None else float(matches[rank]),
                in_answer=None if answer is None else bool(scored.standard[rank] >= cutoff),
                taken=photo.taken,
                width=photo.width,
                height=photo.height,
                duplicate_of=index.duplicate_of(number),
                tags=index.tags_of(number),
            )

    def _uncertainty(self, scored: _Scored) -> float | None:
        known = self.index.log_sigma
        if known is None or not scored.query.is_one_text:
            return None
        log_sigma = 0.5 * float(scored.parts["log_variance"].mean())
        return float(100.0 * np.searchsorted(known, log_sigma) / len(known))

    def _unfinished(self) -> list[str]:
        """A sentence while photos may be missing."""
        return [] if self.index.is_finished else [UNFINISHED]

    def _notes(self, scored: _Scored, reranking: Reranking | None) -> list[str]:
        notes = self._unfinished()
        if self._matcher:
            notes.insert(
                0,
                f"Ranked by {self._matcher}; answer sets are by {self.index.matcher} alone.",
            )
            if len(scored.ids) < scored.searched:
                notes.append(
                    f"{len(scored.ids):,} of {scored.searched:,} photos, the best by "
                    f"{self.index.matcher}, were scored by {self._matcher}; others may be better."
                )
            return notes
        if scored.certified is not True and len(scored.ids) < scored.searched:
            notes.append(
                f"{len(scored.ids):,} of {scored.searched:,} photos were scored by "
                f"{self.index.matcher}; others may be better."
            )
        if reranking is not None:
            notes.append(reranking.sentence)
        return notes


@dataclass(eq=False)
class _Scored:
    """Scored photos, the best first.

    Attributes:
        query: The query.
        parts: The embeddings of its parts.
        ids: Of the photos.
        scores: The scores of their ranking.
        standard: The same in deviations of the reference.
        background: Mean and deviation of the scores of the reference, by the first part.
        searched: Number of photos that passed the filters.
        set_size: Number of these photos in the answer set.
        certified: Whether these are proven to be the best.
    """

    query: Query
    parts: Mapping[str, np.ndarray]
    ids: np.ndarray
    scores: np.ndarray
    standard: np.ndarray
    background: tuple[float, float]
    searched: int
    set_size: int
    certified: bool | None = None


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenates the embeddings of the parts of a query.

    Where texts are points and photos are sets, a point is a set of one.
    """
    if len({frozenset(part) for part in parts}) > 1:
        parts = [p if "points" in p else {"points": p["mean"][:, None]} for p in parts]
    return concatenate(parts)
