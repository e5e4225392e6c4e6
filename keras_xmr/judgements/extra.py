"""Further judgements for metrics, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_xmr.judgements.benchmarks import EXTENDED_COCO
from keras_xmr.judgements.files import Unjudged, find_judgements
from keras_xmr.judgements.flickr8k import is_flickr8k
from keras_xmr.judgements.ground_truth import GroundTruth
from keras_xmr.judgements.reading import JudgementsError

TRUTH = "truth"
"""The name of the exhaustive truth of a data set."""

_TAKEN = ("annotated", "folds", "metrics")
"""Names of the figures against the annotated pairs."""


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
