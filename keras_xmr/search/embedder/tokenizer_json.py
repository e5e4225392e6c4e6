"""Tokenizers of published models, as `tokenizer.json` describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_xmr.search.embedder.text_tokenizer import TextTokenizer, lower


class JsonTokenizer(TextTokenizer):
    """Tokenizer of the library `tokenizers`, with the special tokens of its file.

    Args:
        content: The content of `tokenizer.json`.
        max_tokens: Longer texts are truncated; special tokens count.
        pad: Id of the padding.
        is_padded: Whether every text is padded to `max_tokens`, as SigLIP was trained.
        lowercase: Whether texts are lowered before.

    Raises:
        ValueError: If the file is damaged.
    """

    def __init__(
        self, content: bytes, max_tokens: int, pad: int, is_padded: bool, lowercase: bool
    ) -> None:
        import tokenizers

        super().__init__(max_tokens)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
            self._tokenizer.enable_truncation(max_tokens)
            self._tokenizer.no_padding()
            self._tokenizer.encode("a photo")
        except Exception as error:  # The library raises this class alone.
            raise ValueError(str(error)) from None
        self._pad, self.has_one_length, self._lowercase = pad, is_padded, lowercase
        self.unknown = self._unknown()

    def _unknown(self) -> int | None:
        """Returns the id of unknown words, unless it also ends a text."""
        name = getattr(self._tokenizer.model, "unk_token", None)
        number = None if name is None else self._tokenizer.token_to_id(name)
        return None if number in self._tokenizer.encode("").ids else number

    def _encode(self, text: str, special: bool) -> list[int]:
        text = lower(text) if self._lowercase else text
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def pieces(self, text: str) -> list[int]:
        return self._encode(text, special=False)

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = [self._encode(text, special=True) for text in texts]
        longest = max((*map(len, rows), 1))
        ids = np.full((len(rows), self.max_tokens if self.has_one_length else longest), self._pad)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        return ids, mask


def json_tokenizer(files: Mapping[str, bytes], options: Mapping[str, Any]) -> TextTokenizer:
    """Makes a tokenizer from its file; see `JsonTokenizer`."""
    return JsonTokenizer(files["tokenizer.json"], **options)
