"""Training on features that a frozen encoder has computed once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import models
import numpy as np
import pytest
import tensorflow as tf
from interruptions import interrupted, last_weights

from data_pipelines.batches import image_batches
from data_pipelines.shards import FEATURES
from keras_xmr.commands._steps import Run
from keras_xmr.config.loader import ConfigError
from keras_xmr.config.schema import TowerOptions
from keras_xmr.encoders import EncoderError, InputSpec, SmallCNN
from keras_xmr.model.build import build_model, build_tokenizer
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of, image_tower, tower_on_features
from keras_xmr.runs.frozen_features import ImageEncoder, features_for_training
from keras_xmr.training.phases import freeze

# What the key asks for: a frozen encoder, and images as evaluation sees them.
FROZEN = (
    "train.phases=[{epochs: 1, learning_rate: 1e-2, freeze: [image.encoder]}]",
    "data.image.crop=center",
    "data.image.flip=false",
    "data.image.cutout=0",
    "train.batch_size=20",  # Four steps are enough.
    "evaluation.batch_size=64",
    *models.POINTS,
)
ON = "train.precompute_features=true"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the records of the tiny scenes are, and the runs."""
    folder = tmp_path_factory.mktemp("scenes")
    run(folder).prepare()
    return folder


def run(folder: Path, *overrides: str) -> Run:
    return Run(models.tiny_config(folder, *FROZEN, *overrides))


def frozen_model(run: Run) -> Retriever:
    """The model of a run before it trains, its encoder frozen."""
    keras.utils.set_random_seed(run.config.seed)
    tokenizer = build_tokenizer(run.config, run.records)
    model = build_model(run.config, run.records, tokenizer, pretrained=True)
    freeze(model, run.config.train.phases[0].freeze)
    return model


def computed(model: Retriever, run: Run) -> Any:
    """What opens the features that a training reads in place of pixels."""
    encoder = ImageEncoder(model.image_tower, run.records.folder, run.config)
    return features_for_training(encoder, run.records)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_training_on_features_ends_as_one_on_pixels(folder, monkeypatch, caplog):
    plain, fast = run(folder, "name=plain"), run(folder, "name=fast", ON)
    plain.train()
    with caplog.at_level("INFO", logger="keras_xmr"):
        interrupted(run(folder, "name=fast", ON), 2, monkeypatch)
        written = {p: p.stat().st_mtime_ns for p in (folder / "records" / FEATURES).rglob("*.*")}
        fast.train()
    assert "features: 64 images x 16 positions x 8 numbers x 2 bytes = 16.4 KB" in caplog.text
    assert len(written) == 2
    for path, time in written.items():
        assert path.stat().st_mtime_ns == time
    expected, found = last_weights(plain), last_weights(fast)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-2, atol=2e-3, err_msg=name)
    head = frozen_model(plain).image_tower.get_layer("head").get_weights()
    trained = plain.model.image_tower.get_layer("head").get_weights()
    # A training that stands still would be told apart.
    assert max(np.abs(a - b).max() for a, b in zip(head, trained, strict=True)) > 0.02
    summaries = [json.loads(run.folder.done.read_bytes()) for run in (plain, fast)]
    assert summaries[0]["steps"] == summaries[1]["steps"] == 4
    assert summaries[0]["best"] == pytest.approx(summaries[1]["best"], abs=0.1)
    # What is left is the whole model, from pixels.
    pixels = next(iter(image_batches(fast.records.split("test"), fast.config.data.image, 12)))
    embedded = fast.model({"image": pixels, "caption": tf.constant([[2, 3]] * 12)})
    expected = plain.model.image_tower(pixels)["mean"]
    np.testing.assert_allclose(embedded["image"]["mean"], expected, atol=1e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_features_are_written_once_in_half_precision_and_by_content(folder):
    one = run(folder, "name=one", ON, "seed=1", "evaluation.batch_size=5")
    model = frozen_model(one)
    encoder = ImageEncoder(model.image_tower, one.records.folder, one.config)
    encode, calls = encoder.encode, []

    def count(pixels):
        calls.append(len(pixels))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return encode(pixels)

    encoder.encode = count
    with pytest.raises(KeyboardInterrupt):
        encoder.write(one.records, ["train"])
    assert len(encoder.store()) == 25
    features = replace(one.records, image_features=features_for_training(encoder, one.records))
    # What the interrupted one has computed is kept.
    assert sum(calls) - calls[5] == 40 + 12 + 12
    for split in ("train", "val", "test"):
        images, kept = one.records.split(split), features.split(split)
        assert (images.holds, kept.holds) == ("images", "regions")
        pixels = next(iter(image_batches(images, one.config.data.image, 40)))
        expected = features_of(model.image_tower)(pixels)
        found = next(iter(image_batches(kept, one.config.data.image, 40)))
        np.testing.assert_allclose(found, expected, rtol=5e-4, atol=1e-6)
    calls[:] = [0] * 10
    encoder.check = None  # Whoever wrote them was asked already.
    features_for_training(encoder, one.records)
    assert len(calls) == 10
    made = encoder.folder
    model.image_tower.get_layer("encoder").set_weights(
        [2 * w for w in model.image_tower.get_layer("encoder").get_weights()]
    )
    assert ImageEncoder(model.image_tower, one.records.folder, one.config).folder != made


@pytest.mark.slow
def test_an_encoder_that_is_random_though_frozen_is_refused(folder, monkeypatch):
    features = SmallCNN.features

    def with_dropout(self, inputs, spec):
        found, mask = features(self, inputs, spec)
        return keras.layers.Dropout(0.5)(found), mask

    monkeypatch.setattr(SmallCNN, "features", with_dropout)
    four = run(folder, "name=four", ON, "seed=4")
    with pytest.raises(EncoderError, match="random in training even if they are frozen"):
        computed(frozen_model(four), four)


@pytest.mark.slow
def test_a_network_of_keras_applications_splits_at_its_head(random):
    keras.utils.set_random_seed(0)
    options = TowerOptions.model_validate(
        {
            "encoder": {
                "name": "keras_applications",
                "architecture": "MobileNet",
                "weights": None,
            },
            "pooling": "attention",
            "head": "gaussian",
        }
    )
    tower = image_tower(options, 6, InputSpec(image_size=64))
    first, rest = features_of(tower), tower_on_features(tower)
    pixels = random.integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    expected = tower(pixels)
    features = first(pixels)
    assert features.shape == (3, 4, 1024)
    for name, found in rest(features).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)
    assert {id(v) for v in rest.weights} == {id(v) for v in tower.get_layer("head").weights}
    half = rest(tf.cast(tf.cast(features, tf.float16), tf.float32))
    np.testing.assert_allclose(half["mean"], expected["mean"], atol=2e-3)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["train.phases=[{epochs: 1, learning_rate: 1}]"], r"every phase trains image\.encoder"),
        (["data.image.flip=true"], r"but data\.image\.flip changes them at random"),
        (
            ["data.image.crop=random_resized", "data.image.cutout=0.1"],
            r"data\.image\.crop, data\.image\.cutout changes .*write data\.image: \{crop: center",
        ),
        (
            [
                "data.source={name: regions, root: somewhere}",
                "model.image.encoder={name: regions, dimension: 8}",
            ],
            r"'regions' holds features already",
        ),
    ],
)
def test_what_features_cannot_be_computed_once_is_refused(tmp_path, overrides, says):
    with pytest.raises(ConfigError, match=rf"train\.precompute_features: .*{says}"):
        run(tmp_path, ON, *overrides)
