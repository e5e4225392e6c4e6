"""What is said of a run that cannot be loaded."""

from __future__ import annotations

import keras
import models
import pytest
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.losses import Loss
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever
from keras_xmr.runs import inference
from keras_xmr.runs.folder import RunFolder
from keras_xmr.utils.errors import UserError


class Unregistered(Loss):
    """A loss of a module that is not imported when its model is loaded."""

    CONTRACT = LossContract(parts=("scores",))

    def call(self, scores, image, caption, relations):
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
    monkeypatch.setattr(inference, "load_run", lambda folder: config)
    with pytest.raises(UserError, match=r"Keras does not know 'Unregistered'\. Import the module"):
        inference.load(tmp_path)
