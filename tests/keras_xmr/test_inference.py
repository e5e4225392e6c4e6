"""What is said of a run that cannot be loaded."""

from __future__ import annotations

import models
import pytest
from keras import ops

from data_pipelines.errors import UserError
from keras_xmr import inference
from keras_xmr.config.contracts import LossContract
from keras_xmr.losses import Loss
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever
from keras_xmr.run_folder import RunFolder


class Unregistered(Loss):
    """A loss that Keras does not know."""

    CONTRACT = LossContract(parts=("scores",))

    def call(self, scores, image, caption, relations):
        return {"scores": ops.mean(scores)}


def test_a_loss_that_was_not_registered_is_named(tmp_path, monkeypatch):
    config = models.tiny_config(tmp_path)
    towers = models.tower(4, "image"), models.tower(3, "caption")
    path = RunFolder(config).model
    path.parent.mkdir(parents=True)
    Retriever(*towers, Cosine(), Unregistered()).save(path)
    monkeypatch.setattr(inference, "load_run", lambda folder: config)
    with pytest.raises(UserError, match=r"Keras does not know 'Unregistered'\. Import the module"):
        inference.load(tmp_path)
