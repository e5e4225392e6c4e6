"""What to say when memory does not suffice. Needs no TensorFlow."""

from __future__ import annotations

import re
import sys


def memory_trouble(error: Exception) -> str | None:
    """Returns the message for an error of Python, NumPy or TensorFlow about memory, or None."""
    if not (isinstance(error, MemoryError) or _is_exhausted(error)):
        return None
    asked = re.search(r"shape ?[\[(][\d, ]+[\])]", str(error))
    what = f" for an array of {asked[0]}" if asked else ""
    return (
        f"there is not enough memory{what}. What makes a run smaller: train.batch_size, "
        "evaluation.batch_size, evaluation.tile, data.image.size, model.dimension, a smaller "
        "encoder; or close other programs that use the memory or the GPU"
    )


def _is_exhausted(error: Exception) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(error, tensorflow.errors.ResourceExhaustedError)
