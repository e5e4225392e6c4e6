"""Whether a model gets better by clicks: Flickr8K's crowd marks photos, as on the search page.

The test photos are cut into two halves, each with its captions. A draw takes captions of the first
half in a random order; of each, the first ten photos of this half are looked at, and those that the
crowd judged are clicked as right or wrong, until there are enough clicks. Measured is the second
half, whose photos and captions no click has seen: RSUM of the annotated pairs, and R-Precision of
judged pairs (condensed lists). A second table has the clicked queries themselves, with photos of
the second half. All that was chosen by hand in `keras_xmr.search.learning` was chosen on the first.

Compared are no learning, what `keras-xmr learn` does, a logistic regression of the clicks on the
products of the numbers of query and photo, which begins at zero, and Rocchio's method, moved from
the clicked queries to those like them. Their strengths are chosen by the same cross-validation
over clicked queries, which for Rocchio may choose none.

Intervals are 95 %: over photos (bootstrap) and draws (Student's t), those of clicked queries over
draws alone. Writes a line for each result to `--output`;
`--results` makes tables and figure of such files again.

    python studies/flickr8k_clicks.py --run=saved_models/flickr8k_pretrained
    python studies/flickr8k_clicks.py --results=studies/results/flickr8k_clicks.jsonl \\
        --figure=docs/results/clicks.png
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from intervals import half_width
from judged import known_pairs
from scipy.optimize import minimize

from keras_xmr.judgements.formats import read_ratings
from keras_xmr.metrics.bootstrap import mean_of_runs, resampled_means
from keras_xmr.search.learning import Marked, choose, fit, order_shares, score_held_out
from keras_xmr.utils.vectors import unit_rows

CLICKS = (10, 30, 100, 300)
DRAWS = 8
LOOKED_AT = 10
METHODS = {
    "learn": "`keras-xmr learn`",
    "logistic": "logistic regression",
    "rocchio": "Rocchio, by likeness",
}
_STRENGTHS = (0.03, 0.1, 0.3, 1.0)
_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
_RESAMPLES = 2000

Query = Callable[[np.ndarray], np.ndarray]
"""From unit vectors of queries (M, D) to what takes an inner product with photos."""


@dataclass(frozen=True, eq=False)
class Test:
    """The test split of Flickr8K, embedded.

    Attributes:
        photos: Unit vectors (N, D).
        captions: Unit vectors (M, D).
        owner: The photo of each caption (M,).
        judged: 1 right, 0 wrong, NaN not judged by the crowd, float32 (M, N).
    """

    photos: np.ndarray
    captions: np.ndarray
    owner: np.ndarray
    judged: np.ndarray

    def half(self, second: bool) -> tuple[np.ndarray, np.ndarray]:
        """The photos and the captions of a half."""
        drawn = np.random.default_rng(0).permutation(len(self.photos))
        photos = np.flatnonzero((drawn >= len(drawn) // 2) == second)
        return photos, np.flatnonzero(np.isin(self.owner, photos))

    def clicks(self, count: int, draw: int) -> tuple[Marked, np.ndarray]:
        """Clicks on the first half, and the captions that are their queries."""
        photos, captions = self.half(second=False)
        asked = captions[~np.isnan(self.judged[captions]).all(axis=1)]
        pairs: list[tuple[int, int]] = []
        for caption in np.random.default_rng(draw).permutation(asked):
            first = photos[np.argsort(-(self.photos[photos] @ self.captions[caption]))]
            seen = [
                (caption, p) for p in first[:LOOKED_AT] if not np.isnan(self.judged[caption, p])
            ]
            pairs += seen
            if len(pairs) >= count:
                break
        rows, columns = np.array(pairs[:count]).T
        queries, query_of = np.unique(rows, return_inverse=True)
        clicked, photo_of = np.unique(columns, return_inverse=True)
        right = self.judged[rows, columns] > 0
        units = self.captions[queries], self.photos[clicked]
        return Marked(*units, query_of, photo_of, right), queries

    def measure(self, query: Query) -> dict[str, list[Any]]:
        """Ranks of both directions and R-Precision of judged pairs on the second half.

        A list has a value for each photo: the mean over its captions where they are the queries.
        """
        photos, captions = self.half(second=True)
        scores = query(self.captions[captions]) @ self.photos[photos].T
        own = np.searchsorted(photos, self.owner[captions])
        above = np.sum(scores >= scores[np.arange(len(own)), own][:, None], axis=1) - 1
        best = np.full(len(photos), -np.inf)
        np.maximum.at(best, own, scores[np.arange(len(own)), own])
        others = np.where(own[:, None] == np.arange(len(photos)), -np.inf, scores)
        found = np.sum(others >= best, axis=0)
        recall = sum(100.0 * (above < k) for k in (1, 5, 10))
        judged = self.judged[np.ix_(captions, photos)]
        precision = [judged_precision(*pair) for pair in zip(scores, judged, strict=True)]
        return {
            "t2i": _mean_of(recall, own, len(photos)),
            "i2t": [float(sum(100 * (rank < k) for k in (1, 5, 10))) for rank in found],
            "judged": _mean_of(100 * np.array(precision), own, len(photos)),
        }

    def measure_clicked(self, query: Query, captions: np.ndarray) -> list[float]:
        """R-Precision of judged pairs of the clicked queries, with photos of the second half."""
        photos, _ = self.half(second=True)
        scores = query(self.captions[captions]) @ self.photos[photos].T
        judged = self.judged[np.ix_(captions, photos)]
        found = [judged_precision(*pair) for pair in zip(scores, judged, strict=True)]
        return [round(100 * value, 3) for value in found if not np.isnan(value)]


def judged_precision(scores: np.ndarray, judged: np.ndarray) -> float:
    """R-Precision of the judged photos of a query; NaN where all are right, or none."""
    known = ~np.isnan(judged)
    right = judged[known][np.argsort(-scores[known], kind="stable")]
    count = int(right.sum())
    return float(right[:count].mean()) if 0 < count < len(right) else float("nan")


def learned(marked: Marked) -> Query | None:
    """What `keras-xmr learn` does; None where it leaves the model as it is."""

    def score(change: Any) -> np.ndarray:
        queries = marked.queries if change is None else _changed(change, marked.queries)
        return _scores(marked, queries)

    choice = choose(marked, score)
    if choice.penalty is None:
        return None
    change = fit(marked, choice.penalty, choice.sharpness)
    return lambda queries: _changed(change, queries)


def _changed(change: Any, queries: np.ndarray) -> np.ndarray:
    return change.apply({"mean": queries})["mean"]


def logistic(marked: Marked) -> Query | None:
    """A logistic regression on the products of the numbers of query and photo."""

    def fitted(some: Marked, penalty: float) -> Query:
        inputs = (
            some.queries[some.query_of] * some.photos[some.photo_of] * some.photos.shape[1] ** 0.5
        )
        right = some.right.astype(float)

        def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
            odds = inputs @ line[:-1] + line[-1]
            value = (
                np.sum(np.logaddexp(0, odds) - right * odds) + penalty / 2 * line[:-1] @ line[:-1]
            )
            wrong_by = 1 / (1 + np.exp(-odds)) - right
            slope = inputs.T @ wrong_by + penalty * line[:-1]
            return value, np.append(slope, wrong_by.sum())

        weights = minimize(loss, np.zeros(inputs.shape[1] + 1), jac=True, method="L-BFGS-B").x
        return lambda queries: queries * weights[:-1]

    return _best(marked, fitted, _PENALTIES, always=True)


def rocchio(marked: Marked) -> Query | None:
    """Queries move by means of right minus wrong photos, of clicked queries like them."""

    def fitted(some: Marked, strength: float) -> Query:
        rows, moves = [], []
        for row in np.unique(some.query_of):
            own = some.query_of == row
            kinds = [some.photos[some.photo_of[own & kind]] for kind in (some.right, ~some.right)]
            if all(map(len, kinds)):
                rows.append(row)
                moves.append(kinds[0].mean(axis=0) - kinds[1].mean(axis=0))
        if not rows:
            return lambda queries: queries
        queries_like, to = some.queries[rows], np.array(moves)

        def query(queries: np.ndarray) -> np.ndarray:
            like = np.maximum(queries @ queries_like.T, 0)
            return queries + strength * (like @ to) / np.maximum(like.sum(1, keepdims=True), 1e-9)

        return query

    return _best(marked, fitted, _STRENGTHS, always=False)


def _best(
    marked: Marked, fitted: Callable[[Marked, float], Query], values: Sequence[float], always: bool
) -> Query | None:
    """What was fitted with the value that is best on clicked queries held out."""
    base = order_shares(marked, _scores(marked, marked.queries))
    counted = ~np.isnan(base)
    best, most = (values[-1] if always else None), (-np.inf if always else base[counted].mean())
    for value in values if counted.sum() > 1 else ():
        held_out = score_held_out(
            marked,
            lambda part, value=value: fitted(part, value),
            lambda query: _scores(marked, query(marked.queries)),
        )
        share = order_shares(marked, held_out)[counted].mean()
        if share > most:
            best, most = value, share
    return None if best is None else fitted(marked, best)


def _scores(marked: Marked, queries: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum(queries[marked.query_of] * marked.photos[marked.photo_of], axis=1))


def _mean_of(values: Any, own: np.ndarray, count: int) -> list[float | None]:
    """The means of values of captions over each photo, those that are NaN left out."""
    known = ~np.isnan(values)
    sums = np.bincount(own[known], np.asarray(values)[known], minlength=count)
    sizes = np.bincount(own[known], minlength=count)
    means = np.divide(sums, sizes, out=np.full(count, np.nan), where=sizes > 0)
    return [None if np.isnan(mean) else round(float(mean), 3) for mean in means]


def study(test: Test, model: str) -> Iterator[dict[str, Any]]:
    """A result for each method, number of clicks and draw; lists are those of `Test.measure`."""
    unchanged = test.measure(lambda queries: queries)
    yield {"model": model, "method": "none", "clicks": 0, "draw": 0, **unchanged}
    for clicks in CLICKS:
        for draw in range(DRAWS):
            marked, captions = test.clicks(clicks, draw)
            before = test.measure_clicked(lambda queries: queries, captions)
            for name, method in (("learn", learned), ("logistic", logistic), ("rocchio", rocchio)):
                query = method(marked)
                after = before if query is None else test.measure_clicked(query, captions)
                yield {
                    **{"model": model, "method": name, "clicks": clicks, "draw": draw},
                    **{"is_changed": query is not None, "right": int(marked.right.sum())},
                    **{"queries": len(marked.queries), "clicked": [before, after]},
                    **({} if query is None else test.measure(query)),
                }
                print(model, name, clicks, draw, query is not None, flush=True)


def embedded(run: Path) -> Test:
    """The test split by the model of a run, with the crowd's judgements."""
    from keras_xmr.search.calibration import SplitQueries
    from keras_xmr.search.run_model import RunModel

    model = RunModel(run)
    part = model.records.split("test")
    found = SplitQueries.embed(model, model.records, "test")
    source: Any = model.config.data.source
    ratings = read_ratings(source.judgement_files()["crowd"])
    keys = [caption.key for caption in part.captions]
    number, photo, caption = known_pairs(ratings, part.image_keys, keys).T
    judged = np.full((len(keys), len(part)), np.nan, np.float32)
    judged[caption, photo] = ratings.grades()[number] > 0
    units = [unit_rows(np.asarray(e["mean"], np.float64)) for e in (found.images, found.captions)]
    return Test(*units, np.asarray(found.groups), judged)


