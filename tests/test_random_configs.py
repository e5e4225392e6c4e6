"""Whatever the checks of configs let pass can be built, trained for a step, and scored with."""

from __future__ import annotations

import functools
import itertools
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import keras
import numpy as np
import presets
import pytest
import tensorflow as tf
from random_configs import RandomConfigs
from tqdm import tqdm

from data_pipelines.batches import training_batches
from data_pipelines.options import DataOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import Records, SplitRecords
from data_pipelines.samplers import SAMPLERS
from data_pipelines.text import SPECIAL, Tokenizer, WordTokenizer
from keras_xmr.config.loader import dump_config, packaged_ablations, packaged_configs
from keras_xmr.config.schema import Config
from keras_xmr.evaluation.evaluate import build_metrics
from keras_xmr.matchers import Matcher
from keras_xmr.model.build import build_model, build_tokenizer, further_matcher
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of, tower_on_features
from keras_xmr.relevance import BatchRelevance, weigh
from keras_xmr.reranking.measure import build_rerankers
from keras_xmr.training.phases import freeze, learning_rate_factors, phase_schedule
from keras_xmr.utils.errors import UserError

SMALL = ("scenes_pcme", "scenes_dvse", "csv_pcme_regions", "scenes_saf")
TINY = {
    "image": [{"name": "small_cnn", "channels": [8, 8]}],
    "text": [{"name": "word_embedding", "dimension": 6}],
}


_BY_THE_MODEL = (
    r"features.* wide|keeps the width of the features|is batch normalisation|cannot be divided into"
)


def sections(folder: Path, *makes: Callable[..., Any]) -> list[dict[str, Any]]:
    """Sections of sources, whose data are written."""
    return [make(folder / make.__name__) for make in makes]


def records_of(folder: Path) -> Callable[[Config], Records]:
    """Gives the records of a config; those of each source are written once."""

    @functools.cache
    def prepared(name: str, source: Any) -> Records:
        return prepare(DataOptions(source=source.model_dump(), records=folder / name))

    return lambda config: prepared(config.data.source.name, config.data.source)


def relevance_of(split: SplitRecords, model: Retriever, config: Config) -> BatchRelevance | None:
    if not model.objective.needs_relevance:
        return None
    words = [text.split() for text in split.texts]
    measure = config.relevance.train_measure or config.relevance.measure
    return BatchRelevance(weigh(words, split.caption_image, len(split), measure))


def on_features(model: Retriever, config: Config, x: dict[str, Any]) -> dict[str, Any]:
    """What a phase is trained on whose features are computed once."""
    options, phase = config.train, config.train.phases[0]
    towers = {"image": model.image_tower, "caption": model.text_tower}
    frozen = {
        "image": options.precompute_features and phase.freezes_encoder("image"),
        "caption": options.precompute_captions and phase.freezes_encoder("text"),
    }
    for side in [side for side, is_frozen in frozen.items() if is_frozen]:
        found = features_of(towers[side])(x[side])
        x = x | {side: tf.cast(tf.nest.flatten(found)[0], tf.float32)}
        name = "feature_tower" if side == "image" else "caption_feature_tower"
        setattr(model, name, tower_on_features(towers[side]))
    return x


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


def trains_and_scores(config: Config, records: Records) -> None:
    """Builds all that a config chooses, trains for one step, and scores what is embedded."""
    keras.backend.clear_session()
    split = records.split("train")
    tokenizer = build_tokenizer(config, records)
    sampler = SAMPLERS[config.train.sampler](split, config.train.batch_size, config.seed)
    model = built(config, records, tokenizer, sampler.steps)
    batches = training_batches(
        split,
        sampler,
        tokenizer,
        config.data.image,
        config.data.text,
        relevance=relevance_of(split, model, config),
    )
    x, y = next(iter(batches))
    x = on_features(model, config, x)
    logs = model.train_step((x, y))
    if config.train.precision == "mixed_float16":
        logs.pop("gradient_norm")  # Their scale falls until they do not overflow any more.
    assert all(np.isfinite(value) for value in logs.values()), logs
    assert all(np.isfinite(weight).all() for weight in model.trainable_variables)
    embedded = model(x)
    for matcher in (model.matcher, *further(config, model)):
        for query in (
            ({"query": "image"}, {"query": "caption"}) if matcher.contract.directed else ({},)
        ):
            image = matcher.prepare(embedded["image"], "image")
            scores = matcher(image, matcher.prepare(embedded["caption"], "caption"), **query)
            assert np.isfinite(scores).all(), matcher
    for reranker in build_rerankers(config.evaluation.rerankers).values():
        reranker(np.asarray(scores))
    build_metrics(config.evaluation.metrics)


def check_all(configs: RandomConfigs, count: int, check: Callable[[Config], None]) -> None:
    failures = []
    for config in tqdm(itertools.islice(configs, count), total=count, unit="configs"):
        try:
            check(config)
        except UserError as error:
            # What presets, and given regions, are made of, no config tells.
            if not re.search(_BY_THE_MODEL, str(error)):
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


@pytest.mark.heavy
def test_random_configs_train_and_score(tmp_path):
    sources = {
        ("images", "none"): sections(tmp_path, datasets.csv_photos, datasets.flickr30k),
        ("images", "class"): [datasets.cub(tmp_path / "cub", classes=6)],
        ("images", "set"): sections(tmp_path, datasets.coco),
        ("regions", "none"): sections(tmp_path, datasets.regions, datasets.bottom_up),
    }
    clip = {"preset": str(presets.clip(tmp_path / "clip"))}
    encoders = {
        "image": [
            *TINY["image"],
            {"name": "keras_hub_image", **clip},
            {"name": "keras_hub_image", **clip, "output": "pooled"},
            {"name": "keras_hub_image", "preset": str(presets.resnet(tmp_path / "resnet"))},
        ],
        "text": [
            *TINY["text"],
            {"name": "keras_hub_text", **clip},
            {"name": "keras_hub_text", "preset": str(presets.bert(tmp_path / "bert"))},
        ],
    }
    records = records_of(tmp_path)
    configs = RandomConfigs(NAMES, sources, encoders, seed=2)
    check_all(configs, 100, lambda config: trains_and_scores(config, records(config)))
