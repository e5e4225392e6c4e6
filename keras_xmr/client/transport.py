"""What carries requests to TF Serving."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np


class Transport(abc.ABC):
    """Asks one model of a server."""

    @abc.abstractmethod
    def predict(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs of a signature.

        Args:
            signature: Its name.
            inputs: What it takes: lists of texts or of bytes, or arrays.

        Raises:
            UserError: If the server cannot be reached, or refuses.
        """
