"""Methods of the papers on CUB Captions: real photos, unseen classes, frozen encoders.

A row is a config `csv_pretrained_*` with configs/bases/cub_pretrained.yaml on top. Features are
computed once. Rate and one further option of each row are tuned on the validation classes with
seed 0, on a grid of the same size for every row; seeds 1 to 3 are trained with the best, the
validation classes choose the epoch, and the test classes are measured once. A line per run is
appended to `--results`; what has a line is not run again, so a study that was stopped goes on.

    python studies/birds.py --cub data/raw/cub      # what is missing, then the tables
    python studies/birds.py                         # the tables alone
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

sys.path.append(str(Path(__file__).parent))

from birds_models import Row, Split, Study, blocks
from birds_tables import COLUMNS, Line, print_tables, read_lines

from keras_xmr.commands._steps import Run
from keras_xmr.config.loader import load_config
from keras_xmr.relevance import TOKENIZERS, BatchRelevance, weigh

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/birds.csv"
SEEDS = (1, 2, 3)

_MARGIN, _SCALE = ("objective.0.margin", (0.1, 0.2)), ("model.matcher.scale", (10, 20))
_PCME = "{name: soft_contrastive, reduction: mean}"
_KL = "{name: kl_divergence, reduction: mean, weight: 1.0e-7}"
_WARM = "objective.0.warmup_steps=84"
_PVSE = "objective=[{name: triplet, mining: hardest, reduction: mean, warmup_steps: 84}]"
_DVSE = "objective=[{name: variance_aware_weighting, weight: 0.6, warmup_steps: 84}]"


def _sets_of(k: int) -> tuple[str, ...]:
    return tuple(f"model.{side}.head.set_size={k}" for side in ("image", "text"))


_TEMPERATURE = "objective.0.temperature", (0.05, 0.1)
_MAHALANOBIS = "objective.0.temperature", (10, 5)

# fmt: off
ROWS = {
    "dual_encoder": Row("nt_xent", *_TEMPERATURE, begins="random", csls=True),
    "nt_xent": Row("nt_xent", *_TEMPERATURE, csls=True),
    "vse0": Row("vse0", *_MARGIN),
    "vsepp": Row("vsepp", *_MARGIN),
    "smooth_ap": Row("smooth_ap", "objective.0.temperature", (0.01, 0.03)),
    "pcme": Row("pcme", *_SCALE),
    "mean_only": Row("mean_only", *_SCALE),
    "pcme_daa": Row("daa", "objective.2.weight", (0.06, 0.6)),
    "pcme_smooth_ap": Row("pcme", "objective.2.weight", (0.06, 0.6), (
        f"objective=[{_PCME}, {_KL}, {{name: smooth_ap, temperature: 0.1, weight: 1}}]",)),
    "msrm": Row("msrm", *_MAHALANOBIS),
    "msrm_no_hypergraph": Row("msrm", *_MAHALANOBIS, (
        "objective=[{name: mahalanobis_contrastive, weight: 0.8}]",)),
    "msrm_no_distribution": Row("msrm", "objective.0.cosine_scale", (5, 10), (
        "objective=[{name: hypergraph_contrastive, residual: true}]",)),
    "msrm_mean_only": Row("msrm", *_MAHALANOBIS, (
        *(f"model.{side}.head={{name: point}}" for side in ("image", "text")),
        "model.matcher={name: cosine}")),
    "msrm_literal": Row("msrm_literal", *_MAHALANOBIS),
    "dvse_k1": Row("dvse", *_MARGIN, ("model.image.head.set_size=1", _DVSE), local=True),
    **{f"dvse_k{k}": Row("dvse", *_MARGIN, (f"model.image.head.set_size={k}", _WARM), local=True)
       for k in (2, 4, 8)},
    "pvse_k1": Row("pvse", *_MARGIN, (*_sets_of(1), _PVSE), local=True),
    **{f"pvse_k{k}": Row("pvse", *_MARGIN, (*_sets_of(k), _WARM), local=True) for k in (2, 4)},
}
# fmt: on
"""Rows with gradient descent, in the order in which they are run."""

PLAIN = ("cca", "classifier")
LABELS = tuple(product(("vse0", "vsepp"), ("pairs", "classes")))
"""The factorial: all negatives or the hardest, with the labels of classes or of annotated pairs."""


def make_settings(options: argparse.Namespace) -> Callable[[Row, Sequence[str]], Any]:
    """Gives the configs of rows, with the paths of the command line."""

    def settings(row: Row, sets: Sequence[str]) -> Any:
        path = options.work / f"{row.config}.yaml"
        names = f"csv_pretrained_{row.config}.yaml", "bases/cub_pretrained.yaml"
        includes = [str(ROOT / "configs" / name) for name in names]
        path.write_text(f"include: {includes}\nname: {row.config}\n", "utf-8")
        paths = [
            f"data.source.root={options.cub}",
            f"data.records={options.work / 'records'}",
            f"output={options.work / 'runs'}",
            f"model.image.encoder.preset={options.image_preset}",
            f"model.text.encoder.preset={options.text_preset}",
        ]
        return load_config(path, [*paths, *sets])

    options.work.mkdir(parents=True, exist_ok=True)
    return settings


def read_splits(options: argparse.Namespace) -> Study:
    """Prepares records and features of CUB, each once, and reads them."""
    settings = make_settings(options)
    # Nothing is trained, so the run ends when the features are there.
    run = Run(settings(ROWS["nt_xent"], ["train.phases=[]", "train.start=random"]))
    if not run.config.data.is_prepared:
        run.prepare()
    run.train()
    splits = []
    for name in ("train", "val", "test"):
        part = run.embedded_records.split(name)
        images = np.concatenate([part.regions(rows) for rows in blocks(len(part))])
        means = [
            part.caption_features.read(rows).sum(axis=1) / part.caption_features.lengths[rows, None]
            for rows in blocks(part.num_captions)
        ]
        splits.append(
            Split(
                images.astype(np.float16),
                part.caption_features,
                images.mean(axis=1, keepdims=True, dtype=np.float32),
                np.concatenate(means).astype(np.float32)[:, None],
                part.caption_image,
                np.array([of_image[0] for of_image in part.labels]),
            )
        )
        if name == "train":
            words = TOKENIZERS["ptb"]([caption.text for caption in part.captions])
            weighed = weigh(words, part.caption_image, len(part), run.config.relevance.measure)
            splits[0].relevance = BatchRelevance(weighed)
    return Study(*splits, settings)


def run_missing(study: Study, results: Path, rows: Sequence[str]) -> None:
    """Runs all that has no line in the results, and appends one for each."""
    done = {line.key: line for line in read_lines(results)}
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip

    def append(line: Line) -> None:
        new = not results.exists()
        with results.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([COLUMNS] * new + [line.cells(commit)])
        done[line.key] = line
        print(line.row, line.labels, line.seed, f"val {line.val:.2f}", *line.summary(), flush=True)

    def tune(name: str, labels: str) -> tuple[float, float]:
        """The best rate with the first value of the knob, then the best value with that rate."""

        row = ROWS[name]

        def tried(rate: float, knob: float) -> Line:
            line = Line("tune", name, labels, 0, rate, knob)
            if line.key not in done:
                begin = time.perf_counter()
                _, line.val, line.epoch = study.fit(row, rate, knob, 0, labels)
                line.seconds = time.perf_counter() - begin
                append(line)
            return done[line.key]

        best = max((tried(rate, row.values[0]) for rate in row.rates), key=lambda line: line.val)
        best = max(best, tried(best.rate, row.values[1]), key=lambda line: line.val)
        return best.rate, best.knob

    for name in PLAIN:
        if Line("test", name, "pairs", 0).key not in done:
            for each, val, figures in study.plain(name):
                append(Line("test", each, "pairs", 0, val=val, figures=figures))
    jobs = [(name, "pairs") for name in rows] + [job for job in LABELS if job[0] in rows]
    for seed, (name, labels) in product(SEEDS, dict.fromkeys(jobs)):
        setting = tune(name, labels)
        line = Line("test", name, labels, seed, *setting)
        if line.key in done:
            continue
        begin = time.perf_counter()
        model, val, epoch = study.fit(ROWS[name], *setting, seed, labels)
        seconds = time.perf_counter() - begin
        # Last the row itself, whose line says that all of them are there.
        for suffix, figures in reversed(list(study.tested(model, ROWS[name]))):
            append(
                Line("test", name + suffix, labels, seed, *setting, epoch, val, seconds, figures)
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cub", type=Path, help="folder of CUB-200-2011 with captions and classes")
    parser.add_argument("--work", type=Path, default=Path("data/birds"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS))
    parser.add_argument("--image-preset", default="efficientnet_lite0_ra_imagenet")
    parser.add_argument("--text-preset", default="hf://sentence-transformers/all-MiniLM-L6-v2")
    options = parser.parse_args(arguments)
    if options.cub:
        run_missing(read_splits(options), options.results, options.rows)
    print_tables(read_lines(options.results))


if __name__ == "__main__":
    main()
