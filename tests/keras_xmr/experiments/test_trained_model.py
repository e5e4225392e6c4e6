"""The model of a run: embeddings of all ways to load it, and errors where it cannot be loaded."""

from __future__ import annotations

import keras
import models
import numpy as np
import pytest
from keras import ops
from tiny_runs import copy_of

from keras_xmr.experiments import trained_model
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.saved_model import export_keras
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.weight_files import verify_tokenizer, write_model
from keras_xmr.losses import Loss
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.contracts import LossContract
from keras_xmr.utils.errors import UserError


class Unregistered(Loss):
    """A loss of a module that is not imported when its model is loaded."""

    CONTRACT = LossContract(terms=("scores",))

    def compute(self, scores, image, caption, relations):
        return {"scores": ops.mean(scores)}


@pytest.mark.slow
def test_a_loss_of_a_module_that_is_not_imported_is_named(tmp_path, monkeypatch):
    config = models.tiny_config(tmp_path)
    towers = models.tower(4, "image"), models.tower(3, "caption")
    path = RunFolder(config).model
    path.parent.mkdir(parents=True)
    Retriever(*towers, Cosine(), Unregistered()).save(path)
    known = keras.saving.get_custom_objects()
    monkeypatch.delitem(known, keras.saving.get_registered_name(Unregistered))
    monkeypatch.setattr(trained_model, "load_run", lambda folder: config)
    with pytest.raises(
        UserError, match=r"parts of other packages; write `import .*test_trained_model`"
    ):
        trained_model.load(tmp_path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, trained):
    """A trained run with its exported model."""
    run = copy_of(trained, tmp_path_factory.mktemp("exported"))
    write_model(run.folder, lambda path: export_keras(run.retriever, path), run.config)
    return run.folder


@pytest.mark.slow
def test_the_model_of_an_experiment_is_that_of_its_folder(trained, exported):
    texts = ["a red circle", "nothing green"]
    expected = trained.model.embed_texts(texts)["mean"]
    for model in (Experiment(exported.path).model, trained_model.load(exported.path)):
        found = model.embed_texts(texts)["mean"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def flip(content: bytes) -> bytes:
    """Content with one bit flipped, in its middle."""
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def swap_words(content: bytes) -> bytes:
    """A vocabulary with its last two lines swapped."""
    *lines, first, second = content.splitlines(keepends=True)
    return b"".join([*lines, second, first])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("model.keras", flip, "model.keras is damaged, or of another run: .*export the run again"),
        ("vocabulary.txt", swap_words, "vocabulary.txt is damaged: its checksum is not the one"),
    ],
)
def test_a_changed_file_of_a_run_is_named(exported, name, change, says):
    path = exported.path / name
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    try:
        with pytest.raises(UserError, match=says):
            trained_model.load(exported.path)
    finally:
        path.write_bytes(whole)


@pytest.mark.slow
def test_a_damaged_model_without_a_checksum_is_an_error_in_a_sentence(exported):
    summary, whole = exported.done.read_bytes(), exported.model.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_model(
            exported,
            lambda path: path.write_bytes(flip(whole)) and raise_interrupt(),
            load_run(exported.path),
        )
    try:
        with pytest.raises(UserError, match="cannot be loaded"):
            trained_model.load(exported.path)
        verify_tokenizer(exported)
    finally:
        exported.done.write_bytes(summary)
        exported.model.write_bytes(whole)


def raise_interrupt():
    raise KeyboardInterrupt
