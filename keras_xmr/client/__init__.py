"""A client of an exported model behind TF Serving; it needs no TensorFlow over REST."""

from keras_xmr.client.client import ServingClient

__all__ = ["ServingClient"]
