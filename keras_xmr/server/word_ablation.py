"""Word ablation: the effect of each word of a query on its uncertainty and its hits.

The query is repeated without a word: the changes of its predicted uncertainty and of its top hits
are the effect of the word (compare the uncertainty of erased and shortened queries in Chun et al.
2021, Sec. 4.4).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from data_pipelines.errors import UserError
from keras_xmr.index import Searcher
from keras_xmr.server.request_models import SearchRequest, WordsRequest
from keras_xmr.server.service import Service

MAX_WORDS = 24
_Search = Callable[[list[str]], tuple[float | None, list[int]]]


def analyse(service: Service, request: WordsRequest) -> dict[str, Any]:
    """Drops the words of a text one by one.

    Returns:
        `uncertainty` (0 to 100) of the whole text, and `words`: for each its `word`, the
        `uncertainty` of the text without it, and ids of photos that it has `gained` (hits
        only with it) and `lost` (hits only without it).

    Raises:
        UserError: If the text has too few or too many words, or the uncertainty of this model is
            not informative.
    """
    words = request.text.split()
    if not 2 <= len(words) <= MAX_WORDS:
        raise UserError(f"words can be dropped from a text of 2 to {MAX_WORDS} words")
    search = partial(_search, service, service.searcher, request)
    whole, hits = search(words)
    if whole is None:
        raise UserError("the uncertainty of this model is not informative")
    return {
        "uncertainty": whole,
        "words": [_ablate_word(search, words, number, hits) for number in range(len(words))],
    }


def _ablate_word(search: _Search, words: list[str], number: int, hits: list[int]) -> dict[str, Any]:
    uncertainty, hits_without = search(words[:number] + words[number + 1 :])
    return {
        "word": words[number],
        "uncertainty": uncertainty,
        "gained": [id_ for id_ in hits if id_ not in hits_without],
        "lost": [id_ for id_ in hits_without if id_ not in hits],
    }


def _search(
    service: Service, searcher: Searcher, request: WordsRequest, words: list[str]
) -> tuple[float | None, list[int]]:
    filters = request.model_dump(include={"folder", "since", "until", "tags"})
    shortened = SearchRequest(texts=(" ".join(words),), count=request.count, **filters)
    result = service.find(shortened, searcher=searcher)
    return result.uncertainty, [hit.id for hit in result.hits]
