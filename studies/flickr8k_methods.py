"""All methods of the papers on Flickr8K, compared with plain baselines on the same features.

Every method is a config of `csv_pretrained*` on the data of Flickr8K: the same frozen encoders, the
same rate and number of epochs; the validation split chooses the epoch. Baselines
(baselines.py) see the averaged features and are tuned on the same split. Test is
measured once per run: recalls by the annotated pairs, and what the crowd and the experts judged.

A line per run is appended to `--results`; what has a line is not run again, so a study that was
stopped goes on. Seeds come last: with fewer, all methods have as many. `--table` alone prints the
table of the results, and `--csv` writes all figures of it.

    python studies/flickr8k_methods.py --flickr8k data/raw/flickr8k --seeds 3
    python studies/flickr8k_methods.py --table
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from baselines import BASELINES, Pairs, recalls
from methods_table import (
    JUDGED,
    PEOPLE,
    RESULTS,
    SHORTEST_FIRST,
    SIDES,
    WITHOUT_SEEDS,
    config_name,
    methods_of,
    pairs_of,
    parts_of,
    print_table,
    read_lines,
    rows_of,
    seeds_of,
    write_csv,
)

from data_pipelines.batches import feature_batches, image_batches
from data_pipelines.records import SplitRecords
from keras_xmr.commands._steps import Run
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.schema import Config
from keras_xmr.evaluation.evaluate import evaluate_matrices, evaluate_split
from keras_xmr.evaluation.uncertainty.assessment import few_words
from keras_xmr.metrics.chance import chance
from keras_xmr.metrics.score_matrices import ScoreMatrices

ALONE = "crowd_alone"
PLAIN = ("chance", *WITHOUT_SEEDS, "dual_encoder", "dual_encoder_csls")
METHODS = tuple(
    config_name(name)
    for name in (
        "csv_pretrained",
        "pcmepp_csls",
        "pcmepp",
        "nt_xent",
        "vse0",
        "vsepp",
        "smooth_ap",
        "mean_only",
        "pcme",
        "daa",
        "msrm",
        "msrm_literal",
        "nt_xent_local",
        "pvse",
        "dvse",
        "dive",
        "vsrn_triplet",
        "vsrn_hardest",
        "vsrn_nt_xent",
        "vsrn_smooth_ap",
        "saf",
        "saf_daa",
        "sgr",
        "sgr_daa",
    )
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
    options = _parser().parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.flickr8k:
        _run_missing(options)
    methods = methods_of(read_lines(options.results))
    rows = list(rows_of(methods))
    print_table(rows)
    further = {"pairs": list(pairs_of(methods)), "parts": list(parts_of(methods))}
    for table in further.values():
        if table:
            print()
            print_table(table)
    if options.csv:
        write_csv(rows, options.csv)
        for name, table in (further | {"seeds": list(seeds_of(methods))}).items():
            write_csv(table, options.csv.with_name(f"flickr8k_{name}.csv"))


def _run_missing(options: argparse.Namespace) -> None:
    done = {(line["method"], line["seed"]) for line in read_lines(options.results)}
    for seed in range(options.seeds):
        missing = [m for m in options.methods if (m, seed) not in done]
        plain = [m for m in PLAIN if (m, seed) not in done and not (seed and m in WITHOUT_SEEDS)]
        for line in _lines_of_baselines(plain, seed, options) if options.baselines else ():
            _append(line, options.results)
        for method in missing:
            _append(_train(method, seed, options), options.results)


def _append(line: dict[str, Any], path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    rsum = recalls(tuple(map(np.array, line["ranks"]))).sum()
    print(f"{line['method']} seed {line['seed']}: test RSUM {rsum:.1f}", flush=True)


def _config(method: str, seed: int, options: argparse.Namespace, *last: str) -> Config:
    """The config of a method with the data and the judgements of Flickr8K.

    Args:
        method: The name of the config.
        seed: The seed.
        options: Those of the command line.
        *last: Further texts `key=value`, which come last.
    """
    work = options.work
    sets = [
        f"data.source={{name: flickr8k, root: {json.dumps(str(options.flickr8k))}}}",
        "evaluation.judgements=[crowd, experts, "
        f"{{source: crowd, name: {ALONE}, annotated: false}}]",
        f"data.records={work / 'records'}",
        f"output={work / 'runs'}",
        f"name={method}-seed{seed}",
        f"seed={seed}",
        f"model.image.encoder.preset={options.image_preset}",
        f"model.text.encoder.preset={options.text_preset}",
        *options.set,
        *last,
    ]
    return load_config(find_config(method), sets)


def _prepared(config: Config) -> Run:
    run = Run(config)
    if not config.data.is_prepared:
        run.prepare()
    return run


def _train(method: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Trains and measures a method."""
    config = _config(method, seed, options)
    run = _prepared(config)
    begin = time.perf_counter(), time.process_time()
    run.train()
    seconds = _seconds(begin)
    best = 100 * json.loads(run.folder.done.read_text("utf-8"))["best"]
    evaluation = evaluate_split(run.model, run.embedded_records, "test", run.tokenizer, config)
    line = _line(method, seed, best, evaluation) | seconds
    keras.backend.clear_session()
    if not options.keep:
        shutil.rmtree(config.folder)
    return line


