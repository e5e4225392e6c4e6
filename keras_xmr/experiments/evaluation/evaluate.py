"""Evaluates a model on a split."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

import scipy.sparse

from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.build import further_matcher
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions, LabelFiles
from keras_xmr.experiments.config.fidelity import fidelity_of
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.scoring import check_time, fits_in_memory, score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import EmbeddedSplit, embed_split
from keras_xmr.experiments.evaluation.split_evaluation import (
    Evaluation,
    add_relevance,
    evaluate_split_scores,
)
from keras_xmr.judgements import (
    TRUTH,
    GroundTruth,
    JudgementOptions,
    Judgements,
    add_judgements,
    judge,
)
from keras_xmr.judgements.ground_truth import read_image_ids, read_labels
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.metrics.query_metrics import build_metrics
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.registry import components
from keras_xmr.reranking import build_rerankers


def ground_truth(
    records: Records,
    split: SplitRecords,
    rule: str,
    extra: Sequence[str | JudgementOptions] = (),
) -> GroundTruth:
    """Returns the ground truth of a split.

    Args:
        records: The records of the data set.
        split: The split.
        rule: The kind of judgements: "pairs" or "classes".
        extra: Further judgements; see `add_judgements`.
    """
    known = GroundTruth(
        image_ids=split.image_keys,
        caption_ids=split.caption_keys,
        caption_image=split.caption_image,
        judgements=judge(rule, split.caption_image, split.labels, len(split)),
        rule=rule,
        texts=split.texts,
        labels=split.labels if records.label_kind != "none" else (),
    )
    if (path := records.truth(split.split)) is not None:
        known.extra[TRUTH] = Judgements(scipy.sparse.load_npz(path))
    add_judgements(known, extra)
    return known


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
        brief: Whether only the model's matcher is evaluated, on the whole split alone, as during
            training.
    """
    if brief:
        config = _brief(config)
    options = config.evaluation
    split_records = records.split(split)
    dense = plan_memory(config, records, split_records)
    embedded = embed_split(model, split_records, tokenizer, config)
    matchers = {config.model.matcher.name: model.matcher}
    for choice in options.matchers:
        further = further_matcher(choice, model.matcher, model.objective.losses_)
        matchers.setdefault(choice.name, further)
    tiles = {
        name: score_tiles(matcher, embedded.images, embedded.captions, options.tile)
        for name, matcher in matchers.items()
    }
    for name, matrices in () if brief else tiles.items():
        limits = (options.time_limit, options.folds)
        check_time(name, matrices, split_records.caption_image, not dense, *limits)
    seconds: dict[str, float] = {}

    def scored(name: str, matrices: ScoreMatrices) -> ScoreMatrices:
        begun = time.perf_counter()
        found = matrices.dense()
        seconds[name] = time.perf_counter() - begun
        return found

    scores = ((name, scored(name, found) if dense else found) for name, found in tiles.items())
    evaluation = evaluate_matrices(scores, records, split_records, config, embedded)
    for matcher in evaluation.matchers:
        matcher.seconds = seconds.get(matcher.name)
    return evaluation


_LOGGER = logging.getLogger(__name__)


def _brief(config: Config) -> Config:
    """Returns the config of a validation during training: the figures of one matcher that are
    quick.
    """
    options = EvaluationOptions(
        batch_size=config.evaluation.batch_size,
        tile=config.evaluation.tile,
        memory_budget=config.evaluation.memory_budget,
        semantic_precision=config.train.validate_semantic_precision,
        plausible_match=False,
    )
    return config.model_copy(update={"evaluation": options})


def plan_memory(config: Config, records: Records, split_records: SplitRecords) -> bool:
    """Checks if the score matrices of a split fit in memory; see `fits_in_memory`.

    Raises:
        UserError: If they do not fit and an option needs whole matrices.
    """
    options = config.evaluation
    names = {config.model.matcher.name, *(choice.name for choice in options.matchers)}
    matrices = sum(1 + components("matcher")[name].CONTRACT.directed for name in names)
    labels = records.label_kind == "set" or (
        options.labels is not None and split_records.split == "test"
    )
    return fits_in_memory(
        options, (len(split_records), split_records.num_captions), matrices, labels
    )


def evaluate_matrices(
    scores: Iterable[tuple[str, ScoreMatrices]],
    records: Records,
    split_records: SplitRecords,
    config: Config,
    embedded: EmbeddedSplit | None = None,
) -> Evaluation:
    """Computes all metrics of scores of a split.

    Args:
        scores: Names and scores; the verdict is about the first.
        records: The records of the data set.
        split_records: The split.
        config: The config, with metrics and judgements.
        embedded: The embeddings that were scored, for their uncertainty; None without embeddings.
    """
    options = config.evaluation
    extra = config.judgements_of(split_records.split)
    known = ground_truth(records, split_records, config.data.judgements, extra)
    known.measures = build_metrics(options.metrics)
    if options.labels is not None and split_records.split == "test":
        known.labels = labels_of_files(options.labels, known)
    if known.has_label_vectors and not options.plausible_match:
        known.labels = ()
    if options.semantic_precision:
        add_relevance(known, config.relevance)
    rerankers = build_rerankers(options.rerankers)
    evaluation = evaluate_split_scores(split_records.split, scores, known, options.folds, rerankers)
    evaluation.paper, evaluation.fidelity = config.paper, fidelity_of(config)
    evaluation.is_trained = not is_as_published(config)
    if embedded is not None:
        evaluation.embedded = embedded
    return evaluation


def labels_of_files(files: LabelFiles, known: GroundTruth) -> Sequence[tuple[int, ...]]:
    """Returns the labels of the images of a split; the known ones where optional files are
    missing.
    """
    if files.optional and files.missing:
        _LOGGER.warning(
            "PMRP is not measured, as it needs the labels of the images: %s does not exist. Put it "
            "there, or set evaluation.labels to other files",
            files.missing,
        )
        return known.labels
    ids = known.image_ids
    if files.ids is not None:
        ids = read_image_ids(files.ids, len(ids))
    return read_labels(files.instances, ids)
