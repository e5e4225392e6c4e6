"""The ground truth of a split: images and captions, judgements and labels; and files of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from keras_xmr.judgements.formats import read_csv
from keras_xmr.judgements.reading import JudgementsError, add_grade, reading
from keras_xmr.judgements.relation import Judgements, multi_hot
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.json_entries import (
    fault,
    identifier,
    is_text,
    join_lists,
    karpathy_keys,
    parse_json,
    string,
)

_LABELS = 1_000_000


@dataclass(eq=False)
class GroundTruth:
    """The ground truth of the rows and columns of a score matrix.

    Attributes:
        image_ids: The id of each image, in the order of the rows.
        caption_ids: The id of each caption, in the order of the columns.
        caption_image: The image that each caption was written for (the first, if there are
            several), int64 (captions,).
        judgements: The relevant pairs.
        rule: The source of the relevant pairs: annotated "pairs", or the "classes" of the images.
        texts: The captions, or empty strings.
        labels: The labels of each image, as numbers from 0; empty tuples without labels.
        extra: Further judgements, by name.
        relevance: Semantic relevance (images, captions), or None.
        extra_relevance: The same by further measures, by their names.
        has_sets_of_labels: Whether labels are sets though no image has several, as in a fold.
        measures: Further metrics, by name: functions of scores (queries, candidates) and judgements
            that return a value per query; see `keras_xmr.metrics.QueryMetric`.
    """

    image_ids: Sequence[str]
    caption_ids: Sequence[str]
    caption_image: np.ndarray
    judgements: Judgements
    rule: str = "pairs"
    texts: Sequence[str] = ()
    labels: Sequence[tuple[int, ...]] = ()
    extra: dict[str, Judgements] = field(default_factory=dict)
    relevance: np.ndarray | None = None
    extra_relevance: dict[str, np.ndarray] = field(default_factory=dict)
    measures: Mapping[str, Callable[[np.ndarray, Judgements], np.ndarray]] = field(
        default_factory=dict
    )
    has_sets_of_labels: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        return len(self.image_ids), len(self.caption_ids)

    def select(self, images: np.ndarray, captions: np.ndarray) -> GroundTruth:
        """Returns the ground truth of some of the images and some of their captions.

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
            rule=self.rule,
            texts=[self.texts[i] for i in captions] if self.texts else (),
            labels=[self.labels[i] for i in images] if self.labels else (),
            extra={name: j.select(images, captions) for name, j in self.extra.items()},
            relevance=None if relevance is None else relevance[members],
            extra_relevance={name: r[members] for name, r in self.extra_relevance.items()},
            measures=self.measures,
            has_sets_of_labels=self.has_label_vectors,
        )

    @property
    def has_label_vectors(self) -> bool:
        """True if images have sets of labels, rather than one class each."""
        several = (len(of_image) > 1 for of_image in self.labels)
        return bool(self.labels) and (self.has_sets_of_labels or any(several))

    def label_vectors(self) -> scipy.sparse.csr_array:
        """Returns label vectors of the images, sparse (images, labels)."""
        count = 1 + max((max(of_image) for of_image in self.labels if of_image), default=-1)
        return multi_hot(self.labels, count)


def judge(
    rule: str, caption_image: np.ndarray, labels: Sequence[tuple[int, ...]], num_images: int
) -> Judgements:
    """Returns judgements from the annotated pairs, or from all pairs of one class.

    Args:
        rule: "pairs" or "classes".
        caption_image: The image that each caption was written for, int (captions,).
        labels: The class of each image, as a tuple of one number; for "classes" alone.
        num_images: Number of images.
    """
    if rule == "pairs":
        return Judgements.from_pairs(caption_image, num_images)
    classes = np.array([of_image[0] for of_image in labels])
    return Judgements.from_classes(classes, classes[caption_image])


def check_some_right(path: Path, judgements: Judgements) -> Judgements:
    """Refuses judgements without a relevant pair: every metric of them would be 0.

    Raises:
        JudgementsError: If no pair is relevant.
    """
    if not judgements.grades.nnz:
        raise JudgementsError(
            f"{path} has no relevant pair, so nothing can be measured; it needs rows with a grade "
            "above 0, or no column grade"
        )
    return judgements