def _lines_of_baselines(
    names: Sequence[str], seed: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Measures baselines on the features of all methods but the local ones."""
    if not names:
        return
    run, splits, pairs = _features(seed, options)
    for name in names:
        begin = time.perf_counter(), time.process_time()
        if name == SHORTEST_FIRST:
            val, scores = None, shortest_first(splits[2].texts, len(splits[2]))[0]
        else:
            val, scores = BASELINES[name](*pairs, seed)
        seconds = _seconds(begin)
        matrices = ScoreMatrices.of(scores.astype(np.float32))
        evaluation = evaluate_matrices([(name, matrices)], run.records, splits[2], run.config)
        yield _line(name, seed, val, evaluation) | seconds


def _features(
    seed: int, options: argparse.Namespace
) -> tuple[Run, list[SplitRecords], list[Pairs]]:
    """The splits train, val and test, and the features of all methods but the local ones."""
    # Nothing is trained: its poolings average the features, which the run computes.
    config = _config(
        "csv_pretrained_nt_xent", seed, options, f"name=features-seed{seed}", "train.phases=[]"
    )
    run = _prepared(config)
    run.train()
    splits = [run.embedded_records.split(name) for name in ("train", "val", "test")]
    pairs = [_pairs(run, split) for split in splits]
    shutil.rmtree(config.folder)
    return run, splits, pairs


def _seconds(begin: tuple[float, float]) -> dict[str, float]:
    """Wall and processor time since then."""
    wall, processor = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return {"wall_s": round(wall, 1), "processor_s": round(processor, 1)}


def _pairs(run: Run, split: SplitRecords) -> Pairs:
    """The inputs of the poolings of both towers: averages of the features of a run."""
    size = run.config.evaluation.batch_size
    captions: Any = split.caption_features
    batches = (
        image_batches(split, run.config.data.image, size),
        feature_batches(captions, np.arange(split.num_captions), size),
    )
    images, texts = (
        np.concatenate([tower.get_layer("head").global_pooling.average(batch) for batch in own])
        for tower, own in zip((run.model.image_tower, run.model.text_tower), batches, strict=True)
    )
    return Pairs(images.astype(np.float64), texts.astype(np.float64), split.caption_image)


def _line(method: str, seed: int, val: float | None, evaluation: Any) -> dict[str, Any]:
    """Results of a run: ranks by the annotated pairs, and human judgements per query."""
    measured = evaluation.matchers[0].measured
    ranks = [getattr(measured.metrics, name).values["rank"] for name in SIDES.values()]
    judged = {
        people: {
            metric: {
                side: _known(getattr(measured.extra[people], name).values[metric])
                for side, name in SIDES.items()
            }
            for metric in JUDGED
        }
        for people in (*PEOPLE, ALONE)
    }
    expected = {
        people: {side: chance(measured.extra[people])[f"{side}_r_precision"] for side in SIDES}
        for people in PEOPLE
    }
    return {
        **{"method": method, "seed": seed, "val": val, "judged": judged},
        **({"expected": expected} if method == "chance" else {}),
        "ranks": [side.astype(int).tolist() for side in ranks],
    }


def _known(values: np.ndarray) -> dict[str, list[float]]:
    """The queries that have a value, and these."""
    queries = np.flatnonzero(~np.isnan(values))
    return {"queries": queries.tolist(), "values": values[queries].round(4).tolist()}


def shortest_first(texts: Sequence[str], images: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (images, captions) of each direction: the shortest captions first, whatever the image.

    Ties, and images as answers, are in a random order.
    """
    ties = np.random.default_rng(0).random((images, len(texts))) / 2
    return few_words(texts)[None, :] + ties, ties


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--flickr8k", type=Path, help="folder of Flickr8K as released")
    what.add_argument("--table", action="store_true", help="the table of finished runs alone")
    parser.add_argument("--work", type=Path, default=Path("data/flickr8k_methods"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--no-baselines", dest="baselines", action="store_false")
    parser.add_argument("--keep", action="store_true", help="keeps the folders of runs")
    parser.add_argument("--image-preset", default="efficientnet_lite0_ra_imagenet")
    parser.add_argument("--text-preset", default="hf://sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--csv", type=Path, help="writes all figures, and other tables beside it")
    return parser


if __name__ == "__main__":
    main()
