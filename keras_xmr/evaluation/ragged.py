"""Token embeddings without their padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Ragged:
    """Items of different lengths, one after another: memory follows the tokens, not the longest.

    25,000 captions of 13 tokens of 1,024 numbers are 1.3 GB (twice that while they are joined);
    padded to 60 tokens they would be 6.1 GB.

    Args:
        values: The tokens of all items (tokens, ...).
        lengths: Number of tokens per item (items,).
    """

    def __init__(self, values: np.ndarray, lengths: np.ndarray) -> None:
        self.values = values
        self.lengths = lengths
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, items: slice | np.ndarray) -> np.ndarray:
        """Some items, padded with 0 to the longest of them: (items, longest, ...)."""
        lengths = self.lengths[items]
        counts = np.arange(lengths.max(initial=1)) < lengths[:, None]
        padded = np.zeros((*counts.shape, *self.values.shape[1:]), self.values.dtype)
        places = (self._ends[items] - lengths)[:, None] + np.arange(counts.shape[1])
        padded[counts] = self.values[places[counts]]
        return padded

    def take(self, items: np.ndarray) -> Ragged:
        """Some items, without padding."""
        lengths = self.lengths[items]
        begins = np.repeat(self._ends[items] - lengths, lengths)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Ragged(self.values[begins + within], lengths)


def join(batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Ragged]:
    """The token embedding of a split.

    Args:
        batches: The tokens of each batch without padding (tokens, D), and the number per item
            (items,).
    """
    lengths = np.concatenate([lengths for _, lengths in batches])
    values = np.concatenate([tokens for tokens, _ in batches])
    ones = np.ones(len(values), np.float32)
    return {"tokens": Ragged(values, lengths), "mask": Ragged(ones, lengths)}
