"""Every image and caption goes through a frozen encoder once, whatever reads its embedding."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import graphs
import keras
import models
import numpy as np
import pytest
import tensorflow as tf
from datasets import encoded
from matplotlib.figure import Figure
from PIL import Image

from keras_xmr.encoders import SmallCNN, WordEmbedding
from keras_xmr.experiments.evaluation.baselines import LINEAR, add_baselines
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.calibration import calibrate_run
from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.experiments.runs.frozen_encoders import CaptionEncoder
from keras_xmr.experiments.runs.frozen_features import with_features
from keras_xmr.metrics.results import Results
from keras_xmr.search.photo_embedding import embed_folder
from keras_xmr.utils.sides import SIDES

pytestmark = pytest.mark.slow

TRAIN, TEST = 16, 12
IMAGES = TRAIN + TEST + TEST

PHASES = "train.phases=[{epochs: 1, learning_rate: 1e-2, freeze: [image.encoder, text.encoder]}]"

ON = (
    f"data.source={{name: scenes, train: {TRAIN}, val: {TEST}, test: {TEST}}}",
    "data.source.captions_per_image=2",
    "evaluation.batch_size=64",
    "train.precompute_features=true",
    "train.precompute_captions=true",
    PHASES,
    "data.image.crop=center",
    "data.image.flip=false",
    "data.image.cutout=0",
    "data.text.drop_words=0",
    "train.batch_size=16",  # Two steps are enough.
)

HALF = 2e-3
"""How far half precision of features may move a number of an embedding of norm 1."""


class Count(keras.layers.Layer):
    """Counts the items that pass through it, in graphs too."""

    def __init__(self, note, **options) -> None:
        super().__init__(**options)
        self.note = note

    def call(self, inputs):
        def count(items):
            self.note(int(items))
            return np.int64(0)

        counted = tf.numpy_function(count, [tf.shape(inputs)[0]], tf.int64)
        with tf.control_dependencies([counted]):
            return tf.identity(inputs)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, inputs.dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the records of the tiny scenes are, and the runs."""
    folder = tmp_path_factory.mktemp("kept")
    run(folder).prepare()
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """A run that has trained on kept features, of photos and captions."""
    trained = run(folder, "name=trained", *models.POINTS)
    with graphs.eager():
        trained.train()
    return trained


def run(folder, *overrides: str) -> Experiment:
    return Experiment(models.tiny_config(folder, *ON, *overrides))


@pytest.mark.usefixtures("eager")
def test_every_image_and_caption_goes_through_a_frozen_encoder_once(tmp_path, monkeypatch):
    seen: Counter = Counter()
    for encoder, side in ((SmallCNN, "image"), (WordEmbedding, "caption")):

        def counted(self, inputs, spec, side=side, features=encoder.features):
            count = Count(lambda items: seen.update({side: items}), dtype=inputs.dtype)
            return features(self, count(inputs), spec)

        monkeypatch.setattr(encoder, "features", counted)
    plain = [f"model.{side}.head={{name: gaussian, local_attention: false}}" for side in SIDES]
    one = run(tmp_path, "evaluation.report_card=true", *plain)
    one.prepare()
    one.train()
    # Two of each are looked at twice: whether the encoder is as frozen as it should be.
    records = map(one.records.split, one.records.splits)
    texts = {text for part in records for text in part.texts}
    assert seen == {"image": IMAGES + 4, "caption": len(texts) + 4}
    seen.clear()
    # It has no model, and draws a lot.
    monkeypatch.setattr("keras_xmr.experiments.run_evaluation.report", lambda *_: "")
    monkeypatch.setattr("keras_xmr.experiments.experiment.Experiment.results", None)
    one.evaluate()
    # What is damaged was never seen: 4 shares of the photos and captions of the test split, and of
    # pairs of photos the mixture, and the half; of captions all without one of their words.
    words = sum(len(text.split()) for text in one.records.split("test").texts)
    assert seen == {"image": 4 * TEST + 2 * TEST // 2, "caption": 4 * 2 * TEST + words}
    seen.clear()
    embedder = run_embedder(one.folder.path)
    seen.clear()  # Of the comparison with the model.
    calibrate_run(one.config, embedder)
    assert not seen
    photos = [one.records.split("test").encoded(number) for number in (5, 2)]
    photos.insert(1, encoded(Image.new("RGB", (40, 40), "red")))
    (tmp_path / "photos").mkdir()
    for number, photo in enumerate(photos):
        (tmp_path / f"photos/{number}.jpg").write_bytes(photo)
    found = embed_folder(embedder, tmp_path / "photos", tmp_path / "photos.npz")
    assert not seen
    expected = embedder.embed_images(photos)
    np.testing.assert_allclose(found.arrays["mean"], expected["mean"], atol=HALF)


@pytest.mark.usefixtures("eager")
def test_features_are_embedded_as_what_they_were_made_of(trained):
    for split in ("train", "val", "test"):
        kept, plain = (
            records.split(split) for records in (trained.embedded_records, trained.records)
        )
        assert (kept.holds, plain.holds) == ("regions", "images")
        assert kept.caption_features is not None
        assert plain.caption_features is None
        assert kept.image_keys == plain.image_keys
        assert kept.captions == plain.captions
        found, expected = (
            embed_split(trained.retriever, part, trained.tokenizer, trained.config)
            for part in (kept, plain)
        )
        for side in ("images", "captions"):
            for name, values in getattr(expected, side).items():
                np.testing.assert_allclose(getattr(found, side)[name], values, atol=HALF)
    embedder, numbers = run_embedder(trained.folder.path), np.array([7, 2, 5])
    features = trained.embedded_records.split("val").regions(numbers)
    photos = [trained.records.split("val").encoded(int(number)) for number in numbers]
    found, expected = embedder.embed_features(features), embedder.embed_images(photos)
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=HALF)


