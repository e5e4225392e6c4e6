"""Validates embeddings that are passed from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_xmr.embeddings.kinds import Embedding, kind, shapes_of, tensors
from keras_xmr.layers.backend import is_at_hand, is_concrete, is_plain
from keras_xmr.parts.contracts import EmbeddingSpec
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.errors import ArgumentError

RANKS = {
    "mean": 2,
    "log_variance": 2,
    "offset": 2,
    "points": 3,
    "residuals": 3,
    "tokens": 3,
    "features": 3,
    "word_ids": 2,
    "samples": 3,
    "global": 2,
    "mask": 2,
}
"""The rank of each tensor of an embedding."""

_SHAPES = {
    "point": "a tensor (N, D)",
    "gaussian": 'a dict {"mean": (N, D), "log_variance": (N, D)}',
    "set": 'a dict {"points": (N, K, D)}',
    "tokens": 'a dict {"tokens": (N, L, D), "mask": (N, L)}',
}


def as_embedding(given: Any, name: str) -> Embedding:
    """Returns an embedding; a tensor (N, D) becomes points.

    Args:
        given: A tensor or an array, or a dict of them; see `keras_xmr.embeddings.kinds`.
        name: Name of the embedding in errors, for instance "images".

    Returns:
        A dict of float32 tensors. Tensors that are valid already are returned unchanged.

    Raises:
        ArgumentError: If it is not an embedding, or its parts differ in their number of items.
    """
    if is_plain(given, 2):
        return {"mean": given}
    arrays = dict(given) if isinstance(given, Mapping) else {"mean": given}
    if odd := [key for key in arrays if not isinstance(key, str)]:
        raise ArgumentError(f"{name}: {odd[0]!r} is no name of a tensor; {shapes()}")
    embedding: dict[str, Tensor] = {key: _tensor(v, key, name) for key, v in arrays.items()}
    try:
        kind(embedding)
    except ValueError as error:
        raise ArgumentError(f"{name}: {error}; {shapes()}") from None
    widths = {key: embedding[key].shape[-1] for key in ("mean", "log_variance") if key in embedding}
    if len({width for width in widths.values() if width is not None}) > 1:
        raise ArgumentError(f"{name}: a Gaussian has one variance per coordinate, not {widths}")
    sizes = {key: tensor.shape[0] for key, tensor in embedding.items()}
    if len({size for size in sizes.values() if size is not None}) > 1:
        raise ArgumentError(f"{name}: the parts of an embedding are of as many items, not {sizes}")
    if "tokens" in embedding:
        embedding["mask"] = _checked_mask(embedding, name)
    return embedding


def _checked_mask(embedding: Mapping[str, Any], name: str) -> Any:
    """Returns the mask of tokens, of their length and in their type."""
    if "mask" not in embedding:
        raise ArgumentError(
            f"{name}: tokens need a mask (N, L), which is 1 or True where there is a token; "
            f"{shapes('tokens')}"
        )
    lengths = {key: embedding[key].shape[1] for key in ("tokens", "mask")}
    if None not in lengths.values() and len(set(lengths.values())) > 1:
        raise ArgumentError(
            f"{name}: a mask has a number per token, and {lengths['tokens']} tokens have a mask of "
            f"{lengths['mask']}"
        )
    mask, dtype = embedding["mask"], embedding["tokens"].dtype
    if is_at_hand(mask):
        _check_mask_values(keras.ops.convert_to_numpy(mask), name)
    return mask if mask.dtype == dtype else keras.ops.cast(mask, dtype)


def _check_mask_values(mask: np.ndarray, name: str) -> None:
    """Checks that a mask (N, L) has 0 and 1 alone.

    Raises:
        ArgumentError: If it has not.
    """
    if not np.isin(mask, (0, 1)).all():
        raise ArgumentError(
            f"{name}: a mask is 1 or True where there is a token, and 0 or False elsewhere; this "
            "one has other numbers"
        )


def as_scores(given: object) -> Any:
    """Returns a score matrix (N, M) as a float tensor.

    Raises:
        ArgumentError: If it is not one.
    """
    scores = given if isinstance(given, keras.KerasTensor) else _floats(given, "scores", "scores")
    if len(scores.shape) != 2:
        raise ArgumentError(
            f"scores are of the shape (images, captions), not {tuple(scores.shape)}"
        )
    return scores


def shapes(*kinds: str) -> str:
    """Returns a hint on the form of embeddings of some kinds, or of every kind."""
    return "give " + ", or ".join(_SHAPES[kind] for kind in kinds or _SHAPES)


def shape_text(key: str) -> str:
    """Returns the shape of a tensor of an embedding, in words."""
    return "(B, D)" if RANKS.get(key, 2) == 2 else "(B, K, D)"


def check_fit(part: Any, image: Embedding, caption: Embedding, matcher: Any = None) -> None:
    """Checks that a loss, or a matcher, works on two embeddings, and that they are in one space.

    Args:
        part: The loss or the matcher.
        image: The embedding of images.
        caption: The embedding of captions.
        matcher: For a loss, the matcher of the scores that it reads; None for none.

    Raises:
        ArgumentError: If it does not, or a side is empty; the message has a hint.
    """
    _check_not_empty(image, "images")
    _check_not_empty(caption, "captions")
    made = EmbeddingSpec(kind(image), image.keys()), EmbeddingSpec(kind(caption), caption.keys())
    contract = getattr(matcher, "contract", None)
    log_odds = matcher is not None and (contract is None or contract.log_odds)
    for mismatch in part.contract.mismatches(*made, log_odds):
        hint = {
            "kinds": f", not {made[0].kind} and {made[1].kind}: {_accepted(part)}",
            "keys": ", which neither side has. Heads make them: PIENet, SlotAttention and "
            "DynamicSubEmbeddings residuals (N, K, D)",
            "scores": ": take a matcher such as keras_xmr.matchers.CosineLogits() for points or "
            "MatchProbability() for Gaussians, and keep it: its scale and shift are learned",
        }
        raise ArgumentError(f"{type(part).__name__} {mismatch.text}{hint[mismatch.about]}")
    sizes = [
        next((side[key].shape[-1] for key in _VECTORS if key in side), None)
        for side in (tensors(image), tensors(caption))
    ]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ArgumentError(
            f"images are embedded in {sizes[0]} dimensions and captions in {sizes[1]}; both towers "
            "end in one space"
        )
    _check_precision(image, caption)


def _check_not_empty(embedding: Embedding, name: str) -> None:
    """Checks that an embedding has items, vectors and dimensions.

    Raises:
        ArgumentError: If it does not.
    """
    for key, shape in shapes_of(embedding).items():
        if 0 in shape:
            raise ArgumentError(
                f"{name}: {key!r} is empty, of the shape {shape}; losses and matchers need at "
                "least one image and one caption, with a vector each"
            )


def _check_precision(image: Embedding, caption: Embedding) -> None:
    """Checks that all embeddings are of single, or all of double precision.

    Raises:
        ArgumentError: If they are not: TensorFlow multiplies no tensors of different precision.
    """
    arrays = (*tensors(image).items(), *tensors(caption).items())
    dtypes = {
        keras.backend.standardize_dtype(array.dtype) for key, array in arrays if key != "mask"
    }
    if len({dtype == "float64" for dtype in dtypes if dtype.startswith("float")}) > 1:
        raise ArgumentError(
            "some tensors of the embeddings are of float64 and others are not; cast all of them to "
            "one dtype, such as float32"
        )


_VECTORS = ("mean", "points", "tokens", "samples")
"""Keys of vectors in the common space of images and captions."""


def _accepted(part: Any) -> str:
    """Returns a hint on the kinds of embedding that a part accepts."""
    options = part.contract.options_for("accepts")
    others = ", or ".join(f"{name}={value!r}" for name, value in options.items())
    known = dict.fromkeys(kind for pair in part.contract.accepts for kind in pair)
    return shapes(*known) + (f", or take {others}" if others else "")


def items(embedding: Embedding) -> int | None:
    """Returns the number of items of an embedding; None in a graph of unknown size."""
    return next(iter(tensors(embedding).values())).shape[0]


def _tensor(value: object, key: str, name: str) -> Any:
    rank = RANKS.get(key)
    if rank is not None and is_plain(value, rank):
        return value
    # Outputs of towers and models pass unchanged.
    tensor = value if isinstance(value, keras.KerasTensor) else _floats(value, key, name)
    if rank is not None and len(tensor.shape) != rank:
        shape = ", ".join("NLD"[:rank]) if rank == 3 else "N, D"
        raise ArgumentError(
            f"{name}: {key!r} has the shape {tuple(tensor.shape)}, not ({shape}); {shapes()}"
        )
    return tensor


def _floats(value: Any, key: str, name: str) -> Any:
    """Returns numbers as a float32 tensor."""
    if layout := _foreign_layout(value):
        raise ArgumentError(
            f"{name}: {key!r} is {layout}; losses and matchers take dense tensors with values"
        )
    is_tensor = keras.ops.is_tensor(value)
    given = value if is_tensor else _as_array(value)
    dtype = "" if given is None else keras.backend.standardize_dtype(given.dtype)
    if key == "mask" and dtype.startswith(("bool", "int", "uint")):
        return keras.ops.cast(keras.ops.convert_to_tensor(given), "float32")
    if given is None or "float" not in dtype:
        raise ArgumentError(
            f"{name}: embeddings are float tensors, not {_describe_dtype(value)}. A text tower "
            "makes them of word ids, and `keras_xmr.load(run).embed_texts` of texts"
        )
    if not is_tensor:
        _check_sizes(given, key, name)
    # Arrays of NumPy are of float64 unless somebody chose another; a tensor was chosen to be.
    return keras.ops.convert_to_tensor(
        given, "float64" if is_tensor and "64" in dtype else "float32"
    )


def _foreign_layout(value: object) -> str:
    """Describes a tensor that is not a dense one of known values; empty for all others."""
    if type(value).__name__ in ("SparseTensor", "RaggedTensor", "BCOO"):
        return f"a {type(value).__name__}"
    if not (is_concrete(value) or getattr(value, "is_meta", False)):
        return ""
    for attribute, layout in _LAYOUTS.items():
        if getattr(value, attribute, False) is True:
            # Keras itself calls layers with tensors without values, for the output shapes.
            if attribute == "is_meta" and keras.ops.convert_to_tensor(0.0).is_meta:
                continue
            return layout
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return "masked in places, where NumPy would read what is under the mask"
    return ""


_LAYOUTS = {
    "is_sparse": "a sparse tensor",
    "is_sparse_csr": "a sparse tensor",
    "is_nested": "a nested tensor",
    "is_quantized": "a quantized tensor",
    "is_meta": "a tensor of the device meta, without values",
}
"""Attributes of tensors of PyTorch."""


def check_ranges(image: Embedding, caption: Embedding) -> None:
    """Checks, where a result is not finite, that no input is too large for float32.

    Raises:
        ArgumentError: If all numbers are finite, and the squares of vectors or the exponentials of
            log-variances are not.
    """
    for name, side in (("images", tensors(image)), ("captions", tensors(caption))):
        # Samples are as large as the deviations.
        if "log_variance" in side:
            largest = _largest(keras.ops.convert_to_numpy(side["log_variance"]))
            if _LARGEST_LOG_VARIANCE < largest < np.inf:
                raise ArgumentError(
                    f"{name}: log-variances are as large as {largest:.3g}, and float32 cannot take "
                    f"their exponential: keep them between -{_LARGEST_LOG_VARIANCE:g} and "
                    f"{_LARGEST_LOG_VARIANCE:g}"
                )
        for key in _VECTORS:
            if key in side:
                _check_sizes(keras.ops.convert_to_numpy(side[key]), key, name)


def _largest(array: np.ndarray) -> float:
    """Returns the largest absolute value; NaN where there is one."""
    return float(np.max(np.abs(array), initial=0.0))


def _check_sizes(array: np.ndarray, key: str, name: str) -> None:
    """Checks that all numbers can be squared in float32, or that some are not finite."""
    if array.dtype.kind != "f" or key not in _VECTORS:
        return
    largest = _largest(array)
    if _LARGEST < largest < np.inf:
        raise ArgumentError(
            f"{name}: {key!r} has numbers up to {largest:.3g}, which float32 cannot square: divide "
            "the vectors by their norms"
        )


_LARGEST = 1e18
"""Numbers up to here can be squared and added up in float32."""
_LARGEST_LOG_VARIANCE = 40.0
"""Up to here exponentials can be multiplied by squares, and added up, in float32."""


def _as_array(value: object) -> np.ndarray | None:
    """Returns numbers as an array that every framework takes; None if it is none of numbers."""
    try:
        array = np.asarray(to_numpy(value))
    except (TypeError, ValueError):
        return None
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)  # Such as float128, which no framework has.
    if array.dtype.name == "bfloat16":  # Of the package ml_dtypes, as JAX makes them.
        array = array.astype(np.float32)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # PyTorch takes no others.
    return array if array.dtype.kind in "biuf" else None


def to_numpy(value: object) -> Any:
    """Moves a tensor of the current backend to NumPy, without its gradient; others stay."""
    return keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value


def _describe_dtype(value: object) -> str:
    first = value[0] if isinstance(value, list | tuple) and value else value
    dtype = str(getattr(value, "dtype", ""))
    if isinstance(first, str | bytes) or "str" in dtype or dtype.startswith("<U"):
        return "texts"
    return dtype or type(value).__name__


def described(value: Any) -> str:
    """Returns a description of a value for error messages."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself; make one: {value.__name__}()"
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(value)}"
    if hasattr(value, "shape"):
        return f"one tensor, {value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, str):
        return repr(value)
    return "None" if value is None else f"a {type(value).__name__}"
