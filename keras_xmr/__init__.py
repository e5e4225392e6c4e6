"""Image-text retrieval with many relevant items per query, in TensorFlow and Keras 3.

Every part can be imported separately (`docs/how_to/python.md`). Names in `__all__` here and in the
packages `losses`, `matchers`, `heads`, `heads.pooling`, `encoders`, `layers`, `embeddings`,
`optimizers`, `metrics`, `relevance` and `reranking` are stable: from one minor version to the
next they keep their meaning and their results, or the changelog has the replacement. So are the
command line, the keys of configs, and the files of a run. Everything else, and every name that
begins with `_`, may change at any time.

`import keras_xmr` imports neither TensorFlow nor Keras, and neither do `metrics`, `relevance` and
`reranking`. `keras_xmr.load` loads the model of a run. `keras.models.load_model` finds the classes
of a saved model after `import keras` and `import keras_xmr`, in this order.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_xmr import (
        embeddings,
        encoders,
        heads,
        layers,
        losses,
        matchers,
        metrics,
        relevance,
        reranking,
    )
    from keras_xmr.experiments.evaluation.arrays import evaluate
    from keras_xmr.experiments.evaluation.score_files import write_trec
    from keras_xmr.experiments.experiment import Experiment
    from keras_xmr.experiments.trained_model import TrainedModel, load, pretrained
    from keras_xmr.judgements import Judgements
    from keras_xmr.metrics.comparison import compare, compare_systems
    from keras_xmr.model.objective import Objective
    from keras_xmr.model.retriever import Retriever
    from keras_xmr.utils.errors import ArgumentError

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Experiment",
    "Judgements",
    "Objective",
    "Retriever",
    "TrainedModel",
    "compare",
    "compare_systems",
    "embeddings",
    "encoders",
    "evaluate",
    "heads",
    "layers",
    "load",
    "losses",
    "matchers",
    "metrics",
    "pretrained",
    "relevance",
    "reranking",
    "write_trec",
]

_FROM = {
    "ArgumentError": "keras_xmr.utils.errors",
    "Experiment": "keras_xmr.experiments.experiment",
    "Judgements": "keras_xmr.judgements",
    "Objective": "keras_xmr.model.objective",
    "Retriever": "keras_xmr.model.retriever",
    "TrainedModel": "keras_xmr.experiments.trained_model",
    "compare": "keras_xmr.metrics.comparison",
    "compare_systems": "keras_xmr.metrics.comparison",
    "evaluate": "keras_xmr.experiments.evaluation.arrays",
    "load": "keras_xmr.experiments.trained_model",
    "pretrained": "keras_xmr.experiments.trained_model",
    "write_trec": "keras_xmr.experiments.evaluation.score_files",
}


def __getattr__(name: str) -> Any:
    """Imports a part on its first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _FROM:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


# Whoever imports Keras first may load a saved model: Keras finds registered classes alone.
if "keras" in sys.modules and sys.modules["keras"].backend.backend() == "tensorflow":
    import_module("keras_xmr.model.retriever")
