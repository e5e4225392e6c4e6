"""What two models answer, side by side (Wei et al. 2023, Fig. 11 and 12)."""

from __future__ import annotations

import html
import zipfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from data_pipelines.errors import UserError
from keras_xmr.comparison.pairs import Win, by_pair
from keras_xmr.comparison.results import Methods, RunResult
from keras_xmr.reporting.pages import ANSWERS, LEGEND, LEGEND_TRUE, data_url

STYLE = (
    ANSWERS
    + """
.answers { display: flex; flex-wrap: wrap; gap: 8px; margin: 0.2em 0 0.8em; }
.answers > b { flex: 1 0 100%; font-size: 13px; font-weight: 600; }
.answers img { height: 150px; max-width: 100%; border: 4px solid var(--line); }
.answers ol { flex: 1 1 240px; margin: 0; overflow-wrap: anywhere; }
.asked img { height: 150px; max-width: 100%; }
"""
)
"""CSS of the parts."""

_MODELS = 3
_SHOWN = 3
_SIDE = 240
_KINDS = ("wrong", "true", "right")


def side_by_side(methods: Methods, wins: Sequence[Win]) -> list[str]:
    """The queries that each model wins most clearly, with the answers of both, as HTML.

    Nothing with more than three models, whose pictures would be too many, or of runs that were
    evaluated before answers were kept. Photos are shown where the records are still there.

    Args:
        methods: The runs of each method, of which the first is shown.
        wins: The queries where each is most ahead of another.
    """
    runs = {name: _Answers(own[0]) for name, own in methods.items()}
    if len(runs) > _MODELS or not all(run.found for run in runs.values()):
        return []
    photos = _Photos(next(iter(methods.values()))[0])
    parts = []
    for (winner, loser), of_pair in by_pair(wins).items():
        parts.append(f"<h2>Won by {html.escape(winner)}, lost by {html.escape(loser)}</h2>")
        for side in ("t2i", "i2t"):
            own = [win for win in of_pair if win.direction == side]
            for win in own[:_SHOWN]:
                both = {name: runs[name] for name in (winner, loser)}
                parts.append(_query(win, both, photos))
    if parts:
        parts.insert(
            0,
            f'<p class="note">{LEGEND} {LEGEND_TRUE} Of several seeds the first is shown.</p>',
        )
    return parts


def _query(win: Win, both: dict[str, _Answers], photos: _Photos) -> str:
    """One query, and the answers of two models."""
    first = next(iter(both.values()))
    ids = first.image_ids if win.direction == "i2t" else first.caption_ids
    number = ids.index(win.query)
    image = photos.picture(number, win.query) if win.direction == "i2t" else ""
    asked = f"<p class='asked'><b>{html.escape(win.text or win.query)}</b><br>{image}</p>"
    return asked + "".join(
        f'<div class="answers"><b>{html.escape(name)}: first right answer at rank {rank:.3g}</b>'
        f"{answers.shown(win.direction, number, photos)}</div>"
        for (name, answers), rank in zip(both.items(), win.ranks, strict=True)
    )


class _Answers:
    """The first answers of a run, and what its queries are called."""

    def __init__(self, run: RunResult) -> None:
        self._run = run
        path = run.folder / "evaluation" / run.split / f"answers-{run.split}.npz"
        try:
            with np.load(path) as arrays:
                self.found = dict(arrays)
        except (OSError, ValueError, zipfile.BadZipFile):
            self.found = {}

    @cached_property
    def image_ids(self) -> list[str]:
        return list(map(str, self._run.queries.image_ids))

    @cached_property
    def caption_ids(self) -> list[str]:
        return list(map(str, self._run.queries.caption_ids))

    def shown(self, side: str, query: int, photos: _Photos) -> str:
        """The answers to a query, as HTML."""
        kinds = [_KINDS[kind] for kind in self.found[f"{side}_kind"][query]]
        numbers = self.found[side][query].tolist()
        if side == "t2i":
            return "".join(
                f'<div class="{kind}">{photos.picture(n, self.image_ids[n])}</div>'
                for kind, n in zip(kinds, numbers, strict=True)
            )
        texts = self._run.queries.captions
        names = self.caption_ids if texts is None else list(map(str, texts))
        lines = (
            f'<li class="{kind}">{html.escape(names[n])}</li>'
            for kind, n in zip(kinds, numbers, strict=True)
        )
        return f"<ol>{''.join(lines)}</ol>"


class _Photos:
    """Small pictures of the images of a split, out of the records of a run."""

    def __init__(self, run: RunResult) -> None:
        self._run = run

    @cached_property
    def _records(self) -> Any:
        """The split, or None where its records are gone or hold no photos."""
        try:
            told = yaml.safe_load((self._run.folder / "config.yaml").read_text("utf-8"))
            folder = Path(told["data"]["records"])
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

    def picture(self, number: int, key: str) -> str:
        """A photo as HTML; its key where there is none."""
        name = html.escape(key)
        if self._records is None:
            return f"<span>{name}</span>"
        from keras_xmr.index.photos import thumbnail

        source = data_url(thumbnail(self._records.encoded(number), key, _SIDE), "image/jpeg")
        return f'<img src="{source}" alt="{name}" title="{name}">'
