"""Who matches whom in a batch."""

from __future__ import annotations

from typing import Any, Literal

from keras import ops

from keras_xmr.losses import Relations

Judgements = Literal["pairs", "classes"]


def relations(y: dict[str, Any], judgements: Judgements) -> Relations:
    """Relations of the images and the captions of a global batch of pairs.

    Args:
        y: What identifies the B pairs: `image_id` (B,) and, with classes, `labels` (B, 1). Where
            images are mixed, `mix_ratio`, float (B,), the part of each image that is its own, and
            `mix_image_id` or `mix_labels` of the image that the rest is of. If a loss needs it,
            also `relevance`, float32 (B, B), which is passed on.
        judgements: "pairs" calls a caption right for the image that it was written for, however
            often that image stands in the batch; "classes" for every image of its class.
    """
    ids = _ids(y, judgements)
    found = {"positives": ops.equal(ids[:, None], ids[None, :])}
    if "mix_ratio" in y:
        others = _ids(y, judgements, "mix_")
        ratio = y["mix_ratio"][:, None]
        own = ops.cast(found["positives"], "float32")
        other = ops.cast(ops.equal(others[:, None], ids[None, :]), "float32")
        found["targets"] = ratio * own + (1.0 - ratio) * other
    if "relevance" in y:
        found["relevance"] = y["relevance"]
    return found


def _ids(y: dict[str, Any], judgements: Judgements, prefix: str = "") -> Any:
    return y[f"{prefix}image_id"] if judgements == "pairs" else y[f"{prefix}labels"][:, 0]
