"""Files of scores: arrays of NumPy, and run files of TREC, `query Q0 document rank score tag`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keras_xmr.judgements import Judgements, as_judgements
from keras_xmr.judgements.reading import first_line
from keras_xmr.judgements.trec import check_ids, read_trec_pairs, write_qrels
from keras_xmr.metrics import ScoreMatrices, Scores
from keras_xmr.metrics.runs import DEPTH
from keras_xmr.metrics.score_matrices import real_numbers
from keras_xmr.utils.directions import SHORT
from keras_xmr.utils.errors import ArgumentError, UserError
from keras_xmr.utils.files import NO_ARRAY, bytes_after, replace_atomically
from keras_xmr.utils.vectors import unit_rows

_ROWS = 512

_EQUAL_CAPTIONS = (
    ". Equal captions in a CSV file are one column; a column caption_id distinguishes them"
)

Similarity = Literal["cosine", "dot"]


class ScoresError(UserError):
    """A matrix cannot be read or has another shape; the message has the expected one."""


def load_matrix(path: Path) -> np.ndarray:
    """Returns a matrix of numbers: a memory map of a `.npy` file, or the only array of a `.npz`
    file.

    Raises:
        ScoresError: If the file holds no such matrix.
    """
    try:
        matrix = np.load(path, mmap_mode="r")
        if not isinstance(matrix, np.ndarray):
            names = list(matrix)
            if len(names) != 1:
                raise ScoresError(
                    f"{path} holds {len(names)} arrays ({', '.join(names)}), and it is not "
                    "clear which is meant; save a single one"
                )
            matrix = matrix[names[0]]
    except FileNotFoundError:
        raise ScoresError(f"{path} does not exist") from None
    except NO_ARRAY as error:
        raise ScoresError(
            f"{path} is not an array as numpy.save or numpy.savez writes it ({error})"
        ) from None
    if surplus := bytes_after(matrix, path):
        raise ScoresError(f"{path} has {surplus:,} bytes after its array; save one array alone")
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise ScoresError(
            f"{path} holds {matrix.dtype} of shape {matrix.shape}; a matrix of numbers is expected"
        )
    return matrix


def load_scores(path: Path, shape: tuple[int, int], described_by: Path) -> np.ndarray:
    """Returns a matrix (images, captions), such as scores.

    Args:
        path: The file.
        shape: Images, captions.
        described_by: The file of the ground truth, for error messages.

    Raises:
        ScoresError: If it has another shape.
        ArgumentError: If float64 cannot hold its numbers.
    """
    scores = load_matrix(path)
    if scores.shape != shape:
        turned = scores.shape == shape[::-1]
        raise ScoresError(
            f"{path} is {_size(scores)}, but {described_by} has {shape[0]:,} images and "
            f"{shape[1]:,} captions: rows are images and columns are captions, in its order"
            + ("; save its transpose" if turned else "")
            + (_EQUAL_CAPTIONS if described_by.suffix == ".csv" and not turned else "")
        )
    return real_numbers(scores, str(path))


def load_embeddings(path: Path, items: str, count: int, described_by: Path) -> np.ndarray:
    """Embeddings of all images or of all captions, a matrix with one row per item.

    Args:
        path: The file.
        items: "images" or "captions".
        count: Number of items.
        described_by: The file of the ground truth, for error messages.

    Raises:
        ScoresError: If there are more or fewer.
    """
    embeddings = load_matrix(path)
    if len(embeddings) != count:
        raise ScoresError(
            f"{path} is {_size(embeddings)}, but {described_by} has {count:,} {items}: one row per "
            "item is expected, in its order"
            + (_EQUAL_CAPTIONS if described_by.suffix == ".csv" and items == "captions" else "")
        )
    return embeddings


def similarity(images: np.ndarray, captions: np.ndarray, kind: Similarity = "cosine") -> np.ndarray:
    """Scores all images (N) with all captions (M).

    Args:
        images: Embeddings (N, D).
        captions: Embeddings (M, D).
        kind: "cosine" or "dot", the inner product. A cosine with a vector of zeros is 0.

    Returns:
        Float32 (N, M).

    Raises:
        ScoresError: If the embeddings differ in dimension, have none, or are not finite, or an
            inner product overflows or underflows float32.
    """
    if images.shape[1] != captions.shape[1]:
        raise ScoresError(
            f"image embeddings have the dimension {images.shape[1]}, caption embeddings "
            f"{captions.shape[1]}; they must have one dimension"
        )
    if not images.shape[1]:
        raise ScoresError("the embeddings have no numbers: their width is 0")
    if kind == "dot":
        _refuse_underflow(images, captions)
    columns = _prepared(captions, kind, "caption").T
    scores = np.empty((len(images), len(captions)), np.float32)
    for first in range(0, len(images), _ROWS):
        rows = slice(first, first + _ROWS)
        np.matmul(_prepared(images[rows], kind, "image"), columns, out=scores[rows])
        if not np.isfinite(scores[rows]).all():
            raise ScoresError(
                "the embeddings are too large for an inner product in float32; divide them by a "
                "constant, which keeps all rankings, or use --similarity=cosine"
            )
    return scores


def _refuse_underflow(images: np.ndarray, captions: np.ndarray) -> None:
    """Refuses embeddings of which float32, or its products, would lose digits or all."""
    least = [_smallest(images), _smallest(captions)]
    tiny, eps = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).eps)
    if min(least) < tiny or least[0] * least[1] < tiny / eps:
        raise ScoresError(
            "the embeddings are too small for an inner product in float32; multiply them by a "
            "constant, which keeps all rankings, or use --similarity=cosine"
        )


def _smallest(embeddings: np.ndarray) -> float:
    """Returns the largest number of the smallest embedding that is not 0; 1 without any."""
    largest = np.maximum(embeddings.max(axis=1), -embeddings.min(axis=1).astype(np.float64))
    return float(min(largest[largest > 0], default=1.0))


def _prepared(embeddings: np.ndarray, kind: Similarity, item: str) -> np.ndarray:
    if not np.isfinite(embeddings).all():
        raise ScoresError(f"some {item} embeddings are NaN or infinite")
    if kind == "dot":
        with np.errstate(over="ignore"):
            return np.asarray(embeddings, np.float32)
    if embeddings.dtype.kind != "f" or embeddings.dtype.itemsize < 4:
        embeddings = np.asarray(embeddings, np.float32)
    return unit_rows(embeddings).astype(np.float32)


def _size(matrix: np.ndarray) -> str:
    return " x ".join(f"{size:,}" for size in matrix.shape)


_LAYOUT = "query Q0 document rank score tag"


def is_run(path: Path) -> bool:
    """Recognises a run file by the first line: six words, the fifth of them a number."""
    words = first_line(path).split()
    try:
        return len(words) == 6 and math.isfinite(float(words[4]))
    except ValueError:
        return False


def read_run(path: Path, image_ids: Sequence[str], caption_ids: Sequence[str]) -> np.ndarray:
    """Reads a run file as a score matrix.

    Scores give the order, as in trec_eval; ranks are not read.

    Args:
        path: The file.
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.

    Returns:
        Float64 (images, captions); minus infinity where the run leaves a pair out.

    Raises:
        JudgementsError: If a line is malformed, or the queries are not all images or all captions.
        ScoresError: If an id is unknown, a score is not a number, or a pair is duplicate.
    """
    rows, columns = ({id_: n for n, id_ in enumerate(ids)} for ids in (image_ids, caption_ids))
    scores = np.full((len(rows), len(columns)), -np.inf)
    for line, turned, words in read_trec_pairs(path, 6, _LAYOUT, rows, columns):
        image, caption = (words[2], words[0]) if turned else (words[0], words[2])
        for item, id_, known in (("image", image, rows), ("caption", caption, columns)):
            if id_ not in known:
                raise ScoresError(
                    f"{path}:{line}: unknown {item} {id_!r}; the ground truth has "
                    f"{len(known):,}, such as {next(iter(known))!r}"
                )
        place = rows[image], columns[caption]
        if scores[place] != -np.inf:
            raise ScoresError(f"{path}:{line}: duplicate {words[2]!r} for {words[0]!r}")
        scores[place] = _score(words[4], f"{path}:{line}")
    return scores


def write_run(
    path: Path,
    scores: np.ndarray,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    depth: int = DEPTH,
    tag: str = "keras_xmr",
) -> None:
    """Writes the best documents of every query as a run file.

    trec_eval orders equal scores by the ids of documents, while here ties count against a model:
    with ties, its figures are higher or the same.

    Args:
        path: The file.
        scores: Scores (queries, documents), larger is better; minus infinity is left
            out.
        query_ids: The id of each row.
        document_ids: The id of each column.
        depth: Number of documents per query.
        tag: The name of the run, without blanks.

    Raises:
        JudgementsError: If an id has blanks.
        ScoresError: If a score is NaN or infinity, which no reader takes.
    """
    check_ids([*query_ids, *document_ids, tag])
    wrong = np.flatnonzero((np.isnan(scores) | np.isposinf(scores)).any(axis=1))
    if len(wrong):
        raise ScoresError(
            f"{path}: a score of {query_ids[wrong[0]]!r} is NaN or infinity, and is not written; "
            "use -inf to leave a pair out"
        )
    digits = 9 if scores.dtype == np.float32 else 17
    with replace_atomically(path, path.suffix) as name, name.open("w", encoding="utf-8") as file:
        for query, row in zip(query_ids, scores, strict=True):
            order = np.argsort(-row, kind="stable")[:depth].tolist()
            ranked = ((document_ids[place], row[place]) for place in order)
            file.writelines(
                f"{query} Q0 {document} {rank} {score:.{digits}g} {tag}\n"
                for rank, (document, score) in enumerate(ranked, 1)
                if score > -np.inf
            )


def write_trec(
    folder: Path | str,
    scores: Scores,
    judgements: Any = None,
    *,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
    further: Mapping[str, Judgements] | None = None,
    split: str = "test",
    depth: int = DEPTH,
) -> list[Path]:
    """Writes scores as run files and judgements as qrels, for both directions.

    The files are `<split>-i2t.run`, `<split>-i2t.qrels` with the annotated pairs, and
    `<split>-<judgements>-i2t.qrels` with further judgements; and the same with t2i.

    Args:
        folder: The folder of the files; it is created.
        scores: Scores, as `keras_xmr.metrics.recall` takes them.
        judgements: The relevant pairs; see `keras_xmr.metrics.recall`.
        image_ids: The id of each image; by default `image0` and so on.
        caption_ids: The id of each caption; by default `caption0` and so on.
        further: Further judgements, by name.
        split: The split, for the names of the files.
        depth: Number of documents per query.

    Returns:
        The files.

    Raises:
        JudgementsError: If an id has blanks, or a grade is not a whole number.
    """
    folder, scores = Path(folder), ScoreMatrices.of(scores)
    right = as_judgements(judgements, scores.image_to_text.shape)
    named = ("image", image_ids), ("caption", caption_ids)
    ids = [
        [f"{item}{n}" for n in range(count)] if given is None else list(map(str, given))
        for (item, given), count in zip(named, right.shape, strict=True)
    ]
    if (found := tuple(map(len, ids))) != right.shape:
        raise ArgumentError(f"scores of shape {right.shape}, but ids of {found}")
    for (item, _), names in zip(named, ids, strict=True):
        if len(set(names)) < len(names):
            raise ArgumentError(f"two {item}s have the same id; a run file needs one for each")
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    known = {"": right, **{f"-{name}": j for name, j in (further or {}).items()}}
    for number, direction in enumerate(SHORT.values()):
        queries, documents = ids if number == 0 else ids[::-1]
        paths.append(folder / f"{split}-{direction}.run")
        write_run(paths[-1], scores.by_query[number], queries, documents, depth)
        for name, judgements in known.items():
            paths.append(folder / f"{split}{name}-{direction}.qrels")
            relation = judgements if number == 0 else judgements.transpose()
            write_qrels(paths[-1], relation, queries, documents)
    return paths


def _score(text: str, where: str) -> float:
    try:
        score = math.nan if "_" in text else float(text)  # Python reads 1_0 as 10.
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ScoresError(f"{where}: the score {text[:20]!r} is not a finite number")
    return score
