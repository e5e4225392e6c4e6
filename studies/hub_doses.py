"""Corrections for hubs, in doses: what they do to the annotated photo, and to other right photos.

Scorers with and without training are fitted to Flickr8K, all on the same frozen features. Their
scores are kept in `--work`; every correction of studies/hub_corrections.py is chosen on the
development split, by the sum of recalls, and measured on test once: recalls by the annotated pairs,
and the hits of each caption among as many photos as it has relevant ones, by the crowd and by
experts. Some have
further doses: parts of the correction, or numbers of rounds. Placebos are improvements without any
correction: CCA of more photos, and one scorer after another. Galleries of studies/galleries.py are
measured, too. The same on scenes, with small towers and the full truth. A line per scorer, seed
and correction is appended to `--results`; what has a line is not run again.

    python studies/hub_doses.py --flickr8k data/raw/flickr8k      # what is missing
    python studies/result_pages.py hubs_tables                      # the tables
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))

from birds_tables import add_paths, append_row
from galleries import run_galleries
from hub_corrections import (
    CORRECTIONS,
    DOSES,
    Scored,
    choose,
    correct,
    places,
    read_lines,
    rsum,
)

from keras_xmr.judgements.formats import read_grades
from keras_xmr.reranking import Reranked, ScoreBank

RESULTS = Path(__file__).parent / "results" / "hubs.csv"
GALLERIES = RESULTS.with_name("hubs_galleries.csv")
SUM = "cca_dual_encoder"
SCORERS = ("cca", "dual_encoder", SUM, "pcmepp", "msrm")
FEWER = (500, 1000, 2000, 3000, 4000, 5000)
"""Numbers of training photos of the CCA that are placebos."""
FEWER_SEEDS = (1, 2)
EPOCHS, RATE, RANDOM_RATE = 5, 1e-3, 4e-3
BANK = 2
"""Every so many-th photo that trains is in the bank, with its first caption."""
SCENES = ("InfoNCE", "triplet, hardest", "triplet, violating")
SCENES_SEEDS = (1, 2, 3, 4, 5)
TRUTHS = ("right", "annotated", "others", "experts")
"""Hits among the first R photos: of all that the crowd calls right and the annotated one; of the
annotated one; of others in a list without the annotated one; and of all that experts call right."""
COLUMNS = ("data", "scorer", "seed", "correction", "setting", "dev", "i2t", "t2i", *TRUTHS)


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

    def hits(self, scores: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
        """Relevant photos among the first R that were judged, (Q,); of scores (N, M).

        Args:
            scores: The scores.
            counted: Which of `photos` count, bool (Q, most); by default the relevant ones.
        """
        own = np.where(self.photos < 0, -np.inf, scores[self.photos, self.captions[:, None]])
        order = np.argsort(-own, axis=1, kind="stable")
        first = np.arange(own.shape[1]) < self.relevant[:, None]
        counted = self.right if counted is None else counted
        return (np.take_along_axis(counted, order, axis=1) & first).sum(axis=1)


@dataclass
class Truths:
    """The truths of a split, of which `TRUTHS` are measured.

    Attributes:
        right: The annotated photo and others.
        others: Others alone.
        experts: The judgements of experts; None if there are none.
        owner: The annotated photo of each caption, (M,).
        judged_experts: Whether experts call a photo right, by caption and photo.
    """

    right: Truth
    others: Truth
    experts: Truth | None
    owner: np.ndarray
    judged_experts: Mapping[tuple[int, int], bool] | None = None

    @classmethod
    def of(
        cls,
        judged: Mapping[tuple[int, int], bool],
        owner: np.ndarray,
        experts: Mapping[tuple[int, int], bool] | None = None,
    ) -> Truths:
        """From pairs that were judged, to which the annotated ones of their captions are added."""
        others = {pair: right for pair, right in judged.items() if owner[pair[0]] != pair[1]}
        own = {(caption, int(owner[caption])): True for caption, _ in judged}
        of_experts = Truth.of(experts) if experts else None
        return cls(Truth.of(others | own), Truth.of(others), of_experts, owner, experts)

    @property
    def relevant(self) -> list[str]:
        """The numbers of relevant photos, packed, by `TRUTHS`."""
        ones = np.ones(len(self.right.captions), int)
        experts = pack(self.experts.relevant) if self.experts else ""
        return [pack(self.right.relevant), pack(ones), pack(self.others.relevant), experts]

    def hits(self, scores: np.ndarray) -> list[str]:
        """Hits, packed, by `TRUTHS`; of scores (N, M)."""
        annotated = self.right.photos == self.owner[self.right.captions][:, None]
        found = [self.right.hits(scores), self.right.hits(scores, annotated)]
        found.append(self.others.hits(scores))
        return [*map(pack, found), pack(self.experts.hits(scores)) if self.experts else ""]


def people(folder: Path, image_ids: Sequence[str], captions: Any) -> Truths:
    """The judgements of Flickr8K for photos and captions of test."""
    rows = {str(key): row for row, key in enumerate(image_ids)}
    columns = {str(key): column for column, (key, _) in enumerate(captions)}
    judged = [
        {
            (columns[caption], rows[image]): bool(grade > 0)
            for _, (image, caption), grade in read_grades(folder / f"{file}Annotations.txt")
            if image in rows and caption in columns
        }
        for file in ("CrowdFlower", "Expert")
    ]
    return Truths.of(judged[0], np.array([image for _, image in captions]), judged[1])


def pack(values: Sequence[int] | np.ndarray) -> str:
    """Numbers below 1,296 as two characters each."""
    return "".join(np.base_repr(int(value), 36).zfill(2) for value in values)


@functools.cache
def unpack(text: str) -> np.ndarray:
    """The numbers of `pack`."""
    return np.array([int(text[n : n + 2], 36) for n in range(0, len(text), 2)])


class Writer:
    """Appends lines to the results, and knows which are there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = {tuple(line[name] for name in COLUMNS[:4]) for line in read_lines(path)}

    def missing(self, *run: str, names: Sequence[str] = tuple(CORRECTIONS)) -> list[str]:
        """The corrections of a run that have no line."""
        return [name for name in names if (*run, name) not in self.done]

    def append(self, *cells: str) -> None:
        """Appends a line."""
        append_row(self.path, COLUMNS, cells)
        self.done.add(cells[:4])

    def run(
        self,
        key: tuple[str, str, str],
        splits: Sequence[tuple[Scored, np.ndarray]],
        truths: Truths,
        data_seed: str = "",
        names: Sequence[str] = tuple(CORRECTIONS),
    ) -> None:
        """Chooses and measures the missing corrections, and their doses.

        Args:
            key: Data, scorer and seed.
            splits: Of dev and of test the scores, and the photo of each caption.
            truths: The truths of test; their numbers of relevant photos have a line, too.
            data_seed: The seed of data that are drawn.
            names: The corrections.
        """
        (dev, dev_owner), (test, owner) = splits
        of_data = key[0], "", data_seed, "relevant"
        if of_data not in self.done:
            self.append(*of_data, *[""] * 4, *truths.relevant)
        unit = float(dev.scores.std())
        for name in self.missing(*key, names=names):
            _, setting = choose(name, dev, dev_owner)
            doses = {name: setting}
            if name == "CSLS, bank":
                doses |= {f"{name}, {share:g} of it": (*setting, share) for share in DOSES}
            # The correction itself comes last: its line says that all doses are there.
            for dose, of_dose in reversed(doses.items()):
                best = rsum(*places(correct(name, of_dose, dev, unit), dev_owner))
                found = correct(name, of_dose, test, unit)
                sides = places(found, owner)
                digits = ["".join(map(str, side)) for side in sides]
                text = " ".join(f"{value:g}" for value in of_dose)
                cells = [f"{best:.2f}", *digits, *truths.hits(found.text_to_image)]
                self.append(*key, dose, text, *cells)
                print(*key, dose, text, f"dev {best:.1f} test {rsum(*sides):.1f}", flush=True)


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
        writer.run(key, splits, Truths.of(pairs, parts["test"].image_of), str(seed))


