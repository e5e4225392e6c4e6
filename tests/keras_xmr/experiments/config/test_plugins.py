"""Parts of other packages: those in docs/how_to/, and mistakes in others."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from data_pipelines.sources import Problems
from data_pipelines.text import SPECIAL, WordTokenizer
from keras_xmr import commands
from keras_xmr.commands import _cli as cli
from keras_xmr.commands.explain import explain
from keras_xmr.experiments.build import build_model
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.split_evaluation import evaluate_split_scores
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.metric_tables import measured_tables
from keras_xmr.experiments.training.dry_run import try_parts
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import ScoreMatrices, measure
from keras_xmr.metrics.query_metrics import build_metrics
from keras_xmr.parts.registry import FAMILIES, components
from keras_xmr.reranking import build_rerankers
from keras_xmr.utils import plugins
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.plugins import remove_plugins

HOW_TO = Path(__file__).parents[4] / "docs" / "how_to"
METHOD = (HOW_TO / "add_a_method.md").read_text("utf-8").partition("## In the project")[0]
OTHERS = (HOW_TO / "plugins.md").read_text("utf-8")

SOURCE = '''
from typing import Literal

from data_pipelines.sources import Source


class Nothing(Source):
    """A data set without images."""

    name: Literal["nothing"] = "nothing"

    root: str = "."
    """Where it would be."""

    def entries(self, problems):
        yield from ()

    def read(self, entry):
        raise NotImplementedError
'''


def overrides() -> list[str]:
    """What the commands of the pages set, for a method and for what measures it."""
    commands = (re.search(r"```sh\n(.*?)```", page, re.S)[1] for page in (METHOD, OTHERS))
    words = shlex.split("".join(commands).replace("\\\n", " "))
    return [words[place + 1] for place, word in enumerate(words) if word == "--set"]


def names() -> dict[str, set[str]]:
    return {family: set(components(family)) for family in FAMILIES}


@pytest.mark.slow
def test_the_package_of_the_page_trains_three_steps(package, tmp_path):
    before = names()
    package({"my_methods.py": blocks(METHOD)[0], "my_metrics.py": blocks(OTHERS)[0]})
    given = ["model.dimension=8", "model.image.encoder={name: small_cnn, channels: [8, 8]}"]
    given += [
        "plugins=[my_methods, my_metrics]",
        "model.text.encoder.dimension=6",
        "model.text.pooling=mean",
        "data.image.size=32",
    ]
    config = load_config(find_config("scenes_vse0"), [*overrides(), *given])
    assert config.objective[0].model_dump() == {
        "name": "squared_hinge",
        "margin": 0.3,
        "weight": 1.0,
    }
    assert "Maximum score of other pairs" in explain("objective.squared_hinge")

    keras.utils.set_random_seed(0)
    records = SimpleNamespace(holds="images", region_shape=None)
    tokenizer = WordTokenizer([*SPECIAL, "a", "red", "circle"], 8)
    try_parts(config)
    model = build_model(config, records, tokenizer, pretrained=True)
    assert type(model.image_tower.get_layer("head")).__name__ == "Bounded"
    model.compile(keras.optimizers.SGD(0.05))
    random = np.random.default_rng(0)
    x = {
        "image": random.integers(0, 256, (8, 32, 32, 3), np.uint8),
        "caption": random.integers(4, 7, (8, 5)).astype(np.int32),
    }
    losses = []
    for _ in range(3):
        model.reset_metrics()
        losses.append(model.train_on_batch(x, np.arange(8) // 2, return_dict=True)["squared_hinge"])
    assert np.isfinite(losses).all()
    assert losses[2] < losses[0]

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.matcher).__name__ == "DotProduct"
    assert loaded.objective.losses_[0].margin == 0.3
    for name in [n for n in keras.saving.get_custom_objects() if n.startswith("my_methods>")]:
        del keras.saving.get_custom_objects()[name]
    with pytest.raises(UserError, match="parts of other packages; write `import my_methods`"):
        keras.models.load_model(tmp_path / "model.keras")
    (reranker,) = build_rerankers(config.evaluation.rerankers).values()
    assert reranker(random.normal(size=(3, 4))).text_to_image.mean() == pytest.approx(0)

    lead = build_metrics(config.evaluation.metrics)
    truth = GroundTruth(
        ["a", "b"],
        ["c", "d"],
        np.arange(2),
        Judgements.from_pairs(np.arange(2), 2),
        measures=lead,
    )
    found = measure(np.array([[3.0, 1.0], [0.0, 2.0]]), truth)
    assert found.metrics.summary["i2t_lead"] == 2.0
    assert found.metrics.summary["t2i_lead"] == 2.0  # (3 - 0 + 2 - 1) / 2
    scores = ScoreMatrices(np.array([[3.0, 1.0], [0.0, 2.0]]))
    results = results_of(evaluate_split_scores("x", [("x", scores)], truth))
    assert [table for table in measured_tables("x", results) if "lead" in str(table)]

    remove_plugins(["my_methods", "my_metrics"])
    assert names() == before


def test_a_part_of_a_package_is_explained(package, capsys):
    package({"my_methods.py": blocks(METHOD)[0]})
    with pytest.raises(SystemExit):
        cli.main(["main.py", "explain", "objective.squared_hinge"])
    told = capsys.readouterr().err
    assert "There are: adaptive_offline_quintuplet, captioning, " in told
    assert told.rstrip().endswith("Components of your packages need --plugin.")
    cli.main(["main.py", "explain", "objective.squared_hinge", "--plugin=my_methods"])
    assert "Maximum score of other pairs" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["main.py", "explain", "--plugin=gone"])
    assert "module 'gone' does not exist" in capsys.readouterr().err


def test_a_package_of_several_files_hands_down_options_and_brings_a_source(package):
    losses = """