@dataclass(frozen=True)
class Figure:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def differences(results: Sequence[dict[str, Any]], model: str, method: str, clicks: int) -> Any:
    """What a method adds to the model: RSUM and judged R-Precision of the second half.

    Also judged R-Precision of the clicked queries, and the part of draws that changed anything.
    """
    own = [r for r in results if r["model"] == model]
    before = next(r for r in own if r["method"] == "none")
    draws = [r for r in own if (r["method"], r["clicks"]) == (method, clicks)]
    gaps = {
        name: np.array([r.get(name, before[name]) for r in draws], float)
        - np.array(before[name], float)
        for name in ("t2i", "i2t", "judged")
    }
    rsum = gaps["t2i"] + gaps["i2t"]
    clicked = [np.subtract(after, first) for first, after in (r["clicked"] for r in draws)]
    changed = np.mean([r["is_changed"] for r in draws])
    return _interval(rsum), _interval(gaps["judged"]), _interval_of_draws(clicked), changed


def _interval(values: np.ndarray) -> Figure:
    """The mean of values (draws, photos), with the variance over photos and over draws."""
    resampled = resampled_means(values.T, resamples=_RESAMPLES)
    d = mean_of_runs(np.nanmean(values, axis=1), resampled).difference()
    return Figure(d.value, d.low, d.high)


