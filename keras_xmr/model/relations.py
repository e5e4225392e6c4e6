"""Relations of the images and captions of a batch."""

from __future__ import annotations

from typing import Any, Literal

from keras import ops

from keras_xmr.losses import Relations

MatchRule = Literal["pairs", "classes"]


def relations(y: dict[str, Any], judgements: MatchRule) -> Relations:
    """Relations of the N images and the M captions of a global batch.

    Args:
        y: What identifies the images: `image_id` (N,) and, with classes, `labels` (N, 1); and the
            same of the images that the captions are of, `caption_image_id` (M,) or
            `caption_labels` (M, 1), where the batch is not one of pairs. Where images are mixed,
            `mix_ratio`, float (N,), the share of the first image, and `mix_image_id` or
            `mix_labels` of the image that the rest is of. If a loss needs it, also `relevance`,
            float32 (N, M), which is passed on. And `judged`, float32 (N, M), where people have
            said how far a pair matches, from 0 to 1, and NaN elsewhere: it takes precedence.
        judgements: "pairs" matches a caption with the image that it was written for, wherever
            that image is in the batch; "classes" with every image of its class.
    """
    ids = captions = _ids(y, judgements)
    if {"caption_image_id", "caption_labels"} & y.keys():
        captions = _ids(y, judgements, "caption_")
    batch_relations = {"positives": ops.equal(ids[:, None], captions[None, :])}
    if "mix_ratio" in y:
        others = _ids(y, judgements, "mix_")
        ratio = y["mix_ratio"][:, None]
        first = ops.cast(batch_relations["positives"], "float32")
        other = ops.cast(ops.equal(others[:, None], captions[None, :]), "float32")
        batch_relations["targets"] = ratio * first + (1.0 - ratio) * other
    if "judged" in y:
        unknown, judged = ops.isnan(y["judged"]), y["judged"]
        annotated = ops.cast(batch_relations["positives"], "float32")
        batch_relations["targets"] = ops.where(unknown, annotated, judged)
        batch_relations["positives"] = batch_relations["targets"] > 0
    if "relevance" in y:
        batch_relations["relevance"] = y["relevance"]
    return batch_relations


def targets_read(y: dict[str, Any], judgements: MatchRule, objective: Any) -> dict[str, Any]:
    """Selects the targets that `relations` reads for an objective."""
    ids = "image_id" if judgements == "pairs" else "labels"
    names = {ids, f"caption_{ids}", f"mix_{ids}", "mix_ratio", "judged"}
    if objective.needs_relevance:
        names.add("relevance")
    return {name: value for name, value in y.items() if name in names}


def _ids(y: dict[str, Any], judgements: MatchRule, prefix: str = "") -> Any:
    return y[f"{prefix}image_id"] if judgements == "pairs" else y[f"{prefix}labels"][:, 0]
