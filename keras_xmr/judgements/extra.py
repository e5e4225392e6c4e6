"""Further judgements that one measures against, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from keras_xmr.judgements.coco import EXTENDED_COCO
from keras_xmr.judgements.files import JudgementsError, find_judgements
from keras_xmr.judgements.ground_truth import GroundTruth

TRUTH = "truth"
"""The name of the exhaustive truth, where the data set knows it."""

_TAKEN = ("annotated", "folds", "metrics")
"""What figures against the annotated pairs are called, beside those of further judgements."""


def judgements_name(source: str) -> str:
    """What judgements are called in figures: a name as it is, a file without its ending."""
    return source if source in EXTENDED_COCO else Path(source).stem


def name_clashes(sources: Iterable[str], taken: Iterable[str] = ()) -> Iterator[tuple[int, str]]:
    """Yields the number of each source whose figures have no name of their own, and what to do.

    Args:
        sources: Names and files of judgements, as `find_judgements` takes them.
        taken: Names of other judgements that are there.
    """
    names = {*_TAKEN, *taken}
    for number, source in enumerate(sources):
        name = judgements_name(source)
        if name in names:
            yield number, f"there are other figures named {name!r}; rename the file {source!r}"
        names.add(name)


def add_judgements(truth: GroundTruth, sources: Sequence[str]) -> None:
    """Adds further judgements to what is known of images and captions.

    Args:
        truth: What is known.
        sources: Names and files; see `find_judgements`.

    Raises:
        JudgementsError: If a file cannot be read, or a name stands twice.
    """
    for _, clash in name_clashes(sources, truth.extra):
        raise JudgementsError(f"judgements: {clash}")
    for source in sources:
        found = find_judgements(source, truth.image_ids, truth.caption_ids, truth.texts)
        truth.extra[judgements_name(source)] = found
