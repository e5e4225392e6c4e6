"""Searches in which another matcher than that of the index ranks the photos."""

from __future__ import annotations

from typing import Any

from data_pipelines.errors import UserError
from keras_xmr.index import PhotoIndex, Searcher


class _Scoring:
    """An embedder that scores as another one does, and finds candidates by its own matcher."""

    def __init__(self, own: Any, other: Any) -> None:
        self._own = own
        self.score, self.probability = other.score, other.probability

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class MatcherSearcher(Searcher):
    """Scores by another matcher what the index finds by its own.

    Answer sets, verdicts and re-ranking were calibrated for another matcher, so there are none.

    Args:
        index: The index.
        embedder: Embeds queries.
        name: The matcher, one that can score the embeddings of the index.
    """

    def __init__(self, index: PhotoIndex, embedder: Any, name: str) -> None:
        super().__init__(index, embedder=_Scoring(embedder, embedder.with_matcher(name)))
        self._name = name

    def _embed_texts(self, texts: Any) -> dict[str, Any]:
        # What was learned from marks was chosen for the matcher of the index.
        return dict(self.model.embed_texts(list(texts)))

    def _check_rerank(self, query: Any, rerank: str) -> None:
        del query
        raise UserError(f"{rerank} was tuned for {self.index.matcher}, not for {self._name}")

    def _certify(self, scored: Any, nearest: Any, count: int) -> bool | None:
        del scored, count
        return True if nearest is None else None

    def _chances(self, scored: Any, count: int) -> None:
        del scored, count

    def _answer(self, query: Any, scored: Any, chances: Any) -> None:
        del query, scored, chances

    def _notes(self, query: Any, scored: Any, rerank: str | None) -> list[str]:
        del query, rerank
        notes = [f"Ranked by {self._name}; verdicts are those of {self.index.matcher} alone."]
        notes += self._unfinished()
        if len(scored.ids) < scored.searched:
            notes.append(
                f"{len(scored.ids):,} of {scored.searched:,} photos, the best by "
                f"{self.index.matcher}, were scored by {self._name}; others may be better."
            )
        return notes
