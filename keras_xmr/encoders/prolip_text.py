"""The text tower of ProLIP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_pipelines.text import Tokenizer
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.prolip import ProlipError, ProlipFolder, weight_files

_KEY = "model.text.encoder.folder"


class ProlipText(Encoder):
    """The text tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    Its features are two positions, for the head `prolip`. It brings the tokenizer of SigLIP, which
    lowers letters and leaves punctuation out. Underscores are left out, too, which the released
    code makes spaces of.

    Args:
        folder: A folder with `config.json` and `model.safetensors` of a published ProLIP, and
            with `spiece.model`, the tokenizer of SigLIP.
        published: Whether the published weights are loaded; or else it starts at random, and the
            folder needs no `model.safetensors`.
    """

    SIDE = "text"
    INPUT = "words"

    def __init__(self, *, folder: str = "data/raw/prolip", published: bool = True) -> None:
        self.folder = folder
        self.published = published

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Ids (B, L), padded with -1, to (B, 2, D), without a mask."""
        try:
            folder = ProlipFolder(self.folder)
            tower = folder.text_tower(name="encoder")
            if len(spec.vocabulary) > tower.vocabulary:
                raise ProlipError(
                    f"the tokenizer has {len(spec.vocabulary):,} tokens, and this ProLIP knows "
                    f"{tower.vocabulary:,}"
                )
            features = tower(inputs)
            if self.published and spec.pretrained:
                folder.load(tower)
        except ProlipError as error:
            raise EncoderError(f"{_KEY}: {error}") from None
        return features, None

    def weight_files(self) -> list[Path]:
        """Those of the folder."""
        return weight_files(self.folder) if self.published else []

    def tokenizer(self, max_words: int) -> Tokenizer:
        """That of SigLIP."""
        import keras_hub

        from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer

        try:
            folder = ProlipFolder(self.folder)
            tokenizer = keras_hub.tokenizers.SigLIPTokenizer(folder.pieces())
        except ProlipError as error:
            raise EncoderError(f"{_KEY}: {error}") from None
        return SubwordTokenizer(tokenizer, max_words, folder.length)

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer:
        """The tokenizer that was kept in the folder of a run."""
        from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer

        return SubwordTokenizer.restore(run, max_words)
