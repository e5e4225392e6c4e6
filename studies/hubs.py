"""Corrections for hubs, against the number of relevant photos of a caption.

Scorers with and without training are fitted to Flickr8K, all on the same frozen features. Their
scores are kept in `--work`; every correction of `keras_xmr.reranking` is chosen on the development
split, by the sum of recalls, and measured on test once: recalls by the annotated pairs, and the
hits of each caption among as many photos as it has relevant ones, by the crowd and by experts. The
same on scenes, with small towers and the full truth. A line per scorer, seed and correction is
appended to `--results`; what has a line is not run again, so a study that was stopped goes on.

    python studies/hubs.py --flickr8k data/raw/flickr8k      # what is missing, then the tables
    python studies/hubs.py                                   # the tables alone
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))

from birds_tables import Difference, add_paths, append_row, print_table

from keras_xmr.judgements.formats import read_grades
from keras_xmr.reranking import (
    CSLS,
    FastReranking,
    InvertedSoftmax,
    QueryBankNormalization,
    Reranked,
    ScoreBank,
)
from keras_xmr.reranking.fast import log_sums

RESULTS = Path(__file__).parent / "results" / "hubs.csv"
SUM = "cca_dual_encoder"
SCORERS = ("cca", "dual_encoder", SUM, "nt_xent", "vsepp", "pcmepp", "msrm", "saf")
EPOCHS, RATE, RANDOM_RATE = 5, 1e-3, 4e-3
TOKENS = "model.image.pooling=null", "model.text.pooling=null"
PARTS = {"train": ("Flickr_8k.trainImages.txt", 3), "val": ("Flickr_8k.devImages.txt", 2)}
"""The lists of photos of which every third trains, and every second is in dev."""
BANK = 2
"""Every so many-th photo that trains is in the bank, with its first caption."""
SCENES = ("InfoNCE", "triplet, hardest", "triplet, violating")
SCENES_SEEDS = (1, 2, 3, 4, 5)
BINS = {"all": (1, 10**6), "1": (1, 1), "2": (2, 2), "3 to 5": (3, 5), "6 and more": (6, 10**6)}
"""Numbers R of relevant photos of a caption."""
TRUTHS = ("crowd", "others", "experts")
"""The crowd with the annotated photo as right, without it in the list, and the experts."""
COLUMNS = ("data", "scorer", "seed", "correction", "setting", "dev", "i2t", "t2i", *TRUTHS)
_TEMPERATURES = (0.2, 0.4, 0.8)

CORRECTIONS: dict[str, Sequence[tuple[float, ...]]] = {
    "none": [()],
    "CSLS, bank": [(5,), (20,), (80,)],
    "CSLS, test items": [(5,), (20,), (80,)],
    "CSLS, bank, gated": list(product((20,), (0, 0.5, 0.75))),
    "inverted softmax, bank": [(t,) for t in _TEMPERATURES],
    "QB-Norm, bank": [(t,) for t in _TEMPERATURES],
    "fast re-ranking, bank": list(product(_TEMPERATURES, (0.5, 1))),
    "fast re-ranking, test items": list(product(_TEMPERATURES, (0.5, 1))),
}
"""By name the settings that are tried: a number of neighbours, and the share of captions that are
not gated; or a temperature in standard deviations of the scores on dev, and a weight of a score."""


@dataclass
class Scored:
    """Scores of a split, larger is better.

    Attributes:
        scores: Scores of photos and captions (N, M).
        bank: Scores of the training items with both.
        vagueness: The rank of the sigma of each caption among the captions of dev, from 0 to 1
            (M,); None without sigma.
    """

    scores: np.ndarray
    bank: ScoreBank
    vagueness: np.ndarray | None = None


def correct(name: str, setting: Sequence[float], scored: Scored, unit: float) -> Reranked:
    """Scores after a correction, of captions for images and of images for captions.

    Args:
        name: A key of `CORRECTIONS`.
        setting: One of its settings.
        scored: The scores.
        unit: The standard deviation of scores on dev.
    """
    scores = scored.scores
    bank = scored.bank if "bank" in name else None
    if name == "none":
        return Reranked(scores, scores)
    if name.startswith("CSLS"):
        gate = None
        if "gated" in name:
            # 1 up to a share of the captions, and 0 for the vaguest.
            gate = np.minimum((1 - np.asarray(scored.vagueness)) / (1 - setting[1]), 1)
        return CSLS(bank, (None, gate), neighbours=int(setting[0]))(scores)
    temperature = setting[0] * unit
    if name.startswith("inverted"):
        return InvertedSoftmax(bank, temperature=temperature)(scores)
    if name.startswith("QB"):
        return QueryBankNormalization(bank, temperature=temperature)(scores)
    first, second = 1 / temperature, setting[1] / temperature
    if bank is None:
        return FastReranking(gamma1=first, gamma2=second, lambda1=first, lambda2=second)(scores)
    sums = log_sums(bank.image_to_text, {0: first})[0], log_sums(bank.text_to_image, {0: first})[0]
    # The sums have float64; a ranking needs no more than float32.
    i2t, t2i = second * scores - sums[0], second * scores - sums[1][:, None]
    return Reranked(i2t.astype(np.float32), t2i.astype(np.float32))


def places(found: Reranked, caption_image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each photo and each caption 0 for rank 1, 1 to rank 5, 2 to rank 10, or else 3."""
    scores, own = found.text_to_image, (caption_image, np.arange(len(caption_image)))
    t2i = (scores >= scores[own]).sum(axis=0)
    scores = found.image_to_text
    best = np.full(len(scores), -np.inf, scores.dtype)
    np.maximum.at(best, caption_image, scores[own])
    i2t = (scores >= best[:, None]).sum(axis=1)
    i2t, t2i = (np.searchsorted([1, 5, 10], side) for side in (i2t, t2i))
    return i2t, t2i


