"""Corrections for hubs where photos have unequal numbers of captions.

Some corrections take for granted that every photo is the answer to equally many captions. Galleries
of the test photos of Flickr8K with 2,000 captions each say what happens where that is wrong: every
photo has two; a quarter has five, the others one; or two in five have five, the others none.
Corrections have the settings that were chosen on the development split, with five captions each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from birds_tables import append_row
from hub_corrections import Scored, correct, places, read_lines

from keras_xmr.reranking import ScoreBank

KINDS = {"two each": ((1.0, 2),), "five or one": ((0.25, 5), (0.75, 1)),
         "five or none": ((0.4, 5), (0.6, 0))}  # fmt: skip
"""Shares of the photos with their numbers of captions."""
CORRECTED = (
    "none",
    "CSLS, bank",
    "CSLS, test items",
    "inverted softmax, bank",
    "fast re-ranking, test items",
    "Sinkhorn, test items, 1 round",
    "Sinkhorn, test items, 20 rounds",
)
COLUMNS = ("scorer", "seed", "gallery", "correction", "i2t", "t2i")
NO_QUERY = 9
"""The place of a photo without captions."""


def captions_of(kind: str, seed: int, owner: np.ndarray) -> np.ndarray:
    """The captions of a gallery, which are drawn (2 N,)."""
    random = np.random.default_rng(seed)
    photos = int(owner.max()) + 1
    numbers = np.concatenate([np.full(round(share * photos), n) for share, n in KINDS[kind]])
    random.shuffle(numbers)
    order = np.argsort(random.random(len(owner)))
    by_photo = order[np.argsort(owner[order], kind="stable")]
    counts = np.bincount(owner)
    place = np.empty(len(owner), int)
    place[by_photo] = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.flatnonzero(place < numbers[owner])


def run_galleries(
    path: Path, results: Path, key: tuple[str, str, str], scored: list[Scored], owner: np.ndarray
) -> None:
    """Measures a scorer in all galleries that have no lines yet.

    Args:
        path: The file of lines.
        results: The file of corrections, which has their settings.
        key: Data, scorer and seed.
        scored: Scores of dev and test.
        owner: The photo of each caption of test.
    """
    _, name, seed = key
    done = {tuple(line[c] for c in COLUMNS[:4]) for line in read_lines(path)}
    settings = {
        line["correction"]: tuple(map(float, line["setting"].split()))
        for line in read_lines(results)
        if (line["data"], line["scorer"], line["seed"]) == key
    }
    test, unit = scored[1], float(scored[0].scores.std())
    # CCA has no seeds; each draw of a gallery is measured with it.
    for draw in (1, 2, 3) if name == "cca" else (int(seed),):
        for kind in KINDS:
            if all((name, str(draw), kind, c) in done for c in CORRECTED):
                continue
            kept = captions_of(kind, draw, owner)
            bank = ScoreBank(test.bank.image_to_text[:, kept], test.bank.text_to_image)
            part = Scored(test.scores[:, kept], bank)
            empty = ~np.isin(np.arange(len(test.scores)), owner[kept])
            for correction in CORRECTED:
                found = correct(correction, settings[correction], part, unit)
                i2t, t2i = places(found, owner[kept])
                i2t[empty] = NO_QUERY
                cells = [name, str(draw), kind, correction]
                append_row(path, COLUMNS, [*cells, *("".join(map(str, s)) for s in (i2t, t2i))])


def recalls_by_photo(line: dict[str, str], owner: np.ndarray) -> np.ndarray:
    """What each photo adds to RSUM, in percent times the number of photos, (N,).

    Args:
        line: A line of the file.
        owner: The photo of each caption of test.
    """
    i2t, t2i = (np.array(list(line[side]), int) for side in ("i2t", "t2i"))
    kept = captions_of(line["gallery"], int(line["seed"]), owner)
    queries = i2t != NO_QUERY
    found = np.where(queries, 3 - i2t, 0) * len(i2t) / queries.sum()
    by_photo = np.bincount(owner[kept], 3.0 - t2i, minlength=len(i2t))
    return np.asarray(100 * (found + by_photo * len(i2t) / len(t2i)))
