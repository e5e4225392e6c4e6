"""Tokenizers of pretrained text encoders."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.text import Tokenizer
from keras_xmr.layers.keras_compat import with_sentencepiece_inside
from keras_xmr.utils.errors import UserError

if TYPE_CHECKING:
    import keras_hub

FOLDER = "tokenizer"
"""The subfolder of the tokenizer in the folder of a run."""

_CONFIG = "tokenizer.json"

_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""


class SubwordTokenizer(Tokenizer):
    """A tokenizer of KerasHub: WordPiece, byte-pair encoding or SentencePiece.

    The tokenizer consists of operations of TensorFlow Text, in every place: a process that runs an
    exported model has to `import tensorflow_text`. Captions are padded with -1, since 0 can be a
    token.

    Args:
        tokenizer: The tokenizer.
        max_words: Captions are cut after this many tokens.
        max_tokens: How many tokens the encoder can read, with the first and the last; None for
            any number.
        siglip2: Whether a SigLIP reads ids of the tokenizer of Gemma: captions are then lowered,
            and have no start token.
    """

    pad = -1

    def __init__(
        self,
        tokenizer: keras_hub.tokenizers.Tokenizer,
        max_words: int,
        max_tokens: int | None = None,
        siglip2: bool = False,
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.siglip2 = siglip2
        # A module of TensorFlow would track every piece of a list.
        self.vocabulary = tuple(_vocabulary(tokenizer))
        self.start = None if siglip2 else getattr(tokenizer, "start_token_id", None)
        self.end = getattr(tokenizer, "end_token_id", None)
        self.unknown = _unknown(tokenizer)
        mask = getattr(tokenizer, "mask_token_id", None)
        self.mask_id = self.unknown if mask is None else mask
        special = (self.start is not None) + (self.end is not None)
        self.max_words = max_words if max_tokens is None else min(max_words, max_tokens - special)

        def graph(call: Callable[..., Any], spec: tf.TensorSpec) -> Callable[..., Any]:
            # Called eagerly, KerasHub would take other code, which need not agree to the last id.
            call = with_sentencepiece_inside(tokenizer, call)
            return tf.function(call, input_signature=[spec], autograph=False)

        self._tokenize = graph(tokenizer.__call__, tf.TensorSpec([None], tf.string))
        self._detokenize = graph(tokenizer.detokenize, tf.TensorSpec([1, None], tf.int32))

    def pieces(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Ids int32 (N, tokens) of whole captions, without the first and the last."""
        texts = tf.convert_to_tensor(texts, tf.string)
        class_name = type(self.tokenizer).__name__
        if self.siglip2 or class_name in ("CLIPTokenizer", "SigLIPTokenizer"):
            # What their preprocessors do before they call the tokenizer.
            texts = tf.strings.lower(texts, encoding="utf-8")
        if class_name == "CLIPTokenizer":
            # CLIP reads digits one by one, which KerasHub does outside of TensorFlow alone.
            texts = tf.strings.regex_replace(texts, r"(\pN)", r" \1 ")
        if class_name == "SigLIPTokenizer":
            texts = tf.strings.regex_replace(texts, _PUNCTUATION, "")
            texts = tf.strings.strip(tf.strings.regex_replace(texts, r"\s+", " "))
        ids = tf.cast(self._tokenize(texts), tf.int32)
        # Byte-pair encoding gives -1 for bytes that a small vocabulary does not have.
        return tf.ragged.boolean_mask(ids, ids >= 0)

    def text(self, ids: np.ndarray) -> str:
        """Returns one caption from its ids (L,), without padding."""
        known = np.asarray(ids, np.int32)
        captions = [known[known >= 0]]
        if type(self.tokenizer).__name__ == "CLIPTokenizer":
            # KerasHub would forget the spaces, which are marks at the ends of words.
            closed = [i == self.start or self.vocabulary[i].endswith("</w>") for i in captions[0]]
            captions = np.split(captions[0], np.flatnonzero(closed) + 1)
        return " ".join(
            self._detokenize(caption[None]).numpy()[0].decode("utf-8") for caption in captions
        )

    def files(self) -> Mapping[str, bytes]:
        """Returns the config and the vocabulary of the tokenizer."""
        config = keras.saving.serialize_keras_object(self.tokenizer)
        # Keras counts the layers of a process in their names, which have no meaning here.
        config["config"].pop("name")
        described = {"max_tokens": self.max_tokens, "tokenizer": config}
        if self.siglip2:
            described["siglip2"] = True
        files = {_CONFIG: json.dumps(described, indent=1).encode("utf-8")}
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer.save_assets(folder)
            files |= {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return {f"{FOLDER}/{name}": content for name, content in files.items()}

    @classmethod
    def restore(cls, run: Path, max_words: int) -> SubwordTokenizer:
        """Returns the tokenizer of a run, from its folder.

        Args:
            run: The folder of the run.
            max_words: As in the constructor.

        Raises:
            UserError: If the folder holds no such tokenizer.
        """
        import keras_hub  # noqa: F401 (registers the tokenizers)

        folder = run / FOLDER
        try:
            described = json.loads((folder / _CONFIG).read_text("utf-8"))
            tokenizer = keras.saving.deserialize_keras_object(described["tokenizer"])
            tokenizer.load_assets(str(folder))
            siglip2 = described.get("siglip2", False)
            return cls(tokenizer, max_words, described["max_tokens"], siglip2)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{folder} does not hold the tokenizer that this run was trained with ({error}); "
                "copy the folder back, or train again"
            ) from None


def _vocabulary(tokenizer: keras_hub.tokenizers.Tokenizer) -> list[str]:
    """Returns the tokens by id; byte-pair encoding keeps them in any order."""
    ids = getattr(tokenizer, "vocabulary", None)
    if isinstance(ids, dict):
        return sorted(ids, key=lambda token: ids[token])
    return list(tokenizer.get_vocabulary())


def _unknown(tokenizer: keras_hub.tokenizers.Tokenizer) -> int | None:
    """Returns the id of unknown tokens; a tokenizer that falls back on bytes has none."""
    for name in ("unknown_token_id", "unk_token_id", "_unk_token_id"):
        if getattr(tokenizer, name, None) is not None:
            return int(getattr(tokenizer, name))
    token = getattr(tokenizer, "oov_token", None)
    return None if token is None else int(tokenizer.token_to_id(token))
