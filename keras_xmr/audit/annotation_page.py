"""The page on which people label candidate pairs; it works from the disk, without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from data_pipelines.files import atomic_write
from keras_xmr.audit.candidates import Vote
from keras_xmr.audit.labels import Kind
from keras_xmr.reporting.pages import render


@dataclass(frozen=True)
class Entry:
    """A pair on the annotation page.

    Attributes:
        image: The id of the image.
        caption: The id of the caption.
        text: The caption.
        annotated: The captions that are annotated as right for the image.
        belief: The belief of the models in the pair.
        votes: The vote of each model, by its name.
        picture: The image as a data URL; empty without pixels.
    """

    image: str
    caption: str
    text: str
    annotated: Sequence[str]
    belief: float
    votes: Mapping[str, Vote]
    picture: str = ""


def write_annotation_page(path: Path, title: str, entries: Sequence[Entry], command: str) -> None:
    """Writes the page: pairs to label, and a button that saves the labels as CSV.

    Args:
        path: The page.
        title: Its title.
        entries: The pairs.
        command: The command that reads the labels.
    """
    page = render(
        "annotation.html", title=title, entries=entries, command=command, kinds=get_args(Kind)
    )
    atomic_write(path, page)
