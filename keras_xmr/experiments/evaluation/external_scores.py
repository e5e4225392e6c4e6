"""Evaluates files of scores or embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from keras_xmr.experiments.config.schema import RelevanceOptions
from keras_xmr.experiments.evaluation.evaluation_files import EXTERNAL, write_results
from keras_xmr.experiments.evaluation.score_files import (
    Similarity,
    is_run,
    load_embeddings,
    load_scores,
    read_run,
    similarity,
    write_trec,
)
from keras_xmr.experiments.evaluation.split_evaluation import (
    Evaluation,
    add_relevance,
    evaluate_split_scores,
)
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.judgements import (
    GroundTruth,
    JudgementOptions,
    add_judgements,
    read_ground_truth,
    read_labels,
)
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.metrics.query_metrics import QueryMetric
from keras_xmr.metrics.results import Results
from keras_xmr.metrics.runs import DEPTH
from keras_xmr.reranking import Reranker
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, check_folder

_SPLIT = "test"
"""Name of the split if the ground truth has none."""


@dataclass(frozen=True)
class ExternalScores:
    """Files of scores or embeddings with a ground truth, and options of their evaluation.

    Attributes:
        ground_truth: File of images and captions; see `read_ground_truth`.
        scores: File of scores (images, captions); or embeddings, below.
        text_to_image_scores: File of the scores that rank images, if these differ.
        image_embeddings: File of embeddings (images, D).
        caption_embeddings: File of embeddings (captions, D).
        similarity: The similarity of embeddings.
        split: The split, if the ground truth is a split file of Karpathy.
        judgements: Further judgements: names, files or options; see `add_judgements`.
        labels: File of instance annotations, for Plausible-Match R-Precision; see `read_labels`.
        relevance: File of semantic relevance (images, captions), for ASP; the CIDEr and the TF-IDF
            of the captions if None.
        folds: Number of folds over which means are taken in addition.
        output: The output folder; next to the scores if None.
        trec: Folder for run files and qrels of TREC, if they are wanted; see `write_trec`.
        trec_depth: Number of documents per query in a run file.
    """

    ground_truth: Path
    scores: Path | None = None
    text_to_image_scores: Path | None = None
    image_embeddings: Path | None = None
    caption_embeddings: Path | None = None
    similarity: Similarity = "cosine"
    split: str | None = None
    judgements: Sequence[str | JudgementOptions] = ()
    labels: Path | None = None
    relevance: Path | None = None
    folds: int = 0
    output: Path | None = None
    trec: Path | None = None
    trec_depth: int = DEPTH

    @property
    def folder(self) -> Path:
        """The folder of the figures."""
        source = self.scores or self.image_embeddings or self.ground_truth
        return self.output or source.with_name(f"{source.stem}-evaluation")

    def as_dict(self) -> dict[str, Any]:
        """Returns the files, and options that decide the meaning of figures, by the keys of
        a config.
        """
        measure = "cider" if self.relevance is None else str(self.relevance)
        return {
            "seed": 0,
            "data": {"judgements": "pairs"},
            "evaluation": {
                "splits": [self.split or _SPLIT],
                "folds": self.folds,
                "semantic_precision": True,
            },
            "relevance": {"measure": measure, "tokenizer": "ptb"},
            "files": {k: str(v) for k, v in vars(self).items() if isinstance(v, Path)},
        }


def run(
    files: ExternalScores,
    rerankers: Mapping[str, Reranker] | None = None,
    metrics: Mapping[str, QueryMetric] | None = None,
    show: Callable[[Results], None] = lambda results: None,
) -> Evaluation:
    """Evaluates scores, and writes the figures in the layout of a run.

    The command `compare` takes the folder as a run.

    Args:
        files: The files and options.
        rerankers: Re-rankers by name; the scores are measured after each in addition.
        metrics: Further metrics by name.
        show: Shows the results before anything is written, which can fail.

    Raises:
        UserError: If a file is missing, two do not fit together, or the folder of the output
            cannot be written to.
    """
    check_folder(files.folder)
    truth = _ground_truth(files)
    truth.measures = metrics or {}
    split = files.split or _SPLIT
    scores = [("scores", _scores(files, truth))]
    try:
        evaluation = evaluate_split_scores(split, scores, truth, files.folds, rerankers)
    except ValueError as error:
        raise UserError(f"these scores cannot be evaluated: {error}") from None
    results = results_of(evaluation)
    show(results)
    path = write_results(evaluation, results, files.folder / "evaluation" / split)
    settings = yaml.safe_dump(files.as_dict(), sort_keys=False, allow_unicode=True)
    atomic_write(files.folder / EXTERNAL, settings.encode("utf-8"))
    print(f"results: {path}", flush=True)
    if files.trec is not None:
        written = write_trec(
            files.trec,
            scores[0][1],
            truth.judgements,
            image_ids=truth.image_ids,
            caption_ids=truth.caption_ids,
            further=truth.extra,
            split=split,
            depth=files.trec_depth,
        )
        print(f"run files and qrels: {', '.join(map(str, written))}", flush=True)
    return evaluation


def _ground_truth(files: ExternalScores) -> GroundTruth:
    truth = read_ground_truth(files.ground_truth, files.split)
    add_judgements(truth, files.judgements)
    if files.labels:
        truth.labels = read_labels(files.labels, truth.image_ids)
    if files.relevance:
        truth.relevance = load_scores(files.relevance, truth.shape, files.ground_truth)
    else:
        add_relevance(truth, RelevanceOptions())
    return truth


def _scores(files: ExternalScores, truth: GroundTruth) -> ScoreMatrices:
    embeddings = (files.image_embeddings, files.caption_embeddings)
    if files.scores and any(embeddings):
        raise UserError("give either --scores or embeddings, not both")
    if files.text_to_image_scores and not files.scores:
        raise UserError("--text-to-image-scores needs --scores, which rank captions")
    if files.scores:
        paths = filter(None, (files.scores, files.text_to_image_scores))
        return ScoreMatrices(
            *(
                read_run(file, truth.image_ids, truth.caption_ids)
                if is_run(file)
                else load_scores(file, truth.shape, files.ground_truth)
                for file in paths
            )
        )
    if not files.image_embeddings or not files.caption_embeddings:
        raise UserError("give --scores, or both --image-embeddings and --caption-embeddings")
    images, captions = truth.shape
    return ScoreMatrices(
        similarity(
            load_embeddings(files.image_embeddings, "images", images, files.ground_truth),
            load_embeddings(files.caption_embeddings, "captions", captions, files.ground_truth),
            files.similarity,
        )
    )
