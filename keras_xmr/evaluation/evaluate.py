"""Evaluates a model on a split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.config.registry import Choice, components
from keras_xmr.config.reported_results import PaperOptions
from keras_xmr.config.schema import Config, EvaluationOptions, RelevanceOptions
from keras_xmr.evaluation.embed import EmbeddedSplit, embed_split
from keras_xmr.evaluation.results import MatcherEvaluation, RerankedEvaluation
from keras_xmr.evaluation.scoring import score_matrices
from keras_xmr.evaluation.sets import set_similarity
from keras_xmr.evaluation.uncertainty import Bins, bins, log_sigma, rank_correlation
from keras_xmr.judgements import (
    TRUTH,
    GroundTruth,
    Judgements,
    add_judgements,
    judge,
)
from keras_xmr.matchers import LogitMatcher, Matcher
from keras_xmr.metrics import Measured, build_metrics, measure
from keras_xmr.model.retriever import Retriever
from keras_xmr.relevance import relevance_matrix
from keras_xmr.reranking import build_rerankers, measure_reranked


@dataclass
class Evaluation:
    """What a model reaches on a split.

    Attributes:
        split: The split.
        images: How many images it has.
        captions: How many captions.
        matchers: For each matcher; the one that the model was trained with comes first.
        embedded: The embeddings; empty where scores are not those of one model.
        ground_truth: What is known of the split.
        uncertainty_bins: For "image" and "caption" queries, recall at 1 in bins of uncertainty.
        uncertainty_of_truth: Rank correlation between the uncertainty of a caption and how many
            images it is true of; None where one of them is not known.
        set_similarity: For "image" and "caption", where they are sets: how alike the embeddings
            of one item are, as a mean cosine.
        reranked: What re-rankers make of it.
        paper: The row of a paper that the config aims at.
    """

    split: str
    images: int
    captions: int
    matchers: list[MatcherEvaluation]
    embedded: EmbeddedSplit
    ground_truth: GroundTruth
    uncertainty_bins: dict[str, Bins] = field(default_factory=dict)
    uncertainty_of_truth: float | None = None
    set_similarity: dict[str, float] = field(default_factory=dict)
    reranked: list[RerankedEvaluation] = field(default_factory=list)
    paper: PaperOptions | None = None

    @property
    def judgements(self) -> Judgements:
        """What was held to be right."""
        return self.ground_truth.judgements

    @property
    def truth(self) -> Judgements | None:
        """The exhaustive truth, where the data set knows it."""
        return self.ground_truth.further.get("truth")

    @property
    def measured(self) -> dict[str, Measured]:
        """What was measured with each matcher, by its name."""
        return {m.name: m.measured for m in self.matchers}

    def as_dict(self) -> dict[str, Any]:
        """The figures, as plain data for JSON. Metrics are fractions."""
        return {
            "split": self.split,
            "images": self.images,
            "captions": self.captions,
            "matchers": {name: measured.as_dict() for name, measured in self.measured.items()},
            "reranked": {found.name: found.measured.as_dict() for found in self.reranked},
            "uncertainty": {
                side: {
                    "log_sigma": b.log_sigma,
                    "recall_1": b.value,
                    "correlation": b.correlation,
                    "interval": b.interval,
                    "informative": b.is_informative,
                }
                for side, b in self.uncertainty_bins.items()
            },
            "uncertainty_of_truth": self.uncertainty_of_truth,
            "set_similarity": self.set_similarity,
        }


def ground_truth(
    records: Records, split: SplitRecords, kind: str, further: Sequence[str] = ()
) -> GroundTruth:
    """What is known of a split.

    Args:
        records: The records of the data set.
        split: The split.
        kind: What counts as right: "pairs" or "classes".
        further: Further judgements, by name or file; see `find_judgements`.
    """
    found = GroundTruth(
        image_ids=split.image_keys,
        caption_ids=[caption.key for caption in split.captions],
        caption_image=split.caption_image,
        judgements=judge(kind, split.caption_image, split.labels, len(split)),
        kind=kind,
        texts=[caption.text for caption in split.captions],
        labels=split.labels if records.label_kind != "none" else (),
    )
    if (truth := split_truth(records, split)) is not None:
        found.further[TRUTH] = truth
    add_judgements(found, further)
    return found


def split_truth(records: Records, split: SplitRecords) -> Judgements | None:
    """The exhaustive truth of a split, where its data set knows it."""
    path = records.truth(split.split)
    return None if path is None else Judgements(scipy.sparse.load_npz(path))


def evaluate_split(
    model: Retriever,
    records: Records,
    split: Split,
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
        brief: Whether only the model's own matcher is asked, about the whole split alone, as while
            it trains.
    """
    options = config.evaluation
    part = records.split(split)
    embedded = embed_split(model, part, tokenizer, config.data.image, options.batch_size)
    matchers = {config.model.matcher.name: model.matcher}
    for choice in () if brief else options.matchers:
        matchers.setdefault(choice.name, _further_matcher(choice, model))
    matrices = (
        (name, *score_matrices(matcher, embedded.images, embedded.captions, options.tile))
        for name, matcher in matchers.items()
    )
    return evaluate_matrices(matrices, records, part, config, embedded, brief)