def rsum(i2t: np.ndarray, t2i: np.ndarray) -> float:
    """The sum of R@1, R@5 and R@10 of both directions, in percent."""
    return 100 * float((3 - i2t).mean() + (3 - t2i).mean())


def choose(name: str, dev: Scored, caption_image: np.ndarray) -> tuple[float, tuple[float, ...]]:
    """The largest sum of recalls on dev, and the setting that has it."""
    unit = float(dev.scores.std())
    found = (
        (rsum(*places(correct(name, setting, dev, unit), caption_image)), setting)
        for setting in CORRECTIONS[name]
    )
    return max(found, key=lambda each: each[0])


@dataclass
class Truth:
    """Relevant and judged photos of captions, which are those with a relevant photo.

    Attributes:
        captions: The captions, (Q,).
        photos: The judged photos of each, filled up with -1: (Q, most).
        right: Whether they are relevant, bool (Q, most).
    """

    captions: np.ndarray
    photos: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, pairs: Mapping[tuple[int, int], bool]) -> Truth:
        """From whether a photo is relevant for a caption, by caption and photo."""
        by_caption: dict[int, dict[int, bool]] = {}
        for (caption, photo), right in sorted(pairs.items()):
            by_caption.setdefault(caption, {})[photo] = right
        kept = {caption: own for caption, own in by_caption.items() if any(own.values())}
        photos = np.full((len(kept), max(map(len, kept.values()))), -1)
        rights = np.zeros(photos.shape, bool)
        for row, own in enumerate(kept.values()):
            photos[row, : len(own)], rights[row, : len(own)] = list(own), list(own.values())
        return cls(np.array(list(kept)), photos, rights)

    @property
    def relevant(self) -> np.ndarray:
        """R, the number of relevant photos, (Q,)."""
        return self.right.sum(axis=1)

    def hits(self, scores: np.ndarray) -> np.ndarray:
        """Relevant photos among the first R that were judged, (Q,); of scores (N, M)."""
        own = np.where(self.photos < 0, -np.inf, scores[self.photos, self.captions[:, None]])
        order = np.argsort(-own, axis=1, kind="stable")
        first = np.arange(own.shape[1]) < self.relevant[:, None]
        return (np.take_along_axis(self.right, order, axis=1) & first).sum(axis=1)


