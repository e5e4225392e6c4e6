"""Queries that one model answers better than another (Wei et al. 2023, Fig. 11 and 12)."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from keras_xmr.experiments.evaluation.evaluation_files import VERDICTS
from keras_xmr.experiments.reports.comparison.run_results import Methods, RunResult
from keras_xmr.experiments.reports.pages import data_url
from keras_xmr.utils.directions import DIRECTIONS, SHORT, full_name
from keras_xmr.utils.errors import UserError

_WINS = 10
_MODELS = 3
_SHOWN = 3
_SIDE = 240


@dataclass(frozen=True)
class Win:
    """A query that one method answers better than another.

    Attributes:
        direction: `image_to_text` or `text_to_image`.
        winner: The method that answers it better.
        loser: The other one.
        number: The number of the image or caption.
        query: Id of the query.
        text: The caption; empty for images, or if it is not known.
        ranks: The harmonic means over runs of the rank of the first relevant item: the winner's
            and the loser's.
    """

    direction: str
    winner: str
    loser: str
    number: int
    query: str
    text: str
    ranks: tuple[float, ...]


def wins(methods: Methods, judgements: str, count: int = _WINS) -> dict[tuple[str, str], list[Win]]:
    """Returns, by winner and loser, the queries where the first is most ahead of the second.

    Ahead means a larger reciprocal rank of the first relevant item, averaged
    over runs; only queries where it is ahead are listed.

    Args:
        methods: The runs of each method.
        judgements: The relevance judgements.
        count: Number of queries that are listed per direction.
    """
    first = next(iter(methods.values()))[0].queries
    listed: dict[tuple[str, str], list[Win]] = {
        pair: [] for pair in itertools.permutations(methods, 2)
    }
    queries = (first.image_ids, None), (first.caption_ids, first.captions)
    for direction, (ids, texts) in zip(DIRECTIONS, queries, strict=True):
        reciprocal = {
            name: np.mean(
                [1 / run.queries.values[judgements][full_name(direction, "rank")] for run in runs],
                axis=0,
            )
            for name, runs in methods.items()
        }
        for (winner, loser), of_pair in listed.items():
            ahead = np.nan_to_num(reciprocal[winner] - reciprocal[loser])
            for number in np.argsort(-ahead, kind="stable")[:count].tolist():
                if ahead[number] > 0:
                    query = str(ids[number]), "" if texts is None else str(texts[number])
                    ranks = tuple(float(1 / reciprocal[name][number]) for name in (winner, loser))
                    of_pair.append(Win(direction, winner, loser, number, *query, ranks))
    return listed


def side_by_side(
    methods: Methods, wins: Mapping[tuple[str, str], Sequence[Win]]
) -> list[dict[str, Any]]:
    """Returns the queries that each model wins most clearly, with the answers of both, for a page.

    Empty with more than three models, as pictures would be too many, or of runs that were
    evaluated before answers were kept. Photos are shown where the records still exist.

    Args:
        methods: The runs of each method, of which the first is shown.
        wins: The result of `wins`.

    Returns:
        Winner, loser and queries of each pair of models, as `comparison.html` takes them.
    """
    if len(methods) > _MODELS or not any(wins.values()):
        return []
    answers = {name: _read_answers(runs[0]) for name, runs in methods.items()}
    if not all(answers.values()):
        return []
    first = next(iter(methods.values()))[0]
    texts = first.queries.caption_ids if first.queries.captions is None else first.queries.captions
    image_ids = first.queries.ids["image"]
    photos = _open_photos(first, image_ids)

    def photo(number: int) -> dict[str, str]:
        if photos is None:
            return {"key": image_ids[number]}
        from data_pipelines.pixels import thumbnail

        small = thumbnail(photos.encoded(number), image_ids[number], _SIDE)
        return {"key": image_ids[number], "url": data_url(small, "image/jpeg")}

    def show_answer(direction: str, number: int, verdict: int, zeta: int) -> dict[str, Any]:
        answer = (
            {"photo": photo(number)}
            if direction == "text_to_image"
            else {"text": str(texts[number])}
        )
        return {"kind": VERDICTS[verdict], "zeta": zeta if zeta >= 0 else None, **answer}

    def show_query(win: Win) -> dict[str, Any]:
        models = []
        for name, rank in zip((win.winner, win.loser), win.ranks, strict=True):
            of_model, short = answers[name], SHORT[win.direction]
            arrays = [of_model[key][win.number] for key in (short, f"{short}_kind")]
            # Not of answers without sets of labels, or of an earlier version.
            zetas = of_model.get(f"{short}_zeta")
            arrays.append(np.full_like(arrays[0], -1) if zetas is None else zetas[win.number])
            each = zip(*(array.tolist() for array in arrays), strict=True)
            shown = [show_answer(win.direction, *of_answer) for of_answer in each]
            models.append({"name": name, "rank": rank, "answers": shown})
        query_photo = photo(win.number) if win.direction == "image_to_text" else None
        return {"text": win.text or win.query, "photo": query_photo, "models": models}

    return [
        {
            "winner": winner,
            "loser": loser,
            "queries": [
                show_query(win)
                for direction in reversed(DIRECTIONS)
                for win in [win for win in of_pair if win.direction == direction][:_SHOWN]
            ],
        }
        for (winner, loser), of_pair in wins.items()
        if of_pair
    ]


def _read_answers(run: RunResult) -> dict[str, np.ndarray]:
    """Returns the first answers of a run; empty where they were not kept."""
    try:
        with np.load(run.folder / "evaluation" / run.split / f"answers-{run.split}.npz") as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}


def _open_photos(run: RunResult, image_ids: Sequence[str]) -> Any:
    """Returns the split of the records of a run; None where they are missing or hold no photos."""
    try:
        config = yaml.safe_load((run.folder / "config.yaml").read_text("utf-8"))
        folder = Path(config["data"]["records"])
        if not folder.is_dir():
            return None
        from data_pipelines.records import Records  # It imports TensorFlow.

        split: Any = run.split
        split_records = Records.open(folder).split(split)
    except (OSError, KeyError, TypeError, UserError):
        return None
    return (
        split_records
        if split_records.holds == "images" and split_records.image_keys == image_ids
        else None
    )
