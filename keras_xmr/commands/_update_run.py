"""Updates a run after changes of its photos and captions: records, model, report and index."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from data_pipelines.source_changes import data_change
from keras_xmr.commands._steps import Run, run
from keras_xmr.config.schema import Config
from keras_xmr.evaluation.reporting.evaluation_report import PAGE
from keras_xmr.runs.folder import RunFolder
from keras_xmr.search.build import Report, build_index
from keras_xmr.search.manifests import MANIFEST
from keras_xmr.search.photo_index import PhotoIndex
from keras_xmr.search.run_model import RunModel
from keras_xmr.utils.files import locked

_LOGGER = logging.getLogger(__name__)
_OUTDATED = ("onnx", "relevance")


def update(config: Config, index: Path | None = None) -> Report | None:
    """Updates a run after changes of its photos and captions.

    If they have changed, the records are written again, and a new model is trained, evaluated and
    exported. It replaces the old one when it is complete; until then the run is unchanged, and an
    interrupted training is resumed. Audits stay.

    Args:
        config: The config of the run.
        index: The folder of its index, which may be missing; default `index` in that of the run.

    Returns:
        A summary of the update of the index; None without an index.

    Raises:
        UserError: If the data cannot be read or the training fails. The run is then unchanged.
    """
    new = config.model_copy(update={"output": config.folder.parent / f".{config.name}-update"})
    ready = config.folder.parent / f".{config.name}-ready"
    if not ready.exists():
        change = data_change(config.data)
        if change or not config.data.is_prepared:
            _LOGGER.info("%s", change or f"{config.data.records} has no records")
            _write_records(config, new)
        if new.output.exists() or not RunFolder(config).is_trained:
            for step in ("train", "evaluate", "export"):
                run(new, step)
            os.replace(new.output, ready)
        else:
            _LOGGER.info("%s is trained on the current data", config.folder)
    if ready.exists():
        with locked(config.folder):
            for name in _OUTDATED:
                shutil.rmtree(config.folder / name, ignore_errors=True)
            _move(ready / config.name, config.folder)
        shutil.rmtree(ready)
        for split in config.evaluation.splits:
            page = RunFolder(config).evaluation(split) / PAGE
            _LOGGER.info("%s has the new model; report: %s", config.folder, page)
    index = config.folder / "index" if index is None else index
    return _update_index(config, index) if (index / MANIFEST).exists() else None


def _write_records(config: Config, new: Config) -> None:
    """Writes the records again, which replace the old ones when they are complete."""
    data = config.data
    fresh = data.records.with_name(f".{data.records.name}-update")
    shutil.rmtree(fresh, ignore_errors=True)
    Run(config.model_copy(update={"data": data.model_copy(update={"records": fresh})})).prepare()
    # An interrupted training of an update had other records. While its folder exists, a training
    # is pending.
    shutil.rmtree(new.output, ignore_errors=True)
    new.output.mkdir(parents=True)
    with locked(data.records):
        shutil.rmtree(data.records)
    os.replace(fresh, data.records)


def _move(source: Path, target: Path) -> None:
    """Moves the content of a folder to another, and replaces entries of the same name."""
    # The manifest of an index comes last: it lists the rest.
    for path in sorted(source.iterdir(), key=lambda path: path.name == MANIFEST):
        if (old := target / path.name).is_dir():
            shutil.rmtree(old)
        os.replace(path, old)


def _update_index(config: Config, path: Path) -> Report:
    """Updates an index; one of another model is replaced by a new one."""
    model, old = RunModel(config.folder), PhotoIndex.open(path)
    is_same = old.fingerprint == model.fingerprint
    fresh = path if is_same else path.with_name(f".{path.name}-update")
    uri = "" if is_same else old.vectors.options.get("uri", "")
    calibrate = old.is_calibrated
    old.close()
    report = build_index(model, old.root, fresh, old.backend, old.content["tags"], calibrate, uri)
    if not is_same:
        with locked(path):
            _move(fresh, path)
        shutil.rmtree(fresh, ignore_errors=True)
        report.path = path
    return report
