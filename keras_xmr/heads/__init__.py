"""From local features to an embedding. One file a kind of embedding."""

from keras_xmr.heads.base import Head
from keras_xmr.heads.gaussian import Gaussian
from keras_xmr.heads.point import Point
from keras_xmr.heads.tokens import Tokens

__all__ = ["Gaussian", "Head", "Point", "Tokens"]
