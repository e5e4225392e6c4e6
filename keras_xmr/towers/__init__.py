"""Functional models from pixels, regions or word ids to embeddings."""

from keras_xmr.towers.tower import image_tower, parts_of, text_tower

__all__ = ["image_tower", "parts_of", "text_tower"]
