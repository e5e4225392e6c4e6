"""Calibrates answer sets and verdicts on the validation split of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from data_pipelines.progress import Progress
from data_pipelines.records import Records, SplitRecords
from data_pipelines.vectors import Arrays, chunks, concatenate, select, split_items
from keras_xmr.evaluation.evaluate import ground_truth
from keras_xmr.evaluation.results import EmbeddedSplit
from keras_xmr.index.answer_sets import AnswerSets, calibrate, standardise
from keras_xmr.index.query_reranking import Reranking, tune
from keras_xmr.index.run_model import RunModel
from keras_xmr.index.verdict import (
    FEWEST,
    SimilarityScale,
    VerdictModel,
    calibrate_verdict,
    caption_similarity,
    likely_right,
    unit_vectors,
)
from keras_xmr.index.vocabulary import Vocabulary, short_queries, split_words
from keras_xmr.uncertainty.sigma import bins, log_sigma

_LOGGER = logging.getLogger(__name__)

REFERENCE = 256
"""Number of training photos in the reference of scores."""

CAPTIONS = 500
"""Number of stored training captions, for re-ranking and uncertainty."""

_MOST = 1000
"""Maximum number of photos of the validation split, drawn with a seed."""

_TRIED = 20
"""Number of captions of which the shortest is the example."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Results of the calibration on the validation split, and its data of the training split.

    Attributes:
        answer_sets: The cut-offs.
        verdict: The model of how many results are right, and whether any is; None for too few
            photos, or if the other right photos of captions cannot be inferred.
        vocabulary: The words of the captions of training.
        reference: Embeddings of training photos.
        captions: Embeddings of training captions.
        log_sigma: Uncertainties of these, ascending; None if they are not informative.
        reranking: The re-ranking of queries; None if it would take too long.
    """

    answer_sets: AnswerSets
    verdict: VerdictModel | None
    vocabulary: Vocabulary
    reference: Arrays
    captions: Arrays
    log_sigma: list[float] | None
    reranking: Reranking | None


def has_validation(model: RunModel) -> bool:
    """Whether the run has records with a validation split."""
    data = model.config.data
    return data.is_prepared and "val" in Records.open(data.records).splits


def example_caption(model: RunModel) -> str:
    """A short caption of the training split; empty without the records of the run."""
    data = model.config.data
    if not data.is_prepared:
        return ""
    return min(Records.open(data.records).split("train").texts[:_TRIED], key=len, default="")


def calibrate_run(model: RunModel) -> Calibration:
    """Calibrates the answer sets of a run.

    Args:
        model: Its model.
    """
    return calibrate_split(model, model.records, "val")


def calibrate_split(model: RunModel, records: Records, split: Any) -> Calibration:
    """Calibrates on a split."""
    queries = SplitQueries.embed(model, records, split)
    reference, captions = embed_reference(model, records), embed_stored_captions(model, records)
    scores, right = queries.scores(model), queries.right
    against = model.score(reference, queries.captions).T
    answer_sets = calibrate(standardise(scores, against), right, queries.groups)
    sigma = log_sigma(captions) if _is_informative(queries, scores) else None
    verdict = calibrate_split_verdict(model, queries, scores, reference)
    if verdict is None:
        _LOGGER.warning(
            "searches do not estimate how many photos are right: that takes %d photos with more "
            "than one caption each for validation, and there are %d",
            FEWEST,
            np.count_nonzero(np.bincount(queries.groups) > 1),
        )
    return Calibration(
        answer_sets,
        verdict,
        Vocabulary.count(records.split("train").texts),
        reference,
        captions,
        None if sigma is None else np.sort(sigma).tolist(),
        # Regions and words are compared one by one, which takes seconds for one query.
        None
        if model.kind == "tokens"
        else tune(scores, model.score(queries.images, captions), right),
    )


def calibrate_split_verdict(
    model: RunModel, queries: SplitQueries, scores: np.ndarray, reference: Arrays
) -> VerdictModel | None:
    """Calibrates the verdict on a split.

    Args:
        model: The model.
        queries: The split.
        scores: Its scores, (captions, photos).
        reference: The photos of the reference.
    """
    texts, photo_of = queries.texts, queries.groups
    against = model.score(reference, queries.captions).T
    if queries.is_complete:
        right, wrong = queries.right.astype(np.float32), ~queries.right
    else:
        labels = _likely_right(queries)
        if labels is None:
            return None
        short = short_queries(texts, photo_of)
        embedded = embed_texts(model, short.texts)
        scores = np.concatenate(
            [scores, *(model.score(queries.images, p).T for p in split_items(embedded, 256))]
        )
        against = np.concatenate([against, model.score(reference, embedded).T])
        right, wrong = (
            np.concatenate(pair) for pair in zip(labels, (short.right, short.wrong), strict=True)
        )
        texts, photo_of = [*texts, *short.texts], np.concatenate([photo_of, short.photos])
    is_caption = np.arange(len(texts)) < len(queries.texts)
    words = np.array([len(split_words(text)) for text in texts])
    return calibrate_verdict(
        scores, against, words, right, wrong, photo_of, is_caption, queries.is_complete
    )


def _likely_right(queries: SplitQueries) -> tuple[np.ndarray, np.ndarray] | None:
    """Right, and surely wrong, photos by captions; None if photos have one caption each."""
    photos = queries.right.shape[1]
    if photos < FEWEST or (np.bincount(queries.groups, minlength=photos) < 1).any():
        return None
    order = np.argsort(queries.groups, kind="stable")
    vectors, photo_of = unit_vectors(_sentences(queries.captions)), queries.groups[order]
    scale = SimilarityScale.from_captions(vectors[order], photo_of)
    if scale is None:
        return None
    similarity = caption_similarity(vectors, vectors[order], photo_of)
    right, wrong = likely_right(similarity, scale)
    return np.maximum(right, queries.right), wrong & ~queries.right


def _sentences(captions: Arrays) -> np.ndarray:
    """A vector per caption, for every kind of embedding."""
    if "mean" in captions:
        return captions["mean"]
    if "points" in captions:
        return np.asarray(captions["points"].mean(axis=1))
    weights = captions["mask"].astype(np.float32)[:, :, None]
    return np.asarray((captions["tokens"] * weights).sum(axis=1) / weights.sum(axis=1))


def embed_reference(model: RunModel, records: Records) -> dict[str, np.ndarray]:
    """Embeddings of photos of the training split, drawn with a seed."""
    images = draw(len(records.split("train")), REFERENCE)
    return embed_split_images(model, records, "train", images)


def embed_stored_captions(model: RunModel, records: Records) -> dict[str, np.ndarray]:
    """Embeddings of captions of the training split, drawn with a seed."""
    train = records.split("train")
    return _embed_captions(model, train, draw(train.num_captions, CAPTIONS))


@dataclass(frozen=True, eq=False)
class SplitQueries:
    """Embedded photos of a split, and its captions as queries.

    Attributes:
        images: Embeddings of the photos.
        captions: Embeddings of the captions.
        right: Bool (captions, photos), by the exhaustive truth if it is known.
        annotated: The same by the judgements of the config.
        groups: The column of the photo that each caption was written for (captions,).
        texts: The captions.
        is_complete: Whether the truth is exhaustive.
    """

    images: Arrays
    captions: Arrays
    right: np.ndarray
    annotated: np.ndarray
    groups: np.ndarray
    texts: list[str]
    is_complete: bool

    @classmethod
    def embed(
        cls,
        model: RunModel,
        records: Records,
        split: Any,
        embedded: EmbeddedSplit | None = None,
    ) -> SplitQueries:
        """Embeds a split, or a part of a large one; `embedded` has its embeddings, if known."""
        part: SplitRecords = records.split(split)
        images = draw(len(part), _MOST)
        captions = np.flatnonzero(np.isin(part.caption_image, images))
        known = ground_truth(records, part, model.config.data.judgements)
        truth = known.extra.get("truth", known.judgements)
        right, annotated = (
            each.grades[images][:, captions].toarray().T > 0 for each in (truth, known.judgements)
        )
        words = [part.texts[int(c)] for c in captions]
        if embedded is not None:
            photos, texts = select(embedded.images, images), select(embedded.captions, captions)
        else:
            photos = embed_split_images(model, records, split, images)
            texts = _embed_captions(model, part, captions)
        groups = np.searchsorted(images, part.caption_image[captions])
        return cls(photos, texts, right, annotated, groups, words, "truth" in known.extra)

    def scores(self, model: RunModel) -> np.ndarray:
        """Scores (captions, photos)."""
        parts = [model.score(self.images, p).T for p in split_items(self.captions, 256)]
        return np.concatenate(parts)


def _is_informative(queries: SplitQueries, scores: np.ndarray) -> bool:
    """Whether more uncertain captions fail significantly more often.

    By the annotated pairs, as in reports: a vague caption matches many photos.
    """
    sigma = log_sigma(queries.captions)
    if sigma is None:
        return False
    first = np.argmax(scores, axis=1)
    hit = queries.annotated[np.arange(len(first)), first].astype(float)
    return bins(sigma, hit, independent=len(np.unique(queries.groups))).is_informative


def draw(count: int, most: int) -> np.ndarray:
    """All numbers below a count, or `most` of them drawn with a seed, ascending."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def embed_split_images(
    model: RunModel, records: Records, split: Any, images: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Embeddings of photos of a split, by their numbers there; default all of them."""
    part = records.split(split)
    images = np.arange(len(part)) if images is None else images
    embed, doing = partial(model.embed_records, part), f"  embedding photos of {split}"
    return embed_in_batches(embed, images, model, doing, "photos")


def _embed_captions(
    model: RunModel, part: SplitRecords, captions: np.ndarray
) -> dict[str, np.ndarray]:
    """Embeddings of captions of a split, by stored features if there are any."""
    features = part.caption_features
    if features is None:
        return embed_texts(model, [part.texts[int(caption)] for caption in captions])
    return embed_in_batches(
        lambda batch: model.embed_caption_features(features.read(batch)), captions, model
    )


def embed_texts(model: RunModel, texts: list[str]) -> dict[str, np.ndarray]:
    """Embeds texts, with a row per text."""
    return embed_in_batches(model.embed_texts, texts, model, "  embedding captions", "captions")


def embed_in_batches(
    embed: Callable[[Any], dict[str, np.ndarray]],
    items: Any,
    model: RunModel,
    description: str = "",
    unit: str = "items",
) -> dict[str, np.ndarray]:
    """Embeds items in batches of the size of evaluation; a description shows the progress."""
    size, parts = model.config.evaluation.batch_size, []
    with Progress(description, len(items), unit) if description else nullcontext() as bar:
        for batch in chunks(items, size):
            parts.append(embed(batch))
            if bar is not None:
                bar.update(len(batch))
    return concatenate(parts)


@dataclass(frozen=True, eq=False)
class ScoredSplit:
    """Captions of a split that have a right photo there, scored with all of its photos.

    Attributes:
        scores: Standardised scores (captions, photos).
        right: Bool (captions, photos).
        groups: The photo that each caption was written for (captions,).
    """

    scores: np.ndarray
    right: np.ndarray
    groups: np.ndarray

    @classmethod
    def embed(
        cls,
        model: RunModel,
        records: Records,
        split: Any,
        reference: Arrays | None = None,
        embedded: EmbeddedSplit | None = None,
    ) -> ScoredSplit:
        """Embeds and scores a split.

        Args:
            model: The model.
            records: The records.
            split: The split.
            reference: The result of `embed_reference`, if known.
            embedded: The embeddings of the whole split, if known.
        """
        reference = embed_reference(model, records) if reference is None else reference
        queries = SplitQueries.embed(model, records, split, embedded)
        scores = standardise(queries.scores(model), model.score(reference, queries.captions).T)
        return cls.answerable(scores, queries.right, queries.groups)

    @classmethod
    def answerable(cls, scores: np.ndarray, right: np.ndarray, groups: np.ndarray) -> ScoredSplit:
        """Selects the captions with a right photo."""
        answered = right.any(axis=1)
        return cls(scores[answered], right[answered], groups[answered])

    def calibrated(self) -> AnswerSets:
        """The cut-offs by this split."""
        return calibrate(self.scores, self.right, self.groups)

    def mean_per_photo(self, happened: np.ndarray) -> np.ndarray:
        """The share of the captions of each photo for which something happened (photos,).

        Captions of one photo are not independent; statistics are means over photos.
        """
        return np.array([happened[self.groups == g].mean() for g in np.unique(self.groups)])


@dataclass(frozen=True, eq=False)
class Coverage:
    """Coverage of answer sets on a split.

    Attributes:
        confidence: The guaranteed share of captions whose set has `share` of their right photos.
        kept_by_photo: The share of captions whose set has it, per photo (photos,).
        share: The guaranteed share of the right photos.
        recalls: The share of the right photos of each caption in its set (captions,).
        sizes: The number of photos in the set of each caption (captions,).
        gallery: The number of photos of the split.
    """

    confidence: float
    kept_by_photo: np.ndarray
    share: float
    recalls: np.ndarray
    sizes: np.ndarray
    gallery: int

    @property
    def kept(self) -> float:
        """The share of captions whose set has the guaranteed share, as a mean over photos."""
        return float(self.kept_by_photo.mean())


def measure_coverage(
    model: RunModel, records: Records, split: Any, embedded: EmbeddedSplit | None = None
) -> Coverage:
    """Calibrates on val, and measures the coverage on a split.

    Args:
        model: The model.
        records: The records that it was trained on.
        split: The split of the queries.
        embedded: The embeddings of that split, if known.
    """
    reference = embed_reference(model, records)
    sets = ScoredSplit.embed(model, records, "val", reference).calibrated()
    return coverage(sets, ScoredSplit.embed(model, records, split, reference, embedded))


def coverage(sets: AnswerSets, queries: ScoredSplit) -> Coverage:
    """Measures the coverage of answer sets on the captions of a split."""
    within = queries.scores >= sets.cutoff
    recalls = (within & queries.right).sum(axis=1) / queries.right.sum(axis=1)
    kept = queries.mean_per_photo(recalls >= sets.share - 1e-9)
    gallery = queries.scores.shape[1]
    return Coverage(sets.confidence, kept, sets.share, recalls, within.sum(axis=1), gallery)
