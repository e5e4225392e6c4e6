"""Advice for training on photos of the user."""

from __future__ import annotations

from data_pipelines.documentation import page
from keras_xmr.config.model_compatibility import is_as_published
from keras_xmr.config.schema import Config

_PAGE = "results/own_photos.md"
_FEW_FROM_SCRATCH = 5_000
_ENOUGH = 500


def advice_before_training(config: Config, images: int) -> str | None:
    """A warning about known failures with few training images, or None.

    Args:
        config: The config of the run.
        images: Number of training images.
    """
    if not _starts_from_scratch(config) or images >= _FEW_FROM_SCRATCH:
        return None
    return (
        f"{config.name} learns to see from {images:,} photos alone, which ends near chance; "
        f"begin with csv_pretrained ({page(_PAGE)})"
    )


def advice(config: Config, images: int) -> str | None:
    """The most promising improvement of a trained model, or None.

    Args:
        config: The config of the run.
        images: Number of training images.
    """
    if is_as_published(config):
        return "The model is as it was published (zero-shot): nothing was trained on such photos."
    if config.data.source.name != "csv":
        return None
    if _starts_from_scratch(config) and images < _FEW_FROM_SCRATCH:
        return f"It learned to see from {images:,} photos. Try csv_pretrained ({page(_PAGE)})."
    if images < _ENOUGH:
        return f"It learned from {images:,} photos. More of them help: see {page(_PAGE)}."
    return None


def _starts_from_scratch(config: Config) -> bool:
    return config.data.source.name == "csv" and config.model.image.encoder.name == "small_cnn"
