"""Training on features that frozen encoders have computed once, of images and of captions."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import datasets
import keras
import numpy as np
import projected_runs
import pytest
import tensorflow as tf
from interruptions import interrupted, last_weights

from data_pipelines.batches import image_batches, training_batches
from data_pipelines.samplers import SAMPLERS
from data_pipelines.shards import FEATURES
from keras_xmr.encoders import EncoderError, InputSpec
from keras_xmr.experiments.build import build_tokenizer
from keras_xmr.experiments.config.model_section import TowerOptions
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.runs.frozen_encoders import CaptionEncoder, ImageEncoder
from keras_xmr.experiments.training import trainer
from keras_xmr.experiments.training.stored_features import features_for_training
from keras_xmr.model.towers import features_of, image_tower, tower_on_features
from keras_xmr.utils.errors import ConfigError

IMAGES, CAPTIONS = "train.precompute_features=true", "train.precompute_captions=true"


def run(folder: Path, *overrides: str) -> Experiment:
    """A run of photos that asks for all that features need; it trains four steps."""
    return projected_runs.run(
        folder,
        f"data.source={{name: csv, root: {folder / 'raw'}, splits: splits.csv}}",
        "model.image.encoder={name: small_cnn, channels: [8, 8]}",
        "train.phases=[{epochs: 1, learning_rate: 1e-2, freeze: [image.encoder, text.encoder]}]",
        "train.batch_size=8",
        "data.image.crop=center",
        "data.image.flip=false",
        "data.image.cutout=0",
        "data.text.drop_words=0",
        *overrides,
    )


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Where the records are, of 16, 4 and 4 photos with 2 captions each, and the runs."""
    folder = tmp_path_factory.mktemp("photos")
    datasets.csv_photos(folder / "raw")
    run(folder).prepare()
    return folder


def caption_encoder(model, run, tokenizer) -> CaptionEncoder:
    return CaptionEncoder(model.text_tower, run.records.folder, run.config, tokenizer)


@pytest.fixture(scope="module")
def computed(photos):
    """A model, its tokenizer, and its records with the features of their captions."""
    own = run(photos, CAPTIONS)
    model, tokenizer = projected_runs.model_of(own), build_tokenizer(own.config, own.records)
    features = features_for_training(caption_encoder(model, own, tokenizer), own.records)
    records = replace(own.records, caption_features=features)
    model.caption_feature_tower = tower_on_features(model.text_tower)
    return own, model, tokenizer, records


