"""What annotated metrics reward, by the number of photos that people call relevant for a caption.

Annotated RSUM counts one photo per caption as relevant, and the crowd of Flickr8K called several
relevant for many captions. Captions are put into strata by that number R. In each stratum methods
are ordered by text-to-image R-Precision as people judged it, and Kendall's tau-b says how well the
order by annotated RSUM, of all photos, agrees with that order. Strata are cut to one size by random
draws, as an order by few captions is noisy; the two halves of a stratum say how well any metric
could agree. In brackets is the range of 95 % of resampled captions. The permutation test exchanges
captions between the strata R = 1 and R >= 6.

On scenes, where every true pair is known, six losses train two image towers each: sums over the
things of a scene, and largest values over them. There the orders of the losses within one tower are
compared, and the order of all twelve, in which the towers differ by far more than the losses: a tau
of all twelve mixes both. Their results are from studies/metric_ranking_scenes.py.

    python studies/result_pages.py metrics_page     # the tables
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from methods_table import (
    NO_MODEL,
    RESULTS,
    SHORTEST_FIRST,
    Method,
    judged_values,
    rsum_by_photo,
    tau,
)

STRATA = {"1": (1, 1), "2": (2, 2), "3 to 5": (3, 5), "6 and more": (6, 99)}
"""Numbers of relevant photos of a caption."""

SCENES = RESULTS.with_name("metric_ranking_scenes.jsonl")
LABELS = {"0 labels": 0, "100 labels": 1, "1,000 labels": 2, "10,000 labels": 3}
"""mAP@R with that number of judged pairs of 200,000, of which the true ones are added."""
METRICS = ("R@1", "R@10", "RSUM", "R-Precision", "mAP@R", "nDCG@10", "PMRP", "ASP (CIDEr)",
           "ASP (TF-IDF)", *LABELS)  # fmt: skip

GOOD = 320.0
"""RSUM from which on methods are close to each other."""

DRAWS = 10_000
PERMUTATIONS = 10_000
"""A p-value of 0.005 has a standard error of 0.0007."""


@dataclass(frozen=True, eq=False)
class Judged:
    """R-Precision of methods by what people judged.

    Attributes:
        methods: The methods.
        people: "crowd", with the annotated photo as relevant, or "experts".
        relevant: Number of relevant photos of each caption that has one, (captions,).
    """

    methods: Sequence[Method]
    people: str
    relevant: np.ndarray

    @cached_property
    def rsum(self) -> np.ndarray:
        """Annotated RSUM of each method, the mean of its seeds, (methods,)."""
        return np.array([method.recalls[:, -1].mean() for method in self.methods])

    @cached_property
    def values(self) -> np.ndarray:
        """R-Precision of each caption, in percent, the mean over seeds, (methods, captions)."""
        rows = []
        for method in self.methods:
            runs = [judged_values(r, self.people, "r_precision", "t2i") for r in method.lines]
            mean = np.mean(runs, axis=0)
            rows.append(100 * mean[~np.isnan(mean)])
        if len(rows[0]) != len(self.relevant):
            raise ValueError(
                f"{len(rows[0])} captions have a relevant photo, and {len(self.relevant)} a number"
            )
        return np.stack(rows)

    @cached_property
    def photos(self) -> np.ndarray:
        """The number of the photo of each caption, (captions,)."""
        every = judged_values(self.methods[0].lines[0], self.people, "r_precision", "t2i")
        photos = len(self.methods[0].lines[0]["ranks"][0])
        return np.flatnonzero(~np.isnan(every)) * photos // len(every)

    @cached_property
    def rsum_by_photo(self) -> np.ndarray:
        """What each photo adds to RSUM, the mean of the seeds, (methods, photos)."""
        return np.stack(
            [np.mean([rsum_by_photo(line) for line in m.lines], axis=0) for m in self.methods]
        )

    def stratum(self, name: str) -> np.ndarray:
        """The numbers of the captions of a stratum."""
        low, high = STRATA[name]
        return np.flatnonzero((self.relevant >= low) & (self.relevant <= high))

    def order(self, captions: np.ndarray) -> np.ndarray:
        """The means over some captions (..., n), (..., methods)."""
        return _means_of(self.values, captions)


def rows_of(judged: Judged, random: np.random.Generator) -> Iterator[list[str]]:
    """Yields a row per stratum, of captions cut to the size of the smallest one."""
    size = min(len(judged.stratum(name)) for name in STRATA)
    blind = next(n for n, m in enumerate(judged.methods) if m.name == SHORTEST_FIRST)
    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    good = [n for n in models if judged.rsum[n] > GOOD]
    for name in STRATA:
        members = judged.stratum(name)
        drawn = np.stack([random.permutation(members)[:size] for _ in range(DRAWS)])
        means, again = judged.order(drawn), judged.order(random.choice(members, drawn.shape))
        cells = [
            _tau_cell(judged.rsum[own], means[:, own], again[:, own]) for own in (models, good)
        ]
        halves = [judged.order(half) for half in np.split(drawn[:, : size // 2 * 2], 2, axis=1)]
        reached = np.mean(tau(halves[0][:, models], halves[1][:, models]))
        apart = _tau_of_other_photos(judged, models, members, size // 2, random)
        whole = judged.order(members)
        spread = whole[models].std(ddof=1)
        by_chance = _chance(judged, members)
        yield [
            name,
            str(len(members)),
            *cells,
            f"{reached:.2f}",
            f"{apart:.2f}",
            f"{whole[models].min():.1f} to {whole[models].max():.1f}",
            f"{spread:.1f}",
            f"{whole[blind]:.1f}",
            f"{by_chance:.1f}",
        ]


def _tau_of_other_photos(
    judged: Judged,
    models: Sequence[int],
    members: np.ndarray,
    size: int,
    random: np.random.Generator,
) -> float:
    """The mean tau of RSUM of one half of the photos with captions of the other half.

    Where one photo fits it is the annotated one, so RSUM of all photos counts the same ranks.

    Args:
        judged: All methods.
        models: The numbers of those that are ordered.
        members: The captions of a stratum.
        size: How many captions of the other half are drawn.
        random: What draws, 200 times.
    """
    taus = []
    for _ in range(200):
        counts = random.permutation(judged.rsum_by_photo.shape[1]) % 2 == 0
        others = random.permutation(members[~counts[judged.photos[members]]])[:size]
        rsum = judged.rsum_by_photo[:, counts].mean(axis=1)
        taus.append(tau(rsum[models], judged.order(others)[models]))
    return float(np.mean(taus))


def _chance(judged: Judged, members: np.ndarray) -> float:
    """R-Precision of the row of chance, which was drawn once."""
    row = next(n for n, method in enumerate(judged.methods) if method.name == "chance")
    return float(judged.order(members)[row])


def _tau_cell(rsum: np.ndarray, means: np.ndarray, resampled: np.ndarray) -> str:
    """The mean tau over draws of one size, and the range over resampled captions."""
    values, again = (tau(rsum, each) for each in (means, resampled))
    low, high = np.quantile(again, [0.025, 0.975])
    return f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"


def scenes_taus(
    lines: Sequence[Mapping[str, Any]], without: str = ""
) -> Iterator[tuple[float, str, str, np.ndarray]]:
    """Yields taus with mAP@R by the truth, of each seed, of all losses but one.

    The share of the unlabelled pairs that are true, in percent; towers; the annotated metric, also
    with some judged pairs; and taus (seeds,).
    """
    for grade in (1, None):
        of_grade = [line for line in lines if line["grade"] == grade]
        share = 100 * float(np.mean([line["share"] for line in of_grade]))
        for tower, largest in (("sum", [False]), ("maximum", [True]), ("both", [False, True])):
            chosen = [
                line for line in of_grade if line["largest"] in largest and line["loss"] != without
            ]
            for metric in METRICS:
                taus = []
                for seed in sorted({line["seed"] for line in chosen}):
                    own = [line for line in chosen if line["seed"] == seed]
                    values = np.array([_metric(line, metric) for line in own])
                    truth = np.array([line["metrics"]["truth"] for line in own])
                    taus.append(float(tau(values, truth)))
                yield share, tower, metric, np.array(taus)


def _metric(line: Mapping[str, Any], name: str) -> float:
    """An annotated metric of a training, or mAP@R with that number of judged pairs."""
    value = line["labels"][LABELS[name]] if name in LABELS else line["metrics"][name]
    return float(value)


def resampled_difference(judged: Judged, random: np.random.Generator) -> np.ndarray:
    """The difference of tau at R = 1 and at R >= 6 over resampled captions, (draws,)."""
    size = min(len(judged.stratum(name)) for name in STRATA)
    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    taus = []
    for name in ("1", "6 and more"):
        drawn = random.choice(judged.stratum(name), (DRAWS, size))
        means = judged.order(drawn)[:, models]
        taus.append(tau(judged.rsum[models], means))
    difference: np.ndarray = taus[0] - taus[1]
    return difference


def permutation_test(judged: Judged, random: np.random.Generator) -> tuple[float, float]:
    """Tests whether tau differs between R = 1 and R >= 6 by more than chance.

    Values are standardised within a stratum before they are exchanged, as their levels differ.

    Returns:
        The difference of the taus at equal sizes, and the share of permutations with one as large.
    """
    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    rsum, both = judged.rsum[models], [judged.stratum(name) for name in ("1", "6 and more")]
    values = np.concatenate([_standardised(judged.values[models][:, own]) for own in both], axis=1)
    size = len(both[1])
    captions = np.arange(values.shape[1])[None]
    observed = float(_differences(rsum, values, captions, size, random)[0])
    permuted = np.concatenate(
        [
            _differences(rsum, values, random.permuted(block, axis=1), size, random)
            for block in np.split(captions.repeat(PERMUTATIONS, axis=0), PERMUTATIONS // 100)
        ]
    )
    extreme = 1 + np.count_nonzero(np.abs(permuted) >= abs(observed))
    return observed, float(extreme / (1 + len(permuted)))


def _differences(
    rsum: np.ndarray,
    values: np.ndarray,
    captions: np.ndarray,
    size: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Differences of taus of the first captions and of the last, (permutations,).

    The first ones are more: of them the mean over draws of `size` counts.

    Args:
        rsum: RSUM of each method, (methods,).
        values: A value per method and caption, (methods, captions).
        captions: Permutations of the captions, (permutations, captions).
        size: How many captions are last.
        random: What draws.
    """
    draws = captions[:, None, :-size].repeat(20, axis=1)
    drawn = random.permuted(draws, axis=-1)[..., :size].reshape(-1, size)
    taus = [
        tau(rsum, means)
        for means in (_means_of(values, drawn), _means_of(values, captions[:, -size:]))
    ]
    found: np.ndarray = taus[0].reshape(len(captions), -1).mean(axis=1) - taus[1]
    return found


def _standardised(values: np.ndarray) -> np.ndarray:
    """Values (methods, captions) without the level of a caption, of unit variance."""
    centred = values - values.mean(axis=0)
    scaled: np.ndarray = centred / centred.std()
    return scaled


def _means_of(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The means of values (methods, captions) over some captions (..., n), (..., methods)."""
    rows, count = chosen.reshape(-1, chosen.shape[-1]), values.shape[1]
    places = (rows + count * np.arange(len(rows))[:, None]).ravel()
    times = np.bincount(places, minlength=len(rows) * count).reshape(-1, count)
    means: np.ndarray = times @ values.T / chosen.shape[-1]
    return means.reshape(*chosen.shape[:-1], -1)