def people(folder: Path, image_ids: Sequence[str], captions: Any) -> dict[str, Truth]:
    """The judgements of Flickr8K for photos and captions of test."""
    rows = {str(key): row for row, key in enumerate(image_ids)}
    columns = {str(key): column for column, (key, _) in enumerate(captions)}
    own = {(column, image) for column, (_, image) in enumerate(captions)}
    judged = {}
    for name, file in (("crowd", "CrowdFlower"), ("experts", "Expert")):
        judged[name] = {
            (columns[caption], rows[image]): bool(grade > 0)
            for _, (image, caption), grade in read_grades(folder / f"{file}Annotations.txt")
            if image in rows and caption in columns
        }
    seen = {caption for caption, _ in judged["crowd"]}
    others = {pair: right for pair, right in judged["crowd"].items() if pair not in own}
    annotated = {pair: True for pair in own if pair[0] in seen}
    crowd = others | annotated
    return {n: Truth.of(p) for n, p in zip(TRUTHS, (crowd, others, judged["experts"]), strict=True)}


def pack(values: Sequence[int]) -> str:
    """Numbers below 1,296 as two characters each."""
    return "".join(np.base_repr(int(value), 36).zfill(2) for value in values)


@functools.cache
def unpack(text: str) -> np.ndarray:
    """The numbers of `pack`."""
    return np.array([int(text[n : n + 2], 36) for n in range(0, len(text), 2)])


def read_lines(path: Path) -> list[dict[str, str]]:
    """Reads the results; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Writer:
    """Appends lines to the results, and knows which are there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = {tuple(line[name] for name in COLUMNS[:4]) for line in read_lines(path)}

    def missing(self, *run: str) -> list[str]:
        """The corrections of a run that have no line; scenes have no sigma."""
        names = (n for n in CORRECTIONS if run[0] != "scenes" or "gated" not in n)
        return [name for name in names if (*run, name) not in self.done]

    def append(self, *cells: str) -> None:
        """Appends a line; columns that are not given stay empty."""
        append_row(self.path, COLUMNS, cells)
        self.done.add(cells[:4])

    def run(
        self,
        key: tuple[str, str, str],
        splits: Sequence[tuple[Scored, np.ndarray]],
        truths: Sequence[Truth],
        data_seed: str = "",
    ) -> None:
        """Chooses and measures the missing corrections.

        Args:
            key: Data, scorer and seed.
            splits: Of dev and of test the scores, and the photo of each caption.
            truths: The truths of test; their numbers of relevant photos have a line, too.
            data_seed: The seed of data that are drawn.
        """
        (dev, dev_owner), (test, owner) = splits
        of_data = key[0], "", data_seed, "relevant"
        if of_data not in self.done:
            self.append(*of_data, *[""] * 4, *(pack(truth.relevant) for truth in truths))
        for name in self.missing(*key):
            best, setting = choose(name, dev, dev_owner)
            found = correct(name, setting, test, float(dev.scores.std()))
            sides = places(found, owner)
            hits = [pack(truth.hits(found.text_to_image)) for truth in truths]
            digits = ["".join(map(str, side)) for side in sides]
            setting_text = " ".join(f"{value:g}" for value in setting)
            self.append(*key, name, setting_text, f"{best:.2f}", *digits, *hits)
            print(*key, name, setting_text, f"dev {best:.1f} test {rsum(*sides):.1f}", flush=True)


def run_scenes(writer: Writer) -> None:
    """All corrections on scenes with captions of all kinds, by the full truth."""
    import hardest_negative as scenes

    scenes.SIZES["val"] = 200
    for seed, loss in product(SCENES_SEEDS, SCENES):
        key = "scenes", loss, str(seed)
        if not writer.missing(*key):
            continue
        towers = scenes.fit(scenes.Task(None, loss, "annotated", 0.0, seed))
        parts = scenes.data(None, seed)
        vectors = {name: towers.embed(part.things, part.words)[2:4] for name, part in parts.items()}
        first = np.unique(parts["train"].image_of, return_index=True)[1]
        images, captions = vectors["train"]
        splits = [
            (Scored(left @ right.T, ScoreBank(images @ right.T, captions[first] @ left.T)), of)
            for (left, right), of in ((vectors[n], parts[n].image_of) for n in ("val", "test"))
        ]
        pairs = dict(np.ndenumerate(parts["test"].truth.T))
        writer.run(key, splits, [Truth.of(pairs)], str(seed))


