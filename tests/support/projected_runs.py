"""Small runs on features whose towers end in the pooling `projection`."""

from __future__ import annotations

from pathlib import Path

import datasets
import keras
import models

from keras_xmr.experiments.build import build_model, build_tokenizer
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training.phases import freeze
from keras_xmr.model.retriever import Retriever


def prepared(folder: Path) -> Path:
    """Records of regions: 8 images of training and 3 of validation, with 5 captions each."""
    datasets.regions(folder / "raw")
    run(folder).prepare()
    return folder


def config(folder: Path, *overrides: str):
    return models.tiny_config(
        folder,
        f"data.source={{name: regions, root: {folder / 'raw'}}}",
        "model.image.encoder={name: regions}",
        "model.text.encoder={name: word_embedding, dimension: 6}",
        "model.image.pooling={name: projection, power: 0.5}",
        "model.text.pooling=projection",
        "model.image.head=point",
        "model.text.head=point",
        "model.dimension=5",
        "model.matcher=cosine",
        "objective=[info_nce]",
        "evaluation.matchers=[]",
        "evaluation.batch_size=64",
        "train.batch_size=20",
        "train.log_steps=1",
        "train.phases=[{epochs: 2, learning_rate: 1.0e-2, freeze: [text.encoder]}]",
        *overrides,
    )


def run(folder: Path, *overrides: str) -> Experiment:
    return Experiment(config(folder, *overrides))


def model_of(run: Experiment) -> Retriever:
    """The model of a run before it trains, frozen as in its first phase."""
    keras.utils.set_random_seed(run.config.seed)
    tokenizer = build_tokenizer(run.config, run.records)
    model = build_model(run.config, run.records, tokenizer, pretrained=True)
    freeze(model, run.config.train.phases[0].freeze)
    return model
