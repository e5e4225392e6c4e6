"""Advice for training on photos of the user."""

from __future__ import annotations

from collections.abc import Callable

from data_pipelines.sources import Split
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.config.schema import Config
from keras_xmr.metrics import TOO_FEW
from keras_xmr.utils.documentation import page

_PAGE = "results/methods.md"
_FEW_FROM_SCRATCH = 5_000
_ENOUGH = 500

_GAINS = (
    (350, "nothing"),
    (750, "2 of 238 to the RSUM"),
    (1_500, "5 of 281 to the RSUM"),
    (3_000, "7 of 320 to the RSUM"),
    (5_000, "16 of 354 to the RSUM"),
    (1_000_000, "17 of 364 to the RSUM"),
)
"""Gain of `csv_pretrained` over CCA with CSLS on Flickr8K, up to a number of training photos
(docs/results/methods.md): with 200, 500, 1,000, 2,000, 4,000 and 5,996."""
_FEW_FOR_ENCODERS, _MANY_FOR_ENCODERS = 1_500, 4_000
"""With 500 and 1,000 photos there, encoders that train gain nothing over frozen ones at the same
pixels. Over `csv_pretrained`, which sees more pixels, they gain 4 of RSUM with 2,000, 11 with 4,000
and 17 with 5,996."""


def advice_before_training(config: Config, images: int) -> str | None:
    """Returns a warning about known failures with few training images, or None.

    Args:
        config: The config of the run.
        images: Number of training images.
    """
    if _starts_from_scratch(config) and images < _FEW_FROM_SCRATCH:
        return (
            f"{config.name} learns to see from {images:,} photos alone, which ends near chance; "
            f"begin with csv_pretrained ({page(_PAGE)})"
        )
    if _trains_encoders(config) and images < _FEW_FOR_ENCODERS:
        return (
            f"{config.name} trains both encoders on {images:,} photos, which gained nothing over "
            f"csv_pretrained with 500 and 1,000 photos of Flickr8K ({page(_PAGE)})"
        )
    return None


def larger_split(config: Config, split: Split, images: int) -> str | None:
    """Returns how to evaluate on more images, for a split that is too small for a conclusion,
    or None.

    Args:
        config: The config of the run.
        split: The split.
        images: Number of its images.
    """
    source, share = config.data.source, f"{split}_share"
    # A file of splits, or files per split, have precedence over the share.
    is_drawn = not (getattr(source, "splits", None) or getattr(source, split, None))
    if images >= TOO_FEW or not hasattr(source, share) or not is_drawn:
        return None
    return f"Add photos, or increase data.source.{share}, which is {getattr(source, share):g}."


def advice(
    config: Config, images: int, is_unknown: Callable[[], bool] = lambda: False
) -> str | None:
    """Returns the most promising improvement of a trained model, or None.

    Args:
        config: The config of the run.
        images: Number of training images.
        is_unknown: Whether the text encoder does not know the language of the captions.
    """
    if is_as_published(config):
        return "The model is as it was published (zero-shot): nothing was trained on such photos."
    if config.data.source.name != "csv":
        return None
    if _starts_from_scratch(config) and images < _FEW_FROM_SCRATCH:
        return f"It learned to see from {images:,} photos. Try csv_pretrained ({page(_PAGE)})."
    if images < _ENOUGH:
        if is_unknown():
            return (
                "The text encoder does not know the language or script of many captions: choose a "
                "text encoder of the language (model.text.encoder.preset)."
            )
        return f"It learned from {images:,} photos. More of them help: see {page(_PAGE)}."
    is_frozen = config.train.start == "cca" and not _trains_encoders(config)
    if is_frozen and images >= _MANY_FOR_ENCODERS:
        return (
            "Training both encoders, too, added 11 to the RSUM with 4,000 photos of Flickr8K and "
            "17 with 6,000, in up to an hour of processor time: csv_pretrained_trained "
            f"({page(_PAGE)})."
        )
    return None


def expected_gain(config: Config, images: int) -> str:
    """Says what training adds to the closed form with as many photos, as far as measured.

    Args:
        config: The config of the run.
        images: Number of training images.
    """
    if config.data.source.name != "csv":
        return ""
    gain = next((gain for most, gain in _GAINS if images <= most), _GAINS[-1][1])
    return f"; on Flickr8K this added {gain} with about as many photos ({page(_PAGE)})"


def _trains_encoders(config: Config) -> bool:
    """Returns whether both encoders train after maps that begin at CCA."""
    encoders = {"image.encoder", "text.encoder"}
    frees_both = (not encoders.intersection(phase.freeze) for phase in config.train.phases)
    return config.data.source.name == "csv" and config.train.start == "cca" and any(frees_both)


def _starts_from_scratch(config: Config) -> bool:
    return config.data.source.name == "csv" and config.model.image.encoder.name == "small_cnn"
