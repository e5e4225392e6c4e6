"""Writes the towers and the matcher of a model as ONNX, for runtimes without TensorFlow."""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_xmr import embeddings
from keras_xmr.experiments.export.saved_model import ExportError, check_equal
from keras_xmr.layers.gru import disable_packed_gru
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import replace_atomically
from keras_xmr.utils.installing import install_command

IMAGES, IDS, MASK = "images", "input_ids", "attention_mask"
"""Names of the inputs of the towers."""

FEATURES = "features"
"""Output of an image tower that is the input of its head."""

_LEAST_HALVED = 1 << 10
"""Minimum number of values of weights that are stored in half precision."""

Tensors = dict[str, tf.Tensor]


def check_packages() -> None:
    """Checks that the packages for ONNX are installed, before anything is loaded.

    Raises:
        UserError: If a package is missing.
    """
    missing = [name for name in ("onnx", "onnxruntime", "tf2onnx") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"ONNX needs {', '.join(missing)}, which is not installed: "
            f"{install_command('tensorflow')}"
        )


def export_onnx(
    model: Retriever, samples: Mapping[str, np.ndarray], pad: int, folder: Path
) -> list[Path]:
    """Writes `image_tower.onnx` and `text_tower.onnx`, each compared with its tower.

    Inputs: `images`, pixels uint8 (N, size, size, 3) or regions float32 (N, R, F); and word
    ids `input_ids` and their `attention_mask`, int64 (N, L), 1 for ids and 0 for padding, of which
    the ids have no effect. Outputs are the tensors of the embedding.

    Args:
        model: The model, in float32.
        samples: Some inputs by "image" and "text", for the comparison; texts are padded with `pad`.
        pad: The id of the padding of the tokenizer.
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
    image, text = folder / "image_tower.onnx", folder / "text_tower.onnx"
    write_image_tower(model.image_tower, samples["image"], image)
    write_text_tower(model.text_tower, pad, samples["text"], text)
    return [image, text]


def write_image_tower(
    tower: keras.Model,
    sample: np.ndarray,
    path: Path,
    with_features: bool = False,
    earlier: Path | None = None,
) -> None:
    """Writes an image tower; see `export_onnx`.

    Args:
        tower: The tower.
        sample: Some inputs, for the comparison.
        path: The file.
        with_features: Whether the features that its head reads are an output, too.
        earlier: As of `write_graph`.
    """
    outputs = dict(embeddings.for_matching(tower.output))
    if with_features:
        outputs[FEATURES] = head_input(tower)
    model = keras.Model(tower.input, outputs)
    spec = tf.TensorSpec(tower.input.shape, tower.input.dtype, name=IMAGES)

    def embed(images: tf.Tensor) -> Tensors:
        return dict(model(images, training=False))

    _check_precision("the image tower", tower)
    write_graph(
        "the image tower",
        embed,
        [spec],
        path,
        tower.variables,
        {IMAGES: sample},
        earlier=earlier,
    )


def write_head(
    tower: keras.Model, sample: np.ndarray, path: Path, earlier: Path | None = None
) -> None:
    """Writes the head of an image tower, from features (N, L, F) to the embedding."""
    spec = tf.TensorSpec(tower.input.shape, tf.float32, name=FEATURES)

    def embed(features: tf.Tensor) -> Tensors:
        return dict(embeddings.for_matching(tower(features, training=False)))

    write_graph(
        "the head of the image tower",
        embed,
        [spec],
        path,
        tower.variables,
        {FEATURES: sample},
        earlier=earlier,
    )


def write_text_tower(
    tower: keras.Model, pad: int, sample: np.ndarray, path: Path, earlier: Path | None = None
) -> None:
    """Writes a text tower; see `export_onnx` and, on `earlier`, `write_graph`."""
    specs = [tf.TensorSpec([None, None], tf.int64, name=name) for name in (IDS, MASK)]

    def embed(ids: tf.Tensor, mask: tf.Tensor) -> Tensors:
        padded = tf.cast(tf.where(mask > 0, ids, tf.constant(pad, tf.int64)), tf.int32)
        return dict(embeddings.for_matching(tower(padded, training=False)))

    mask = sample != pad
    inputs = {IDS: np.where(mask, sample, 0).astype(np.int64), MASK: mask.astype(np.int64)}
    _check_precision("the text tower", tower)
    write_graph("the text tower", embed, specs, path, tower.variables, inputs, earlier=earlier)


def head_input(tower: keras.Model) -> Any:
    """Returns the features that the head of a tower reads, symbolic (B, L, F)."""
    features = tower.get_layer("head").input
    return features[0] if isinstance(features, list) else features


def _check_precision(name: str, tower: keras.Model) -> None:
    halves = {layer.compute_dtype for layer in tower.layers} & {"float16", "bfloat16"}
    if halves:
        raise ExportError(
            f"{name} computes in {halves.pop()}, and ONNX is written of float32 alone; "
            "train with train.precision=float32"
        )


def write_graph(
    name: str,
    function: Callable[..., Tensors],
    specs: Sequence[tf.TensorSpec],
    path: Path,
    variables: Sequence[Any],
    inputs: Mapping[str, np.ndarray],
    is_exact: bool = False,
    earlier: Path | None = None,
) -> None:
    """Writes a function as ONNX, and compares its outputs.

    Args:
        name: What it is, for messages.
        function: The function.
        specs: The inputs, with names.
        path: The file; it appears whole or not at all.
        variables: Variables of Keras that it reads.
        inputs: Some inputs by name, for the comparison: of all items, and of the first alone.
        is_exact: Whether sigmoids are right to the last digit, and slower.
        earlier: A file of the same function with other weights. If with the weights of now it gives
            the same numbers, nothing is converted, which takes most of the time.

    Raises:
        ExportError: If ONNX lacks an operation, or the file does not give the same numbers.
    """
    with replace_atomically(path, ".onnx") as temporary:
        if earlier is not None and _replace_weights(earlier, temporary, variables):
            with suppress(ExportError):
                _compare(name, function, specs, temporary, inputs)
                return
        _write(name, function, specs, temporary, variables, is_exact)
        _compare(name, function, specs, temporary, inputs)


def _write(
    name: str,
    function: Callable[..., Tensors],
    specs: Sequence[tf.TensorSpec],
    path: Path,
    variables: Sequence[Any],
    is_exact: bool = False,
) -> None:
    import onnx
    import tf2onnx

    # Inputs of the graph, which become its constants afterwards: `tower.export` of Keras gives them
    # to tf2onnx as constants, of which it makes some fifty copies.
    weights = _named_weights(variables)
    weight_specs = [
        tf.TensorSpec(weight.shape, weight.dtype, name) for name, weight in weights.items()
    ]

    def compute(*values: tf.Tensor) -> Tensors:
        assigned = zip(weights.values(), values[len(specs) :], strict=True)
        with keras.StatelessScope(list(assigned)):
            return function(*values[: len(specs)])

    with _quiet(), _sound_optimizers(), disable_packed_gru():
        model, _ = tf2onnx.convert.from_function(
            tf.function(compute, autograph=False), [*specs, *weight_specs]
        )
    graph = model.graph
    for value in [value for value in graph.input if value.name in weights]:
        array = np.asarray(weights[value.name])
        graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        graph.input.remove(value)
    _remove_unused(graph)
    _replace_operations(graph, _STEPS if is_exact else {"Log1p": _STEPS["Log1p"]})
    onnx.save(model, str(path))
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"{name} cannot be written as ONNX: {reason}") from None


def _named_weights(variables: Sequence[Any]) -> dict[str, Any]:
    """Returns variables by their names in a file."""
    return {f"weight_{number}": weight for number, weight in enumerate(variables)}


def _replace_weights(earlier: Path, path: Path, variables: Sequence[Any]) -> bool:
    """Writes an earlier file with other weights; returns whether it has weights of their shapes."""
    import onnx

    model, weights = _load_whole(earlier), _named_weights(variables)
    for kept in model.graph.initializer:
        if kept.name in weights:
            array = onnx.numpy_helper.from_array(np.asarray(weights[kept.name]), kept.name)
            if (array.dims, array.data_type) != (kept.dims, kept.data_type):
                return False
            kept.CopyFrom(array)
    onnx.save(model, str(path))
    return True


def _load_whole(path: Path) -> Any:
    """Loads a file with its weights, whose file ONNX does not read where an index links it."""
    import onnx

    model, weights = onnx.load(str(path), load_external_data=False), weights_file(path)
    with tempfile.TemporaryDirectory() as folder:
        if weights.exists():
            shutil.copyfile(weights, Path(folder) / weights.name)
        onnx.load_external_data_for_model(model, folder)
    return model


def _remove_unused(graph: Any) -> None:
    """Removes weights that no operation reads, of which ONNX Runtime would warn."""
    used = {name for node in _all_nodes(graph) for name in node.input}
    for value in [value for value in graph.initializer if value.name not in used]:
        graph.initializer.remove(value)


def _all_nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a graph, and of graphs within them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def _replace_operations(graph: Any, replacements: Mapping[str, _Steps]) -> None:
    """Replaces operations that ONNX lacks, or that ONNX Runtime rounds."""
    from onnx import helper, numpy_helper

    one = numpy_helper.from_array(np.array(1, np.float32), "the_one")
    nodes, replaced = list(graph.node), False
    del graph.node[:]
    for node in nodes:
        steps = replacements.get(node.op_type, ())
        name, names = node.output[0], {"x": "", "1": one.name, "y": node.output[0]}
        if steps:
            names["x"], replaced = node.input[0], True
        for operation, inputs, output in steps:
            names.setdefault(output, f"{name}/{output}")
            graph.node.append(
                helper.make_node(operation, [names[i] for i in inputs], [names[output]])
            )
        if not steps:
            graph.node.append(node)
    if replaced:
        graph.initializer.append(one)


_Steps = tuple[tuple[str, tuple[str, ...], str], ...]

_STEPS: Mapping[str, _Steps] = {
    # ONNX Runtime's own is constant below -18 and above 18.
    "Sigmoid": (
        ("Neg", ("x",), "minus"),
        ("Exp", ("minus",), "exp"),
        ("Add", ("exp", "1"), "sum"),
        ("Reciprocal", ("sum",), "y"),
    ),
    # log(1 + x) = log(s) x / (s - 1) with s = 1 + x, rounded; x where s is 1.
    "Log1p": (
        ("Add", ("x", "1"), "sum"),
        ("Sub", ("sum", "1"), "rounded"),
        ("Equal", ("sum", "1"), "tiny"),
        ("Where", ("tiny", "1", "rounded"), "divisor"),
        ("Log", ("sum",), "log"),
        ("Div", ("x", "divisor"), "ratio"),
        ("Mul", ("log", "ratio"), "product"),
        ("Where", ("tiny", "x", "product"), "y"),
    ),
}
"""Operations with their inputs and output; x and y belong to the replaced operation."""


def halve_weights(path: Path) -> None:
    """Stores the large weights of a file in float16, which it converts to float32 to compute.

    Weights beyond the range of float16 stay.
    """
    import onnx

    model = onnx.load(str(path))
    casts, kept = [], []
    for weight in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        largest = np.abs(values).max(initial=0) if values.dtype == np.float32 else np.inf
        if values.size < _LEAST_HALVED or not largest <= np.finfo(np.float16).max:
            kept.append(weight)
            continue
        half = f"{weight.name}/half"
        kept.append(onnx.numpy_helper.from_array(values.astype(np.float16), half))
        casts.append(
            onnx.helper.make_node("Cast", [half], [weight.name], to=onnx.TensorProto.FLOAT)
        )
    nodes = list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend([*casts, *nodes])
    with replace_atomically(path, ".onnx") as temporary:
        onnx.save(model, str(temporary))


def weights_file(path: Path) -> Path:
    """Returns the path of the weights that `store_weights_apart` moves out of a file."""
    return path.with_name(f"{path.name}.data")


def store_weights_apart(path: Path) -> list[Path]:
    """Moves the large weights of a file into another beside it, which ONNX Runtime maps.

    A model that holds its weights is copied whole when it is loaded, which takes twice the
    processor time and memory of MiniLM.

    Returns:
        The file of the weights; none where all are small.
    """
    import onnx

    weights = weights_file(path)
    model = onnx.load(str(path))
    weights.unlink(missing_ok=True)  # ONNX would write behind its content.
    onnx.save(model, str(path), save_as_external_data=True, location=weights.name)
    if not weights.exists():
        return []
    shutil.copymode(path, weights)  # ONNX lets nobody else read it.
    return [weights]


def _compare(
    name: str,
    function: Callable[..., Tensors],
    specs: Sequence[tf.TensorSpec],
    path: Path,
    inputs: Mapping[str, np.ndarray],
) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    read = {each.name for each in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    for number in (1, None):
        some = {key: value[:number] for key, value in inputs.items()}
        feed = {key: value for key, value in some.items() if key in read}
        outputs = dict(zip(names, session.run(None, feed), strict=True))
        for key, value in function(*(tf.constant(some[spec.name]) for spec in specs)).items():
            if key not in outputs:
                raise ExportError(f"{name} in ONNX has the outputs {names}, without {key}")
            check_equal(f"{name} in ONNX", key, np.asarray(value), outputs[key])


@contextmanager
def _sound_optimizers() -> Iterator[None]:
    """Leaves out an optimizer of tf2onnx that merges reshapes of unknown sizes in a wrong way."""
    from tf2onnx import optimizer

    known = optimizer._optimizers
    optimizer._optimizers = type(known)(
        (name, each) for name, each in known.items() if name != "remove_back_to_back"
    )
    try:
        yield
    finally:
        optimizer._optimizers = known


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
