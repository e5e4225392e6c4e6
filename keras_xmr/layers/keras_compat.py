"""All uses of private parts of Keras and KerasHub.

In addition, `Retriever` overrides `_maybe_symbolic_build` and updates `_loss_tracker` of
`keras.Model`. A test detects changes in a new version; until it passes there, pyproject.toml
excludes that version.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras


def all_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer, and all layers within it at any depth."""
    return list(layer._flatten_layers())


def preset_loader(source: str) -> Any:
    """Makes the loader of a KerasHub preset: its `config`, and a `converter` for transformers."""
    from keras_hub.src.utils.preset_utils import get_preset_loader

    return get_preset_loader(source)


def preset_file(source: str, name: str) -> Path:
    """Finds a file of a preset of KerasHub, or of a folder or address, and fetches it if need be.

    Raises:
        FileNotFoundError: If it does not exist.
    """
    from keras_hub.src.utils.preset_utils import get_file

    path = Path(get_file(source, name))
    if not path.is_file():
        raise FileNotFoundError(f"{name} does not exist")
    return path


def with_sentencepiece_inside(tokenizer: Any, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Lets a call of a tokenizer be traced with the model of SentencePiece inside of the graph.

    The one that KerasHub has made before is a resource that TensorFlow deletes as soon as
    anybody sets a seed, since it then drops the kernel that owns it.
    """

    def traced(inputs: Any) -> Any:
        outside = getattr(tokenizer, "_sentence_piece", None)
        if outside is None:
            return call(inputs)
        tokenizer._set_proto_tf(tokenizer.proto)
        try:
            return call(inputs)
        finally:
            tokenizer._sentence_piece = outside

    return traced
