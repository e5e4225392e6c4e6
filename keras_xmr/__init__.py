"""Image-text retrieval with many relevant items per query, in PyTorch, JAX and TensorFlow.

Every part can be imported separately (`docs/how_to/python.md`). Names in `__all__` here and in the
packages `losses`, `matchers`, `heads`, `heads.pooling`, `encoders`, `layers`, `embeddings`,
`optimizers`, `metrics`, `judgements`, `relevance` and `reranking` are stable: from one minor
version to the next they keep their meaning and their results, or the changelog has the replacement.
So are the command line, the keys of configs, and the files of a run. Everything else, and every
name that begins with `_`, may change at any time.

`import keras_xmr` imports no framework and no Keras, and neither do `metrics`, `judgements`,
`relevance` and `reranking`. If neither `KERAS_BACKEND` nor `keras.json` chooses a framework, Keras
takes the one that is imported already, or the first that is installed of TensorFlow, PyTorch and
JAX. `keras_xmr.load` loads the model of a run, `keras_xmr.load_model` a saved model.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keras_xmr.utils.backend_choice import choose_before_keras
from keras_xmr.utils.messages import no_attribute
from keras_xmr.utils.missing import explain, placeholder

if TYPE_CHECKING:
    from keras_xmr import (
        embeddings,
        encoders,
        heads,
        judgements,
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
    from keras_xmr.model.saved import load_model
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
    "judgements",
    "layers",
    "load",
    "load_model",
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
    "load_model": "keras_xmr.model.saved",
    "pretrained": "keras_xmr.experiments.trained_model",
    "write_trec": "keras_xmr.experiments.evaluation.score_files",
}

# Parts of models for TensorFlow alone; the others run with every framework.
_TENSORFLOW = (
    *("Experiment", "Retriever", "TrainedModel", "encoders", "evaluate"),
    *("load", "load_model", "pretrained"),
)


def __getattr__(name: str) -> Any:
    """Imports a part on its first use (PEP 562).

    A part whose packages are not installed is an object that says so at its first use, so that
    `help` and `dir` work.
    """
    if name not in __all__:
        raise no_attribute(__name__, name, __all__)
    try:
        module = import_module(_FROM.get(name, f"{__name__}.{name}"))
    except ImportError as error:
        message = explain(f"{__name__}.{name}", error, any_framework=name not in _TENSORFLOW)
        return placeholder(name, message, is_module=name not in _FROM)
    return getattr(module, name) if name in _FROM else module


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


choose_before_keras()

# Whoever imports Keras first may load a saved model: Keras finds registered classes alone.
if "keras" in sys.modules and sys.modules["keras"].backend.backend() == "tensorflow":
    import_module("keras_xmr.model.retriever")