from keras_xmr import losses
import keras_xmr.heads

class _Helper(losses.Loss):
    pass

class Wider(losses.Triplet):
    '''Triplets, again.'''

class Spread(keras_xmr.heads.Point):
    '''Points, again.'''
"""
    files = {"__init__": "", "losses": losses, "data": SOURCE}
    package({f"my_methods/{name}.py": text for name, text in files.items()})
    head = ["model.image.head={name: spread, normalize: false}", "evaluation.matchers=[]"]
    config = load_config(
        find_config("scenes_vse0"),
        ["plugins=[my_methods]", "objective=[wider]", "data.source={name: nothing}", *head],
    )
    assert config.objective[0].margin == 0.2
    assert config.data.source.model_dump() == {"name": "nothing", "root": "."}
    assert components("loss")["wider"].CONTRACT.reads_step
    assert not {"_helper", "helper"} & components("loss").keys()
    assert "Where it would be" in explain("data.source.nothing")
    with pytest.raises(ConfigError, match="unknown key"):
        load_config(
            find_config("scenes_vse0"),
            ["plugins=[my_methods]", "data.source={name: nothing, x: 1}"],
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "module 'my_methods' does not exist"),
        (SOURCE.replace("nothing", "csv"), "my_methods has a source 'csv'"),
        (
            SOURCE.replace("    name: Literal", "    set: Literal"),
            "needs a unique name",
        ),
        ("raise OSError\n" + SOURCE, "my_methods cannot be imported"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said_and_leaves_nothing_behind(package, text, says):
    before = names()
    if text is not None:
        package({"my_methods.py": text})
    with pytest.raises(ConfigError, match=rf"--set plugins=\[my_methods\]: plugins: .*{says}"):
        load_config(find_config("scenes_vse0"), ["plugins=[my_methods]"])
    assert names() == before
    load_config(find_config("scenes_vse0"))


def test_installed_packages_say_that_they_have_parts(package, monkeypatch):
    package({"my_methods.py": "from keras_xmr.losses import Loss\nclass Mine(Loss): '''Mine.'''"})
    points = [SimpleNamespace(value="my_methods"), SimpleNamespace(value="gone")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    plugins._installed.cache_clear()
    try:
        with pytest.warns(UserWarning, match="module 'gone' does not exist"):
            components("loss")
        config = load_config(find_config("scenes_vse0"), ["objective=[mine]"])
        assert config.objective[0].name == "mine"
    finally:
        plugins._installed.cache_clear()
        monkeypatch.undo()


def blocks(page: str) -> list[str]:
    """The modules of a page."""
    return re.findall(r"```python\n(.*?)```", page, re.S)


def test_the_data_set_of_the_page_is_read(package, tmp_path):
    package({"my_data.py": blocks(OTHERS)[1]})
    for split in ("train", "val", "test"):
        (tmp_path / "photos" / split).mkdir(parents=True)
        (tmp_path / "photos" / split / "a red circle.png").write_bytes(b"pixels")
    choice = re.findall(r"'(data.source=.*?)'", OTHERS)[0].replace(
        "photos}", f"{tmp_path}/photos}}"
    )
    config = load_config(find_config("csv_pcme"), ["plugins=[my_data]", choice])
    entries = list(config.data.source.entries(Problems()))
    assert [entry.split for entry in entries] == ["train", "val", "test"]
    assert entries[0].captions[0].text == "a red circle"
    assert config.data.source.read(entries[0]).data == b"pixels"


def test_the_command_of_the_page_runs(package, capsys):
    package({"my_command.py": blocks(OTHERS)[2], "my_methods/__init__.py": "x = 1"})
    command = re.search(r"^PYTHONPATH=\. (keras-xmr \..*)$", OTHERS, re.M)[1]
    cli.main(shlex.split(command))
    assert capsys.readouterr().out == "5 words\n"
    with pytest.raises(SystemExit):
        cli.main(["main.py", ".my_command", "--help"])
    assert "Counts the words of a text." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["main.py", ".my_methods"])
    assert "my_methods is not a command: it lacks add_arguments" in capsys.readouterr().err


def test_installed_packages_bring_commands(package, monkeypatch, capsys):
    package({"my_command.py": blocks(OTHERS)[2]})
    points = [
        SimpleNamespace(name="count-words", value="my_command"),
        SimpleNamespace(name="gone", value="my_gone"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    commands._installed.cache_clear()
    try:
        cli.main(["main.py", "count-words", "two dogs"])
        assert capsys.readouterr().out == "2 words\n"
        with pytest.raises(SystemExit):
            cli.main(["main.py", "gone"])
        assert "the command gone cannot be imported: ModuleNotFoundError" in capsys.readouterr().err
        cli.main(["main.py", "--help"])
        assert "Counts the words of a text." in capsys.readouterr().out
    finally:
        commands._installed.cache_clear()
