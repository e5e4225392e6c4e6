"""Which words of a query make it vague or precise, and which hits they bring.

A word is dropped, and the query asked again: how much its predicted uncertainty moves, and which
of the first hits change, is what the word does (Chun et al. 2021, Sec. 4.4, ask the same of the
uncertainty of erased and shortened queries).
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
_Ask = Callable[[list[str]], tuple[float | None, list[int]]]


def analyse(service: Service, request: WordsRequest) -> dict[str, Any]:
    """Drops the words of a text one by one.

    Returns:
        `uncertainty` (0 to 100) of the whole text, and `words`: for each its `word`, the
        `uncertainty` of the text without it, and ids of photos that it has `gained` (which are
        hits with it alone) and `lost` (which are hits without it alone).

    Raises:
        UserError: If the text has too few or too many words, or the uncertainty of this model
            has not been found to mean anything.
    """
    words = request.text.split()
    if not 2 <= len(words) <= MAX_WORDS:
        raise UserError(f"words can be dropped from a text of 2 to {MAX_WORDS} words")
    ask = partial(_ask, service, service.searcher, request)
    whole, hits = ask(words)
    if whole is None:
        raise UserError("the uncertainty of this model was not found to mean anything")
    return {
        "uncertainty": whole,
        "words": [_without(ask, words, number, hits) for number in range(len(words))],
    }


def _without(ask: _Ask, words: list[str], number: int, hits: list[int]) -> dict[str, Any]:
    uncertainty, found = ask(words[:number] + words[number + 1 :])
    return {
        "word": words[number],
        "uncertainty": uncertainty,
        "gained": [id_ for id_ in hits if id_ not in found],
        "lost": [id_ for id_ in found if id_ not in hits],
    }


def _ask(
    service: Service, searcher: Searcher, request: WordsRequest, words: list[str]
) -> tuple[float | None, list[int]]:
    filters = request.model_dump(include={"folder", "since", "until", "tags"})
    asked = SearchRequest(texts=(" ".join(words),), count=request.count, **filters)
    result = service.find(asked, searcher=searcher)
    return result.uncertainty, [hit.id for hit in result.hits]
