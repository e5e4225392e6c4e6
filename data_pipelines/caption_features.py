"""Features of captions, computed once: one memory-mapped file per split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_pipelines.resources import disk_message
from data_pipelines.shards import RecordsError, to_half
from data_pipelines.split_index import Strings
from keras_xmr.utils.files import NO_ARRAY, replace_atomically


@dataclass(frozen=True, eq=False)
class CaptionFeatures:
    """The features of the tokens of every caption of a split, in the order of its records.

    Attributes:
        tokens: Features of all tokens, one caption after another, float16 (T, F).
        first: The first token of each caption, and T: int64 (captions + 1,).
    """

    tokens: np.ndarray
    first: np.ndarray

    def read(self, captions: np.ndarray) -> np.ndarray:
        """Reads features of captions, float32 (B, L, F), padded with zeros.

        For a single caption, indexed by a scalar, they are (L, F).
        """
        if not np.ndim(captions):
            return self.tokens[self.first[captions] : self.first[captions + 1]].astype(np.float32)
        lengths = self.first[captions + 1] - self.first[captions]
        shape = (len(captions), lengths.max(initial=1), self.tokens.shape[1])
        padded = np.zeros(shape, np.float32)
        for row, caption, length in zip(padded, captions, lengths, strict=True):
            begin = self.first[caption]
            row[:length] = self.tokens[begin : begin + length]
        return padded

    @classmethod
    def open(cls, folder: Path, name: str) -> CaptionFeatures | None:
        """Opens the features; returns None if they were not computed.

        Raises:
            RecordsError: If a file is damaged.
        """
        tokens, first = _files(folder, name)
        try:
            with np.load(first, allow_pickle=False) as file:
                starts, width = file["first"], int(file["width"])
            flat = np.memmap(tokens, np.dtype("<f2"), mode="r")
            return cls(flat.reshape(starts[-1], width), starts)
        except FileNotFoundError:
            return None
        except (*NO_ARRAY, TypeError, KeyError) as error:
            raise RecordsError(
                f"the features of captions in {folder} are damaged ({error}); delete that folder, "
                "and a training writes them again"
            ) from None


def features_name(split: str, texts: Strings) -> str:
    """Returns the file name of the features of a split, which depends on the captions."""
    return f"{split}-{texts.digest()}"


def write_caption_features(
    folder: Path, name: str, batches: Iterable[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Writes the features of all captions of a split, whole or not at all.

    Args:
        folder: Folder of the files.
        name: Name from `features_name`.
        batches: Features (B, L, F) and their mask, boolean (B, L), in order.

    Raises:
        RecordsError: If a feature overflows half precision, all features of a token are 0,
            or the disk is full.
    """
    tokens, first = _files(folder, name)
    lengths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replace_atomically(tokens) as temporary, temporary.open("wb") as file:
            for features, mask in batches:
                half = to_half(features[mask], folder, "a caption", "train.precompute_captions")
                if not half.any(axis=1).all():
                    raise RecordsError(
                        f"{folder}: all features of a word are 0, as behind the last word of a "
                        "caption; train without train.precompute_captions"
                    )
                file.write(half.tobytes())
                lengths.append(mask.sum(axis=1))
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        with replace_atomically(first, ".npz") as temporary:
            np.savez(temporary, first=np.concatenate([[0], ends]), width=half.shape[1])
    except OSError as error:
        raise RecordsError(disk_message(folder, error)) from error


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}-tokens.f2", folder / f"{name}-first.npz"
