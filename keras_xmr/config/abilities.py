"""What the model of a config can be asked for beyond what it was trained for."""

from __future__ import annotations

from keras_xmr.config.model_compatibility import embedding_kinds
from keras_xmr.config.registry import components, declared
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
            f"the matcher {matcher} does not say how photos are searched by it: name the nearest "
            "of keras_xmr.index.augmentations in its SEARCH"
        )
    return ""


def is_as_published(config: Config) -> bool:
    """Whether nothing of the model is trained: its weights are those that were published."""
    return not config.train.phases and config.train.start == "random"


def attends(config: Config) -> bool:
    """Whether the image tower attends to places of a photo."""
    tower = config.model.image
    if config.data.source.holds != "images" or not declared("encoder", tower.encoder).local:
        return False
    pooling = tower.pooling and declared("pooling", tower.pooling)
    return bool(declared("head", tower.head).attends or (pooling and pooling.attends))


def further_matchers(config: Config) -> list[str]:
    """Matchers that can score the embeddings of the model, beside its own.

    Matchers of tokens learn weights, so none but the model's own can score them; what scores by
    direction ranks images by a caption as well as others do.
    """
    kinds = embedding_kinds(config)
    if "tokens" in kinds:
        return []
    own = config.model.matcher.name
    return [
        name
        for name, matcher in components("matcher").items()
        if kinds in matcher.contract.accepts and name != own
    ]
