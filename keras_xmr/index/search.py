"""Searches an index: candidates by vectors, then scores by the model's own matcher."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.sources import UnreadableError
from keras_xmr.index.augmentations import Reference
from keras_xmr.index.embedding_arrays import concatenate, select
from keras_xmr.index.photo_index import UNFINISHED, PhotoIndex
from keras_xmr.index.query import (
    MAX_COUNT,
    Answer,
    Filters,
    Hit,
    Query,
    QueryError,
    SearchResult,
    Verdict,
    sentence,
)
from keras_xmr.index.query_reranking import FIRST, RERANKERS
from keras_xmr.index.verdict import Background
from keras_xmr.index.vocabulary import split_words

if TYPE_CHECKING:
    from keras_xmr.index.run_model import RunModel

_FEW = 2000
"""So many photos are all scored by the matcher. Of more, at least so many are candidates."""

_MOST = 32_000
"""So many candidates are scored at most."""

_TILE = 2000
_ALL = Filters()


class Searcher:
    """Answers queries about an index. Several threads may use it.

    Args:
        index: The index.
        run: Where the run of the index is now; None if it was not moved.
        embedder: Embeds and scores instead of the model of the run.
        compiled: Whether the model is compiled, which is faster from the second query on.
        matcher: Another matcher, which scores the candidates of that of the index. Answer sets,
            verdicts and re-ranking were calibrated for that of the index, so there are none.
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
        self._checked = False
        self._lock = Lock()
        # The same filters are asked for again and again, as while somebody types.
        self._passed = lru_cache(8)(lambda filters: filters.allowed(index))

    def warm_up(self) -> None:
        """Loads the model, and answers a query, so that the next one is quick.

        Raises:
            UserError: If the run is not there, or its model is not that of the index.
        """
        if len(self.index):
            self.search(Query(texts=("a photo",)), count=1)

    @property
    def model(self) -> RunModel:
        """The model that has embedded the index.

        Raises:
            UserError: If the run is not there, or its model is another.
        """
        with self._lock:
            if self._embedder is None:
                from keras_xmr.index.run_model import RunModel

                self._embedder = RunModel(self._run, self._compiled)
            if not self._checked:
                self._check()
            model: RunModel = self._embedder
            return model

    @cached_property
    def _scorer(self) -> RunModel:
        """The model with the matcher that scores."""
        return self.model.with_matcher(self._matcher) if self._matcher else self.model

    def _check(self) -> None:
        """Refuses a model that has not made the index."""
        if self._embedder.fingerprint != self.index.fingerprint:
            raise UserError(
                f"{self.index.path} was made by another model than that of {self._run}; build it "
                "again with this run, or name the run that made it with --run"
            )
        self._checked = True

    def search(
        self,
        query: Query,
        count: int = 20,
        filters: Filters = _ALL,
        rerank: str | None = None,
    ) -> SearchResult:
        """Finds the photos that fit a query best.

        Args:
            query: What is asked.
            count: How many hits, at most `MAX_COUNT`.
            filters: Which photos are looked at.
            rerank: One of `RERANKERS`, which orders the first photos anew; None for none.

        Raises:
            UserError: If the query cannot be answered, or the model is another.
        """
        begin = time.perf_counter()
        query.check()
        if rerank is not None:
            self._check_rerank(query, rerank)
        if not 1 <= count <= MAX_COUNT:
            raise QueryError(f"a search gives 1 to {MAX_COUNT:,} photos, not {count:,}")
        allowed = self._allowed(query, filters)
        if not self._count(allowed):
            return self._nothing(filters, begin)
        # What is shown of a re-ranked search comes from all that are re-ranked.
        found = self._find(query, count if rerank is None else max(count, FIRST), allowed)
        if rerank is not None:
            self._rerank(found)
        chances = self._chances(found, count)
        answer = self._answer(query, found, chances)
        return SearchResult(
            hits=tuple(self._hits(found, answer, chances, count)),
            searched=found.searched,
            answer=answer,
            unknown_words=self._unknown(query),
            uncertainty=self._uncertainty(found),
            certified=found.certified,
            notes=(*filters.unknown(self.index), *self._notes(query, found, rerank)),
            seconds=time.perf_counter() - begin,
        )

    def _count(self, allowed: np.ndarray | None) -> int:
        return len(self.index) if allowed is None else len(allowed)

    def _nothing(self, filters: Filters, begin: float) -> SearchResult:
        """The answer where no photo is looked at: no model is loaded for it."""
        if len(self.index):
            why = "No photo passes the filters."
        else:
            why = f"The index has no photos{'' if self.index.is_finished else ' yet'}."
        return SearchResult(
            hits=(),
            searched=0,
            answer=None,
            unknown_words=(),
            uncertainty=None,
            certified=None,
            notes=(*filters.unknown(self.index), why, *self._unfinished()),
            seconds=time.perf_counter() - begin,
        )

    def _check_rerank(self, query: Query, rerank: str) -> None:
        if self._matcher:
            raise QueryError(
                f"{rerank} was tuned for {self.index.matcher}, not for {self._matcher}; use one of "
                "them without the other"
            )
        if rerank not in RERANKERS:
            raise QueryError(f"{rerank!r} re-ranks no search; there is {', '.join(RERANKERS)}")
        if not query.is_one_text:
            raise QueryError(f"{rerank} is for a single text")
        if self.index.reranking is None:
            raise QueryError(
                f"{self.index.path} keeps no captions to re-rank against: they come with answer "
                "sets, when `index` is run, and not where regions are compared with words"
            )

    def _rerank(self, scored: _Scored) -> None:
        """Puts the first photos in another order."""
        first = scored.ids[:FIRST]
        told = self.index.reranking
        if told is None or not len(first):
            return
        of_sample = self._scorer.score(self.index.embeddings(first), self.index.captions)
        order = told.order(scored.scores[:FIRST], of_sample)
        for values in (scored.ids, scored.scores, scored.standard):
            values[: len(first)] = values[:FIRST][order]

    def _allowed(self, query: Query, filters: Filters) -> np.ndarray | None:
        """The photos that are looked at: those that pass, but not those that are asked about."""
        allowed: np.ndarray | None = self._passed(filters)
        if not query.ids:
            return allowed
        return np.setdiff1d(self.index.ids if allowed is None else allowed, query.ids)

    def _find(self, query: Query, count: int, allowed: np.ndarray | None) -> _Scored:
        parts, searched = self._parts(query), self._count(allowed)
        wanted = max(4 * count, _FEW)
        while True:
            ids, similarities = self._candidates(parts, wanted, allowed, searched)
            scored = self._score(query, parts, ids, searched)
            scored.certified = self._certify(scored, similarities, count)
            if len(ids) == searched or wanted >= _MOST or not self._is_short(scored):
                return scored
            wanted *= 4

    def _is_short(self, scored: _Scored) -> bool:
        """Whether more candidates would tell more."""
        sets = self.index.answer_sets
        in_answer = sets is not None and scored.is_one_text and len(scored.ids) > 0
        return scored.certified is False or (
            in_answer and sets is not None and bool(scored.standard[-1] >= sets.cutoff)
        )

    def _parts(self, query: Query) -> dict[str, np.ndarray]:
        """The embeddings of all parts of a query, those that are unlike last."""
        if self.index.kind == "tokens" and (query.images or query.ids):
            raise QueryError(
                f"{self.index.matcher} compares regions with words, not photos with photos"
            )
        found = []
        if query.texts:
            found.append(self._embed_texts(query.texts))
        if query.images:
            try:
                found.append(self.model.embed_images(list(query.images)))
            except UnreadableError as error:
                raise QueryError(str(error)) from None
        if query.ids:
            try:
                found.append(self.index.embeddings(query.ids))
            except KeyError as error:
                raise QueryError(f"there is no photo {error.args[0]} in the index") from None
        if query.unlike:
            found.append(self._embed_texts(query.unlike))
        return _join(found)

    def _embed_texts(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Embeddings of texts, changed by what was learned from marks for this matcher."""
        embedded = self.model.embed_texts(list(texts))
        learned = None if self._matcher else self.index.learned
        return embedded if learned is None else learned.change.apply(embedded)

    def _candidates(
        self,
        parts: Mapping[str, np.ndarray],
        wanted: int,
        allowed: np.ndarray | None,
        searched: int,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Ids of photos to score, and their similarities (parts, candidates); None for all."""
        if searched <= wanted:
            return self.index.ids if allowed is None else allowed, None
        known = Reference(self.model.search_constants(), self.index.sample)
        vectors = self.index.augmentation.query_vectors(self.model.prepare(parts, "caption"), known)
        found = self.index.vectors.search(vectors, wanted, self._in_vectors(allowed))
        return np.unique(found.ids[found.ids >= 0]), found.scores

    def _in_vectors(self, allowed: np.ndarray | None) -> np.ndarray | None:
        """What is looked at, without photos that have gone since the vectors were written."""
        if self.index.is_finished:
            return allowed
        there = self.index.ids if allowed is None else allowed
        return np.intersect1d(there, self.index.vectors.ids)

    def _score(
        self, query: Query, parts: Mapping[str, np.ndarray], ids: np.ndarray, searched: int
    ) -> _Scored:
        """Scores some photos by all parts of a query, and puts the best first."""
        tiles = [self.index.embeddings(ids[i : i + _TILE]) for i in range(0, len(ids), _TILE)]
        count = len(next(iter(parts.values())))
        scores = np.concatenate(
            [np.empty((0, count), np.float32), *(self._scorer.score(t, parts) for t in tiles)]
        )
        words = np.array([len(split_words(" ".join(query.texts)))] * count)
        background = Background.of(self._scorer.score(self.index.reference, parts).T, words)
        standard = (scores - background.mean) / background.deviation
        unlike = len(query.unlike)
        total = standard[:, : count - unlike].mean(axis=1)
        if unlike:
            # What fits it worse than other photos do is no better for that.
            total = total - np.maximum(standard[:, -unlike:], 0.0).max(axis=1)
        own = scores[:, 0] if count == 1 else total
        order = np.lexsort((ids, -own))
        return _Scored(
            ids[order],
            own[order],
            total[order],
            background,
            searched,
            query.is_one_text,
            parts,
        )

    def _certify(self, scored: _Scored, similarities: np.ndarray | None, count: int) -> bool | None:
        """Whether no photo that was not scored can be among the best, or in the answer set."""
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
        count = min(max(count, self._set_size(scored)), len(scored.scores))
        return None if bound is None else bool(scored.scores[count - 1] >= bound[0])

    def _set_size(self, scored: _Scored) -> int:
        """How many of the photos that were scored are in the answer set."""
        sets = self.index.answer_sets
        if sets is None or not scored.is_one_text:
            return 0
        return int(np.sum(scored.standard >= sets.cutoff))

    def _chances(self, scored: _Scored, count: int) -> np.ndarray | None:
        """The probability that each of the first photos is right; None where it is not known."""
        model = self.index.verdict
        if model is None or self._matcher or not scored.is_one_text:
            return None
        return model.probabilities(
            scored.standard[:count], scored.background.features[0], scored.searched
        )

    def _verdict(self, scored: _Scored, unfamiliar: tuple[str, ...]) -> Verdict:
        model = self.index.verdict
        if model is None or unfamiliar:
            return "unknown"
        best, features = float(scored.standard.max()), scored.background.features[0]
        return "none" if model.is_absent(best, features, scored.searched) else "some"

    def _answer(self, query: Query, scored: _Scored, chances: np.ndarray | None) -> Answer | None:
        sets, model = self.index.answer_sets, self.index.verdict
        if sets is None or self._matcher or not (query.is_one_text and len(scored.ids)):
            return None
        size = self._set_size(scored)
        is_least = size == len(scored.ids) < scored.searched
        unfamiliar = () if model is None else self.index.vocabulary.unfamiliar(query.texts[0])
        verdict = self._verdict(scored, unfamiliar)
        is_counted = model is not None and chances is not None and verdict == "some"
        right = model.count(chances) if is_counted else None  # type: ignore[union-attr,arg-type]
        mean, deviation = scored.background.mean[0], scored.background.deviation[0]
        return Answer(
            size=size,
            is_least=is_least,
            cutoff=float(mean + sets.cutoff * deviation) if np.isfinite(sets.cutoff) else None,
            share=sets.share,
            confidence=sets.confidence,
            verdict=verdict,
            right=right,
            unfamiliar=unfamiliar,
            sentence=sentence(verdict, right, unfamiliar),
        )

    def _hits(
        self, scored: _Scored, answer: Answer | None, right: np.ndarray | None, count: int
    ) -> list[Hit]:
        top = scored.scores[:count]
        chances = self._scorer.probability(top) if len(scored.parts_of) == 1 else None
        sets, found = self.index.answer_sets, []
        cutoff = -np.inf if sets is None else sets.cutoff
        known = right is not None and answer is not None and answer.right is not None
        for rank, (number, score) in enumerate(zip(scored.ids[:count].tolist(), top, strict=True)):
            photo = self.index.photo(number)
            found.append(
                Hit(
                    id=number,
                    path=photo.path,
                    score=float(score),
                    probability=None if chances is None else float(chances[rank]),
                    in_answer=None if answer is None else bool(scored.standard[rank] >= cutoff),
                    right=float(right[rank]) if right is not None and known else None,
                    taken=photo.taken,
                    width=photo.width,
                    height=photo.height,
                    duplicate_of=self.index.duplicate_of(number),
                    tags=self.index.tags_of(number),
                )
            )
        return found

    def _unknown(self, query: Query) -> tuple[str, ...]:
        words = (w for t in (*query.texts, *query.unlike) for w in self.model.unknown_words(t))
        return tuple(dict.fromkeys(words))

    def _uncertainty(self, scored: _Scored) -> float | None:
        known = self.index.log_sigma
        if known is None or not scored.is_one_text:
            return None
        own = 0.5 * float(scored.parts["log_variance"].mean())
        return float(100.0 * np.searchsorted(known, own) / len(known))

    def _unfinished(self) -> list[str]:
        """What to say while photos may be missing."""
        return [] if self.index.is_finished else [UNFINISHED]

    def _notes(self, query: Query, scored: _Scored, rerank: str | None) -> list[str]:
        notes = self._unfinished()
        if self._matcher:
            notes.insert(
                0,
                f"Ranked by {self._matcher}; verdicts are those of {self.index.matcher} alone.",
            )
            if len(scored.ids) < scored.searched:
                notes.append(
                    f"{len(scored.ids):,} of {scored.searched:,} photos, the best by "
                    f"{self.index.matcher}, were scored by {self._matcher}; others may be better."
                )
            return notes
        if self.index.has_vocabulary:
            texts = (*query.texts, *query.unlike)
            notes += dict.fromkeys(filter(None, map(self.index.vocabulary.foreign, texts)))
        if self.index.answer_sets is None or (self.index.verdict is None and query.is_one_text):
            notes.append(
                "This index is not calibrated: how many of these photos are right, and whether any "
                "is, is not known."
            )
        elif not query.is_one_text:
            notes.append("How many photos are right was calibrated for single texts alone.")
        if self.index.learned is not None and (query.texts or query.unlike):
            notes.append(self.index.learned.sentence(self.index.answer_sets is not None))
        if scored.certified is not True and len(scored.ids) < scored.searched:
            notes.append(
                f"{len(scored.ids):,} of {scored.searched:,} photos were scored by "
                f"{self.index.matcher}; others may be better."
            )
        if rerank is not None and self.index.reranking is not None:
            notes.append(self.index.reranking.sentence)
        is_known = self.index.kind == "gaussian" and self.index.is_calibrated
        if is_known and self.index.log_sigma is None:
            notes.append("This model's uncertainty is not informative, so none is shown.")
        elif self.index.answer_sets is None:
            has_sigma = self.index.kind == "gaussian"
            reason = "model's sigma is not calibrated" if has_sigma else "model has no sigma"
            notes.append(f"This {reason}, so nothing is said of how uncertain the query is.")
        return notes


@dataclass(eq=False)
class _Scored:
    """Photos that were scored, the best first.

    Attributes:
        ids: Of the photos.
        scores: What they are ranked by.
        standard: The same in deviations of the reference.
        background: Of the scores of the reference, a row for each part.
        searched: How many photos passed the filters.
        is_one_text: Whether answer sets are calibrated for such a query.
        parts: The embeddings of the parts of the query.
        certified: Whether these are surely the best.
    """

    ids: np.ndarray
    scores: np.ndarray
    standard: np.ndarray
    background: Background
    searched: int
    is_one_text: bool
    parts: Mapping[str, np.ndarray]
    certified: bool | None = None

    @property
    def parts_of(self) -> np.ndarray:
        """Any tensor of the parts: its length is how many there are."""
        return next(iter(self.parts.values()))


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenates the embeddings of the parts of a query.

    Where texts are points and photos are sets, a point is a set of one.
    """
    if len({frozenset(part) for part in parts}) > 1:
        parts = [p if "points" in p else {"points": p["mean"][:, None]} for p in parts]
    return concatenate(parts)
