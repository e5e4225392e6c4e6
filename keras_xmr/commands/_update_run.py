"""Updates a run after changes of its photos and captions: records, model, report and index."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from data_pipelines.records import Records
from data_pipelines.shards import FEATURES
from data_pipelines.source_changes import data_change
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.calibration import calibration_of
from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.experiments.reports.evaluation_report import PAGE
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.model.retriever import Retriever
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.index_build import BuildSummary, build_index, replace_index
from keras_xmr.search.manifests import MANIFEST
from keras_xmr.search.photo_embedding import Store
from keras_xmr.search.photo_index import PhotoIndex
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import locked

_LOGGER = logging.getLogger(__name__)
_OUTDATED = (
    *("onnx", "onnx_float16", "relevance", "checkpoints"),
    *("best.weights.h5", "last.weights.h5"),
)
_STAGES = ("update", "ready", "moving")


def update(
    config: Config, index: Path | None = None, chooses_again: bool = False
) -> BuildSummary | None:
    """Updates a run after changes of its photos and captions.

    If they have changed, the records are written again, and a new model is trained, evaluated and
    exported. It replaces the old one when it is complete; until then the run is unchanged, and an
    interrupted training is resumed. Audits stay. The report has no uncertainty report.

    A model with a part in closed form keeps what was chosen for the old one: the options of the
    closed form and of the linear baseline, the correction for hubs, the weight of what is trained
    and for how many epochs.

    Args:
        config: The config of the run.
        index: The folder of its index, which may be missing; by default `index` in the run's.
        chooses_again: Whether all is chosen again, on the validation split of now.

    Returns:
        A summary of the update of the index; None without an index.

    Raises:
        UserError: If the data or the index cannot be read, or the training fails. The run is then
            unchanged.
    """
    parent, name = config.folder.parent, config.name
    training, ready, moving = (parent / f".{name}-{stage}" for stage in _STAGES)
    index = config.folder / "index" if index is None else index
    fresh = index.with_name(f".{index.name}-update")
    has_index = (index / MANIFEST).exists()
    if has_index:
        # An index that cannot be read is said before minutes of work.
        PhotoIndex.open(index).close()
    model = summary = None
    if not (ready.exists() or moving.exists()):
        _write_changed_records(config, training)
        if training.exists() or not RunFolder(config).is_trained:
            model = _train(config, training, chooses_again)
            os.replace(training, ready)
        else:
            _LOGGER.info("%s is trained on the current data", config.folder)
    if ready.exists():
        # Before the model is replaced, so that both change together.
        if has_index:
            summary = _update_index(ready / name, index, fresh, earlier=config.folder, model=model)
        os.replace(ready, moving)
    if moving.exists():
        _replace_run(moving / name, config)
        if (fresh / MANIFEST).exists():
            replace_index(fresh, index)
        shutil.rmtree(moving)
        for split in config.evaluation.splits:
            page = RunFolder(config).evaluation(split) / PAGE
            _LOGGER.info("%s has the new model; report: %s", config.folder, page)
    if has_index and summary is None:
        summary = _update_index(config.folder, index, fresh)
    return summary


def _write_changed_records(config: Config, training: Path) -> None:
    """Writes the records again if the data have changed.

    Args:
        config: The config of the run.
        training: The folder of a new training, which exists afterwards if one is pending.
    """
    change = data_change(config.data)
    if change or not config.data.is_prepared:
        _LOGGER.info("%s", change or f"{config.data.records} has no records")
        _write_records(config, training)
    elif not training.exists() and _has_other_records(config):
        _LOGGER.info(
            "%s was trained on former photos or captions; another run took the new ones over",
            config.folder,
        )
        training.mkdir(parents=True)


def _train(config: Config, folder: Path, chooses_again: bool) -> Retriever:
    """Trains, evaluates and exports a new model in another folder, and returns it."""
    new = config.model_copy(update={"output": folder})
    former, run = RunFolder(config), RunFolder(new)
    choices = former.summary().choices
    if choices is not None and not chooses_again:
        run.keep_choices(choices)
        if (baseline := former.kept_baseline()) is not None:
            run.keep_baseline(baseline)
    trained = Experiment(new)
    trained.train()
    # Most of the time of an evaluation goes to damaged items, for the uncertainty report.
    options = new.evaluation.model_copy(update={"report_card": False})
    trained.with_evaluation(options).evaluate(is_brief=True)
    trained.export(config.folder)
    run.choices.unlink(missing_ok=True)
    return trained.retriever


def _has_other_records(config: Config) -> bool:
    """Returns whether a run was trained on other records than there are, which runs may share."""
    trained = RunFolder(config).summary().records
    return trained not in (None, Records.open(config.data.records).digest)


def _replace_run(source: Path, config: Config) -> None:
    """Replaces the content of a run."""
    with locked(config.folder):
        for path in (config.folder / name for name in _OUTDATED):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for path in source.iterdir():
            if (old := config.folder / path.name).is_dir():
                shutil.rmtree(old)
            os.replace(path, old)


def _write_records(config: Config, training: Path) -> None:
    """Writes the records again, which replace the old ones when they are complete."""
    data = config.data
    fresh = data.records.with_name(f".{data.records.name}-update")
    shutil.rmtree(fresh, ignore_errors=True)
    Experiment(
        config.model_copy(update={"data": data.model_copy(update={"records": fresh})})
    ).prepare()
    # An interrupted training of an update had other records. While its folder exists, a training
    # is pending.
    shutil.rmtree(training, ignore_errors=True)
    training.mkdir(parents=True)
    with locked(data.records):
        # Features belong to the content of photos and captions, most of which are as before.
        if (features := data.records / FEATURES).exists():
            os.replace(features, fresh / FEATURES)
        shutil.rmtree(data.records)
    os.replace(fresh, data.records)


def _update_index(
    run: Path,
    path: Path,
    fresh: Path,
    earlier: Path | None = None,
    model: Retriever | None = None,
) -> BuildSummary:
    """Updates an index; for another model a new one is built, which replaces it later.

    Args:
        run: The folder of the run.
        path: The index.
        fresh: A new index.
        earlier: The folder of the run before it was trained again.
        model: The model of the run, if it is loaded already.
    """
    old = PhotoIndex.open(path)
    embedder = run_embedder(run, _precision(old), earlier, model)
    backend, tags, store = old.backend, old.content["tags"], Store.of_embedder(embedder)
    calibrate = None if old.prediction_sets is None else calibration_of(run)
    uri = old.vectors.options.get("uri", "") if len(old) else ""
    before = _files(old)
    old.close()
    if old.fingerprint == embedder.fingerprint:
        return build_index(embedder, old.root, path, backend, tags, calibrate, store=store)
    summary = build_index(
        embedder, old.root, fresh, backend, tags, calibrate, uri, replaced=old, store=store
    )
    summary.path = path
    # Each photo is new in an index of another model; counted are those that the old one lacks.
    built = PhotoIndex.open(fresh)
    now = _files(built)
    built.close()
    summary.added = len(now.keys() - before.keys())
    summary.removed = len(before.keys() - now.keys())
    summary.changed = sum(now[path] != before[path] for path in now.keys() & before.keys())
    summary.kept = len(now) - summary.added - summary.changed
    return summary


def _files(index: PhotoIndex) -> dict[str, bytes]:
    """Returns the checksums of the photos by their paths."""
    photos = index.photos()
    return dict(zip(photos.paths, photos.column("sha256").tolist(), strict=True))


def _precision(index: PhotoIndex) -> str:
    """Returns the precision of the weights in an index, or of new ones if they are damaged."""
    try:
        return Embedder.open(index.embedder_path).precision
    except UserError:
        return "float32"
