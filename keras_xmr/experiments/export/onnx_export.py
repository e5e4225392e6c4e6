"""Writes the towers of a model as ONNX, for runtimes without TensorFlow."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_xmr.experiments.export.saved_model import ExportError, check_equal
from keras_xmr.layers.gru import disable_packed_gru
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import replace_atomically
from keras_xmr.utils.installing import install_command

INPUTS = {"image": "images", "text": "captions"}
"""The name of the input per tower."""


def check_packages() -> None:
    """Checks that the packages for ONNX are installed, before anything is loaded.

    Raises:
        UserError: If a package is missing.
    """
    missing = [name for name in ("onnx", "onnxruntime", "tf2onnx") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"ONNX needs {', '.join(missing)}, which is not installed: {install_command('onnx')}"
        )


def export_onnx(model: Retriever, samples: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
    """Writes `image_tower.onnx` and `text_tower.onnx`, each compared with its tower.

    Their inputs: `images`, pixels uint8 (N, size, size, 3) or regions float32
    (N, R, F), and `captions`, word ids int32 (N, L); and give the tensors of the embedding.

    Args:
        model: The model, in float32.
        samples: Some inputs by "image" and "text", for the comparison.
        folder: The folder of the files; each appears whole or not at all.

    Returns:
        The files.

    Raises:
        ExportError: If a tower has operations that ONNX lacks, computes in half precision, or the
            file does not give the same numbers.
        UserError: If a package is missing.
    """
    check_packages()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for side, tower in (("image", model.image_tower), ("text", model.text_tower)):
        path = folder / f"{side}_tower.onnx"
        with replace_atomically(path, ".onnx") as temporary:
            _write(tower, side, temporary)
            _compare(tower, side, samples[side], temporary)
        written.append(path)
    return written


def _write(tower: keras.Model, side: str, path: Path) -> None:
    halves = {layer.compute_dtype for layer in tower.layers} & {"float16", "bfloat16"}
    if halves:
        raise ExportError(
            f"the {side} tower computes in {halves.pop()}, and ONNX is written of float32 alone; "
            "train with train.precision=float32"
        )
    import onnx
    import tf2onnx

    # Inputs of the graph, which become its constants afterwards: `tower.export` of Keras gives them
    # to tf2onnx as constants, of which it makes some fifty copies (8.5 GB for 143 MB, here 1.7 GB).
    weights = {f"weight_{number}": weight for number, weight in enumerate(tower.variables)}
    specs = [tf.TensorSpec(weight.shape, weight.dtype, name) for name, weight in weights.items()]

    def embed(inputs: tf.Tensor, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        with keras.StatelessScope(list(zip(weights.values(), values, strict=True))):
            return dict(tower(inputs, training=False))

    spec = tf.TensorSpec(tower.input.shape, tower.input.dtype, name=INPUTS[side])
    with _quiet(), disable_packed_gru():
        model, _ = tf2onnx.convert.from_function(
            tf.function(embed, autograph=False), [spec, *specs]
        )
    graph = model.graph
    for value in [value for value in graph.input if value.name in weights]:
        array = np.asarray(weights[value.name])
        graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        graph.input.remove(value)
    onnx.save(model, str(path))
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"the {side} tower cannot be written as ONNX: {reason}") from None


def _compare(tower: keras.Model, side: str, sample: np.ndarray, path: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for items in (sample[:1], sample):
        outputs = dict(zip(names, session.run(None, {INPUTS[side]: items}), strict=True))
        for name, value in tower(items, training=False).items():
            check_equal(f"the {side} tower in ONNX", name, np.asarray(value), outputs[name])


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the tracebacks that tf2onnx logs: an error is reported once."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.disable(disabled)
