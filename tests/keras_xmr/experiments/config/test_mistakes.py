"""Typical mistakes in a part of one's own: each ends in a sentence with class and way out."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from keras_xmr.experiments.build import weight_of
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training.dry_run import try_parts
from keras_xmr.experiments.training.train import train
from keras_xmr.parts.registry import Choice
from keras_xmr.utils.errors import ConfigError, UserError

HEADER = """
import keras
import numpy as np
from keras import ops
from keras_xmr.parts.contracts import HeadContract, LossContract, MatcherContract, PoolingContract
from keras_xmr.heads import Head
from keras_xmr.losses import Loss
from keras_xmr.matchers import Matcher
from keras_xmr.metrics import QueryMetric
from keras_xmr.heads.pooling import Pooling
from keras_xmr.reranking import Reranker
"""
LOSS = """
class Mine(Loss):
    CONTRACT = LossContract(terms=("value",))

    def compute(self, scores, image, caption, relations):
        return RETURNED
"""
MATCHER = """
class Mine(Matcher):
    CONTRACT = MatcherContract(accepts=("point",))

    def call(self, image, caption):
        return RETURNED
"""
HEAD = """
class Mine(Head):
    CONTRACT = HeadContract(kind="point")

    def call(self, features, mask=None):
        return RETURNED
"""
POOLING = """
class Mine(Pooling):
    def call(self, features, mask=None):
        return RETURNED
"""
METRIC = """
class Mine(QueryMetric):
    TITLE = "mine"

    def __call__(self, scores, judgements):
        return RETURNED
"""
RERANKER = """
class Mine(Reranker):
    def rerank(self, scores):
        return RETURNED
"""
PRODUCT = 'ops.matmul(image["mean"], ops.transpose(caption["mean"]))'
CONSTRUCTOR = """
    def __init__(self, *, margin=0.2, **kwargs):
        super().__init__(**kwargs)

