"""Reads files of judgements, and adds them to a ground truth."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse

from data_pipelines.files import NO_ARRAY
from keras_xmr.judgements.formats import (
    EXTENDED_COCO,
    STANDARD,
    Row,
    extended_coco,
    find_layout,
    is_flickr8k,
    is_qrels,
    read_circo,
    read_csv,
    read_grades,
    read_qrels,
)
from keras_xmr.judgements.ground_truth import GroundTruth, check_some_right
from keras_xmr.judgements.reading import CaptionNames, JudgementsError, add_grade, known_name
from keras_xmr.judgements.relation import Judgements

TRUTH = "truth"
"""The name of the exhaustive truth of a data set."""

_TAKEN = ("annotated", "folds", "metrics")
"""Names of the figures against the annotated pairs."""

_NOTHING_WRONG = (
    "has no wrong pairs, so nothing can be measured if all other pairs are left out; use "
    "`unjudged: wrong`"
)

Unjudged = Literal["left_out", "wrong", "wrong_in_pool"]
"""The treatment of pairs that a file does not name: not judged, wrong, or wrong if the file names
both their image and their caption in any pairs."""


def find_judgements(
    source: str,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str] = (),
    unjudged: Unjudged | None = None,
) -> Judgements:
    """Judgements by a name or from a file.

    Args:
        source: "eccv_caption" or "cxc", or a file as `read_judgements` takes.
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.
        texts: The texts of the captions, if known.
        unjudged: See `read_judgements`.
    """
    if source not in EXTENDED_COCO:
        return read_judgements(Path(source), image_ids, caption_ids, texts, unjudged)
    if unjudged not in (None, "wrong"):
        raise JudgementsError(f"{source!r} {_NOTHING_WRONG}")
    return extended_coco(source, image_ids, caption_ids)


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
    judgements are supported too, see `keras_xmr.judgements.formats.Ratings`, and
    so are qrels of TREC, see `keras_xmr.judgements.formats.read_qrels`.

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
    judgements = _read(path, image_ids, caption_ids, texts, unjudged == "wrong")
    if unjudged == "wrong_in_pool":
        judgements = judgements.with_pool_wrong()
    if judgements.judged is not None and judgements.judged.nnz == judgements.grades.nnz:
        raise JudgementsError(f"{path} {_NOTHING_WRONG}")
    return check_some_right(path, judgements)


def _read(
    path: Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str],
    fully_judged: bool,
) -> Judgements:
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
        for kind, id_, places, names in known:
            if is_own and not places:
                first = ", ".join(map(repr, names[:3]))
                raise JudgementsError(
                    f"{where}: unknown {kind} {id_!r}; there are {len(names):,}, the first {first}"
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
    """The judged pairs of a file, and whether it is one of this project.

    In those, other images and captions are mistakes, and so are two grades of a pair. Benchmarks
    have judgements of more images and captions, and the highest grade of a pair counts.
    """
    if path.suffix == ".json":
        return read_circo(path), False
    if is_flickr8k(path):
        return read_grades(path), False
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


@dataclass(frozen=True)
class JudgementOptions:
    """Further judgements, and how they are read.

    Attributes:
        source: `eccv_caption` or `cxc`, or a file.
        name: The name of their figures; by default the name of the source, or of the file without
            its ending.
        unjudged: The treatment of pairs that the source does not name; see `read_judgements`.
        annotated: Whether annotated pairs are relevant, too; see `Judgements.with_annotated`. By
            default true for Flickr8K's human judgements alone.
    """

    source: str
    name: str | None = None
    unjudged: Unjudged | None = None
    annotated: bool | None = None

    @property
    def title(self) -> str:
        """The name of their figures."""
        source = self.source
        return self.name or (source if source in EXTENDED_COCO else Path(source).stem)


def judgement_options(source: str | JudgementOptions) -> JudgementOptions:
    """The options of judgements, which may be given as the source alone."""
    return source if isinstance(source, JudgementOptions) else JudgementOptions(source=source)


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
        sources: Names and files; see `find_judgements`.

    Raises:
        JudgementsError: If a file cannot be read, or a name is given twice.
    """
    options = [judgement_options(source) for source in sources]
    for _, clash in name_clashes(options, truth.extra):
        raise JudgementsError(f"judgements: {clash}")
    for option in options:
        ids = truth.image_ids, truth.caption_ids, truth.texts
        judgements = find_judgements(option.source, *ids, option.unjudged)
        annotated = option.annotated
        if annotated is None:
            annotated = is_flickr8k(Path(option.source))
        if annotated:
            judgements = judgements.with_annotated(truth.caption_image)
        truth.extra[option.title] = judgements
