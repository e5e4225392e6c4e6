"""The kinds of embedding, and functions of them.

An embedding is a dict of float32 tensors, whatever the precision of the towers. Its kind shows
in its keys:

| kind | keys |
| --- | --- |
| point | `mean` (B, D) |
| gaussian | `mean` (B, D), `log_variance` (B, D) |
| set | `points` (B, K, D), and further keys for the losses on sets |
| tokens | `tokens` (B, L, D), `mask` (B, L) |

The losses on sets need `residuals` (B, K, D), which local attention adds to the global vector. The
mask of tokens is 1 where one counts and 0 in the
padding, where tokens are 0 too. A matcher may add `samples` (B, J, D) to a Gaussian embedding, and
`global` vectors (B, D) to tokens. A point may have an `offset` (B, D), half the widths of a
rectangle around it. A head may keep for a loss the local `features` (B, L, F) that a point was made
of, and the model adds the `word_ids` (B, L) of captions, with -1 or the id of the padding behind
them, if a loss reads them.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict, cast, final

import keras

from keras_xmr.parts.tensors import Shapes, Tensor


@final
class Point(TypedDict):
    """A vector per item."""

    mean: Tensor
    offset: NotRequired[Tensor]
    features: NotRequired[Tensor]
    word_ids: NotRequired[Tensor]


@final
class Gaussian(TypedDict):
    """A normal distribution with a diagonal covariance per item."""

    mean: Tensor
    log_variance: Tensor
    samples: NotRequired[Tensor]
    word_ids: NotRequired[Tensor]


@final
class PointSet(TypedDict):
    """A set of K vectors per item."""

    points: Tensor
    residuals: NotRequired[Tensor]
    word_ids: NotRequired[Tensor]


class _Global(TypedDict("_Global", {"global": NotRequired[Tensor]})):
    """The global vector, whose key is a keyword of Python."""


@final
class Tokens(_Global):
    """A vector per region, or per word, of an item."""

    tokens: Tensor
    mask: Tensor
    saf_global: NotRequired[Tensor]
    sgr_global: NotRequired[Tensor]
    word_ids: NotRequired[Tensor]


Embedding = Point | Gaussian | PointSet | Tokens | dict[str, Tensor]
"""An embedding of any kind; the dict of a caller is one, too."""


def tensors(embedding: Embedding) -> dict[str, Tensor]:
    """Returns an embedding of any kind as the dict that it is, for code that treats all alike."""
    return cast(dict[str, Tensor], embedding)


def shapes_of(embedding: Embedding) -> Shapes:
    """Returns the shape of each tensor of an embedding."""
    return {key: tuple(tensor.shape) for key, tensor in tensors(embedding).items()}


KEYS = {
    "point": ("mean",),
    "gaussian": ("mean", "log_variance"),
    "set": ("points",),
    "tokens": ("tokens", "mask"),
}
"""The keys of each kind of embedding."""

_FOR_LOSSES = ("features", "word_ids")


def kind(embedding: Embedding) -> str:
    """Returns the kind of an embedding: "point", "gaussian", "set" or "tokens".

    Samples come from a Gaussian, which a matcher can score alone.

    Raises:
        ValueError: If its keys fit no kind.
    """
    if "samples" in embedding or {"mean", "log_variance"} <= embedding.keys():
        return "gaussian"
    for name, key in (("set", "points"), ("tokens", "tokens"), ("point", "mean")):
        if key in embedding:
            return name
    raise ValueError(f"no kind of embedding has the keys {sorted(embedding)}")


def points(embedding: Embedding) -> Tensor:
    """Returns the points (B, K, D) of a set; of a point, that one alone (B, 1, D)."""
    known = tensors(embedding)
    return known["points"] if "points" in known else known["mean"][:, None, :]


def vectors(embedding: Embedding, *keys: str) -> Tensor:
    """Returns all vectors (N * J, D): of the first of `keys` that it has, or else the means."""
    known = tensors(embedding)
    for key in keys:
        if key in known:
            return keras.ops.reshape(known[key], (-1, known[key].shape[-1]))
    return known["mean"]


def for_matching(embedding: Embedding) -> Embedding:
    """Drops keys that only losses need: what is left is scored, stored and exported."""
    if "points" in embedding:
        return {"points": embedding["points"]}
    return {key: tensor for key, tensor in tensors(embedding).items() if key not in _FOR_LOSSES}


def deviation(embedding: Gaussian) -> Tensor:
    """Returns the standard deviations (B, D) of a Gaussian embedding."""
    return keras.ops.exp(0.5 * embedding["log_variance"])


def log_sigma(embedding: Gaussian) -> Tensor:
    """Returns the uncertainty of each item: log of the geometric mean of sigma, (B,).

    The uncertainty grows with the volume of the distribution (Chun et al. 2021, section 3.2.1).
    """
    return 0.5 * keras.ops.mean(embedding["log_variance"], axis=-1)
