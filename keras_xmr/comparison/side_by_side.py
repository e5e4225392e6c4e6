"""The answers of two models side by side (Wei et al. 2023, Fig. 11 and 12)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from data_pipelines.errors import UserError
from keras_xmr.comparison.pairs import Win, group_by_pair
from keras_xmr.comparison.results import Methods, RunResult
from keras_xmr.evaluation.files import KINDS
from keras_xmr.reporting.pages import data_url

_MODELS = 3
_SHOWN = 3
_SIDE = 240


def side_by_side(methods: Methods, wins: Sequence[Win]) -> list[dict[str, Any]]:
    """The queries that each model wins most clearly, with the answers of both, for a page.

    Empty with more than three models, whose pictures would be too many, or of runs that were
    evaluated before answers were kept. Photos are shown where the records still exist.

    Args:
        methods: The runs of each method, of which the first is shown.
        wins: The queries on which each is most ahead of another.

    Returns:
        Winner, loser and queries of each pair of models, as `comparison.html` takes them.
    """
    runs = {name: _Answers(of_method[0]) for name, of_method in methods.items()}
    if len(runs) > _MODELS or not all(run.arrays for run in runs.values()):
        return []
    photos = _Photos(next(iter(methods.values()))[0])
    return [
        {
            "winner": winner,
            "loser": loser,
            "queries": [
                _query(win, {name: runs[name] for name in (winner, loser)}, photos)
                for side in ("t2i", "i2t")
                for win in [win for win in of_pair if win.direction == side][:_SHOWN]
            ],
        }
        for (winner, loser), of_pair in group_by_pair(wins).items()
    ]


def _query(win: Win, both: dict[str, _Answers], photos: _Photos) -> dict[str, Any]:
    """One query, and the answers of two models."""
    first = next(iter(both.values()))
    ids = first.image_ids if win.direction == "i2t" else first.caption_ids
    number = ids.index(win.query)
    return {
        "text": win.text or win.query,
        "photo": photos.photo(number, win.query) if win.direction == "i2t" else None,
        "models": [
            {"name": name, "rank": rank, "answers": answers.of(win.direction, number, photos)}
            for (name, answers), rank in zip(both.items(), win.ranks, strict=True)
        ],
    }


class _Answers:
    """The first answers of a run, and the names of its queries."""

    def __init__(self, run: RunResult) -> None:
        self._run = run
        path = run.folder / "evaluation" / run.split / f"answers-{run.split}.npz"
        try:
            with np.load(path) as arrays:
                self.arrays = dict(arrays)
        except (OSError, ValueError, zipfile.BadZipFile):
            self.arrays = {}

    @cached_property
    def image_ids(self) -> list[str]:
        return list(map(str, self._run.queries.image_ids))

    @cached_property
    def caption_ids(self) -> list[str]:
        return list(map(str, self._run.queries.caption_ids))

    def of(self, side: str, query: int, photos: _Photos) -> list[dict[str, Any]]:
        """The answers to a query: the kind of each, and its text or its photo."""
        kinds = [KINDS[kind] for kind in self.arrays[f"{side}_kind"][query]]
        numbers = self.arrays[side][query].tolist()
        if side == "t2i":
            contents: list[dict[str, Any]] = [
                {"photo": photos.photo(n, self.image_ids[n])} for n in numbers
            ]
        else:
            texts = self._run.queries.captions
            names = self.caption_ids if texts is None else texts
            contents = [{"text": str(names[n])} for n in numbers]
        return [{"kind": kind, **content} for kind, content in zip(kinds, contents, strict=True)]


class _Photos:
    """Small pictures of the images of a split, from the records of a run."""

    def __init__(self, run: RunResult) -> None:
        self._run = run

    @cached_property
    def _records(self) -> Any:
        """The split, or None where its records are missing or hold no photos."""
        try:
            config = yaml.safe_load((self._run.folder / "config.yaml").read_text("utf-8"))
            folder = Path(config["data"]["records"])
            if not folder.is_dir():
                return None
            # TensorFlow reads records.
            from data_pipelines.records import Records

            split: Any = self._run.split
            part = Records.open(folder).split(split)
        except (OSError, KeyError, TypeError, UserError):
            return None
        ids = list(map(str, self._run.queries.image_ids))
        return part if part.holds == "images" and part.image_keys == ids else None

    def photo(self, number: int, key: str) -> dict[str, str]:
        """The key of a photo, and its address if there is one."""
        if self._records is None:
            return {"key": key}
        from keras_xmr.index.photos import thumbnail

        small = thumbnail(self._records.encoded(number), key, _SIDE)
        return {"key": key, "url": data_url(small, "image/jpeg")}
