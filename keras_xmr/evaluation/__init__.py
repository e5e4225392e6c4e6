"""From a model and the records of a split to metrics.

`core`, `results` and `files` need no TensorFlow; modules that do are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_xmr.evaluation.embed import embed_split
    from keras_xmr.evaluation.evaluate import evaluate_split
    from keras_xmr.evaluation.results import Evaluation
    from keras_xmr.evaluation.scoring import score_matrices, score_matrix, score_tiles

_MODULES = {"Evaluation": "results", "embed_split": "embed", "evaluate_split": "evaluate"}

__all__ = [
    "Evaluation",
    "embed_split",
    "evaluate_split",
    "score_matrices",
    "score_matrix",
    "score_tiles",
]


def __getattr__(name: str) -> Any:
    """Imports a name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'scoring')}"), name)
