"""Evaluates a trained model, an ensemble of several, or scores of any other model.

Writes a report with tables and plots. The score of an ensemble is the mean of its models' scores.
Scores of another model need no config and no training, only --ground-truth, a file of the images
and captions. Rows are the images and columns the captions in the order of this file. In COCO's
files it is the order of the lists "images" and "annotations", in CSV of the first occurrence. A
split file of Karpathy lists images, each with its captions.

examples:
  keras-xmr evaluate --run=saved_models/scenes_pcme
  keras-xmr evaluate --runs=saved_models/coco_saf,saved_models/coco_sgr
  keras-xmr evaluate --scores=clip.npy --ground-truth=captions_val2014.json
  keras-xmr evaluate --image-embeddings=images.npy --caption-embeddings=texts.npy \\
      --ground-truth=captions.csv
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from keras_xmr.commands._options import (
    add_list,
    add_path,
    add_runs,
    add_value,
    add_yes,
    integer_from,
    new_experiment,
    one_of,
    read_runs,
)
from keras_xmr.experiments.config.loader import (
    load_judgements,
    load_metrics,
    load_rerankers,
    use_plugins,
)
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.utils.errors import ConfigError

if TYPE_CHECKING:
    from keras_xmr.metrics.results import Results

_RUNS, _SCORES = "trained models", "scores of any other model"

_FILES = {
    "ground-truth": "images and captions: captions of COCO (JSON), a split file of Karpathy "
    "(JSON), or CSV: image,caption[,grade]",
    "scores": ".npy or .npz: a row per image, a column per caption, in the order of the ground "
    "truth, larger is better; or a run file of TREC, by the ids of the ground truth",
    "text-to-image-scores": "scores for text-to-image retrieval, if they differ",
    "image-embeddings": "instead of scores: a row per image, in the same order",
    "caption-embeddings": "instead of scores: a row per caption",
    "labels": "instance annotations of COCO, for PMRP",
    "relevance": ".npy or .npz in the shape of the scores, for ASP; default: the CIDEr of the "
    "captions, and also their TF-IDF",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    runs = parser.add_argument_group(_RUNS)
    add_runs(runs)
    add_yes(runs)
    scores = parser.add_argument_group(_SCORES)
    for name, text in _FILES.items():
        add_path(scores, f"--{name}", "FILE", text)
    text, choice = "similarity of embeddings; default cosine", one_of("cosine", "dot")
    add_value(scores, "--similarity", "cosine|dot", text, type=choice)
    add_value(scores, "--split", "NAME", "split of a Karpathy file; default test")
    add_list(
        scores,
        "--judgements",
        "NAME|FILE",
        "further judgements: eccv_caption, cxc, CSV with image,caption,grade, .npz, qrels of TREC, "
        "or the file of CIRCO, Flickr8K, HierarCaps, INQUIRE or Marqo-GS; with options "
        "'{source: judged.csv, unjudged: left_out}'",
    )
    text = "re-ranker, such as fast_reranking, or '{name: fast_reranking, preset: cub}'"
    add_list(scores, "--rerank", "NAME", text)
    text = "further metric, such as reciprocal_rank, or '{name: discounted_gain, k: 20}'"
    add_list(scores, "--metric", "NAME", text)
    text = "package with metrics or re-rankers of your own, as in `plugins` of a config"
    add_list(scores, "--plugin", "NAME", text)
    text = 'also report the mean over N folds of the images ("1K" on COCO: 5)'
    add_value(scores, "--folds", "N", text, type=integer_from(0), default=0)
    add_path(scores, "--trec", "FOLDER", "also write run files and qrels of TREC")
    text = "documents per query in a run file; default 1000"
    add_value(scores, "--trec-depth", "N", text, type=integer_from(1))
    add_path(
        parser,
        "--output",
        "FOLDER",
        "folder of the reports; default: ensemble-RUN-RUN/ next to the first of several runs, or "
        "the folder of the scores",
    )


def run(arguments: argparse.Namespace) -> None:
    """Evaluates runs or scores."""
    of_runs = _used(arguments, "runs", "model", "config", "set", "yes")
    options = ("similarity", "split", "judgements", "rerank", "metric", "plugin", "folds")
    of_scores = _used(arguments, *_FILES, *options, "trec", "trec-depth")
    if of_runs and of_scores:
        raise ConfigError(
            f"{of_runs[0]} and {of_scores[0]} exclude each other: {of_runs[0]} is for {_RUNS}; "
            f"{of_scores[0]} is for {_SCORES}"
        )
    if of_scores:
        _evaluate_scores(arguments)
        return
    config, runs = read_runs(arguments)
    if len(runs) > 1:
        from keras_xmr.commands._ensemble import evaluate_ensemble

        evaluate_ensemble(config, runs, arguments.output)
        return
    if runs and arguments.config:
        raise ConfigError(
            "--config and one --run exclude each other: change the config of a run with --set"
        )
    if arguments.output:
        raise ConfigError(
            "--output is for several runs, or for scores; reports of one run are in its folder"
        )
    new_experiment(config, records=is_as_published(config)).evaluate()


def _used(arguments: argparse.Namespace, *names: str) -> list[str]:
    """Returns the options of these names that have a value."""
    return [f"--{name}" for name in names if getattr(arguments, name.replace("-", "_"))]


def _evaluate_scores(arguments: argparse.Namespace) -> None:
    """Evaluates scores of another model, without TensorFlow."""
    if arguments.ground_truth is None:
        raise ConfigError("--ground-truth is missing: the images and captions in their order")
    if arguments.trec_depth and not arguments.trec:
        raise ConfigError("--trec-depth needs --trec, the folder of the run files")
    if arguments.scores and arguments.similarity:
        raise ConfigError("--similarity is for embeddings and has no effect on --scores; remove it")
    if arguments.plugin:
        use_plugins(arguments.plugin)
    rerankers, metrics = load_rerankers(arguments.rerank), load_metrics(arguments.metric)
    judgements = load_judgements(arguments.judgements)

    from keras_xmr.experiments.evaluation import external_scores
    from keras_xmr.experiments.reports.result_tables import (
        plain_lines,
        result_tables,
        verdict_line,
    )
    from keras_xmr.metrics.query_metrics import build_metrics
    from keras_xmr.reranking import build_rerankers

    brought = external_scores.ExternalScores(
        **{name.replace("-", "_"): getattr(arguments, name.replace("-", "_")) for name in _FILES},
        similarity=arguments.similarity or "cosine",
        split=arguments.split,
        judgements=judgements,
        folds=arguments.folds,
        output=arguments.output,
        trec=arguments.trec,
        trec_depth=arguments.trec_depth or external_scores.DEPTH,
    )

    def show(results: Results) -> None:
        lines = [*plain_lines(results), verdict_line(results)]
        print("\n" + "\n\n".join([*lines, *map(str, result_tables(results))]) + "\n", flush=True)

    external_scores.run(brought, build_rerankers(rerankers), build_metrics(metrics), show)