@pytest.mark.usefixtures("eager")
def test_an_encoder_with_other_weights_reads_no_features_of_these(trained, folder, monkeypatch):
    """The digest of its weights is another, so there are none until a split is evaluated."""
    tower = keras.models.clone_model(trained.retriever.image_tower)
    tower.set_weights([2 * weight for weight in trained.retriever.image_tower.get_weights()])
    text = keras.models.clone_model(trained.retriever.text_tower)
    text.set_weights([2 * weight for weight in trained.retriever.text_tower.get_weights()])
    towers = SimpleNamespace(image_tower=tower, text_tower=text)

    def has_features(records, split="val"):
        part = records.split(split)
        assert (part.holds == "regions") is (part.caption_features is not None)
        return part.holds == "regions"

    rest = trained.tokenizer, trained.config
    assert has_features(with_features(trained.records, trained.retriever, *rest))
    assert not has_features(with_features(trained.records, towers, *rest))
    phases = PHASES.replace("}]", "}, {epochs: 1, learning_rate: 1e-2}]")
    freed = run(folder, *models.POINTS, phases)
    more = with_features(trained.records, trained.retriever, trained.tokenizer, freed.config)
    assert not has_features(more), "what a phase has trained is evaluated from images and words"
    later = run(folder, "name=later", *models.POINTS, "evaluation.splits=[test]")
    later.tokenizer, later.retriever = trained.tokenizer, towers
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        # Where nothing can be written, nothing is computed that is not kept.
        assert not has_features(later.embedded_records, "test")
    del later.embedded_records
    assert has_features(later.embedded_records, "test")
    assert not has_features(later.embedded_records)


@pytest.mark.usefixtures("eager")
def test_further_captions_of_training_are_all_that_is_missing(trained):
    records = trained.embedded_records
    more = {records.split("train").image_keys[0]: [("new", "a caption that was not there")]}
    judged = replace(records, more_captions=more)
    assert judged.split("train").num_captions == 2 * TRAIN + 1
    assert judged.split("train").caption_features is None
    for split in ("val", "test"):
        assert judged.split(split).caption_features is not None
    model = trained.retriever
    encoder = CaptionEncoder(model.text_tower, judged.folder, trained.config, trained.tokenizer)
    encoded, encode = [], encoder.encode
    encoder.encode = lambda ids: (encoded.append(len(ids)), encode(ids))[1]
    opened = replace(judged, caption_features=encoder.write(judged, ["train"]))
    assert encoded == [1]
    assert len(opened.split("train").caption_features) == 2 * TRAIN + 1


@pytest.mark.usefixtures("eager")
def test_a_linear_model_on_kept_features_stands_beside_the_trained_one(
    trained, monkeypatch, capsys
):
    monkeypatch.setattr(Figure, "savefig", lambda self, path, dpi: path.write_bytes(b""))
    with graphs.eager():
        trained.evaluate()
    printed = capsys.readouterr().out
    folder = trained.folder.evaluation("test")
    (linear,) = Results.read(folder / "results.csv").select(
        method=LINEAR, metric="rsum", judgements="annotated", queries="all"
    )
    rsum = f"{linear.value:.1f}"
    for text in ((folder / "report.html").read_text("utf-8"), printed):
        (sentence,) = (
            line for line in text.splitlines() if f"{LINEAR} on the same features" in line
        )
        assert f"compared with {rsum}." in sentence
    rows = [line for line in printed.splitlines() if line.strip().startswith(LINEAR)]
    assert rows[0].split()[-1] == rsum
    evaluation = SimpleNamespace(
        split="test",
        matchers=[SimpleNamespace(scores=SimpleNamespace(is_dense=True))],
        baselines={},
    )
    add_baselines(evaluation, trained.records, trained.config)
    assert evaluation.baselines == {}, "without kept features there is none"
