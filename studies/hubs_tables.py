"""The page on corrections for hubs; its comparisons are one family.

Hits are counted per 100 captions: the annotated photo among the first R judged photos, where R is
the number of right ones; and other right photos among the first R - 1 of a list without the
annotated one. A placebo is a better model without a correction: pairs of uncorrected models whose
gain in hits of the annotated photo is within `PLACEBO`. They say how many hits of other photos come
with one of the annotated photo. The excess of a correction is its gain in other photos minus what
placebos with its gain in annotated ones have. Captions are drawn, for placebos and corrections
together, and seeds.

    python studies/result_pages.py hubs_tables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import galleries
import numpy as np
from comparisons import Compared, Difference, Family, variance_of_seeds
from hub_corrections import CORRECTIONS, DOSES, read_lines, rsum
from hub_doses import GALLERIES, RESULTS, SCORERS, unpack

SHOWN = ("CSLS, bank", "CSLS, test items", "inverted softmax, bank", "QB-Norm, bank",
         "fast re-ranking, test items", "Sinkhorn, test items, 20 rounds")  # fmt: skip
PLACEBO = (1.0, 8.0)
"""Hits of the annotated photo per 100 captions that the better model of a pair gains."""
DRAWS = 2000
SEVERAL = 6
"""R from which on many photos are right."""
EVEN = next(iter(galleries.KINDS))
HEADER = ("data", "correction", "comparison", "difference", "visible from", "p, Holm", "verdict")
EXCESS = "other right photos, excess over better models"

Key = tuple[str, str, str, str]


@cache
def lines() -> dict[Key, dict[str, str]]:
    """The lines of the results by data, scorer, seed and correction."""
    keys = ("data", "scorer", "seed", "correction")
    return {tuple(line[k] for k in keys): line for line in read_lines(RESULTS)}  # type: ignore[misc]


@cache
def seeds(data: str) -> list[str]:
    """The seeds of the scorers that have seeds."""
    return sorted({key[2] for key in lines() if key[0] == data and key[1] != "cca" and key[2]})


def relevant(data: str, seed: str, truth: str) -> np.ndarray:
    """The number of relevant photos of each caption."""
    return unpack(lines()[data, "", seed if data == "scenes" else "", "relevant"][truth])


def hits(scorer: str, seed: str, correction: str, truth: str, data: str = "flickr8k") -> np.ndarray:
    """Hits of each caption, (captions,); hits of CCA, which has no seeds, with any."""
    seed = "1" if scorer == "cca" else seed
    return unpack(lines()[data, scorer, seed, correction][truth])


def gains(correction: str, truth: str) -> np.ndarray:
    """Hits per 100 captions that a correction gains, the mean of all scorers (seeds, captions)."""
    return np.array(
        [
            np.mean(
                [100.0 * (hits(scorer, seed, correction, truth) - hits(scorer, seed, "none", truth))
                 for scorer in SCORERS], axis=0)
            for seed in own_seeds()
        ]
    )  # fmt: skip


def own_seeds() -> list[str]:
    """The seeds of the scorers that are corrected."""
    return sorted({key[2] for key in lines() if key[:2] == ("flickr8k", "dual_encoder")})


def recalls(correction: str) -> tuple[float, np.ndarray]:
    """The gain of RSUM on dev, and on test by photo (seeds, photos), the mean of all scorers."""
    dev, test = [], []
    for seed, scorer in product(own_seeds(), SCORERS):
        own = "1" if scorer == "cca" else seed
        after, before = (lines()["flickr8k", scorer, own, name] for name in (correction, "none"))
        dev.append(float(after["dev"]) - float(before["dev"]))
        i2t, t2i = (
            np.array(list(before[side]), int) - np.array(list(after[side]), int)
            for side in ("i2t", "t2i")
        )
        # The captions of a photo follow each other.
        test.append(100 * (i2t + t2i.reshape(len(i2t), -1).mean(axis=1)))
    by_seed = np.array(test).reshape(len(own_seeds()), len(SCORERS), -1).mean(axis=1)
    return float(np.mean(dev)), by_seed


@cache
def placebos() -> list[tuple[np.ndarray, np.ndarray]]:
    """Gains in hits of the annotated photo and of others of each pair of uncorrected models."""
    models = [key[1:3] for key in lines() if key[0] == "flickr8k" and key[3] == "none"]
    found = []
    for before, after in permutations(models, 2):
        both = [
            100.0 * (hits(*after, "none", truth) - hits(*before, "none", truth))
            for truth in ("annotated", "others")
        ]
        if PLACEBO[0] <= both[0].mean() <= PLACEBO[1]:
            found.append((both[0], both[1]))
    return found


@cache
def drawn_captions() -> np.ndarray:
    """How often each caption is drawn, (draws, captions)."""
    count = len(relevant("flickr8k", "", "right"))
    return np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), DRAWS)


def excess(correction: str) -> Difference:
    """Hits of other photos minus what placebos with the same gain in annotated ones have."""
    several = relevant("flickr8k", "", "right") > 1
    weights = np.concatenate([np.ones((1, len(several))), drawn_captions()])

    def means(values: Sequence[np.ndarray], own: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.stack(values) @ own.T / own.sum(axis=1)
        return found

    annotated, others = zip(*placebos(), strict=True)
    others_drawn = weights[:, several]
    ratio = means(others, others_drawn).sum(axis=0) / means(annotated, weights).sum(axis=0)
    of_seeds = means(gains(correction, "others"), others_drawn) - ratio * means(
        gains(correction, "annotated"), weights
    )
    value, *drawn = np.mean(of_seeds, axis=0)
    parts = variance_of_seeds(np.array([each[0] for each in of_seeds]))
    drawn_part = (float(np.var(drawn, ddof=1)), float(several.sum() - 1))
    return Difference.with_parts(float(value), drawn_part, *parts)


def placebo_ratio() -> float:
    """Hits of other photos per hit of the annotated one, of better models without correction."""
    return float(
        sum(pair[1].mean() for pair in placebos()) / sum(pair[0].mean() for pair in placebos())
    )


@cache
def gallery_gains(kind: str, correction: str) -> np.ndarray:
    """The gain of RSUM by photo in a gallery, (draws, photos), the mean of all scorers."""
    found = {
        (line["scorer"], line["seed"], line["gallery"], line["correction"]): line
        for line in read_lines(GALLERIES)
    }
    photos = len(next(iter(found.values()))["i2t"])
    owner = np.repeat(np.arange(photos), 5)
    return np.array(
        [
            np.mean(
                [
                    galleries.recalls_by_photo(found[scorer, seed, kind, correction], owner)
                    - galleries.recalls_by_photo(found[scorer, seed, kind, "none"], owner)
                    for scorer in SCORERS
                ],
                axis=0,
            )
            for seed in own_seeds()
        ]
    )


def scenes_gain(correction: str, truth: str) -> Difference:
    """Hits per 100 captions on scenes, of which each seed has its own."""
    scorers = sorted({key[1] for key in lines() if key[0] == "scenes" and key[1]})
    values = [
        np.mean(
            [
                100.0
                * (
                    hits(scorer, seed, correction, truth, "scenes")
                    - hits(scorer, seed, "none", truth, "scenes")
                ).mean()
                for scorer in scorers
            ]
        )
        for seed in seeds("scenes")
    ]
    return Difference.of(np.array(values))


@cache
def compare() -> Family:
    """All comparisons of the page."""
    family = Family()
    many = relevant("flickr8k", "", "right") >= SEVERAL
    of_others = relevant("flickr8k", "", "others") >= SEVERAL - 1
    for name in SHOWN:
        photos = ("Flickr8K", name)
        family.add(Difference.crossed(recalls(name)[1]), *photos, "RSUM")
        family.add(Difference.crossed(gains(name, "annotated")), *photos, "annotated photo")
        others = gains(name, "others")
        family.add(Difference.crossed(others), *photos, "other right photos")
        family.add(excess(name), *photos, EXCESS)
        annotated_many = gains(name, "annotated")[:, many]
        family.add(Difference.crossed(annotated_many), *photos, "annotated photo, R >= 6")
        family.add(Difference.crossed(others[:, of_others]), *photos, "other right photos, R >= 6")
        experts = gains(name, "experts")
        family.add(Difference.crossed(experts), *photos, "photos that experts call right")
        for kind in list(galleries.KINDS)[1:] if name in galleries.CORRECTED else ():
            gap = gallery_gains(kind, name) - gallery_gains(EVEN, name)
            family.add(Difference.crossed(gap), *photos, f"gain of RSUM, {kind} minus {EVEN}")
        for truth in ("annotated", "others"):
            title = "annotated scene" if truth == "annotated" else "other true scenes"
            family.add(scenes_gain(name, truth), "scenes", name, title)
    for kind in list(galleries.KINDS)[1:]:
        gaps = [
            gallery_gains(kind, name) - gallery_gains(EVEN, name) for name in (SHOWN[-1], SHOWN[0])
        ]
        title = f"gain of RSUM, {kind} minus {EVEN}"
        family.add(
            Difference.crossed(gaps[0] - gaps[1]),
            "Flickr8K",
            f"{SHOWN[-1]}, minus {SHOWN[0]}",
            title,
        )
    return family


def dose_rows() -> list[list[str]]:
    """A row per correction and dose."""
    names = [name for name in CORRECTIONS if name != "none"]
    place = names.index("CSLS, bank")
    names[place:place] = [f"CSLS, bank, {share:g} of it" for share in DOSES]
    rows = []
    for name in names:
        dev, test = recalls(name)
        cells = [f"{dev:+.1f}", str(Difference.crossed(test))]
        cells += [str(Difference.crossed(gains(name, truth))) for truth in ("annotated", "others")]
        rows.append([name, *cells])
    return rows


def gallery_rows() -> list[list[str]]:
    """A row per correction, with its gain of RSUM in each gallery."""
    return [
        [name, *(str(Difference.crossed(gallery_gains(kind, name))) for kind in galleries.KINDS)]
        for name in galleries.CORRECTED
        if name != "none"
    ]


def level_rows() -> list[list[str]]:
    """RSUM of each scorer on test, without correction and with CSLS with a bank."""
    rows = []
    models = sorted({key[1] for key in lines() if key[0] == "flickr8k" and key[3] == "none"})
    for scorer in models:
        cells = [scorer]
        for name in ("none", "CSLS, bank"):
            own = [line for key, line in lines().items()
                   if key[:2] == ("flickr8k", scorer) and key[3] == name]  # fmt: skip
            values = [rsum(*(np.array(list(line[s]), int) for s in ("i2t", "t2i"))) for line in own]
            cells.append(f"{np.mean(values):.1f}" if values else "")
        rows.append(cells)
    return rows


def tables() -> dict[str, list[Sequence[str]]]:
    """The tables of the page by their names."""
    hit_titles = ("annotated photo, hits per 100 captions", "other right photos, likewise")
    return {
        "hubs_comparisons": [HEADER, *compare().rows()],
        "hubs_doses": [("correction", "RSUM on dev", "RSUM", *hit_titles), *dose_rows()],
        "hubs_galleries": [("correction", *galleries.KINDS), *gallery_rows()],
        "hubs_models": [
            ("model", "RSUM", "RSUM with CSLS"),
            *level_rows(),
            [f"hits of others per annotated hit, {len(placebos())} pairs of models",
             f"{placebo_ratio():.2f}", ""],
        ],
    }  # fmt: skip


def draw(folder: Path) -> None:
    """Draws hits that corrections gain, and the gain of RSUM by gallery."""
    from matplotlib.figure import Figure

    family = compare()
    figure = Figure((9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    titles = ("annotated photo", "other right photos", EXCESS)
    hits = {title: [family.differences["Flickr8K", n, title] for n in SHOWN] for title in titles}
    _draw_gains(left, SHOWN, hits, "hits per 100 captions, gained")
    corrected = [name for name in galleries.CORRECTED if name != "none"]
    by_gallery = {
        f"captions: {kind}": [Difference.crossed(gallery_gains(kind, n)) for n in corrected]
        for kind in galleries.KINDS
    }
    _draw_gains(right, corrected, by_gallery, "RSUM, gained")
    for axes in (left, right):
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.4, -0.15))
    figure.savefig(folder / "hub_corrections.png", dpi=120)


def _draw_gains(
    axes: Any, names: Sequence[str], gains: Mapping[str, Sequence[Compared]], label: str
) -> None:
    """Draws a row per correction, with a point and its interval for each kind of gain."""
    for number, ((title, found), marker) in enumerate(zip(gains.items(), "osD", strict=True)):
        axes.errorbar(
            [each.value for each in found],
            np.arange(len(names)) + 0.22 * (1 - number),
            xerr=[each.half for each in found], fmt=marker, capsize=2, markersize=4, label=title,
        )  # fmt: skip
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel(label, fontsize=9)
