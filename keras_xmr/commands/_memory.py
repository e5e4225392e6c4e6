"""The message about exhausted memory. Does not import TensorFlow."""

from __future__ import annotations

import re
import sys
from typing import Any


def memory_error_message(error: Exception) -> str | None:
    """Returns the message for an error of Python, NumPy or TensorFlow about memory, or None."""
    tensorflow: Any = sys.modules.get("tensorflow")
    errors = (MemoryError, *([tensorflow.errors.ResourceExhaustedError] if tensorflow else []))
    if not isinstance(error, errors):
        return None
    shape = re.search(r"shape ?[\[(][\d, ]+[\])]", str(error))
    purpose = f" for an array of {shape[0]}" if shape else ""
    return (
        f"there is not enough memory{purpose}. To use less, reduce train.batch_size, "
        "evaluation.batch_size, evaluation.tile, data.image.size or model.dimension, or choose a "
        "smaller encoder; or close other programs that use memory or the GPU"
    )
