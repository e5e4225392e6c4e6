"""What we need of Keras and KerasHub, and they do not promise, is as it was."""

from __future__ import annotations

import inspect

import keras
import keras_hub

from keras_xmr.layers.keras_compat import all_layers, preset_loader


def test_private_parts_of_keras_are_there():
    model = keras.Sequential(
        [keras.layers.Dense(1), keras.layers.Bidirectional(keras.layers.GRU(1))]
    )
    found = [type(layer).__name__ for layer in all_layers(model)]
    assert {"Sequential", "Dense", "Bidirectional", "GRU"} <= set(found), "Layer._flatten_layers"
    arguments = inspect.signature(keras.Model._maybe_symbolic_build).parameters
    assert list(arguments) == ["self", "iterator", "data_batch"], "Model._maybe_symbolic_build"
    model.compile("sgd", "mse")
    assert hasattr(model._loss_tracker, "update_state"), "Model._loss_tracker"


def test_private_parts_of_keras_hub_are_there():
    assert callable(preset_loader), "keras_hub.src.utils.preset_utils.get_preset_loader"
    pieces = keras_hub.tokenizers.SentencePieceTokenizer
    assert hasattr(pieces, "_set_proto_tf"), "SentencePieceTokenizer._set_proto_tf"
    source = inspect.getsource(pieces)
    assert "self._sentence_piece =" in source, "SentencePieceTokenizer._sentence_piece"
    from keras_hub.src.utils import preset_utils

    assert list(inspect.signature(preset_utils.get_preset_loader).parameters) == ["preset"]
