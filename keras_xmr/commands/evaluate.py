"""Evaluates a trained model, several as one, or scores of any other model.

Writes a report with tables and plots. Several runs are evaluated by the mean of their scores.
Scores of another model need neither config nor training, only a file of the images and captions.
In COCO's files their order is that of the lists "images" and "annotations"; in a split file of
Karpathy that of its images, with their captions one after another; in CSV that of first
occurrence.

examples:
  keras-xmr evaluate --run=saved_models/scenes_pcme
  keras-xmr evaluate --runs=saved_models/coco_saf,saved_models/coco_sgr
  keras-xmr evaluate --scores=clip.npy --ground-truth=captions_val2014.json
  keras-xmr evaluate --image-embeddings=images.npy --caption-embeddings=texts.npy \\
      --ground-truth=captions.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_xmr.commands._options import Form, add_runs, add_yes, one_of, runs_of, whole
from keras_xmr.commands._steps import do
from keras_xmr.config.loader import ConfigError, load_judgements, load_rerankers

_FILES = {
    "ground-truth": "images and captions: captions as COCO has them (JSON), a split file of "
    "Karpathy (JSON), or CSV: image,caption[,grade]",
    "scores": ".npy or .npz: a row for each image, a column for each caption, in the order of the "
    "ground truth; larger is better; or a run file of TREC, by the ids of the ground truth",
    "text-to-image-scores": "the same for ranking images, if those scores are others",
    "image-embeddings": "in place of scores: a row for each image, in the same order",
    "caption-embeddings": "a row for each caption",
    "labels": "instance annotations as COCO has them, for PMRP",
    "relevance": ".npy or .npz of the shape of the scores, for ASP; without one, the CIDEr of the "
    "captions, and their TF-IDF beside it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    runs = Form(parser, "runs", "trained models")
    add_runs(runs)
    add_yes(runs)
    scores = Form(parser, "scores", "scores of any other model")
    for name, text in _FILES.items():
        scores.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)
    scores.add_argument(
        "--similarity",
        type=one_of("cosine", "dot"),
        metavar="cosine|dot",
        help="how embeddings are scored; cosine by default",
    )
    scores.add_argument(
        "--split", metavar="NAME", help="the split of a Karpathy file; test by default"
    )
    scores.add_argument(
        "--judgements",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="measures against further judgements: eccv_caption, cxc, CSV with "
        "image,caption,grade, .npz, qrels of TREC, or the file of CIRCO, Flickr8K, HierarCaps, "
        "INQUIRE or Marqo-GS; with options '{source: judged.csv, unjudged: left_out}'; may be "
        "given several times",
    )
    scores.add_argument(
        "--rerank",
        action="append",
        default=[],
        metavar="NAME",
        help="a re-ranker, such as fast_reranking, or with options '{name: fast_reranking, "
        "preset: cub}'; may be given several times",
    )
    scores.add_argument(
        "--folds",
        type=whole(0),
        default=0,
        metavar="N",
        help='also the mean over N folds of the images ("1K" on COCO: 5)',
    )
    scores.add_argument(
        "--trec", type=Path, metavar="FOLDER", help="also writes run files and qrels of TREC"
    )
    scores.add_argument(
        "--trec-depth",
        type=whole(1),
        metavar="N",
        help="documents per query in a run file; 1000 by default",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where the reports go: of several runs, ensemble-<run>-<run>/ beside the first by "
        "default; of scores, beside them",
    )
    parser.set_defaults(forms=(runs, scores))


def run(arguments: argparse.Namespace) -> None:
    """Evaluates what the user has given."""
    if arguments.form == "scores":
        _evaluate_scores(arguments)
        return
    config, runs = runs_of(arguments)
    if len(runs) > 1:
        from keras_xmr.ensemble.evaluate import evaluate_ensemble

        evaluate_ensemble(config, runs, arguments.output)
        return
    if runs and arguments.config:
        raise ConfigError(
            "--config and one --run do not mix: a run has a config; change it by --set"
        )
    if arguments.output:
        raise ConfigError(
            "--output is for several runs, or for scores; the reports of one run go to its folder"
        )
    do(config, "evaluate")


def _evaluate_scores(arguments: argparse.Namespace) -> None:
    """Evaluates scores that a user brings; TensorFlow is not needed."""
    if arguments.ground_truth is None:
        raise ConfigError("--ground-truth is needed: the images and captions in their order")
    if arguments.trec_depth and not arguments.trec:
        raise ConfigError("--trec-depth needs --trec, the folder of the run files")
    if arguments.scores and arguments.similarity:
        raise ConfigError("--similarity is for embeddings, and has no effect on --scores")
    chosen, judgements = load_rerankers(arguments.rerank), load_judgements(arguments.judgements)

    from keras_xmr import external_scores
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
    external_scores.run(brought, build_rerankers(chosen))
