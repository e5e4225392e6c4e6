"""Runs with backbones of KerasHub: training by phases, evaluation, export."""

from __future__ import annotations

import json
import shutil
from functools import partialmethod
from types import SimpleNamespace

import keras
import keras_hub
import models
import numpy as np
import pytest
import tiny_presets

from data_pipelines.batches import training_batches
from data_pipelines.samplers import PairSampler
from keras_xmr.experiments.build import build_model, build_tokenizer
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.runs.beginning import begin_training, check_tokenizer
from keras_xmr.experiments.training.phases import freeze
from keras_xmr.experiments.training.trainer import Trainer
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError

pytestmark = pytest.mark.slow

CAPTIONS = ["a red circle left of a small blue square", "Nothing green!", "Zwei Hunde 🐕", ""]

PHASES = (
    "[{epochs: 1, learning_rate: 1.0e-3, freeze: [text.encoder, image.encoder]},"
    " {epochs: 1, learning_rate: 1.0e-3, learning_rates: {text.encoder: 1.0e-5}}]"
)


def encoders(model):
    return {
        "text": model.text_tower.get_layer("encoder").get_weights(),
        "image": model.image_tower.get_layer("encoder").get_weights(),
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in two phases, and the weights of its encoders when each phase began."""
    folder = tmp_path_factory.mktemp("run")
    bert = tiny_presets.bert(folder / "bert", layers=1)
    config = models.tiny_config(
        folder,
        f"model.text.encoder={{name: keras_hub_text, preset: {bert}, output: average, "
        "bag_of_words: 5}",
        "model.text.pooling=mean",
        f"train.phases={PHASES}",
        "train.optimizer=adam",
        "train.validate_every=2",
        "train.batch_size=16",
        # Traced sooner than those of PCME.
        "model.matcher=closed_form_sampled",
        "objective=[probabilistic_matching]",
        "evaluation.matchers=[]",
        "data.source={name: scenes, train: 16, val: 8, test: 8, captions_per_image: 2}",
    )
    begun = []
    start = Trainer._start

    def watched(trainer, *arguments):
        begun.append(encoders(trainer.model))
        start(trainer, *arguments)

    run = Experiment(config)
    run.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_start", watched)
        # Few steps are sooner done than traced; the tokenizer needs its graph.
        patch.setattr(Retriever, "compile", partialmethod(Retriever.compile, run_eagerly=True))
        run.train()
    # What is left has to do with what lies in the folder of the run, and the config of the preset.
    for name in ("model.weights.h5", "tokenizer.json"):
        (bert / name).unlink()
    shutil.rmtree(bert / "assets")
    return Experiment(config), begun


def test_a_bag_keeps_the_words_of_the_training_with_the_run(trained):
    later, _ = trained
    columns = later.retriever.text_tower.get_layer("bag_of_words").columns.numpy()
    assert sorted(columns[columns >= 0]) == [0, 1, 2, 3, 4]
    texts = [caption.text for caption in later.records.split("train").captions]
    ids = later.tokenizer(texts).numpy()
    counts = [(ids == i).any(axis=1).sum() for i in range(len(columns))]
    told = np.array(counts)[columns >= 0]
    assert told.max() < len(texts)  # [CLS] and [SEP] are in all of them
    assert told.min() >= sorted(c for c in counts if c < len(texts))[-5]


def test_frozen_encoders_stay_and_free_ones_learn_at_their_own_rate(trained, tmp_path):
    run, (first, second) = trained
    own = keras_hub.models.Backbone.from_preset(str(tiny_presets.bert(tmp_path / "bert", layers=1)))
    np.testing.assert_array_equal(first["text"][0], own.token_embedding.embeddings)
    for side in ("text", "image"):
        for before, after in zip(first[side], second[side], strict=True):
            np.testing.assert_array_equal(before, after)
    run.retriever.without_optimizer().load_weights(run.folder.last_weights)
    last = encoders(run.retriever)
    moved = {
        side: max(np.abs(a - b).max() for a, b in zip(second[side], last[side], strict=True))
        for side in last
    }
    assert 0 < moved["text"] < 2e-4 < moved["image"]


def test_the_tokenizer_of_the_run_needs_no_preset(trained):
    run, _ = trained
    names = sorted(path.name for path in (run.folder.path / "tokenizer").iterdir())
    assert names == ["tokenizer.json", "vocabulary.txt"]
    assert not (run.folder.path / "vocabulary.txt").exists()
    ids = run.tokenizer(CAPTIONS[:1]).numpy()[0]
    assert run.tokenizer.text(ids).startswith("[CLS] a red circle left of a small")


def test_batches_are_padded_and_blanked_as_the_tokenizer_says(trained):
    run, _ = trained
    split = run.records.split("train")
    text = run.config.data.text.model_copy(update={"drop_words": 0.4})
    sampler = PairSampler(split, 8, 0)
    batches = training_batches(split, sampler, run.tokenizer, run.config.data.image, text)
    ids = np.concatenate([x["caption"].numpy().ravel() for x, _ in batches.take(3)])
    vocabulary = run.tokenizer.vocabulary
    assert {"[MASK]", "[CLS]", "[SEP]"} <= {vocabulary[i] for i in ids if i >= 0}
    assert "[PAD]" not in {vocabulary[i] for i in ids if i >= 0}
    assert ids.min() == -1


def test_the_report_counts_parts_of_words(trained):
    run, _ = trained
    report = json.loads((run.config.data.records / "report.json").read_text())
    assert report["pretrained_tokenizer"]
    assert report["vocabulary"] == len(run.tokenizer) == 74
    assert report["splits"]["train"]["unknown_words"] < 0.2
    assert 0 < report["splits"]["train"]["cut"] < report["splits"]["train"]["captions"]


def test_another_tokenizer_is_refused(trained, tmp_path):
    run, _ = trained
    copy = shutil.copytree(run.folder.path.parent, tmp_path / "runs")
    config = run.config.model_copy(update={"output": copy})
    moved = Experiment(config)
    files = dict(run.tokenizer.files())
    check_tokenizer(moved.folder, files, files)
    with pytest.raises(UserError, match=r"another vocabulary or tokenizer .*vocabulary\.txt"):
        check_tokenizer(moved.folder, files, files | {"tokenizer/vocabulary.txt": b"[PAD]\n"})
    shutil.rmtree(moved.folder.path / "tokenizer")
    with pytest.raises(UserError, match=r"tokenizer.json is missing\. Copy it back, or train"):
        _ = moved.tokenizer


def test_a_run_that_prepared_its_records_goes_on_with_its_tokenizer(tmp_path, monkeypatch):
    """In the layout of transformers every tokenizer that is built gets a new name from Keras."""
    tiny_presets.transformers_bert(tmp_path / "bert")
    config = models.tiny_config(
        tmp_path,
        f"model.text.encoder={{name: keras_hub_text, preset: {tmp_path / 'bert'}}}",
        "model.text.pooling=mean",
        "data.source={name: scenes, train: 4, val: 2, test: 2, captions_per_image: 1}",
    )
    names = []

    def train(config, folder, records, tokenizer, *_):
        names.append(tokenizer.tokenizer.name)
        begin_training(folder, config, tokenizer.files())
        folder.checkpoints.mkdir(exist_ok=True)
        (folder.checkpoints / "checkpoint").touch()

    monkeypatch.setattr("keras_xmr.experiments.experiment.train", train)
    first = Experiment(config)
    first.prepare()
    first.train()
    Experiment(config).train()
    assert names[0] != names[1]
    kept = first.folder.path / "tokenizer" / "tokenizer.json"
    described = json.loads(kept.read_bytes())
    described["tokenizer"]["config"]["lowercase"] = False
    kept.write_text(json.dumps(described))
    with pytest.raises(UserError, match=r"another vocabulary or tokenizer .*tokenizer\.json"):
        Experiment(config).train()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return tiny_presets.clip(tmp_path_factory.mktemp("presets") / "clip")


IDS = np.array([[193, 5, 9, 194], [193, 7, 194, -1], [193, 0, 0, 194], [193, 190, 194, -1]])


def train_two_steps(model):
    """Trains on four pairs; two steps are sooner done than traced."""
    model.compile(optimizer=keras.optimizers.SGD(1.0), run_eagerly=True)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    number = np.arange(4)
    for _ in range(2):
        x = {"image": pixels, "caption": IDS}
        model.train_on_batch(x, {"image_id": number, "caption_id": number})


def own_embeddings(clip):
    """What the backbone makes of the ids, at unit length."""
    backbone = keras_hub.models.Backbone.from_preset(str(clip))
    return keras.utils.normalize(backbone.get_text_embeddings(np.maximum(IDS, 0)))


def of_clip(name, clip):
    """The model of a config, as its first phase begins."""
    overrides = [
        "data.source.root=photos",
        "data.image.size=32",
        "data.image.resize=32",
        "model.dimension=8",
        f"model.image.encoder.preset={clip}",
        f"model.text.encoder.preset={clip}",
    ]
    config = load_config(find_config(name), overrides)
    photos = SimpleNamespace(holds="images", region_shape=None)
    model = build_model(config, photos, build_tokenizer(config, photos), pretrained=True)
    freeze(model, config.train.phases[0].freeze)
    return model


def test_clip_keeps_its_embeddings_and_learns_their_uncertainty(clip):
    model = of_clip("csv_pcme_clip", clip)
    before = model.text_tower(IDS)["log_variance"]
    train_two_steps(model)
    found = model.text_tower(IDS)
    np.testing.assert_allclose(found["mean"], own_embeddings(clip), rtol=1e-3, atol=1e-4)
    assert np.abs(found["log_variance"] - before).max() > 1e-4
    assert {v.path.split("/")[0] for v in model.trainable_variables} == {"head", "matcher"}


def test_adapters_of_clip_begin_as_clip_and_are_all_that_learns(clip):
    model = of_clip("csv_clip_info_nce", clip)
    own, before = own_embeddings(clip), encoders(model)
    np.testing.assert_allclose(model.text_tower(IDS)["mean"], own, rtol=1e-3, atol=1e-4)
    train_two_steps(model)
    assert np.abs(model.text_tower(IDS)["mean"] - own).max() > 1e-4
    for side, weights in encoders(model).items():
        for weight, first in zip(weights, before[side], strict=True):
            np.testing.assert_array_equal(weight, first)
