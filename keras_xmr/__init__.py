"""Image-text retrieval with many right answers, in TensorFlow and Keras 3.

`import keras_xmr` registers everything that `keras.models.load_model` needs.
"""

import sys
from pathlib import Path


def _is_command_line() -> bool:
    """Whether this process is the project's own command line.

    It answers `--help` and mistakes in a config before TensorFlow is imported, which takes
    seconds, and imports what it needs later. Everybody else gets all of it at once.
    """
    if sys.argv[:1] == ["-m"]:  # `python -m` imports the package before it knows the file.
        words = sys.orig_argv
        return "-m" in words and words[words.index("-m") + 1] == "keras_xmr"
    main = sys.modules.get("__main__")
    if getattr(main, "COMMAND_LINE_OF_KERAS_XMR", False):
        return True
    return Path(getattr(main, "__file__", None) or "").name == "keras-xmr"


if not _is_command_line():
    from keras_xmr import encoders, heads, layers, losses, matchers, optimizers, pooling
    from keras_xmr.model import retriever

    __all__ = [
        "encoders",
        "heads",
        "layers",
        "losses",
        "matchers",
        "optimizers",
        "pooling",
        "retriever",
    ]
