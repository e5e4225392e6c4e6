"""Functional models from pixels, regions or word ids to embeddings."""

from keras_xmr.towers.tower import (
    features_of,
    image_tower,
    parts_of,
    text_tower,
    tower_on_features,
)

__all__ = ["features_of", "image_tower", "parts_of", "text_tower", "tower_on_features"]