def losses(run) -> list[float]:
    with run.folder.training_log.open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_training_on_features_ends_as_one_on_pixels_and_words(photos, monkeypatch, caplog):
    begun, start, cca = [], trainer.start_from_cca, "train.start=cca"
    monkeypatch.setattr(trainer, "start_from_cca", lambda *a: (begun.append(1), start(*a))[1])
    plain = run(photos, "name=plain", cca)
    plain.train()
    with caplog.at_level("INFO", logger="keras_xmr"):
        interrupted(run(photos, "name=fast", cca, IMAGES, CAPTIONS), 3, monkeypatch)
        written = {p: p.stat().st_mtime_ns for p in (photos / "records" / FEATURES).rglob("*.*")}
        fast = run(photos, "name=fast", cca, IMAGES, CAPTIONS)
        fast.train()
    assert "features: the image encoder reads each of 24 photos once; 6.1 KB on disk" in caplog.text
    assert written
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert len(begun) == 2, "one a run: what is resumed does not start again"
    assert losses(plain)
    np.testing.assert_allclose(losses(fast), losses(plain), rtol=1e-2)
    expected, found = last_weights(plain), last_weights(fast)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if np.issubdtype(values.dtype, np.floating):
            np.testing.assert_allclose(found[name], values, rtol=1e-2, atol=5e-3, err_msg=name)
    summaries = [json.loads(run.folder.done.read_bytes()) for run in (plain, fast)]
    assert summaries[0]["steps"] == summaries[1]["steps"] == 4
    assert summaries[0]["best"] == pytest.approx(summaries[1]["best"], abs=0.1)
    # What is left is the whole model, from pixels and words.
    assert fast.retriever.caption_tower_input_model is fast.retriever.text_tower
    pixels = next(iter(image_batches(fast.records.split("test"), fast.config.data.image, 4)))
    embedded = fast.retriever({"image": pixels, "caption": tf.constant([[2, 3]] * 4)})
    expected = plain.retriever.image_tower(pixels)["mean"]
    np.testing.assert_allclose(embedded["image"]["mean"], expected, atol=1e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_features_are_written_once_in_half_precision_and_by_content(photos):
    one = run(photos, "name=one", IMAGES, "evaluation.batch_size=4")
    model = projected_runs.model_of(one)
    encoder = ImageEncoder(model.image_tower, one.records.folder, one.config)
    encode, calls = encoder.encode, []

    def count(pixels):
        calls.append(len(pixels))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(pixels)

    encoder.encode = count
    encoder.folder = one.records.folder / "counted"
    with pytest.raises(KeyboardInterrupt):
        encoder.write(one.records, ["train"])
    assert len(encoder.store()) == 8
    features = replace(one.records, image_features=features_for_training(encoder, one.records))
    # What the interrupted one has computed is kept.
    assert sum(calls) - calls[2] == 16 + 4 + 4
    for split in ("train", "val", "test"):
        images, kept = one.records.split(split), features.split(split)
        assert (images.holds, kept.holds) == ("images", "regions")
        pixels = next(iter(image_batches(images, one.config.data.image, 16)))
        expected = features_of(model.image_tower)(pixels)
        found = next(iter(image_batches(kept, one.config.data.image, 16)))
        np.testing.assert_allclose(found, expected, rtol=5e-4, atol=1e-6)
    calls[:] = [0] * 10
    encoder.check = None  # Whoever wrote them was asked already.
    features_for_training(encoder, one.records)
    assert len(calls) == 10


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


@pytest.mark.slow
def test_batches_of_features_are_embedded_as_those_of_words(computed):
    own, model, tokenizer, records = computed
    found = []
    for source in (own.records, records):
        split = source.split("train")
        order = SAMPLERS["images"](split, 4, 0)
        data = own.config.data
        batches = training_batches(split, order, tokenizer, data.image, data.text)
        found.append(next(iter(batches)))
    (words, expected), (features, y) = found
    assert features["caption"].dtype == np.float32
    assert features["caption"].shape == (8, words["caption"].shape[1], 6)
    assert y.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(y[name], value)
    np.testing.assert_allclose(
        model.caption_tower_input_model(features["caption"])["mean"],
        model.text_tower(words["caption"])["mean"],
        atol=2e-3,
    )


@pytest.mark.slow
def test_features_are_found_again_by_the_same_encoder_alone(computed, photos):
    own, model, tokenizer, _ = computed
    encoder = caption_encoder(model, own, tokenizer)
    written = {p: p.stat().st_mtime_ns for p in encoder.folder.iterdir()}
    assert len(written) == 2
    encoder.check = None  # Whoever wrote them was asked already.
    features_for_training(encoder, own.records)
    assert {p: p.stat().st_mtime_ns for p in encoder.folder.iterdir()} == written
    places = {encoder.folder}
    for change in (
        "data.text.max_words=4",
        # An option that the weights do not tell of. It drops as good as nothing.
        "model.text.encoder.dropout=1.0e-9",
    ):
        other = run(photos, CAPTIONS, change)
        tokens = build_tokenizer(other.config, other.records)
        twin = projected_runs.model_of(other)
        theirs, mine = (features_of(m.text_tower) for m in (twin, model))
        theirs.set_weights(mine.get_weights())
        places.add(caption_encoder(twin, other, tokens).folder)
    assert len(places) == 3


@pytest.mark.slow
def test_an_encoder_that_is_random_though_frozen_is_refused(photos):
    own = run(photos, CAPTIONS, "model.text.encoder.dropout=0.5")
    tokenizer = build_tokenizer(own.config, own.records)
    encoder = caption_encoder(projected_runs.model_of(own), own, tokenizer)
    with pytest.raises(EncoderError, match="random in training even if they are frozen"):
        features_for_training(encoder, own.records)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            [IMAGES, "train.phases=[{epochs: 1, learning_rate: 1}]"],
            r"precompute_features: .*every phase trains image\.encoder",
        ),
        ([IMAGES, "data.image.flip=true"], r"but data\.image\.flip changes them at random"),
        (
            [IMAGES, "data.image.crop=random_resized", "data.image.cutout=0.1"],
            r"data\.image\.crop, data\.image\.cutout changes .*write data\.image: \{crop: center",
        ),
        (
            [
                *(IMAGES, "data.source={name: regions, root: somewhere}"),
                "model.image.encoder={name: regions, dimension: 8}",
            ],
            r"'regions' holds features already",
        ),
        ([CAPTIONS, "data.text.drop_words=0.1"], r"data\.text\.drop_words drops words"),
        (
            [CAPTIONS, "train.phases.0.freeze=[]"],
            r"precompute_captions: .*every phase trains text\.encoder",
        ),
    ],
)
def test_what_features_cannot_be_computed_once_is_refused(tmp_path, overrides, says):
    with pytest.raises(ConfigError, match=says):
        run(tmp_path, *overrides)


def test_pixels_may_change_where_a_later_phase_reads_them(tmp_path):
    frozen, free = (
        "{epochs: 1, learning_rate: 1, freeze: [image.encoder]}",
        "{epochs: 1, learning_rate: 1}",
    )
    own = run(tmp_path, IMAGES, "data.image.flip=true", f"train.phases=[{frozen}, {free}]")
    assert own.config.data.image.flip
