"""Who matches whom in a batch."""

from __future__ import annotations

from typing import Any, Literal

from keras import ops

from keras_xmr.losses import Relations

Judgements = Literal["pairs", "classes"]


def relations(y: dict[str, Any], judgements: Judgements) -> Relations:
    """Relations of the images and the captions of a global batch of pairs.

    Args:
        y: What identifies the B pairs: `image_id` (B,) and, with classes, `labels` (B, 1). If a
            loss needs it, also `relevance`, float32 (B, B), which is passed on.
        judgements: "pairs" calls a caption right for the image that it was written for, however
            often that image stands in the batch; "classes" for every image of its class.
    """
    ids = y["image_id"] if judgements == "pairs" else y["labels"][:, 0]
    found = {"positives": ops.equal(ids[:, None], ids[None, :])}
    if "relevance" in y:
        found["relevance"] = y["relevance"]
    return found