def _interval_of_draws(values: Sequence[np.ndarray]) -> Figure:
    """The mean over draws of the mean of values of different queries, by Student's t."""
    means = np.array([each.mean() for each in values if len(each)])
    value = float(means.mean()) if len(means) else np.nan
    return Figure(value, value - half_width(means), value + half_width(means))


def tables(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Tables in Markdown, one for each model."""
    for model in dict.fromkeys(r["model"] for r in results):
        first = next(r for r in results if (r["model"], r["method"]) == (model, "none"))
        rsum = np.mean(first["t2i"]) + np.mean(first["i2t"])
        judged = np.nanmean(np.array(first["judged"], float))
        yield f"\n`{model}`: RSUM {rsum:.1f}, judged R-Precision {judged:.1f}\n"
        yield "| clicks | | RSUM | judged R-Precision | the same of clicked queries | changed |"
        yield "| ---: | --- | ---: | ---: | ---: | ---: |"
        for clicks in CLICKS:
            for method, title in METHODS.items():
                *figures, changed = differences(results, model, method, clicks)
                cells = " | ".join(map(str, figures))
                yield f"| {clicks} | {title} | {cells} | {100 * changed:.0f} % |"


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel for each model and measure, with intervals."""
    from matplotlib.figure import Figure as Picture

    models = list(dict.fromkeys(r["model"] for r in results))
    picture = Picture((9, 3.2 * len(models)), layout="constrained")
    axes = picture.subplots(len(models), 2, squeeze=False, sharex=True)
    for row, model in zip(axes, models, strict=True):
        for number, (method, title) in enumerate(METHODS.items()):
            every = [differences(results, model, method, clicks) for clicks in CLICKS]
            for panel, name in enumerate(("RSUM", "judged R-Precision")):
                figures = [found[panel] for found in every]
                values = [f.value for f in figures]
                bars = [[f.value - f.low for f in figures], [f.high - f.value for f in figures]]
                places = np.array(CLICKS) * 1.06 ** (number - 1)
                row[panel].errorbar(
                    places, values, bars, marker="o", capsize=3, label=title.strip("`")
                )
                row[panel].set(title=f"{model}: {name}", ylabel="added to the model", xscale="log")
        for axis in row:
            axis.axhline(0, color="black", linewidth=0.8)
            axis.set_xticks(CLICKS, map(str, CLICKS))
            axis.set_yscale("symlog", linthresh=2)
    handles = axes[0, 0].get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=len(METHODS))
    for axis in axes[-1]:
        axis.set_xlabel("clicks")
    picture.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes results, or reads them, and prints tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="a finished run on flickr8k")
    parser.add_argument("--name", help="what the model is called; the run's name by default")
    parser.add_argument("--output", type=Path, default=Path("flickr8k_clicks.jsonl"))
    parser.add_argument("--results", type=Path, help="results to make tables of")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    if options.run:
        with options.output.open("a") as file:
            for result in study(embedded(options.run), options.name or options.run.name):
                file.write(json.dumps(result) + "\n")
    lines = (options.results or options.output).read_text("utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    print("\n".join(tables(results)))
    if options.figure:
        draw(results, options.figure)


if __name__ == "__main__":
    main()
