"""Facts about the model of a config."""

from __future__ import annotations

from keras_xmr.experiments.config.schema import Config


def why_not_indexed(config: Config) -> str:
    """Returns why photos cannot be indexed with the model; empty if they can."""
    if config.data.source.holds != "images":
        return (
            "photos cannot be indexed with a model of precomputed features of regions; train a "
            "config with photos, such as csv_pretrained"
        )
    matcher = config.model.matcher.name
    if config.model.matcher.part.SEARCH is None:
        return (
            f"the matcher {matcher} does not declare how it searches photos: name the nearest "
            "of keras_xmr.search.augmentations in its SEARCH"
        )
    return ""


def is_as_published(config: Config) -> bool:
    """Returns whether nothing of the model is trained: its weights are the published ones."""
    return not config.train.phases and config.train.start == "random"


def attends(config: Config) -> bool:
    """Returns whether the image tower attends to positions of a photo."""
    tower = config.model.image
    if config.data.source.holds != "images" or not tower.encoder.contract.local:
        return False
    pooling = tower.pooling and tower.pooling.contract
    return bool(tower.head.contract.attends or (pooling and pooling.attends))
