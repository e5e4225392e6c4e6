"""From a model and the records of a split to metrics and a report.

`core`, `results` and `files` need no TensorFlow; modules that do are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_xmr.evaluation.embed import (
        EmbeddedSplit,
        embed_captions,
        embed_images,
        embed_split,
    )
    from keras_xmr.evaluation.evaluate import Evaluation, evaluate_split
    from keras_xmr.evaluation.scoring import score_matrices, score_matrix, score_tiles

_FROM = {
    "EmbeddedSplit": "results",
    "Evaluation": "results",
    "embed_captions": "embed",
    "embed_images": "embed",
    "embed_split": "embed",
    "evaluate_split": "evaluate",
    "score_matrices": "scoring",
    "score_matrix": "scoring",
    "score_tiles": "scoring",
}

__all__ = [
    "EmbeddedSplit",
    "Evaluation",
    "embed_captions",
    "embed_images",
    "embed_split",
    "evaluate_split",
    "score_matrices",
    "score_matrix",
    "score_tiles",
]


def __getattr__(name: str) -> Any:
    """Imports a name on first use (PEP 562)."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
