"""Options of judgements, in configs and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from keras_xmr.judgements.formats import EXTENDED_COCO, Unjudged
from keras_xmr.parts.section import Section


class JudgementOptions(Section):
    """Judgements to measure against, and how they are read."""

    source: str
    """`identical_captions`, `eccv_caption` or `cxc`, a name that comes with the data set, or a
    file."""

    name: str | None = None
    """The name of their tables and metrics; by default the source, or the file without its
    suffix."""

    unjudged: Unjudged | None = None
    """Treatment of pairs that the source does not name: `left_out`, so that lists are condensed
    to the judged pairs; `wrong`; or `wrong_in_pool`, which is wrong among the images and captions
    that the source names, and unjudged beyond them. The default is `left_out` for Flickr8K's
    human judgements, and wrong for all others."""

    annotated: bool | None = None
    """Whether annotated pairs are relevant, too, whatever the source says. With `left_out` and
    `wrong_in_pool`, this applies to images and captions that the source names. The default is true
    for Flickr8K's human judgements, and false for others."""

    def __init__(self, *values: object, **fields: object) -> None:
        # Without keywords, in the order of the fields.
        super().__init__(**dict(zip(type(self).model_fields, values, strict=False)), **fields)

    @property
    def title(self) -> str:
        """The name of their figures."""
        source = self.source
        return self.name or (source if source in EXTENDED_COCO else Path(source).stem)

    def with_files(self, files: Mapping[str, Path]) -> JudgementOptions:
        """Returns the options, with a file in place of a name that comes with the data set.

        Args:
            files: The files that come with the data set, by name.
        """
        if self.source not in files:
            return self
        place = {"source": str(files[self.source]), "name": self.name or self.source}
        return self.model_copy(update=place)
