"""Abilities of the model of a config: indexing, attention maps, further matchers."""

from __future__ import annotations

from keras_xmr.config.model_compatibility import embedding_kinds
from keras_xmr.config.registry import components, contract_of
from keras_xmr.config.schema import Config


def why_not_indexed(config: Config) -> str:
    """Why photos cannot be indexed with the model; empty if they can."""
    if config.data.source.holds != "images":
        return (
            "photos cannot be indexed with a model of precomputed features of regions; train a "
            "config with photos, such as csv_pretrained"
        )
    matcher = config.model.matcher.name
    if components("matcher")[matcher].search is None:
        return (
            f"the matcher {matcher} does not declare how it searches photos: name the nearest "
            "of keras_xmr.index.augmentations in its SEARCH"
        )
    return ""


def is_as_published(config: Config) -> bool:
    """Whether nothing of the model is trained: its weights are the published ones."""
    return not config.train.phases and config.train.start == "random"


def attends(config: Config) -> bool:
    """Whether the image tower attends to positions of a photo."""
    tower = config.model.image
    if config.data.source.holds != "images" or not contract_of("encoder", tower.encoder).local:
        return False
    pooling = tower.pooling and contract_of("pooling", tower.pooling)
    return bool(contract_of("head", tower.head).attends or (pooling and pooling.attends))


def further_matchers(config: Config) -> list[str]:
    """Matchers that can score the embeddings of the model, in addition to `model.matcher`.

    None for tokens, whose matchers learn weights. Directed matchers are included.
    """
    kinds = embedding_kinds(config)
    if "tokens" in kinds:
        return []
    trained = config.model.matcher.name
    return [
        name
        for name, matcher in components("matcher").items()
        if kinds in matcher.contract.accepts and name != trained
    ]