def read_ground_truth(path: Path, split: str | None = None) -> GroundTruth:
    """Reads images and captions, their order, and their pairs.

    The formats, which are recognised by their content:

    * captions as COCO has them (`captions_val2014.json`): images in the order of `images`,
      captions in the order of `annotations`;
    * a split file of Karpathy (`dataset_coco.json`): the images of one split in the order of
      the file, captions in the order of their images;
    * CSV with the columns `image,caption` and perhaps `grade`: images and captions in the order
      in which they first occur. A caption of several rows is one caption, relevant for several
      images; a column `caption_id` distinguishes equal captions.

    Args:
        path: The file.
        split: The split of a Karpathy file: train, restval, val or test; test by default.

    Raises:
        JudgementsError: If the file has another format, or contradicts itself.
    """
    if path.suffix == ".csv":
        truth = _parse_csv(path)
    else:
        content = _json(path)
        if not isinstance(content.get("images"), list):
            raise JudgementsError(
                f"{path} has no list 'images'; expected captions in COCO's format, or a split "
                "file of Karpathy"
            )
        try:
            if "annotations" in content:
                truth = _parse_coco(path, content)
            else:
                return _parse_karpathy(path, content, split or "test")
        except (KeyError, TypeError, AttributeError) as error:
            raise JudgementsError(f"{path} has a malformed entry: {fault(error)}") from None
    if split is not None:
        raise JudgementsError(f"{path} has no splits; remove --split")
    return truth


def write_ground_truth(path: Path, truth: GroundTruth) -> None:
    """Writes a ground truth for `read_ground_truth`.

    The layout is as in COCO's caption files, with the labels of each image, and with
    `judgements`: "pairs", or "classes" if all captions of a class are relevant.
    """
    labels = truth.labels or [()] * len(truth.image_ids)
    captions = zip(truth.caption_ids, truth.caption_image.tolist(), truth.texts, strict=True)
    content = {
        "judgements": truth.rule,
        "images": [
            {"id": id_, **({"labels": list(of_image)} if of_image else {})}
            for id_, of_image in zip(truth.image_ids, labels, strict=True)
        ],
        "annotations": [
            {"id": id_, "image_id": truth.image_ids[image], "caption": text}
            for id_, image, text in captions
        ],
    }
    atomic_write(path, json.dumps(content, ensure_ascii=False).encode("utf-8"))


