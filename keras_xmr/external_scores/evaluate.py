"""From the files of a user to tables and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import write_aside
from data_pipelines.folders import check_folder
from keras_xmr.external_scores.arrays import Similarity, load_embeddings, load_scores, similarity
from keras_xmr.judgements import (
    GroundTruth,
    add_judgements,
    read_ground_truth,
    read_labels,
)
from keras_xmr.metrics import (
    Measured,
    measure,
    measured_tables,
    reranked_title,
    verdict,
    write_queries,
)
from keras_xmr.relevance import relevance_matrix
from keras_xmr.reranking import Reranker, measure_reranked


@dataclass(frozen=True)
class ExternalScores:
    """What a user brings.

    Attributes:
        ground_truth: File of images and captions; see `read_ground_truth`.
        scores: File of scores (images, captions); or embeddings, below.
        text_to_image_scores: File of the scores that rank images, if they are others.
        image_embeddings: File of embeddings (images, D).
        caption_embeddings: File of embeddings (captions, D).
        similarity: How embeddings are scored.
        split: The split, if the ground truth is a split file of Karpathy.
        judgements: Further judgements: names or files; see `find_judgements`.
        labels: File of instance annotations, for Plausible-Match R-Precision; see `read_labels`.
        relevance: File of semantic relevance (images, captions), for ASP; the CIDEr of the
            captions if None, and their TF-IDF beside it.
        folds: Over how many folds means are taken besides.
        output: Folder of what is written; beside the scores if None.
    """

    ground_truth: Path
    scores: Path | None = None
    text_to_image_scores: Path | None = None
    image_embeddings: Path | None = None
    caption_embeddings: Path | None = None
    similarity: Similarity = "cosine"
    split: str | None = None
    judgements: Sequence[str] = ()
    labels: Path | None = None
    relevance: Path | None = None
    folds: int = 0
    output: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the figures go."""
        source = self.scores or self.image_embeddings or self.ground_truth
        return self.output or source.with_name(f"{source.stem}-evaluation")


def run(
    own: ExternalScores, rerankers: Mapping[str, Reranker] | None = None
) -> dict[str, Measured]:
    """Evaluates scores, prints tables, and writes `metrics.json` and `queries.npz`.

    Args:
        own: What the user brings.
        rerankers: Re-rankers by name; what each makes of the scores is measured besides.

    Raises:
        UserError: If a file is missing, two do not fit together, or the folder of the output
            cannot be written to.
    """
    check_folder(own.folder)
    truth = _ground_truth(own)
    scores, text_to_image = _scores(own, truth)
    try:
        measured = evaluate_external_scores(scores, truth, own.folds, text_to_image, rerankers)
    except ValueError as error:
        raise UserError(f"these scores cannot be evaluated: {error}") from None
    images, captions = truth.shape
    title = f"{own.ground_truth.name}: {images:,} images, {captions:,} captions"
    tables = measured_tables(title, {"scores": measured["scores"]}, "")
    for name in rerankers or ():
        tables += measured_tables(reranked_title(title, name), {name: measured[name]}, "")
    first = str(verdict(measured["scores"].metrics, truth.caption_image))
    print("\n" + "\n\n".join([first, *map(str, tables)]) + "\n", flush=True)
    own.folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "images": images,
        "captions": captions,
        "scores": {name: found.as_dict() for name, found in measured.items()},
    }
    path = own.folder / "metrics.json"
    write_aside(path, json.dumps(figures, indent=1).encode())
    write_queries(own.folder / "queries.npz", measured, truth)
    print(f"figures: {path}\nof every query: {own.folder / 'queries.npz'}", flush=True)
    return measured


def evaluate_external_scores(
    scores: np.ndarray,
    truth: GroundTruth,
    folds: int = 0,
    text_to_image: np.ndarray | None = None,
    rerankers: Mapping[str, Reranker] | None = None,
) -> dict[str, Measured]:
    """Measures scores as they are, under the name "scores", and re-ranked.

    Args:
        scores: Scores (images, captions).
        truth: What is known of the images and captions.
        folds: Over how many folds means are taken besides.
        text_to_image: The scores whose columns rank images, if they are others.
        rerankers: Re-rankers by name.

    Raises:
        ValueError: As `measure` raises it.
    """
    measured = {"scores": measure(scores, truth, folds, text_to_image)}
    for name, reranker in (rerankers or {}).items():
        measured[name] = measure_reranked(reranker, scores, truth, folds, text_to_image)
    return measured


def _ground_truth(own: ExternalScores) -> GroundTruth:
    truth = read_ground_truth(own.ground_truth, own.split)
    add_judgements(truth, own.judgements)
    if own.labels:
        truth.labels = read_labels(own.labels, truth)
    if own.relevance:
        truth.relevance = load_scores(own.relevance, truth.shape, own.ground_truth)
    else:
        captions = (truth.texts, truth.caption_image, len(truth.image_ids))
        truth.relevance = relevance_matrix(*captions).dense()
        truth.further_relevance["tf_idf"] = relevance_matrix(*captions, "tf_idf").dense()
    return truth


def _scores(own: ExternalScores, truth: GroundTruth) -> tuple[np.ndarray, np.ndarray | None]:
    embeddings = (own.image_embeddings, own.caption_embeddings)
    if own.scores and any(embeddings):
        raise UserError("give either --scores or embeddings, not both")
    if own.text_to_image_scores and not own.scores:
        raise UserError("--text-to-image-scores needs --scores, which rank captions")
    if own.scores:
        scores = load_scores(own.scores, truth.shape, own.ground_truth)
        if own.text_to_image_scores is None:
            return scores, None
        return scores, load_scores(own.text_to_image_scores, truth.shape, own.ground_truth)
    if not own.image_embeddings or not own.caption_embeddings:
        raise UserError("give --scores, or both --image-embeddings and --caption-embeddings")
    images, captions = truth.shape
    return similarity(
        load_embeddings(own.image_embeddings, "images", images, own.ground_truth),
        load_embeddings(own.caption_embeddings, "captions", captions, own.ground_truth),
        own.similarity,
    ), None