"""
OPTION = LOSS.replace("    def compute", CONSTRUCTOR + "    def compute")
FORGETS = OPTION.replace("margin=0.2", "margin: float = 0.2") + (
    "    def get_config(self):\n        return {'name': self.name}\n"
)

CHOICES = {
    LOSS: "objective=[{name: mine}]",
    OPTION: "objective=[{name: mine}]",
    MATCHER: "model.matcher=mine",
    HEAD: "model.image.head=mine",
    POOLING: "model.image.pooling=mine",
    METRIC: "evaluation.metrics=[mine]",
    RERANKER: "evaluation.rerankers=[mine]",
}
SMALL = ["model.dimension=8", "model.text.encoder.dimension=6", "model.text.pooling=mean"]

RETURNED = [
    # A loss
    (LOSS, "ops.mean(scores)", "Mine.compute returned.*return the terms of the loss as a dict"),
    (LOSS, "None", r"Mine.compute returned None.*as a dict of scalars, \{'value': ...\}"),
    (
        LOSS,
        "{'value': ops.mean(scores, axis=1)}",
        r"shape \(3,\) as the term 'value'.*keras.ops.mean",
    ),
    (LOSS, "{'other': ops.mean(scores)}", r"the terms \['other'\].*declares \['value'\]"),
    (LOSS, "{'value': ops.cast(ops.sum(scores), 'float16')}", "float16.*losses are float32"),
    (
        LOSS,
        "{'value': ops.mean(image['sigma'])}",
        "Mine: its call on 3 images.*KeyError: 'sigma'.*my_methods.py, line.*image with mean",
    ),
    (
        LOSS,
        "{'value': ops.mean(ops.log(scores - 10.0))}",
        "'value'.*is NaN or infinite.*logarithms",
    ),
    (LOSS, "{'value': ops.zeros(())}", "Mine has no gradient.*nothing would be learned"),
    (
        LOSS,
        "{'value': ops.mean(ops.sqrt(scores - scores))}",
        "its gradient.*is NaN or infinite.*roots",
    ),
    # A matcher
    (
        MATCHER,
        f"ops.transpose({PRODUCT})",
        r"scores \(5, 3\) of 3 images and 5 captions.*transpose",
    ),
    (
        MATCHER,
        f"ops.mean({PRODUCT}, axis=1)",
        r"shape \(3,\).*return scores of the shape \(images, captions\)",
    ),
    (MATCHER, f"ops.cast({PRODUCT}, 'float16')", "float16.*scores are float32"),
    # A head and a pooling
    (
        HEAD,
        "(ops.mean(features, axis=1), None)",
        r"Mine.call returned a tuple.*\{'mean': \(B, D\)\}",
    ),
    (HEAD, "{'mean': features}", r"shape \(3, 4, 8\) as 'mean'.*its shape is \(B, D\), with D = 8"),
    (HEAD, "{'vector': ops.mean(features, axis=1)}", r"keys \['vector'\].*need 'mean' too"),
    (HEAD, "{'mean': ops.cast(ops.mean(features, axis=1), 'float16')}", "float16.*are float32"),
    (POOLING, "features", r"shape \(3, 4, 8\).*one vector per item, of the shape \(B, 8\)"),
    # A metric and a re-ranker
    (METRIC, "float(scores.mean())", r"Mine returned float for 3 queries.*shape \(3,\)"),
    (METRIC, "scores", r"Mine returned float32 of shape \(3, 5\).*shape \(3,\)"),
    (RERANKER, "scores", r"Mine.rerank must return.*Reranked\(image_to_text"),
]


def tried(package, text: str, choice: str) -> str:
    """What is said of a module with a part, when a config that chooses it is about to train."""
    package({"my_methods.py": HEADER + text})
    try:
        try_parts(load_config(find_config("scenes_vse0"), ["plugins=[my_methods]", *SMALL, choice]))
    except UserError as error:
        return str(error)
    raise AssertionError("nothing is said")


@pytest.mark.parametrize(
    ("part", "returned", "says"), RETURNED, ids=[str(n) for n in range(len(RETURNED))]
)
def test_what_a_part_returns_is_checked_before_the_training(package, part, returned, says):
    message = tried(package, part.replace("RETURNED", returned), CHOICES[part])
    assert "Mine" in message
    assert re.search(says, message)


VALUE = "{'value': ops.mean(scores)}"
WRITTEN = {
    "get_config forgets": (FORGETS, "get_config forgets margin.*leave get_config out"),
    "option without a type": (OPTION, r"my_methods.Mine\(margin\) has no type.*PositiveFloat"),
    "name that is taken": (
        LOSS.replace("class Mine", "class Triplet"),
        "my_methods has a loss 'triplet', and so has keras_xmr.losses.triplet.*another name",
    ),
    "field that is not known": (
        LOSS.replace("terms=(", "term=("),
        r"LossContract has no field 'term'.*Did you mean 'terms'\?",
    ),
    "field of another type": (
        LOSS.replace('terms=("value",)', 'terms="value"'),
        "LossContract: terms: got 'value'",
    ),
    "option that is not there": (
        LOSS.replace('("value",)', '("value",), only_with={"warmup": {"mining": "hardest"}}'),
        "CONTRACT names the option 'mining', which its constructor does not take",
    ),
    "nothing declared": (
        LOSS.replace('    CONTRACT = LossContract(terms=("value",))', ""),
        "Mine declares no terms",
    ),
    "syntax error": (LOSS + "class Broken(:", "my_methods cannot be imported: SyntaxError.*line"),
    "import that fails": (
        "import nothing_at_all\n" + LOSS,
        "my_methods cannot be imported.*nothing_at_all",
    ),
    "class that does not derive": (
        LOSS.replace("(Loss)", "(keras.layers.Layer)"),
        r"objective.0.name: my_methods.Mine does not derive from a loss.*class Mine\(Loss\)",
    ),
}


@pytest.mark.parametrize("mistake", WRITTEN)
def test_what_is_written_wrong_is_said_before_the_training(package, mistake):
    text, says = WRITTEN[mistake]
    assert re.search(says, tried(package, text.replace("RETURNED", VALUE), CHOICES[LOSS]))


def test_an_option_that_is_not_keyword_only_is_said_to_be_no_option(package):
    text = OPTION.replace("*, margin=0.2", "margin: float = 0.2").replace("RETURNED", VALUE)
    message = tried(package, text, "objective=[{name: mine, margin: 0.3}]")
    assert "objective.0.margin: the constructor of my_methods.Mine takes it" in message
    assert "keyword-only" in message


def test_a_part_that_is_right_is_tried_in_silence(package):
    package({"my_methods.py": HEADER + LOSS.replace("RETURNED", VALUE)})
    choices = ["plugins=[my_methods]", *SMALL, CHOICES[LOSS]]
    policy = keras.config.dtype_policy()
    try_parts(load_config(find_config("scenes_vse0"), choices))
    assert keras.config.dtype_policy() == policy


def test_parts_that_come_along_are_not_built_to_be_tried(monkeypatch):
    monkeypatch.setattr(Choice, "build", lambda *_, **__: pytest.fail("built"))
    try_parts(load_config(find_config("scenes_pcme"), []))


def test_a_class_says_what_does_not_fit_it(package):
    says = LOSS.replace("RETURNED", VALUE) + (
        "\n    @classmethod\n    def mistakes(cls, part, setting):\n"
        "        yield from super().mistakes(part, setting)\n"
        "        if setting.dimension > 4:\n"
        "            yield f'{part.key}.name: {part.name!r} needs few dimensions'\n"
    )
    package({"my_methods.py": HEADER + says})
    choices = ["plugins=[my_methods]", *SMALL, CHOICES[LOSS]]
    with pytest.raises(ConfigError, match=r"objective.0.name: 'mine' needs few dimensions"):
        load_config(find_config("scenes_vse0"), choices)


def test_an_option_may_be_called_weight(package):
    text = OPTION.replace("margin=0.2", "weight: float = 3.0").replace(
        "super().__init__(**kwargs)", "super().__init__(**kwargs)\n        self.weight = weight"
    )
    package({"my_methods.py": HEADER + text.replace("RETURNED", VALUE)})
    config = load_config(
        find_config("scenes_vse0"),
        ["plugins=[my_methods]", *SMALL, "objective=[{name: mine, weight: 2}, info_nce]"],
    )
    assert config.objective[0].options() == {"weight": 2.0}
    assert [weight_of(loss) for loss in config.objective] == [1.0, 1.0]
    assert config.objective[0].build().get_config()["weight"] == 2.0


def test_a_training_tries_its_parts_before_anything_else(package):
    package({"my_methods.py": HEADER + LOSS.replace("RETURNED", "None")})
    choices = ["plugins=[my_methods]", *SMALL, CHOICES[LOSS]]
    config = load_config(find_config("scenes_vse0"), choices)
    nothing: Any = SimpleNamespace(is_trained=False)
    with pytest.raises(UserError, match=r"Mine\.compute returned None"):
        train(config, nothing, nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("name", "key", "says"),
    [
        (
            "scenes_pcme",
            "model.text.encoder.vectors",
            r"none does not exist; .*nlp\.stanford.*null",
        ),
        ("scenes_pcme", "data.training_judgements", "none does not exist"),
        ("coco_pcme", "model.image.encoder.weights", "none does not exist"),
        ("csv_pretrained", "model.image.encoder.preset", "none does not exist"),
    ],
)
def test_missing_files_are_told_before_anything_is_prepared(tmp_path, monkeypatch, name, key, says):
    monkeypatch.setattr(Experiment, "prepare", lambda self: pytest.fail("prepared"))
    given = [f"{key}={tmp_path}/none", f"output={tmp_path}", f"data.records={tmp_path}/records"]
    if not name.startswith("scenes"):
        given.append(f"data.source.root={tmp_path}")
    with pytest.raises(ConfigError, match=rf"{key}: .*{says}"):
        Experiment(load_config(find_config(name), given)).run()