def read_study(options: argparse.Namespace) -> Any:
    """The features of Flickr8K, computed once."""
    import birds  # TensorFlow is needed to train alone.

    source = f"data.source={{name: flickr8k, root: {options.flickr8k}}}"
    image = "data.image={size: 224, resize: 224, crop: center, flip: false, cutout: 0}"
    return birds.read_splits(birds.make_settings(options, source, image, "data.judgements=pairs"))


def write_scores(options: argparse.Namespace) -> None:
    """Trains every scorer that has no scores yet, and writes these."""
    folder = options.work / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    runs = [(name, seed) for seed, name in product(options.seeds, SCORERS)]
    runs = [run for run in runs if run[0] != SUM and (run[0] != "cca" or run[1] == 1)]
    runs = [run for run in runs if not (folder / f"{run[0]}-{run[1]}.npz").exists()]
    if not runs:
        return
    study = read_study(options)
    study.save_vectors(options.work / "vectors.npz")
    for name, seed in runs:
        arrays = scores_of(study, name, seed)
        np.savez(folder / f"{name}-{seed}.tmp.npz", **arrays)
        (folder / f"{name}-{seed}.tmp.npz").rename(folder / f"{name}-{seed}.npz")


def scores_of(study: Any, name: str, seed: int) -> dict[str, np.ndarray]:
    """Trains a scorer; scores of dev and test with each other and with the bank, and sigmas."""
    import birds

    from keras_xmr.experiments.evaluation.uncertainty.assessment import log_sigma

    train = np.arange(0, len(study.train.classes), BANK)
    captions = np.searchsorted(study.train.caption_image, train)
    plain = name == "dual_encoder"
    config, begin = ("info_nce", "random") if plain else (name, "cca")
    row = birds.Row(config, "train.phases.0.epochs", (EPOCHS, EPOCHS), begins=begin)
    splits = (study.train, study.val, study.test)
    if name == "cca":
        sides = [[{"mean": v} for v in study.projected(study.maps, n)] for n in range(3)]
    else:
        model, val, epoch = study.fit(row, RANDOM_RATE if plain else RATE, EPOCHS, seed)
        print(f"{name} seed {seed}: dev {val:.2f} at epoch {epoch}", flush=True)
        sides = [study.embed(model, row, split) for split in splits]
    bank = [{k: v[rows] for k, v in side.items()}
            for side, rows in zip(sides[0], (train, captions), strict=True)]  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    for split, (left, right) in zip(("val", "test"), sides[1:], strict=True):
        pairs = {"scores": (left, right), "i2t": (bank[0], right), "t2i": (left, bank[1])}
        for kind, (one, other) in pairs.items():
            found = (
                one["mean"] @ other["mean"].T
                if name == "cca"
                else birds.score_tiles(model.matcher, one, other, (512, 4096)).by_query[0]
            )
            arrays[f"{split}_{kind}"] = (found.T if kind == "t2i" else found).astype(np.float32)
        if "log_variance" in right:
            arrays[f"{split}_sigma"] = log_sigma(right)
    return arrays


