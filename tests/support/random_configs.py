"""Configs of parts and options that were drawn at random, as far as the checks let them pass."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from data_pipelines.options import ImageOptions, TextOptions
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.rules import mistakes
from keras_xmr.experiments.config.schema import Config, RelevanceOptions
from keras_xmr.experiments.config.train_section import PhaseOptions, TrainOptions
from keras_xmr.experiments.config.training_rules import TOWER_PARTS
from keras_xmr.parts.registry import components, options_of

NUMBERS = (0, 0.01, 0.5, 1, 2.5)
WHOLE = (0, 1, 2, 3, 4, 8)
DIMENSIONS = (1, 2, 6, 7, 8)

# Sections whose keys are drawn one by one, and those that are not: sizes, files, devices, parts.
SECTIONS: Mapping[str, tuple[type[BaseModel], set[str]]] = {
    "data.image": (ImageOptions, {"size", "resize", "store_side"}),
    "data.text": (TextOptions, set()),
    "relevance": (RelevanceOptions, {"tokenizer"}),
    "train": (
        TrainOptions,
        {"batch_size", "devices", "initial_weights", "jit_compile", "optimizer", "phases"},
    ),
    "train.phases.0": (PhaseOptions, {"freeze", "learning_rates"}),
    "evaluation": (EvaluationOptions, {"judgements", "matchers", "metrics", "rerankers"}),
}
FREEZE = ["image", "text", "matcher"]
FREEZE += [f"{side}.{part}" for side in ("image", "text") for part in TOWER_PARTS]

# What costs much, small.
SMALL = {
    "channels": [8, 8],
    "hidden": 4,
    "head_dimension": 3,
    "similarity_dimension": 4,
    "units": 4,
    "word_dimension": 4,
    "set_size": 2,
    "samples": 2,
    "test_samples": 2,
}


class RandomConfigs:
    """Random configs without end.

    Args:
        names: The configs that they begin as.
        sources: Sections of sources whose data are there, by what a source holds and the kind of
            its labels.
        encoders: By side, sections that stand for encoders which need files, or much time.
        seed: Of the random numbers.

    Attributes:
        refused: What the checks have said of others.
    """

    def __init__(
        self,
        names: Sequence[str],
        sources: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
        encoders: Mapping[str, Sequence[Mapping[str, Any]]],
        seed: int,
    ) -> None:
        self._names = names
        self._sources = sources
        self._encoders = encoders
        self._chance = random.Random(seed)
        self.refused: list[str] = []

    def __iter__(self) -> Iterator[Config]:
        while True:
            try:
                config = Config.model_validate(self._told())
            except ValidationError as error:
                self.refused.append(str(error))
                continue
            found = list(mistakes(config))
            self.refused += found
            if not found:
                yield config

    def _told(self) -> dict[str, Any]:
        chance = self._chance
        told = self._begin(chance.choice(self._names))
        model, train, evaluation = told["model"], told["train"], told["evaluation"]
        self._change(model["image"])
        self._change(model["text"], _kind(model["image"]) if chance.random() < 0.6 else "")
        kinds = _kind(model["image"]), _kind(model["text"])
        matchers = _that_take(kinds, "matcher")
        if model["matcher"]["name"] not in matchers or chance.random() < 0.6:
            model["matcher"] = self._part("matcher", *matchers)
        names = _that_take(kinds, "loss")
        if chance.random() < 0.7:
            losses = [self._part("loss", *names) for _ in range(chance.choice((1, 1, 2, 3)))]
            told["objective"] = [loss | {"weight": chance.choice(NUMBERS)} for loss in losses]
        if chance.random() < 0.5:
            train["optimizer"] = self._part("optimizer")
        for family, of in (("matcher", matchers), ("reranker", ()), ("metric", ())):
            parts = [self._part(family, *of) for _ in range(chance.randint(0, 1))]
            evaluation[f"{family}s"] = parts
        phase = train["phases"][0]
        for section, (options, without) in SECTIONS.items():
            part: Any = told
            for name in section.split("."):
                part = part[int(name) if name.isdigit() else name]
            part |= self._options(options, without, share=0.08)
        if chance.random() < 0.3:
            phase["freeze"] = chance.sample(FREEZE, chance.randint(1, 3))
        if chance.random() < 0.2:
            phase["learning_rates"] = {chance.choice(FREEZE): chance.choice(NUMBERS)}
        model["dimension"] = chance.choice(DIMENSIONS)
        train["batch_size"] = chance.choice((2, 3))
        return told

    def _begin(self, name: str) -> dict[str, Any]:
        """A config that comes along, small, of data that are there, with one phase."""
        config = _loaded(name)
        source = config.data.source
        told = config.model_dump(mode="json")
        told["data"]["source"] = self._chance.choice(self._sources[source.holds, source.label_kind])
        told["data"]["image"] |= {"size": 32, "resize": 32, "store_side": None}
        told["evaluation"]["judgements"] = []
        told["train"] |= {"devices": 1, "initial_weights": None, "jit_compile": False}
        told["train"]["phases"] = (told["train"]["phases"] or [{"epochs": 1}])[:1]
        for side, others in self._encoders.items():
            encoder = told["model"][side]["encoder"]
            if encoder["name"] not in ("regions", "vsrn"):
                told["model"][side]["encoder"] = dict(self._chance.choice(others))
        for part in (told["model"]["matcher"], *told["objective"]):
            part |= {name: size for name, size in SMALL.items() if name in part}
        return told

    def _change(self, tower: dict[str, Any], kind: str = "") -> None:
        """Draws parts of a tower, and options of the others; a head of a kind, if there is one."""
        chance = self._chance
        heads = [n for n, h in components("head").items() if kind in ("", h.CONTRACT.kind)]
        if tower["head"]["name"] not in heads or chance.random() < 0.5:
            tower["head"] = self._part("head", *heads)
        if not components("head")[tower["head"]["name"]].CONTRACT.pools:
            tower["pooling"] = None
        elif tower["pooling"] is None or chance.random() < 0.5:
            tower["pooling"] = self._part("pooling")
        name = tower["encoder"]["name"]
        if not {"preset", "weights"} & set(tower["encoder"]):
            tower["encoder"] |= self._part("encoder", name)
        for part in (tower["encoder"], tower["head"]):
            part |= {name: size for name, size in SMALL.items() if name in part}
        if tower["encoder"].get("dimension"):
            tower["encoder"]["dimension"] = chance.choice(DIMENSIONS)

    def _part(self, family: str, *names: str) -> dict[str, Any]:
        """A section that chooses a part, any or one of some, with some of its options drawn."""
        found = components(family)
        name = self._chance.choice(names or list(found))
        options = options_of(found[name])
        small = {n: size for n, size in SMALL.items() if n in options.model_fields}
        return small | self._options(options, {"name"}, share=0.3) | {"name": name}

    def _options(self, section: type[BaseModel], without: set[str], share: float) -> dict[str, Any]:
        drawn = {}
        for name, told in _properties(section).items():
            # Where a distribution begins may be anywhere, where its variance is no number any more.
            left = name in without or name.startswith("initial_")
            if not left and self._chance.random() < share:
                drawn[name] = self._value(told)
        return {name: value for name, value in drawn.items() if value is not _KEPT}

    def _value(self, told: Mapping[str, Any]) -> Any:
        """A value of an option, by its JSON schema; `_KEPT` for one that is left as it is."""
        chance = self._chance
        told = chance.choice(told["anyOf"]) if "anyOf" in told else told
        if "enum" in told:
            return chance.choice(told["enum"])
        match told.get("type"):
            case "null":
                return None
            case "boolean":
                return chance.random() < 0.5
            case "integer":
                steps = told.get("multipleOf", 1)
                return chance.choice([n * steps for n in WHOLE if _fits(n * steps, told)])
            case "number":
                return chance.choice([number for number in NUMBERS if _fits(number, told)])
            case "array":
                items = told.get("prefixItems") or [told["items"]] * chance.choice((1, 2))
                values = [self._value(item) for item in items]
                return _KEPT if _KEPT in values else values
        return _KEPT


_KEPT = object()


def _kind(tower: Mapping[str, Any]) -> str:
    kind: str = components("head")[tower["head"]["name"]].CONTRACT.kind
    return kind


def _that_take(kinds: tuple[str, ...], family: str) -> list[str]:
    """The matchers, or the losses, that can work on embeddings of these kinds."""
    return [
        name
        for name, part in components(family).items()
        if kinds in (part.CONTRACT.accepts or (kinds,))
    ]


def _fits(value: float, told: Mapping[str, Any]) -> bool:
    least, above = told.get("minimum", value), told.get("exclusiveMinimum", value - 1)
    most, below = told.get("maximum", value), told.get("exclusiveMaximum", value + 1)
    return least <= value <= most and above < value < below


@cache
def _loaded(name: str) -> Config:
    return load_config(find_config(name))


@cache
def _properties(section: type[BaseModel]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = section.model_json_schema()["properties"]
    return properties