def evaluate_matrices(
    matrices: Iterable[tuple[str, np.ndarray, np.ndarray | None]],
    records: Records,
    part: SplitRecords,
    config: Config,
    embedded: EmbeddedSplit | None = None,
    brief: bool = False,
) -> Evaluation:
    """Computes all metrics of scores of a split.

    Args:
        matrices: Name, scores (images, captions), and those that rank images if they are others.
        records: The records of the data set.
        part: The split.
        config: What is measured, and what is right.
        embedded: The embeddings that were scored, for their uncertainty; None if there are none.
        brief: Whether only metrics that are quickly computed are asked for, as while one trains.
    """
    options = config.evaluation
    known = ground_truth(records, part, config.data.judgements, () if brief else options.judgements)
    known.measures = {} if brief else build_metrics(options.metrics)
    if brief:
        known.labels = ()
    elif options.semantic_precision:
        _add_relevance(known, config.relevance)
    found = []
    folds = 0 if brief else options.folds
    for name, scores, back in matrices:
        measured = measure(scores, known, folds, text_to_image=back)
        found.append(MatcherEvaluation(name, scores, measured, back))
    embedded = embedded or EmbeddedSplit({}, {})
    evaluation = Evaluation(
        part.split, len(part), part.num_captions, found, embedded, known, paper=config.paper
    )
    _add_uncertainty(evaluation)
    _add_set_similarity(evaluation)
    if not brief:
        _add_reranked(evaluation, options)
    return evaluation


def _add_relevance(known: GroundTruth, options: RelevanceOptions) -> None:
    """The relevance that ASP goes by, and that of the evaluators which were released with it."""
    captions = (known.texts, known.caption_image, len(known.image_ids))
    known.relevance = relevance_matrix(*captions, options.measure, options.tokenizer).dense()
    if options.measure != "tf_idf":
        by_words = relevance_matrix(*captions, "tf_idf", options.tokenizer)
        known.further_relevance["tf_idf"] = by_words.dense()


def _further_matcher(choice: Choice, model: Retriever) -> Matcher:
    """A matcher for the test only, with what was trained of it if it has some."""
    trained = model.matcher
    matcher = components("matcher")[choice.name].load()(**choice.options())
    matcher.follow(model.objective.losses_)
    if isinstance(matcher, LogitMatcher) and isinstance(trained, LogitMatcher):
        matcher.scale.assign(trained.scale)
        matcher.shift.assign(trained.shift)
    return matcher


def _add_reranked(evaluation: Evaluation, options: EvaluationOptions) -> None:
    """Re-ranks the scores of every matcher with every re-ranker of the config."""
    for name, reranker in build_rerankers(options.rerankers).items():
        for matcher in evaluation.matchers:
            measured = measure_reranked(
                reranker,
                matcher.scores,
                evaluation.ground_truth,
                options.folds,
                matcher.text_to_image,
            )
            evaluation.reranked.append(RerankedEvaluation(matcher.name, name, measured))


def _add_set_similarity(evaluation: Evaluation) -> None:
    for side in ("image", "caption"):
        similarity = set_similarity(getattr(evaluation.embedded, f"{side}s"))
        if similarity is not None:
            evaluation.set_similarity[side] = similarity


def _add_uncertainty(evaluation: Evaluation) -> None:
    metrics = evaluation.matchers[0].metrics
    image, caption = log_sigma(evaluation.embedded.images), log_sigma(evaluation.embedded.captions)
    if image is not None:
        recall = metrics.image_to_text.values["recall_1"]
        evaluation.uncertainty_bins["image"] = bins(image, recall)
    if caption is not None:
        recall = metrics.text_to_image.values["recall_1"]
        evaluation.uncertainty_bins["caption"] = bins(
            caption, recall, independent=evaluation.images
        )
        if evaluation.truth is not None:
            true_of = evaluation.truth.transpose().counts()
            evaluation.uncertainty_of_truth = rank_correlation(caption, true_of)