def read_scores(folder: Path, name: str, seed: int) -> list[Scored]:
    """The scores of dev and test, of the sum in standard deviations of its parts."""
    parts = [("cca", 1), ("dual_encoder", seed)] if name == SUM else [(name, seed)]
    files = [np.load(folder / f"{part}-{number}.npz") for part, number in parts]
    found = []
    for split in ("val", "test"):
        scores, i2t, t2i = (
            sum(file[f"{split}_{kind}"] / file["val_scores"].std() for file in files)
            for kind in ("scores", "i2t", "t2i")
        )
        found.append(Scored(scores, ScoreBank(i2t, t2i)))
    return found


def cca_of_fewer(path: Path) -> Iterator[tuple[str, int, list[Scored]]]:
    """Yields names, seeds and scores of dev and test of CCA that is fitted to fewer photos."""
    from keras_xmr.linear.cca import CanonicalCorrelations

    with np.load(path) as arrays:
        train, val, test = (
            [arrays[f"{s}_{n}"].astype(np.float64) for n in ("images", "captions")]
            + [arrays[f"{s}_owner"]]
            for s in ("train", "val", "test")
        )
    for seed, count in product(FEWER_SEEDS, FEWER):
        photos = np.sort(np.random.default_rng(seed).permutation(len(train[0]))[:count])
        kept = np.isin(train[2], photos)
        cca = CanonicalCorrelations(
            train[0][photos], train[1][kept], np.searchsorted(photos, train[2][kept])
        )
        best: tuple[float, Any] = (-1.0, None)
        for maps in cca.projections(128, (0.3, 1, 3, 10), (0.3, 1, 3), (0.5, 1), (128,)):
            left, right = cca.project(maps, *val[:2])
            scores = left @ right.T
            reached = rsum(*places(Reranked(scores, scores), val[2]))
            best = max(best, (reached, maps), key=lambda each: each[0])
        pairs = [cca.project(best[1], *split[:2]) for split in (val, test)]
        empty = ScoreBank(np.zeros((1, len(val[1]))), np.zeros((1, len(val[0]))))
        yield f"cca of {count}", seed, [Scored(left @ right.T, empty) for left, right in pairs]


def run_flickr8k(writer: Writer, options: argparse.Namespace) -> None:
    """All corrections on Flickr8K, placebos and galleries."""
    write_scores(options)
    from data_pipelines.records import Records  # It imports TensorFlow, which tables do not need.

    records = Records.open(options.work / "records")
    val, test = records.split("val"), records.split("test")
    captions = [(c.key, int(i)) for c, i in zip(test.captions, test.caption_image, strict=True)]
    truths = people(options.flickr8k, test.image_keys, captions)
    owners = val.caption_image, test.caption_image
    for seed, name in product(options.seeds, SCORERS):
        key = "flickr8k", name, str(seed)
        if name == "cca" and seed > 1:
            continue
        scored = read_scores(options.work / "scores", name, seed)
        writer.run(key, list(zip(scored, owners, strict=True)), truths)
        run_galleries(options.galleries, writer.path, key, scored, owners[1])
    fewer = product(FEWER_SEEDS, FEWER)
    if all(("flickr8k", f"cca of {n}", str(s), "none") in writer.done for s, n in fewer):
        return
    for name, seed, scored in cca_of_fewer(options.work / "vectors.npz"):
        key = "flickr8k", name, str(seed)
        writer.run(key, list(zip(scored, owners, strict=True)), truths, names=("none",))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flickr8k", type=Path, required=True, help="folder of Flickr8K")
    parser.add_argument("--galleries", type=Path, default=GALLERIES)
    parser.add_argument("--seeds", type=lambda n: range(1, int(n) + 1), default=range(1, 3))
    options = add_paths(parser, RESULTS).parse_args(arguments)
    writer = Writer(options.results)
    run_flickr8k(writer, options)
    run_scenes(writer)


if __name__ == "__main__":
    main()
