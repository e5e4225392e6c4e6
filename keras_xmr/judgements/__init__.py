"""Relevance judgements, and the files that hold them."""

from keras_xmr.judgements.exchange import Beir, from_qrels, read_beir, to_qrels, write_beir
from keras_xmr.judgements.files import (
    IDENTICAL,
    TRUTH,
    JudgementOptions,
    add_judgements,
    name_clashes,
    read_judgements,
)
from keras_xmr.judgements.formats import EXTENDED_COCO, extended_coco, write_qrels
from keras_xmr.judgements.ground_truth import (
    GroundTruth,
    judge,
    read_ground_truth,
    read_labels,
    write_ground_truth,
)
from keras_xmr.judgements.reading import JudgementsError
from keras_xmr.judgements.relation import Judgements, as_judgements, check_image_ids, multi_hot

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
