"""Whatever the checks of configs let pass can be built, trained for a step, and scored with."""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import datasets
import keras
import pytest
from random_configs import RandomConfigs
from tqdm import tqdm

from data_pipelines.text import SPECIAL, Tokenizer, WordTokenizer
from keras_xmr.experiments.build import build_model, further_matcher
from keras_xmr.experiments.config.loader import dump_config
from keras_xmr.experiments.config.model_section import TowerOptions
from keras_xmr.experiments.config.packaged_configs import packaged_ablations, packaged_configs
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.training.phases import freeze, learning_rate_factors, phase_schedule
from keras_xmr.matchers import Matcher
from keras_xmr.metrics.query_metrics import build_metrics
from keras_xmr.model.retriever import Retriever
from keras_xmr.reranking.reranked_metrics import build_rerankers
from keras_xmr.utils.errors import UserError

SMALL = ("scenes_pcme", "scenes_dvse", "csv_pcme_regions", "scenes_saf")
TINY = {
    "image": [{"name": "small_cnn", "channels": [8, 8]}],
    "text": [{"name": "word_embedding", "dimension": 6}],
}


_BY_THE_MODEL = (
    r"features.* wide|keeps the width of the features|is batch normalisation|cannot be divided into"
)


def built(config: Config, records: Any, tokenizer: Tokenizer, steps: int) -> Retriever:
    """The model of a config as its first phase trains it."""
    phase = config.train.phases[0]
    model = build_model(config, records, tokenizer, pretrained=False)
    freeze(model, phase.freeze)
    schedule = phase_schedule(phase, steps)
    optimizer = config.train.optimizer.build(learning_rate=schedule)
    optimizer.set_factors(learning_rate_factors(model, phase))
    # One step is sooner done than traced.
    model.compile(optimizer=optimizer, run_eagerly=True)
    return model


def further(config: Config, model: Retriever) -> list[Matcher]:
    losses = model.objective.losses_
    return [further_matcher(c, model.matcher, losses) for c in config.evaluation.matchers]


def builds(config: Config) -> None:
    """Builds all that a config chooses, without data."""
    keras.backend.clear_session()
    shape = (4, 7) if config.data.source.holds == "regions" else None
    records = SimpleNamespace(holds=config.data.source.holds, region_shape=shape)
    tokenizer = WordTokenizer([*SPECIAL, *datasets.WORDS.split()], config.data.text.max_words)
    further(config, built(config, records, tokenizer, steps=4))
    build_rerankers(config.evaluation.rerankers)
    build_metrics(config.evaluation.metrics)


def _is_told(tower: TowerOptions) -> bool:
    """Whether a config has the width of features, and no layer of the encoder is unknown."""
    encoder = tower.encoder
    return encoder.contract.width is not None and encoder.contract.reads != "regions"


def check_all(configs: RandomConfigs, count: int, check: Callable[[Config], None]) -> None:
    failures = []
    for config in tqdm(itertools.islice(configs, count), total=count, unit="configs"):
        try:
            check(config)
        except UserError as error:
            # What presets, and given regions, are made of, no config tells.
            is_told = all(_is_told(tower) for tower in config.model.towers.values())
            if is_told or not re.search(_BY_THE_MODEL, str(error)):
                failures.append(f"{traceback.format_exc()}\n{dump_config(config)}")
        except Exception:
            failures.append(f"{traceback.format_exc()}\n{dump_config(config)}")
    keras.config.set_dtype_policy("float32")
    assert not failures, f"{len(failures)} of {count} fail, such as:\n{failures[0]}"
    assert all(len(text) > 10 for text in configs.refused)


NAMES = [*packaged_configs(), *packaged_ablations()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "count"), [(SMALL, 3), pytest.param(NAMES, 500, marks=pytest.mark.heavy)]
)
def test_random_configs_can_be_built(names, count):
    sources = {
        ("images", "none"): [{"name": "csv", "root": "photos"}],
        ("images", "class"): [{"name": "cub", "root": "cub"}],
        ("images", "set"): [{"name": "coco", "root": "coco"}],
        ("regions", "none"): [{"name": "regions", "root": "regions"}],
    }
    check_all(RandomConfigs(names, sources, TINY, seed=1), count, builds)
