"""Evaluates a model on a split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from data_pipelines.records import Records, SplitRecords, truth_file
from data_pipelines.text import Tokenizer
from keras_xmr.catalogue import Choice, components
from keras_xmr.config import Config, EvaluationOptions
from keras_xmr.evaluation.embed import EmbeddedSplit, embed_split
from keras_xmr.evaluation.reranking import (
    RerankedEvaluation,
    build_rerankers,
    evaluate_reranked,
    evaluate_reranked_folds,
)
from keras_xmr.evaluation.scoring import score_matrices
from keras_xmr.evaluation.uncertainty import Bins, bins, log_sigma, rank_correlation
from keras_xmr.judgements import Judgements
from keras_xmr.matchers import LogitMatcher, Matcher
from keras_xmr.metrics import RetrievalMetrics, evaluate_folds, evaluate_scores
from keras_xmr.retriever import Retriever

PRECISION_AT = (5, 10)


@dataclass
class MatcherEvaluation:
    """What one matcher reaches on a split.

    Attributes:
        name: Its name in the config.
        scores: Scores (images, captions) by which captions are ranked for images.
        text_to_image: Scores (images, captions) by which images are ranked for captions, if not
            by `scores`.
        metrics: Metrics against the judgements of the data set.
        folds: Their means over folds; empty without folds.
        truth: Metrics against the exhaustive truth, where the data set knows it.
    """

    name: str
    scores: np.ndarray
    metrics: RetrievalMetrics
    folds: dict[str, float] = field(default_factory=dict)
    truth: RetrievalMetrics | None = None
    text_to_image: np.ndarray | None = None


@dataclass
class Evaluation:
    """What a model reaches on a split.

    Attributes:
        split: The split.
        images: How many images it has.
        captions: How many captions.
        matchers: For each matcher; the one that the model was trained with comes first.
        embedded: The embeddings.
        judgements: What was held to be right.
        truth: The exhaustive truth, where the data set knows it.
        uncertainty_bins: For "image" and "caption" queries, recall at 1 in bins of uncertainty.
        uncertainty_of_truth: Rank correlation between the uncertainty of a caption and how many
            images it is true of; None where one of them is not known.
        reranked: For each re-ranker, what each matcher reaches with it.
    """

    split: str
    images: int
    captions: int
    matchers: list[MatcherEvaluation]
    embedded: EmbeddedSplit
    judgements: Judgements
    truth: Judgements | None = None
    uncertainty_bins: dict[str, Bins] = field(default_factory=dict)
    uncertainty_of_truth: float | None = None
    reranked: list[RerankedEvaluation] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The figures, as plain data for JSON. Metrics are fractions."""
        return {
            "split": self.split,
            "images": self.images,
            "captions": self.captions,
            "matchers": {m.name: _figures(m) for m in self.matchers},
            "reranked": {m.name: _figures(m) for m in self.reranked},
            "uncertainty": {
                side: {"log_sigma": b.log_sigma, "recall_1": b.value, "correlation": b.correlation}
                for side, b in self.uncertainty_bins.items()
            },
            "uncertainty_of_truth": self.uncertainty_of_truth,
        }


def _figures(found: MatcherEvaluation | RerankedEvaluation) -> dict[str, Any]:
    return {
        "metrics": found.metrics.summary,
        **({"folds": found.folds} if found.folds else {}),
        **({"truth": found.truth.summary} if found.truth else {}),
    }


def split_judgements(records: SplitRecords, kind: str) -> Judgements:
    """What is right in a split: the annotated pairs, or all pairs of one class.

    Args:
        records: The split.
        kind: "pairs" or "classes".
    """
    if kind == "pairs":
        return Judgements.from_pairs(records.caption_image, len(records))
    classes = np.array([labels[0] for labels in records.labels])
    return Judgements.from_classes(classes, classes[records.caption_image])


def split_truth(records: Records, split: SplitRecords) -> Judgements | None:
    """The exhaustive truth of a split, where its data set knows it."""
    path = truth_file(records.folder, split.split)
    return Judgements(scipy.sparse.load_npz(path)) if path.exists() else None


def evaluate_split(
    model: Retriever,
    records: Records,
    split: str,
    tokenizer: Tokenizer,
    config: Config,
    brief: bool = False,
) -> Evaluation:
    """Embeds a split, scores it, and computes all metrics.

    Args:
        model: The model.
        records: The records of the data set.
        split: "train", "val" or "test".
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
        brief: Whether only the model's own matcher is asked, as while it trains.
    """
    options = config.evaluation
    part = records.split(split)  # type: ignore[arg-type]
    embedded = embed_split(model, part, tokenizer, config.data.image, options.batch_size)
    judgements = split_judgements(part, config.data.judgements)
    truth = split_truth(records, part)
    matchers = {config.model.matcher.name: model.matcher}
    for choice in () if brief else options.matchers:
        matchers.setdefault(choice.name, _further_matcher(choice, model.matcher))
    found = []
    for name, matcher in matchers.items():
        scores, back = score_matrices(matcher, embedded.images, embedded.captions, options.tile)
        metrics = evaluate_scores(scores, judgements, PRECISION_AT, text_to_image=back)
        result = MatcherEvaluation(name, scores, metrics, text_to_image=back)
        if options.folds:
            result.folds = evaluate_folds(
                scores, judgements, part.caption_image, options.folds, text_to_image=back
            )
        if truth is not None:
            result.truth = evaluate_scores(scores, truth, PRECISION_AT, text_to_image=back)
        found.append(result)
    evaluation = Evaluation(split, len(part), part.num_captions, found, embedded, judgements, truth)
    _add_uncertainty(evaluation)
    if not brief:
        _add_reranked(evaluation, part.caption_image, options)
    return evaluation


def _further_matcher(choice: Choice, trained: Matcher) -> Matcher:
    """A matcher for the test only, with the trained scale and shift if it has some."""
    matcher = components("matcher")[choice.name].load()(**choice.options())
    if isinstance(matcher, LogitMatcher) and isinstance(trained, LogitMatcher):
        matcher.scale.assign(trained.scale)
        matcher.shift.assign(trained.shift)
    return matcher


def _add_reranked(
    evaluation: Evaluation, image_of_caption: np.ndarray, options: EvaluationOptions
) -> None:
    """Re-ranks the scores of every matcher with every re-ranker of the config."""
    judgements = evaluation.judgements
    for name, reranker in build_rerankers(options.rerankers).items():
        for matcher in evaluation.matchers:
            found = evaluate_reranked(
                reranker,
                (matcher.name, name),
                (matcher.scores, matcher.text_to_image),
                judgements,
                evaluation.truth,
                PRECISION_AT,
            )
            if options.folds:
                found.folds = evaluate_reranked_folds(
                    reranker,
                    (matcher.scores, matcher.text_to_image),
                    judgements,
                    image_of_caption,
                    options.folds,
                )
            evaluation.reranked.append(found)


def _add_uncertainty(evaluation: Evaluation) -> None:
    metrics = evaluation.matchers[0].metrics
    image, caption = log_sigma(evaluation.embedded.images), log_sigma(evaluation.embedded.captions)
    if image is not None:
        recall = metrics.image_to_text.values["recall_1"]
        evaluation.uncertainty_bins["image"] = bins(image, recall)
    if caption is not None:
        recall = metrics.text_to_image.values["recall_1"]
        evaluation.uncertainty_bins["caption"] = bins(caption, recall)
        if evaluation.truth is not None:
            true_of = evaluation.truth.transpose().counts()
            evaluation.uncertainty_of_truth = rank_correlation(caption, true_of)
