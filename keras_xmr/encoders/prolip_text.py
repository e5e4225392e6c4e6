"""The text tower of ProLIP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_pipelines.text import Tokenizer
from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import InputSpec
from keras_xmr.encoders.pretrained.prolip import ProlipError, ProlipFolder
from keras_xmr.encoders.prolip_base import ProlipEncoder
from keras_xmr.layers.prolip import ProlipTower


class ProlipText(ProlipEncoder):
    """The text tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    It makes ids (B, L), padded with -1, to (B, 2, D): two positions, for the head `prolip`. It
    brings the tokenizer of SigLIP, which lowers letters and leaves punctuation out. Underscores are
    left out, too, which the released code makes spaces of.
    """

    CONTRACT = EncoderContract(side="text", reads="words")

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        tower = folder.text_tower(name="encoder")
        if len(spec.vocabulary) > tower.vocabulary:
            raise ProlipError(
                f"the tokenizer has {len(spec.vocabulary):,} tokens, and this ProLIP knows "
                f"{tower.vocabulary:,}"
            )
        return tower

    def tokenizer(self, max_words: int) -> Tokenizer:
        """That of SigLIP."""
        import keras_hub

        from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer

        with self.read() as folder:
            tokenizer = keras_hub.tokenizers.SigLIPTokenizer(folder.pieces())
        return SubwordTokenizer(tokenizer, max_words, folder.length)

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer:
        """The tokenizer that was kept in the folder of a run."""
        from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer

        return SubwordTokenizer.restore(run, max_words)