def write_scores(options: argparse.Namespace) -> None:
    """Trains every scorer that has no scores yet, and writes these."""
    folder = options.work / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    runs = [(name, seed) for seed, name in product(options.seeds, SCORERS)]
    runs = [run for run in runs if run[0] != SUM and (run[0] != "cca" or run[1] == 1)]
    runs = [run for run in runs if not (folder / f"{run[0]}-{run[1]}.npz").exists()]
    if not runs:
        return
    import birds  # TensorFlow is needed to train alone.

    from keras_xmr.experiments.evaluation.uncertainty.assessment import log_sigma

    source = f"data.source={{name: flickr8k, root: {options.flickr8k}"
    for split, (name, part) in PARTS.items():
        names = (options.flickr8k / name).read_text().split()[::part]
        (options.work / name).write_text("\n".join(names) + "\n")
        source += f", {split}: {(options.work / name).resolve()}"
    image = "data.image={size: 224, resize: 224, crop: center, flip: false, cutout: 0}"
    settings = birds.make_settings(options, source + "}", image, "data.judgements=pairs")
    study = birds.read_splits(settings)
    study.save_vectors(options.work / "vectors.npz")
    train = np.arange(0, len(study.train.classes), BANK)
    captions = np.searchsorted(study.train.caption_image, train)
    for name, seed in runs:
        plain = name == "dual_encoder"
        config, begin = ("nt_xent", "random") if plain else (name, "cca")
        row = birds.Row(config, "train.phases.0.epochs", (EPOCHS, EPOCHS), begins=begin)
        if name == "saf":  # It reads places and words, and a step takes as long as its pairs.
            row = replace(row, sets=TOKENS, local=True, begins="random", batch=50)
        arrays: dict[str, Any] = {}
        if name != "cca":
            model, val, epoch = study.fit(row, RANDOM_RATE if plain else RATE, EPOCHS, seed)
            print(f"{name} seed {seed}: dev {val:.2f} at epoch {epoch}", flush=True)
        sides = []
        for number, split in enumerate((study.train, study.val, study.test)):
            if name == "cca":
                sides.append([{"mean": v} for v in study.projected(study.maps, number)])
            else:
                sides.append(study.embed(model, row, split))
        bank = [{k: v[rows] for k, v in side.items()}
                for side, rows in zip(sides[0], (train, captions), strict=True)]  # fmt: skip
        for split, (left, right) in zip(("val", "test"), sides[1:], strict=True):
            pairs = {"scores": (left, right), "i2t": (bank[0], right), "t2i": (left, bank[1])}
            for kind, (one, other) in pairs.items():
                found = (
                    one["mean"] @ other["mean"].T
                    if name == "cca"
                    else birds.score_tiles(model.matcher, one, other, (512, 4096)).by_query[0]
                )
                arrays[f"{split}_{kind}"] = found.T if kind == "t2i" else found
            if "log_variance" in right:
                arrays[f"{split}_sigma"] = log_sigma(right)
        np.savez(folder / f"{name}-{seed}.tmp.npz", **arrays)
        (folder / f"{name}-{seed}.tmp.npz").rename(folder / f"{name}-{seed}.npz")


def read_scores(folder: Path, name: str, seed: int) -> list[Scored]:
    """The scores of dev and test, of the sum in standard deviations of its parts."""
    parts = [("cca", 1), ("dual_encoder", seed)] if name == SUM else [(name, seed)]
    files = [np.load(folder / f"{part}-{number}.npz") for part, number in parts]
    with np.load(folder / f"pcmepp-{seed}.npz") as sigma:
        vagueness = {
            split: np.searchsorted(np.sort(sigma["val_sigma"]), sigma[f"{split}_sigma"])
            for split in ("val", "test")
        }
    found = []
    for split, rank in vagueness.items():
        scores, i2t, t2i = (
            sum(file[f"{split}_{kind}"] / file["val_scores"].std() for file in files)
            for kind in ("scores", "i2t", "t2i")
        )
        found.append(Scored(scores, ScoreBank(i2t, t2i), rank / len(vagueness["val"])))
    return found


def run_flickr8k(writer: Writer, options: argparse.Namespace) -> None:
    """All corrections on Flickr8K."""
    write_scores(options)
    from data_pipelines.records import Records  # It imports TensorFlow, which tables do not need.

    records = Records.open(options.work / "records")
    val, test = records.split("val"), records.split("test")
    captions = [(c.key, int(i)) for c, i in zip(test.captions, test.caption_image, strict=True)]
    truths = list(people(options.flickr8k, test.image_keys, captions).values())
    for seed, name in product(options.seeds, SCORERS):
        key = "flickr8k", name, str(seed)
        if (name == "cca" and seed > 1) or not writer.missing(*key):
            continue
        scored = read_scores(options.work / "scores", name, seed)
        owners = val.caption_image, test.caption_image
        writer.run(key, list(zip(scored, owners, strict=True)), truths)


