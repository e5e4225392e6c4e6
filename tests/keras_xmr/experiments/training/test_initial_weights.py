"""Fine-tuning: a training that begins with the weights of a finished run."""

from __future__ import annotations

import models
import numpy as np
import pytest
from tiny_runs import RECURRENT, copy_of

from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.runs.loading import check_initial_weights
from keras_xmr.utils.errors import ConfigError, UserError


def tuned(trained, folder, *overrides):
    """A run that goes on from another."""
    return Experiment(
        models.tiny_config(
            folder,
            RECURRENT,
            "name=tuned",
            f"data.records={trained.config.data.records}",
            f"train.initial_weights={trained.folder.path}",
            *overrides,
        )
    )


class BegunError(Exception):
    """Training has come to its first step."""


def learned(model):
    """The weights of the towers and the matcher; others count steps."""
    parts = (model.image_tower, model.text_tower, model.matcher)
    return [np.array(weight) for part in parts for weight in part.weights]


def test_it_begins_with_the_weights_and_the_words_of_the_run(trained, tmp_path, monkeypatch):
    def fit(trainer, *_):
        found.extend(learned(trainer.model))
        raise BegunError

    found = []
    monkeypatch.setattr("keras_xmr.experiments.training.trainer.Trainer._fit", fit)
    run = tuned(trained, tmp_path, "data.text.min_count=50")
    with pytest.raises(BegunError):
        run.train()
    expected = learned(trained.retriever)
    assert len(found) == len(expected) > 0
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)
    words = [r.folder.path / "vocabulary.txt" for r in (run, trained)]
    assert words[0].read_bytes() == words[1].read_bytes()


def test_what_it_cannot_begin_with_is_said_before_anything_is_done(trained, tmp_path):
    nowhere = f"train.initial_weights={tmp_path / 'nowhere'}"
    with pytest.raises(ConfigError, match=r"^train\.initial_weights: .*nowhere holds no run"):
        tuned(trained, tmp_path, nowhere).run()
    other = tuned(trained, tmp_path, "model.dimension=14")
    with pytest.raises(ConfigError, match=r"has another model \(model\.dimension\)"):
        check_initial_weights(other.config)
    half = copy_of(trained, tmp_path / "half")
    half.folder.done.unlink()
    unfinished = tuned(trained, tmp_path, f"train.initial_weights={half.folder.path}")
    with pytest.raises(UserError, match="holds no finished training"):
        check_initial_weights(unfinished.config)
