"""Training on features of captions that a frozen encoder has computed once."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import projected_runs
import pytest
from interruptions import interrupted, last_weights

from data_pipelines.batches import training_batches
from data_pipelines.samplers import SAMPLERS
from keras_xmr.config.loader import ConfigError
from keras_xmr.encoders import EncoderError
from keras_xmr.evaluation.embed import embed_captions
from keras_xmr.model.build import build_tokenizer
from keras_xmr.model.towers import features_of, tower_on_features
from keras_xmr.runs.frozen_features import CaptionEncoder, features_for_training

ON = "train.precompute_captions=true"
CCA = "train.start=cca"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the records are, and the runs."""
    return projected_runs.prepared(tmp_path_factory.mktemp("captions"))


def encoder_of(model, run, tokenizer) -> CaptionEncoder:
    return CaptionEncoder(model.text_tower, run.records.folder, run.config, tokenizer)


def features_of_captions(model, run, tokenizer):
    """What opens the features that a training reads in place of word ids."""
    return features_for_training(encoder_of(model, run, tokenizer), run.records)


@pytest.fixture(scope="module")
def computed(folder):
    """A model, its tokenizer, and its records with the features of their captions."""
    run = projected_runs.run(folder, ON)
    model, tokenizer = projected_runs.model_of(run), build_tokenizer(run.config, run.records)
    features = features_of_captions(model, run, tokenizer)
    records = replace(run.records, caption_features=features)
    model.caption_feature_tower = tower_on_features(model.text_tower)
    return run, model, tokenizer, records


def losses(run) -> list[float]:
    with run.folder.training_log.open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_training_ends_as_one_on_words_and_starts_once(folder, monkeypatch):
    from keras_xmr.training import train

    begun = []
    start = train.start_from_cca
    monkeypatch.setattr(train, "start_from_cca", lambda *a: (begun.append(1), start(*a)))
    plain = projected_runs.run(folder, "name=plain", CCA)
    plain.train()
    interrupted(projected_runs.run(folder, "name=fast", CCA, ON), 3, monkeypatch)
    fast = projected_runs.run(folder, "name=fast", CCA, ON)
    fast.train()
    assert len(begun) == 2, "one a run: what is resumed does not start again"
    assert losses(plain)
    np.testing.assert_allclose(losses(fast), losses(plain), rtol=1e-3)
    expected, found = last_weights(plain), last_weights(fast)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if np.issubdtype(values.dtype, np.floating):
            np.testing.assert_allclose(found[name], values, rtol=1e-2, atol=5e-3, err_msg=name)
    # What is left is the whole model, from words.
    assert fast.model.caption_feature_tower is None
    assert fast.model.caption_tower_input_model is fast.model.text_tower


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_model_that_nothing_trains_begins_at_cca_of_features(folder):
    plain, fast = (
        projected_runs.run(folder, f"name={name}", CCA, "train.phases=[]", *more)
        for name, more in (("plain_start", []), ("fast_start", [ON]))
    )
    for run in (plain, fast):
        run.train()
    begun, expected = (run.model.text_tower.get_layer("head") for run in (fast, plain))
    for found, values in zip(begun.get_weights(), expected.get_weights(), strict=True):
        # CCA of features in half precision.
        np.testing.assert_allclose(found, values, rtol=1e-2, atol=5e-3)
    assert fast.embedded_records.split("train").caption_features is not None
    assert fast.embedded_records.split("test").caption_features is not None


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["pairs", "images_with_all_captions"])
def test_batches_of_features_are_embedded_as_those_of_words(computed, sampler):
    run, model, tokenizer, records = computed
    found = []
    for source in (run.records, records):
        split = source.split("train")
        order = SAMPLERS[sampler](split, 4, 0)
        config = run.config.data
        batches = training_batches(split, order, tokenizer, config.image, config.text)
        found.append(next(iter(batches)))
    (words, expected), (features, y) = found
    assert features["caption"].dtype == np.float32
    assert features["caption"].shape == (*words["caption"].shape, 6)
    assert len(features["caption"]) == (4 if sampler == "pairs" else 20)
    assert y.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(y[name], value)
    np.testing.assert_allclose(
        model.caption_tower_input_model(features["caption"])["mean"],
        model.text_tower(words["caption"])["mean"],
        atol=2e-3,
    )


@pytest.mark.slow
def test_validation_embeds_features_as_words(computed):
    _, model, tokenizer, records = computed
    split = records.split("val")
    texts = [caption.text for caption in split.captions]
    found = embed_captions(model, texts, tokenizer, 4, split.caption_features)
    expected = model.text_tower(tokenizer(texts))
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=2e-3)


@pytest.mark.slow
def test_features_are_found_again_by_the_same_encoder_alone(computed, folder):
    run, model, tokenizer, _ = computed
    encoder = encoder_of(model, run, tokenizer)
    written = {p: p.stat().st_mtime_ns for p in encoder.folder.iterdir()}
    assert len(written) == 2
    encoder.check = None  # Whoever wrote them was asked already.
    features_for_training(encoder, run.records)
    assert {p: p.stat().st_mtime_ns for p in encoder.folder.iterdir()} == written
    places = {encoder.folder}
    for change in (
        "data.text.max_words=4",
        # An option that the weights do not tell of. It drops as good as nothing.
        "model.text.encoder.dropout=1.0e-9",
    ):
        other = projected_runs.run(folder, ON, change)
        tokens = build_tokenizer(other.config, other.records)
        twin = projected_runs.model_of(other)
        theirs, own = (features_of(m.text_tower) for m in (twin, model))
        theirs.set_weights(own.get_weights())
        places.add(encoder_of(twin, other, tokens).folder)
    assert len(places) == 3


@pytest.mark.slow
def test_an_encoder_that_is_random_though_frozen_is_refused(folder):
    run = projected_runs.run(folder, ON, "model.text.encoder.dropout=0.5")
    tokenizer = build_tokenizer(run.config, run.records)
    with pytest.raises(EncoderError, match="random in training even if they are frozen"):
        features_of_captions(projected_runs.model_of(run), run, tokenizer)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("data.text.drop_words=0.1", r"data\.text\.drop_words drops words"),
        ("train.phases.0.freeze=[]", r"every phase trains text\.encoder"),
    ],
)
def test_what_captions_cannot_be_computed_once_is_refused(folder, override, says):
    with pytest.raises(ConfigError, match=rf"train\.precompute_captions: .*{says}"):
        projected_runs.run(folder, ON, override)
