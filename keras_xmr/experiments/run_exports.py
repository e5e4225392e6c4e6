"""Exports the trained model of a run."""

from __future__ import annotations

import logging
from pathlib import Path

from keras_xmr.experiments.config.model_facts import why_not_indexed
from keras_xmr.experiments.export.onnx_export import check_packages, export_onnx
from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.experiments.export.saved_model import (
    export_keras,
    export_saved_model,
    next_version,
    remove_old_versions,
    some_inputs,
    versions,
)
from keras_xmr.experiments.run_contents import RunContents
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.weight_files import remove_superfluous, write_model

_LOGGER = logging.getLogger(__name__)


def write_keras(run: RunContents) -> None:
    """Writes `model.keras`."""
    model = run.retriever
    write_model(run.folder, lambda path: export_keras(model, path), run.config)
    _LOGGER.info("Keras model: %s", run.folder.model)


def write_saved_model(run: RunContents, earlier: Path | None = None) -> None:
    """Writes a version of the SavedModel; then removes what only the training needed.

    Args:
        run: The run.
        earlier: The folder of the run before it was trained again.
    """
    path = next_version(run.folder.serving)
    export_saved_model(
        run.retriever,
        run.tokenizer,
        run.config.data.image,
        path,
        None if earlier is None else _same_functions(run, RunFolder(earlier)),
    )
    remove_old_versions(run.folder.serving, run.config.export.keep)
    _LOGGER.info("SavedModel for TF Serving: %s", path)
    if not run.config.export.keep_training_files:
        remove_superfluous(run.folder)


def _same_functions(run: RunContents, earlier: RunFolder) -> Path | None:
    """Returns the newest SavedModel of an earlier run with the same tokenizer and packages."""
    kept = {earlier.path / name: content for name, content in run.tokenizer.files().items()}
    kept[earlier.versions] = run.folder.versions.read_bytes()
    if all(path.exists() and path.read_bytes() == content for path, content in kept.items()):
        return next(reversed(versions(earlier.serving)), None)
    return None


def write_onnx(run: RunContents) -> None:
    """Writes the towers as ONNX."""
    check_packages()
    folder = run.folder.path / "onnx"
    if why_not_indexed(run.config):
        samples = {
            "image": some_inputs(run.retriever.image_tower),
            "text": run.tokenizer(["a dog runs on the grass", "two men", ""]).numpy(),
        }
        export_onnx(run.retriever, samples, run.tokenizer.pad, folder)
    else:
        run_embedder(run.folder.path)
    for path in sorted(folder.glob("*.onnx")):
        _LOGGER.info("ONNX: %s", path)
