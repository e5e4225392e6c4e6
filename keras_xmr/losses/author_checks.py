"""Checks values that code of others returns: a loss of theirs, or a matcher that is a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import keras

from keras_xmr.embeddings.validation import described
from keras_xmr.utils.errors import ArgumentError


def check_terms(name: str, declared: Sequence[str], output: object) -> None:
    """Checks the terms that the `compute` of a loss has returned.

    Args:
        name: The name of the class of the loss.
        declared: The names of the terms in the contract.
        output: The value that was returned.

    Raises:
        ArgumentError: If these are not scalars by the names that are declared.
    """
    example = f"{{{', '.join(f'{term!r}: ...' for term in declared or ('value',))}}}"
    if not declared:
        raise ArgumentError(
            f"{name} declares no terms; write CONTRACT = LossContract(terms=(...)) with the "
            "keys that its compute returns"
        )
    if not isinstance(output, Mapping):
        raise ArgumentError(
            f"{name}.compute returned {described(output)}; return the terms of the loss as a "
            f"dict of scalars, {example}"
        )
    if set(output) != set(declared):
        raise ArgumentError(
            f"{name}.compute returned the terms {sorted(output)}, and CONTRACT declares "
            f"{sorted(declared)}; make them the same"
        )
    for term, value in output.items():
        is_number = hasattr(value, "dtype") or isinstance(value, float)
        if not is_number or len(getattr(value, "shape", ())):
            raise ArgumentError(
                f"{name}.compute returned {described(value)} as the term {term!r}; return a "
                "scalar, to which keras.ops.mean for instance reduces a tensor"
            )
        dtype = keras.backend.standardize_dtype(getattr(value, "dtype", "float32"))
        if dtype not in ("float32", "float64"):
            raise ArgumentError(
                f"{name}.compute returned {described(value)} as the term {term!r}; losses are "
                "float32: keras.ops.cast(..., 'float32')"
            )


def scores_by(matcher: Callable[..., object], images: object, captions: object) -> object:
    """Computes scores by a matcher of one's own.

    Raises:
        ArgumentError: If it returns no scores, or scores with captions as rows.
    """
    scores = matcher(images, captions)
    if isinstance(scores, (tuple, list, Mapping)):
        raise ArgumentError(
            f"the matcher returned a {type(scores).__name__}; it returns scores, a tensor of the "
            "shape (images, captions)"
        )
    of_images, of_captions, found = (
        tuple(getattr(each, "shape", ())) for each in (images, captions, scores)
    )
    expected = of_images[:1] + of_captions[:1]
    if len(set(expected)) == 2 and found == expected[::-1]:
        raise ArgumentError(
            f"the matcher returned scores of the shape {found}, and images are rows: {expected}"
        )
    return scores
