"""Exports the trained model of a run."""

from __future__ import annotations

import logging

from keras_xmr.experiments.config.model_facts import why_not_indexed
from keras_xmr.experiments.export.embedder import run_embedder
from keras_xmr.experiments.export.onnx_export import check_packages, export_onnx
from keras_xmr.experiments.export.saved_model import (
    export_keras,
    export_saved_model,
    next_version,
    remove_old_versions,
    some_inputs,
)
from keras_xmr.experiments.run_contents import RunContents
from keras_xmr.experiments.runs.weight_files import remove_superfluous, write_model

_LOGGER = logging.getLogger(__name__)


def write_keras(run: RunContents) -> None:
    """Writes `model.keras`."""
    model = run.retriever
    write_model(run.folder, lambda path: export_keras(model, path), run.config)
    _LOGGER.info("Keras model: %s", run.folder.model)


def write_saved_model(run: RunContents) -> None:
    """Writes a version of the SavedModel; then removes what only the training needed."""
    path = next_version(run.folder.serving)
    export_saved_model(run.retriever, run.tokenizer, run.config.data.image, path)
    remove_old_versions(run.folder.serving, run.config.export.keep)
    _LOGGER.info("SavedModel for TF Serving: %s", path)
    if not run.config.export.keep_training_files:
        remove_superfluous(run.folder)


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