class Table:
    """Gains of corrections, the mean of all scorers, from the lines of the results."""

    def __init__(self, lines: Sequence[Mapping[str, str]]) -> None:
        self.lines = {tuple(line[name] for name in COLUMNS[:4]): line for line in lines}

    def runs(self, data: str, correction: str) -> dict[tuple[str, str], Mapping[str, str]]:
        """The lines of a correction by scorer and seed."""
        return {k[1:3]: v for k, v in self.lines.items() if (k[0], k[3]) == (data, correction)}

    def gain(self, truth: str, correction: str, base: str, low: int, high: int) -> Difference:
        """R-Precision of captions with `low` to `high` relevant photos, minus one of `base`.

        On Flickr8K captions and seeds are drawn; on scenes a seed has its own scenes.
        """
        data, column = ("scenes", "crowd") if truth == "scenes" else ("flickr8k", truth)
        after, before = self.runs(data, correction), self.runs(data, base)
        by_scorer: dict[str, dict[str, np.ndarray]] = {}
        for scorer, seed in after.keys() & before.keys():
            key = (data, "", seed if data == "scenes" else "", "relevant")
            relevant = unpack(self.lines[key][column])
            own, other = (unpack(each[scorer, seed][column]) for each in (after, before))
            kept = (relevant >= low) & (relevant <= high)
            gains = 100 * (own - other)[kept] / relevant[kept]
            by_scorer.setdefault(scorer, {})[seed] = gains
        if data == "scenes":
            seeds = sorted({seed for own in by_scorer.values() for seed in own})
            means = np.array([[own[s].mean() for s in seeds] for own in by_scorer.values()])
            return Difference.of(means.mean(axis=0))
        of_query = np.mean([np.mean(list(own.values()), axis=0) for own in by_scorer.values()], 0)
        means_of = [np.array([g.mean() for g in own.values()]) for own in by_scorer.values()]
        between = sum(own.var(ddof=1) / len(own) for own in means_of if len(own) > 1)
        return Difference.of(of_query, between / len(means_of) ** 2)

    def recalls(self, correction: str) -> tuple[float, Difference]:
        """The gain of the sum of recalls on dev, and on test, whose photos are drawn."""
        after, before = self.runs("flickr8k", correction), self.runs("flickr8k", "none")
        dev, test = [], []
        for key in sorted(after.keys() & before.keys()):
            dev.append(float(after[key]["dev"]) - float(before[key]["dev"]))
            i2t, t2i = (
                np.array(list(before[key][side]), int) - np.array(list(after[key][side]), int)
                for side in ("i2t", "t2i")
            )
            # The captions of a photo follow each other.
            test.append(100 * (i2t + t2i.reshape(len(i2t), -1).mean(axis=1)))
        return float(np.mean(dev)), Difference.of(np.mean(test, axis=0))

    def print(self) -> None:
        """Prints the gains of recalls, and of R-Precision by truth."""
        names = [name for name in CORRECTIONS if name != "none"]
        print_table(
            ["correction", "RSUM on dev", "RSUM on test"],
            [[n, f"{dev:+.1f}", str(test)] for n in names for dev, test in [self.recalls(n)]],
        )
        rows = []
        for truth, name in product((*TRUTHS, "scenes"), names):
            if self.runs("scenes" if truth == "scenes" else "flickr8k", name):
                gains = [self.gain(truth, name, "none", *bounds) for bounds in BINS.values()]
                rows.append([truth, name, *map(str, gains), f"{gains[-1].visible:.2f}"])
        header = ["truth", "correction", *(f"R: {name}" for name in BINS), "visible from"]
        print_table(header, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flickr8k", type=Path, help="folder of Flickr8K as released")
    parser.add_argument("--seeds", type=lambda n: range(1, int(n) + 1), default=range(1, 4))
    options = add_paths(parser, RESULTS).parse_args(arguments)
    if options.flickr8k:
        writer = Writer(options.results)
        run_flickr8k(writer, options)
        run_scenes(writer)
    if lines := read_lines(options.results):
        Table(lines).print()


if __name__ == "__main__":
    main()
