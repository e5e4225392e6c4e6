"""Text backbones of KerasHub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from keras import ops

from data_pipelines.option_types import NonNegativeInt, PositiveInt
from data_pipelines.text import Tokenizer
from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.presets import SIGLIP, Preset, weight_files
from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer
from keras_xmr.layers import BagOfWords, TextBackbone
from keras_xmr.layers.backbone import number_of_layers

_KEY = "model.text.encoder"
BAG_LENGTH = 0.5
"""The length of a bag of words, where the average of a layer has a length of 1."""


@dataclass(kw_only=True, eq=False)
class KerasHubText(Encoder):
    """A text backbone of KerasHub: the BERT family, or the text tower of CLIP or SigLIP.

    Its tokenizer is used in training, in evaluation and in the exported model. While it is frozen
    it works as in inference.

    Args:
        preset: A name of KerasHub, such as `bert_base_en_uncased` or `clip_vit_base_patch16`, an
            address (`hf://user/model`, `kaggle://...`), or a folder that `save_to_preset` wrote
            or that is in the layout of transformers (config.json, model.safetensors).
        weights: `preset` loads the weights of the preset; a path loads a file of weights
            (`.weights.h5` or `.keras`) of the whole backbone; null starts at random.
        output: `tokens` gives the features of all tokens. `average` gives one vector: their
            average, for each of `layers` on the unit sphere, which takes less space where features
            are stored. `pooled` gives one vector, which any pooling passes on: the first token of
            the BERT family, and the embedding of CLIP and of SigLIP in their joint space.
        layers: Transformer layers, from 1, with features that are concatenated. Null takes the
            output of the backbone. Earlier layers have more of the words and less of the sentence.
        bag_of_words: With `output: average`, the number of most frequent tokens of the training
            captions of which a bag of words is appended: averages blur single words. 0 for none.
    """

    CONTRACT = EncoderContract(
        side="text",
        reads="words",
        when=(({"output": "pooled"}, {"local": False}), ({"output": "average"}, {"local": False})),
    )

    preset: str = "bert_base_en_uncased"
    weights: str | None = "preset"
    output: Literal["tokens", "average", "pooled"] = "tokens"
    layers: tuple[PositiveInt, ...] | None = None
    bag_of_words: NonNegativeInt = 0

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Ids (B, L), padded with -1, to features (B, L, F) or (B, 1, F), and their mask."""
        preset = Preset(self.preset, "text")
        backbone, linear = preset.tower(self.weights if spec.pretrained else None)
        if len(spec.vocabulary) > backbone.vocabulary_size:
            raise EncoderError(
                f"{_KEY}.preset: the tokenizer has {len(spec.vocabulary):,} tokens, but the "
                f"backbone of {self.preset} knows {backbone.vocabulary_size:,}; they do not belong "
                "together"
            )
        self._check_layers(backbone)
        projects = self.output == "pooled" and linear is not None
        layer = TextBackbone(
            backbone,
            output=self.output,
            layers=self.layers,
            pad=_padding(backbone, spec.vocabulary),
            projection=linear.units if projects else None,
            name="encoder",
        )
        features, mask = layer(inputs)
        if projects:
            layer.linear.set_weights(linear.get_weights())
        if self.bag_of_words:
            # Not a part of "encoder": files of the preset do not have its vocabulary.
            size = backbone.vocabulary_size
            bag = BagOfWords(self.bag_of_words, size, name="bag_of_words")(inputs)
            features = ops.concatenate([features, BAG_LENGTH * bag[:, None]], axis=-1)
        return features, mask

    def weight_files(self) -> list[Path]:
        """The files of a preset that is a folder."""
        return weight_files(self.preset, self.weights)

    def _check_layers(self, backbone: Any) -> None:
        if self.bag_of_words and self.output != "average":
            raise EncoderError(f"{_KEY}.bag_of_words: it needs output: average")
        if self.layers is None:
            return
        if self.output == "pooled":
            raise EncoderError(f"{_KEY}.layers: output: pooled takes no features of layers")
        count = number_of_layers(backbone)
        wrong = [number for number in self.layers if number > count]
        if wrong or not self.layers:
            has = f"has {count} layers" if count else "has no layers with numbered names"
            raise EncoderError(
                f"{_KEY}.layers: {list(self.layers)} does not fit {self.preset}, which {has}; "
                "write null for the last one"
            )

    def tokenizer(self, max_words: int) -> Tokenizer:
        """The tokenizer of the preset."""
        preset = Preset(self.preset, "text")
        tokenizer = preset.tokenizer()
        is_gemma = type(tokenizer).__name__ == "GemmaTokenizer"
        siglip2 = is_gemma and preset.kind == SIGLIP
        return SubwordTokenizer(tokenizer, max_words, preset.max_tokens(), siglip2)

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer:
        """The tokenizer in the folder of a run."""
        return SubwordTokenizer.restore(run, max_words)


def _padding(backbone: Any, vocabulary: Sequence[str]) -> int | None:
    """The padding id of SigLIP 2, that of Gemma; None for others, which repeat the last token."""
    is_gemma = type(backbone).__name__ == "SigLIPTextEncoder" and "<eos>" in vocabulary
    return vocabulary.index("<pad>") if is_gemma else None
