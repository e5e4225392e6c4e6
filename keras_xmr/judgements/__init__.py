"""Relevance judgements, and the files that hold them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_xmr.judgements.accepted_forms import as_judgements, check_image_ids
from keras_xmr.judgements.exchange import Beir, from_qrels, read_beir, to_qrels, write_beir
from keras_xmr.judgements.formats import EXTENDED_COCO, extended_coco
from keras_xmr.judgements.ground_truth import (
    GroundTruth,
    judge,
    read_ground_truth,
    read_labels,
    write_ground_truth,
)
from keras_xmr.judgements.judgement_files import (
    IDENTICAL,
    TRUTH,
    add_judgements,
    name_clashes,
    read_judgements,
)
from keras_xmr.judgements.reading import JudgementsError
from keras_xmr.judgements.relation import Judgements, multi_hot
from keras_xmr.judgements.trec import write_qrels

if TYPE_CHECKING:
    from keras_xmr.judgements.judgement_options import JudgementOptions

__all__ = [
    "EXTENDED_COCO",
    "IDENTICAL",
    "TRUTH",
    "Beir",
    "GroundTruth",
    "JudgementOptions",
    "Judgements",
    "JudgementsError",
    "add_judgements",
    "as_judgements",
    "check_image_ids",
    "extended_coco",
    "from_qrels",
    "judge",
    "multi_hot",
    "name_clashes",
    "read_beir",
    "read_ground_truth",
    "read_judgements",
    "read_labels",
    "to_qrels",
    "write_beir",
    "write_ground_truth",
    "write_qrels",
]


def __getattr__(name: str) -> Any:
    """Imports the options, which need the library that validates them, where they are used."""
    if name == "JudgementOptions":
        return importlib.import_module("keras_xmr.judgements.judgement_options").JudgementOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
