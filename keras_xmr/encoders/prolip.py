"""The encoders of ProLIP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_pipelines.text import Tokenizer
from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.prolip import ProlipError, ProlipFolder, weight_files
from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer
from keras_xmr.layers.prolip import ProlipTower


class _ProlipEncoder(Encoder):
    """A tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    Its features are two positions, for the head `prolip`. A subclass implements `tower`.

    Args:
        folder: A folder with `config.json` and `model.safetensors` of a published ProLIP, and for
            the text tower with `spiece.model`, the tokenizer of SigLIP.
        published: Whether the published weights are loaded; or else it starts at random, and the
            folder needs no `model.safetensors`.
    """

    CONTRACT = EncoderContract(positions=2)

    def __init__(self, *, folder: str = "data/raw/prolip", published: bool = True) -> None:
        self.folder = folder
        self.published = published

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        """The tower of a folder, with random weights.

        Raises:
            ProlipError: If it does not fit the inputs.
        """
        raise NotImplementedError

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Features (B, 2, D), without a mask."""
        with self.read() as folder:
            tower = self.tower(folder, inputs, spec)
            features = tower(inputs)
            if self.published and spec.pretrained:
                folder.load(tower)
        return features, None

    def weight_files(self) -> list[Path]:
        """The files of the folder."""
        return weight_files(self.folder) if self.published else []

    @contextmanager
    def read(self) -> Iterator[ProlipFolder]:
        """Opens the folder; errors name the key of the config."""
        try:
            yield ProlipFolder(self.folder)
        except ProlipError as error:
            raise EncoderError(f"model.{self.CONTRACT.side}.encoder.folder: {error}") from None


class ProlipImage(_ProlipEncoder):
    """The image tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    It makes pixels (B, H, W, 3) to (B, 2, D): two positions, for the head `prolip`.
    """

    CONTRACT = EncoderContract(side="image", reads="pixels")

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        if inputs.shape[1] != folder.image_size:
            raise ProlipError(
                f"this ProLIP sees {folder.image_size} pixels, and data.image.size is "
                f"{inputs.shape[1]}"
            )
        return folder.image_tower(name="encoder")


class ProlipText(_ProlipEncoder):
    """The text tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    It makes ids (B, L), padded with -1, to (B, 2, D): two positions, for the head `prolip`. Its
    tokenizer is that of SigLIP, which lowers letters and removes punctuation; underscores too,
    which the released code replaces by spaces.
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
        """The tokenizer of SigLIP."""
        import keras_hub

        with self.read() as folder:
            tokenizer = keras_hub.tokenizers.SigLIPTokenizer(folder.pieces())
        return SubwordTokenizer(tokenizer, max_words, folder.length)

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer:
        """The tokenizer in the folder of a run."""
        return SubwordTokenizer.restore(run, max_words)
