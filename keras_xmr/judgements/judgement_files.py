"""Reads files of judgements: for a ground truth, and for training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from keras_xmr.judgements.exchange import is_beir, read_beir_qrels
from keras_xmr.judgements.formats import (
    EXTENDED_COCO,
    STANDARD,
    Row,
    Unjudged,
    extended_coco,
    find_layout,
    is_flickr8k,
    read_circo,
    read_csv,
    read_grades,
)
from keras_xmr.judgements.ground_truth import GroundTruth, check_some_right
from keras_xmr.judgements.reading import CaptionNames, JudgementsError, add_grade, known_name
from keras_xmr.judgements.relation import Judgements
from keras_xmr.judgements.trec import is_qrels, read_qrels
from keras_xmr.utils.files import NO_ARRAY

if TYPE_CHECKING:
    from keras_xmr.judgements.judgement_options import JudgementOptions

TRUTH = "truth"
"""The name of the exhaustive truth of a data set."""

IDENTICAL = "identical_captions"
"""The name of judgements by which a caption is relevant for every image with a caption of the same
words."""

_TAKEN = ("annotated",)
"""Names of the figures against the annotated pairs."""

_NOTHING_WRONG = (
    "has no wrong pairs, so nothing can be measured if all other pairs are left out; use "
    "`unjudged: wrong`"
)


def read_judgements(
    path: Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str] = (),
    unjudged: Unjudged | None = None,
) -> Judgements:
    """Reads judgements from a file.

    A CSV file has the columns `image,caption` and perhaps `grade`, a row per judged pair,
    in any order; a grade of 0 means that a pair is wrong, as its omission does by default. A
    caption is named by its id, or by its text, which names all captions with this text. A column
    `caption_id` names captions in place of the column `caption`. A `.npz` file is a sparse matrix
    (images, captions) of `scipy.sparse.save_npz`.

    Files of public benchmarks are supported: the annotations of CIRCO (`val.json`), and the CSV
    files of HierarCaps, INQUIRE and Marqo-GS, which are recognised by their columns. Judgements
    beyond these images and captions are left out, and of several grades of a pair the highest
    counts. Captions are named by the id of the query in CIRCO and INQUIRE, and by their text in
    the others; images by COCO's ids in CIRCO and HierarCaps. The two files of Flickr8K's human
    judgements are supported too, see `keras_xmr.judgements.formats.read_grades`, and
    so are qrels of TREC, see `keras_xmr.judgements.trec.read_qrels`, and of BEIR, where captions
    are the queries.

    Args:
        path: The file.
        image_ids: The ids of the images, as the column `image` names them.
        caption_ids: The ids of the captions.
        texts: The texts of the captions, if known.
        unjudged: The treatment of pairs that the file does not name; see `Unjudged`. By default
            "left_out" for Flickr8K's files, and "wrong" for all others.

    Raises:
        JudgementsError: If the file has another format, an unknown id, a grade that is not a
            number from 0 on, contradicting grades of a pair, or no relevant pair; or a benchmark
            has none of the images and captions; or pairs that are not named are to be left out
            and no pair is named as wrong.
    """
    unjudged = unjudged or ("left_out" if is_flickr8k(path) else "wrong")
    judgements = read_graded_pairs(
        path, image_ids, caption_ids, texts, fully_judged=unjudged == "wrong"
    )
    if unjudged == "wrong_in_pool":
        judgements = judgements.with_pool_wrong()
    if judgements.judged is not None and judgements.judged.nnz == judgements.grades.nnz:
        raise JudgementsError(f"{path} {_NOTHING_WRONG}")
    return check_some_right(path, judgements)


def read_graded_pairs(
    path: Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str] = (),
    *,
    fully_judged: bool = False,
) -> Judgements:
    """Reads a file as `read_judgements` does, without a check that some pair is relevant.

    Args:
        path: The file.
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.
        texts: The texts of the captions, if known.
        fully_judged: Whether pairs that the file does not name are wrong; by default they are not
            judged.
    """
    shape = (len(image_ids), len(caption_ids))
    if path.suffix == ".npz":
        return _read_matrix(path, shape, fully_judged)
    rows, is_own = _rows(path, image_ids, caption_ids)
    images = {id_: number for number, id_ in enumerate(image_ids)}
    texts = texts if is_own and texts else caption_ids
    captions = CaptionNames(list(zip(caption_ids, texts, strict=True)))
    grades: dict[tuple[int, int], float] = {}
    ids = ("none", "none")
    for where, ids, grade in rows:
        image = images.get(known_name(ids[0], images))
        numbers = ([] if image is None else [image], captions.numbers(ids[1]))
        known = zip(("image", "caption"), ids, numbers, (image_ids, caption_ids), strict=True)
        for item, id_, places, names in known:
            if is_own and not places:
                first = ", ".join(map(repr, names[:3]))
                raise JudgementsError(
                    f"{where}: unknown {item} {id_!r}; there are {len(names):,}, the first {first}"
                )
        for pair in itertools.product(*numbers):
            if is_own:
                add_grade(grades, pair, grade, where, ids)
            else:
                grades[pair] = max(grade, grades.get(pair, 0.0))
    if not is_own and not grades:
        raise JudgementsError(
            f"{path} has none of the images and captions, such as {image_ids[0]!r} "
            f"and {caption_ids[0]!r}; it has, for instance, {ids[0]!r} and {ids[1]!r}"
        )
    pairs = np.array(list(grades), np.int64).reshape(-1, 2)
    return Judgements.from_grades(pairs, np.array(list(grades.values())), shape, fully_judged)


def _rows(
    path: Path, image_ids: Sequence[str], caption_ids: Sequence[str]
) -> tuple[Iterator[Row], bool]:
    """Returns the judged pairs of a file, and whether it is one of this project.

    In those, other images and captions are mistakes, and so are two grades of a pair. Benchmarks
    have judgements of more images and captions, and the highest grade of a pair counts.
    """
    if path.suffix == ".json":
        return read_circo(path), False
    if is_flickr8k(path):
        return read_grades(path), False
    if is_beir(path):
        rows = read_beir_qrels(path)
        return ((where, (ids[1], ids[0]), grade) for where, ids, grade in rows), False
    if is_qrels(path):
        return read_qrels(path, image_ids, caption_ids), False
    return read_csv(path), find_layout(path) is STANDARD


def _read_matrix(path: Path, shape: tuple[int, int], fully_judged: bool) -> Judgements:
    try:
        matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(path), dtype=np.float32)
        matrix.check_format(full_check=True)
    except FileNotFoundError:
        raise JudgementsError(f"{path} does not exist") from None
    except (*NO_ARRAY, KeyError, TypeError, AttributeError) as error:
        raise JudgementsError(
            f"{path} is not a sparse matrix of scipy.sparse.save_npz ({error})"
        ) from None
    if matrix.shape != shape:
        raise JudgementsError(
            f"{path} judges {matrix.shape[0]:,} images and {matrix.shape[1]:,} captions, but "
            f"there are {shape[0]:,} and {shape[1]:,}"
        )
    pairs = np.stack([np.repeat(np.arange(shape[0]), np.diff(matrix.indptr)), matrix.indices], 1)
    try:
        return Judgements.from_grades(pairs, matrix.data, shape, fully_judged)
    except ValueError as error:
        raise JudgementsError(f"{path}: {error}") from None


def name_clashes(
    sources: Iterable[JudgementOptions], taken: Iterable[str] = ()
) -> Iterator[tuple[int, str]]:
    """Yields the number of each source with an ambiguous name, and a hint.

    Args:
        sources: The judgements.
        taken: Names of other judgements.
    """
    names = {*_TAKEN, *taken}
    for number, source in enumerate(sources):
        name = source.title
        if name in names:
            what = "give another name to" if source.name else "rename the file"
            yield number, f"there are other figures named {name!r}; {what} {source.source!r}"
        names.add(name)


def add_judgements(truth: GroundTruth, sources: Sequence[str | JudgementOptions]) -> None:
    """Adds further judgements to a ground truth.

    Args:
        truth: The ground truth.
        sources: `identical_captions`, `eccv_caption`, `cxc`, or files as `read_judgements` reads.

    Raises:
        JudgementsError: If a file cannot be read, or a name is given twice.
    """
    # Metrics of arrays do not wait for the library that validates options.
    from keras_xmr.judgements.judgement_options import JudgementOptions

    options = [
        JudgementOptions(source) if isinstance(source, str) else source for source in sources
    ]
    for _, clash in name_clashes(options, truth.extra):
        raise JudgementsError(f"judgements: {clash}")
    for option in options:
        source, ids = option.source, (truth.image_ids, truth.caption_ids)
        if source not in (IDENTICAL, *EXTENDED_COCO):
            judgements = read_judgements(Path(source), *ids, truth.texts, option.unjudged)
        elif option.unjudged not in (None, "wrong"):
            raise JudgementsError(f"{source!r} {_NOTHING_WRONG}")
        elif source in EXTENDED_COCO:
            judgements = extended_coco(source, *ids)
        elif not truth.texts:
            raise JudgementsError(f"{source} needs the texts of the captions, which are not known")
        else:
            judgements = Judgements.from_texts(truth.texts, truth.caption_image, len(ids[0]))
        annotated = option.annotated
        if annotated is None:
            annotated = is_flickr8k(Path(option.source))
        if annotated:
            judgements = judgements.with_annotated(truth.caption_image)
        truth.extra[option.title] = judgements


Pair = tuple[str, str]


@dataclass(frozen=True)
class JudgedPairs:
    """Judged pairs of the training split.

    Attributes:
        grades: The grade of each pair, by the names of image and caption.
        new_captions: Texts that are not captions of the data set yet, by the images that they are
            relevant for: a new key, and the text.
        left_out: Number of pairs of images or captions of other splits.
    """

    grades: dict[Pair, float]
    new_captions: dict[str, list[Pair]] = field(default_factory=dict)
    left_out: int = 0


def read_training_judgements(
    path: Path,
    image_keys: Sequence[str],
    captions: Sequence[Pair],
    other_images: Sequence[str] = (),
    other_captions: Sequence[str] = (),
) -> JudgedPairs:
    """Reads judgements of training pairs from a CSV file `image,caption,grade`.

    A caption is named by its id or its text. A text that is not a caption yet becomes one of every
    image that it is relevant for.

    Args:
        path: The file, as `read_judgements` reads it.
        image_keys: The images of the training split.
        captions: Ids and texts of its captions.
        other_images: Images of other splits; their pairs are left out.
        other_captions: Ids of captions of other splits, likewise.

    Raises:
        JudgementsError: If the file cannot be read, an image or a caption is unknown, a grade is
            not a number from 0 on, or a pair has contradicting grades.
    """
    images, elsewhere = set(image_keys), (set(other_images), set(other_captions))
    names = CaptionNames(captions)
    judged, new = JudgedPairs({}), set()
    by_number: dict[tuple[str, int], float] = {}
    left_out = 0
    known = images | elsewhere[0], {id_ for id_, _ in captions} | elsewhere[1]
    for where, ids, grade in read_csv(path):
        image, caption = (known_name(*pair) for pair in zip(ids, known, strict=True))
        if image in elsewhere[0] or (caption in elsewhere[1] and caption not in names):
            left_out += 1
            continue
        if image not in images:
            raise JudgementsError(f"{where}: the data set has no image {image!r}")
        if caption not in names:
            if not caption.isalpha() and len(caption.split()) < 2:
                raise JudgementsError(
                    f"{where}: {caption!r} is neither the id nor the text of a caption; a "
                    "new caption has letters alone, or several words"
                )
            new.add(caption)
        add_grade(judged.grades, (image, caption), grade, where, (image, caption))
        # Other lines may name the same caption by its id and by its text.
        for number in names.numbers(caption):
            add_grade(by_number, (image, number), grade, where, (image, caption))
    for (image, caption), grade in judged.grades.items():
        if caption in new and grade > 0:
            of_image = judged.new_captions.setdefault(image, [])
            of_image.append((f"{image}#judged-{len(of_image)}", caption))
    return JudgedPairs(judged.grades, judged.new_captions, left_out)


class BatchGrades:
    """The grades of the judged pairs of a batch.

    Args:
        grades: By the names of image and caption.
        image_keys: The images of the split.
        captions: Ids and texts of its captions, new ones among them.
    """

    def __init__(
        self, grades: Mapping[Pair, float], image_keys: Sequence[str], captions: Sequence[Pair]
    ) -> None:
        names, rows = CaptionNames(captions), {key: row for row, key in enumerate(image_keys)}
        by_place = {
            (rows[image], number): grade
            for (image, caption), grade in grades.items()
            for number in names.numbers(caption)
        }
        top = max([1.0, *grades.values()])
        # Stored numbers are above 0, to distinguish a grade of 0 from a pair without judgement.
        places = np.array(list(by_place), np.int64).reshape(-1, 2).T
        codes = np.array([1 + grade / top for grade in by_place.values()], np.float32)
        self._codes = scipy.sparse.csr_array(
            (codes, (places[0], places[1])), shape=(len(image_keys), len(captions))
        )

    def pair_weights(self, image_ids: np.ndarray) -> scipy.sparse.csr_array:
        """Returns the grades of all judged pairs, and 1 for other captions with their own image.

        Args:
            image_ids: The row of the image of each caption, (M,).

        Returns:
            Sparse (N, M), from 0 to 1.
        """
        judged = self._codes.copy()
        judged.data = np.ones_like(judged.data)
        count = len(image_ids)
        places = image_ids, np.arange(count)
        own = scipy.sparse.csr_array((np.ones(count), places), shape=self._codes.shape)
        weights = scipy.sparse.csr_array(own - own.multiply(judged) + self._codes - judged)
        weights.eliminate_zeros()
        return weights

    def count(self, image_ids: np.ndarray) -> tuple[int, int]:
        """Counts the judged pairs.

        Args:
            image_ids: The row of the image of each caption, (M,).

        Returns:
            The pairs with another weight than without judgements, which change models in closed
            form; and other pairs that are wrong, which only losses know.
        """
        pairs = self._codes.tocoo()
        own, right = image_ids[pairs.col] == pairs.row, pairs.data > 1
        changed = int(((own & (pairs.data < 2)) | (~own & right)).sum())
        return changed, int((~own & ~right).sum())

    def __call__(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Grades of some images and captions by number.

        Returns:
            Float32 (images, captions) from 0 to 1; NaN for pairs that were not judged.
        """
        codes = self._codes[images][:, captions].toarray()
        grades: np.ndarray = np.where(codes > 0, codes - 1, np.nan).astype(np.float32)
        return grades
