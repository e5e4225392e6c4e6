"""From pixels, regions or words to local features (B, L, F)."""

from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.convolutional import KerasApplications, SmallCNN
from keras_xmr.encoders.keras_hub import KerasHubImage, KerasHubText
from keras_xmr.encoders.region_features import VSRN, Regions
from keras_xmr.encoders.word_embedding import WordEmbedding
from keras_xmr.parts.contracts import EncoderContract

__all__ = [
    "VSRN",
    "Encoder",
    "EncoderContract",
    "EncoderError",
    "InputSpec",
    "KerasApplications",
    "KerasHubImage",
    "KerasHubText",
    "Regions",
    "SmallCNN",
    "WordEmbedding",
]
