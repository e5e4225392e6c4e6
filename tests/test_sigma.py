"""The benchmark that tells what sigma knows of a caption, and what moves it."""

from __future__ import annotations

from types import SimpleNamespace

import models
import numpy as np
import pytest
import tensorflow as tf
from benchmark_modules import benchmark

from keras_xmr.commands._steps import Run
from keras_xmr.config.contracts import LossContract
from keras_xmr.evaluation.results import EmbeddedSplit
from keras_xmr.matchers import Cosine, MatchProbability

bench = benchmark("sigma")


class Raising:
    """A loss that falls as the sigma of captions rises, of some by more than of others."""

    contract = LossContract(parts=("raising",))

    def __init__(self, by_caption: np.ndarray) -> None:
        self.by_caption = by_caption

    def parts(self, scores, image, caption, related):
        numbers = tf.cast(caption["mean"][:, 0], tf.int32)
        weights = tf.gather(tf.constant(self.by_caption, tf.float32), numbers)
        return {"raising": -tf.reduce_sum(weights[:, None] * caption["log_variance"])}


@pytest.mark.slow
def test_pushes_of_sigma(bench, random, monkeypatch):
    captions = 30
    true_of = random.permutation(captions)
    numbers = np.tile(np.arange(captions, dtype=np.float32)[:, None], 4)
    items = {"mean": numbers, "log_variance": random.normal(size=(captions, 4)).astype("f4")}
    part = SimpleNamespace(caption_image=np.arange(captions))
    known = bench.Captions(part, true_of, None)
    known.__dict__["relevance"] = np.eye(captions, dtype=np.float32)
    matcher = MatchProbability(samples=2, test_samples=2)
    losses = [Raising(true_of), Raising(-true_of)]
    embedded = EmbeddedSplit(items, items)
    monkeypatch.setattr(bench, "BATCHES", 10)
    for _ in range(2):
        found = [value for _, value in bench._pushes(embedded, known, matcher, losses, 8)]
        np.testing.assert_allclose(found, [1.0, -1.0])
        bench.push_alike(matcher)  # which is for the training alone


def test_all_items_of_a_batch_are_pushed_alike(bench, random):
    matcher = MatchProbability(samples=2, test_samples=2)
    own = tf.constant(random.normal(size=(5, 3)).astype("f4"))
    mean = tf.zeros([5, 3])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(own)
        plain = matcher.prepare({"mean": mean, "log_variance": own}, "caption")
        bench.push_alike(matcher)
        alike = matcher.prepare({"mean": mean, "log_variance": own}, "caption")
    for name, tensor in plain.items():
        np.testing.assert_allclose(alike[name], tensor, atol=1e-6)
    expected = tape.gradient(plain["samples"], own).numpy().mean(axis=0, keepdims=True)
    found = tape.gradient(alike["samples"], own)
    np.testing.assert_allclose(found, np.repeat(expected, 5, axis=0), atol=1e-6)


def test_points_have_no_sigma_to_push(bench, random):
    matcher = Cosine()
    bench.push_alike(matcher)
    with pytest.raises(SystemExit, match="models with a sigma"):
        matcher.prepare({"mean": random.normal(size=(2, 3)).astype(np.float32)}, "image")


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_training_is_watched_and_measured(bench, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "BATCHES", 1)
    records = f"data.records={trained.config.data.records}"
    run = Run(models.tiny_config(tmp_path, records, "train.phases.0.epochs=1"))
    run.train([bench.Watch(run, every=5)])
    steps = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert [line[0] for line in steps[:3]] == ["| step 1", "| step 5", "| step 10"]
    bench.main([str(run.folder.path), "--losses", "scenes_pcme_daa"])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if run.folder.path.name in line)
    correlation, _, _, spread, pushes = row.strip("| ").split(" | ")[1:]
    assert -1 <= float(correlation) <= 1
    assert float(spread) > 0
    assert "scenes_pcme_daa: DAA" in pushes