def read_image_ids(path: Path, images: int) -> list[str]:
    """Reads the ids of images, one per line, or one per line of each caption, as SCAN has them.

    Args:
        path: A file such as `testall_ids.txt`.
        images: Number of images.

    Raises:
        JudgementsError: If it cannot be read, or has another number of lines.
    """
    with reading(path, "text with an id per line"):
        ids = path.read_text("utf-8").split()
    if not ids or len(ids) % images:
        raise JudgementsError(
            f"{path} has {len(ids):,} ids; expected one for each of {images:,} images, or for each "
            "of their captions"
        )
    return ids[:: len(ids) // images]


def read_labels(path: Path, image_ids: Sequence[str]) -> list[tuple[int, ...]]:
    """Reads the labels of images from instance annotations as COCO has them.

    Args:
        path: A file such as `instances_val2014.json`.
        image_ids: The ids of the images.

    Returns:
        The categories of each image, numbered from 0 in the order of their ids; empty for an
        image without annotated objects.

    Raises:
        JudgementsError: If the file has another format, or none of the images.
    """
    content = _json(path)
    try:
        ids = sorted(category["id"] for category in content["categories"])
        number = {category: place for place, category in enumerate(ids)}
        labels: dict[str, set[int]] = {id_: set() for id_ in image_ids}
        known = 0
        for annotation in content["annotations"]:
            if (of_image := labels.get(str(annotation["image_id"]))) is not None:
                of_image.add(number[annotation["category_id"]])
                known += 1
    except (KeyError, TypeError) as error:
        raise JudgementsError(
            f"{path} is not a file of instance annotations: {fault(error)}"
        ) from None
    if not known:
        raise JudgementsError(
            f"{path} annotates none of the images, which are such as {image_ids[0]!r}"
        )
    return [tuple(sorted(labels[id_])) for id_ in image_ids]


def _json(path: Path) -> dict[str, Any]:
    with reading(path, "JSON (CSV needs a name that ends in .csv)"):
        content = join_lists(parse_json(path.read_bytes()))
    if not isinstance(content, dict):
        raise JudgementsError(f"{path} holds a {type(content).__name__}, not an object")
    return content


def _parse_coco(path: Path, content: dict[str, Any]) -> GroundTruth:
    images, annotations = content["images"], content["annotations"]
    image_ids = _ids(path, "image", (image["id"] for image in images))
    caption_ids = _ids(path, "caption", (a["id"] for a in annotations))
    number = {id_: place for place, id_ in enumerate(image_ids)}
    owner = []
    for annotation in annotations:
        image = str(annotation["image_id"])
        if image not in number:
            raise JudgementsError(
                f"{path}: caption {annotation['id']!r} belongs to image {image!r}, which is not "
                "in the list 'images'"
            )
        owner.append(number[image])
    rule = content.get("judgements", "pairs")
    labels = [_labels(image.get("labels", ())) for image in images]
    if rule not in ("pairs", "classes") or (rule == "classes" and not all(labels)):
        raise JudgementsError(
            f"{path}: 'judgements' is {rule!r}; it should be 'pairs', or 'classes' with 'labels' "
            "in every image"
        )
    caption_image = np.array(owner, np.int64)
    return GroundTruth(
        image_ids,
        caption_ids,
        caption_image,
        judge(rule, caption_image, labels, len(image_ids)),
        rule,
        [_text(annotation["caption"]) for annotation in annotations],
        labels if any(labels) else (),
    )


def _parse_karpathy(path: Path, content: dict[str, Any], split: str) -> GroundTruth:
    keys = karpathy_keys(content["images"])
    chosen = [number for number, image in enumerate(content["images"]) if image["split"] == split]
    images = [content["images"][number] for number in chosen]
    if not images:
        splits = sorted({image["split"] for image in content["images"]})
        raise JudgementsError(f"{path} has no split {split!r}; it has {', '.join(splits)}")
    image_ids = _ids(path, "image", (keys[number] for number in chosen))
    sentences = [sentence for image in images for sentence in image["sentences"]]
    caption_image = np.repeat(np.arange(len(images)), [len(i["sentences"]) for i in images])
    return GroundTruth(
        image_ids,
        _ids(path, "caption", (sentence["sentid"] for sentence in sentences)),
        caption_image,
        Judgements.from_pairs(caption_image, len(images)),
        texts=[_text(sentence.get("raw", "")) for sentence in sentences],
    )


def _parse_csv(path: Path) -> GroundTruth:
    images: dict[str, int] = {}
    captions: dict[str, int] = {}
    named: dict[int, int] = {}
    right: dict[int, int] = {}
    grades: dict[tuple[int, int], float] = {}
    for where, (image, caption), grade in read_csv(path):
        row = images.setdefault(image.strip(), len(images))
        column = captions.setdefault(caption.strip(), len(captions))
        named.setdefault(column, row)
        if grade > 0:
            right.setdefault(column, row)
        add_grade(grades, (row, column), grade, where, (image, caption))
    if not grades:
        raise JudgementsError(f"{path} has no rows")
    pairs = np.array(list(grades))
    shape = (len(images), len(captions))
    judgements = Judgements.from_grades(pairs, np.array(list(grades.values())), shape)
    return GroundTruth(
        list(images),
        list(captions),
        np.array([right.get(column, row) for column, row in named.items()], np.int64),
        check_some_right(path, judgements),
        texts=list(captions),
    )


def _labels(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int and 0 <= value < _LABELS for value in values):
        raise TypeError(f"labels are numbers below {_LABELS:,}, not {values!r}")
    return tuple(values)


def _text(value: object) -> str:
    if not is_text(string(value)):
        raise TypeError(f"{value!r} is not text")
    return string(value)


def _ids(path: Path, item: str, ids: Iterable[object]) -> list[str]:
    texts = [_text(identifier(id_)) for id_ in ids]
    if len(set(texts)) < len(texts):
        twice = next(id_ for id_ in texts if texts.count(id_) > 1)
        raise JudgementsError(f"{path}: the {item} id {twice!r} is given twice")
    if not texts:
        raise JudgementsError(f"{path} has no {item}s")
    return texts
