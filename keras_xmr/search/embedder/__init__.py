"""Embeds photos and texts by ONNX Runtime: all that an index needs of a model."""

from keras_xmr.search.embedder.embedder import Embedder
from keras_xmr.search.embedder.sessions import EmbedderError

__all__ = ["Embedder", "EmbedderError"]
