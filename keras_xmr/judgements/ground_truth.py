"""The ground truth of a split: ids and order of images and captions, judgements, labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse

from keras_xmr.judgements.relation import Judgements, multi_hot


@dataclass(eq=False)
class GroundTruth:
    """The ground truth of the rows and columns of a score matrix.

    Attributes:
        image_ids: The id of each image, in the order of the rows.
        caption_ids: The id of each caption, in the order of the columns.
        caption_image: The image that each caption was written for (the first, if there are
            several), int64 (captions,).
        judgements: The relevant pairs.
        kind: Their source: the annotated "pairs", or the "classes" of the images.
        texts: The captions, or empty strings.
        labels: The labels of each image, as numbers from 0; empty tuples without labels.
        extra: Further judgements, by name.
        relevance: Semantic relevance (images, captions), or None.
        extra_relevance: The same by further measures, by their names.
        measures: Further metrics, by name: functions of scores (queries, candidates) and judgements
            that return a value per query; see `keras_xmr.metrics.QueryMetric`.
    """

    image_ids: Sequence[str]
    caption_ids: Sequence[str]
    caption_image: np.ndarray
    judgements: Judgements
    kind: str = "pairs"
    texts: Sequence[str] = ()
    labels: Sequence[tuple[int, ...]] = ()
    extra: dict[str, Judgements] = field(default_factory=dict)
    relevance: np.ndarray | None = None
    extra_relevance: dict[str, np.ndarray] = field(default_factory=dict)
    measures: Mapping[str, Callable[[np.ndarray, Judgements], np.ndarray]] = field(
        default_factory=dict
    )

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        return len(self.image_ids), len(self.caption_ids)

    def select(self, images: np.ndarray, captions: np.ndarray) -> GroundTruth:
        """The ground truth of some of the images and some of their captions.

        Args:
            images: Numbers of the images, int (images,), ascending.
            captions: Numbers of the captions, int (captions,).
        """
        relevance, members = self.relevance, np.ix_(images, captions)
        return GroundTruth(
            image_ids=[self.image_ids[i] for i in images],
            caption_ids=[self.caption_ids[i] for i in captions],
            caption_image=np.searchsorted(images, self.caption_image[captions]),
            judgements=self.judgements.select(images, captions),
            kind=self.kind,
            texts=[self.texts[i] for i in captions] if self.texts else (),
            labels=[self.labels[i] for i in images] if self.labels else (),
            extra={name: j.select(images, captions) for name, j in self.extra.items()},
            relevance=None if relevance is None else relevance[members],
            extra_relevance={name: r[members] for name, r in self.extra_relevance.items()},
            measures=self.measures,
        )

    @property
    def has_label_vectors(self) -> bool:
        """True if images have sets of labels, rather than one class each."""
        return any(len(of_image) > 1 for of_image in self.labels)

    def label_vectors(self) -> scipy.sparse.csr_array:
        """Label vectors of the images, sparse (images, labels)."""
        count = 1 + max((max(of_image) for of_image in self.labels if of_image), default=-1)
        return multi_hot(self.labels, count)


def judge(
    kind: str, caption_image: np.ndarray, labels: Sequence[tuple[int, ...]], num_images: int
) -> Judgements:
    """Judgements from the annotated pairs, or from all pairs of one class.

    Args:
        kind: "pairs" or "classes".
        caption_image: The image that each caption was written for, int (captions,).
        labels: The class of each image, as a tuple of one number; for "classes" alone.
        num_images: Number of images.
    """
    if kind == "pairs":
        return Judgements.from_pairs(caption_image, num_images)
    classes = np.array([of_image[0] for of_image in labels])
    return Judgements.from_classes(classes, classes[caption_image])
