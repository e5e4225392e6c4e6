"""Every config of a row of the papers, built at full size, without data or weights."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import keras
import pytest
import tiny_presets

from data_pipelines.text import SPECIAL
from keras_xmr.encoders.convolutional import KerasApplications
from keras_xmr.experiments import build
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import (
    find_config,
    packaged_ablations,
    packaged_configs,
)

DATA = ("coco_", "f30k_", "cub_")
# Studies of the same data are no rows of papers.
ROWS = [name for name in packaged_configs() if name.startswith(DATA) and "pretrained" not in name]
REGIONS = (36, 2048)
TESTED = {"coco": 5_000, "f30k": 1_000, "cub": 2_967}
"""Images of the test lists of the papers."""


@pytest.fixture(scope="module", autouse=True)
def sooner():
    """Networks as wide as the ResNets of the papers in place of them; equal towers are one."""

    def stand_in(encoder, shape, weights):
        assert encoder.architecture in ("ResNet50", "ResNet101", "ResNet152")
        wide = keras.layers.Conv2D(2048, 1, strides=32, use_bias=False)
        return keras.Sequential([keras.Input(shape), wide])

    def cached(make):
        made = {}

        def tower(options, dimension, spec):
            policy = keras.config.dtype_policy().name
            size = spec.image_size, len(spec.vocabulary)
            key = (options.model_dump_json(), dimension, size, policy)
            if key not in made:
                made[key] = make(options, dimension, spec)
            return made[key]

        return tower

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KerasApplications, "_backbone", stand_in)
        for side in ("image_tower", "text_tower"):
            patch.setattr(build, side, cached(getattr(build, side)))
        yield
    # Keras would give the weights their numbers later.
    keras.backend.clear_session()
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_presets.bert(tmp_path_factory.mktemp("bert") / "preset")


@functools.cache
def load(name):
    return load_config(find_config(name))


def full_size(config):
    """The model of a config, for the data that it is meant for."""
    holds = config.data.source.holds
    records = SimpleNamespace(
        holds=holds,
        region_shape=REGIONS if holds == "regions" else None,
        word_counts=lambda: [(f"word{i}", 9) for i in range(8_500 - len(SPECIAL))],
    )
    tokenizer = build.build_tokenizer(config, records)
    # Weights are counted, and have no numbers yet.
    with keras.StatelessScope(initialize_variables=False):
        return build.build_model(config, records, tokenizer, pretrained=False)


SEEN = [name for name in ROWS if "_seen" in name]


@pytest.mark.parametrize("name", SEEN)
def test_all_classes_are_other_data_for_the_same_model(name):
    config, other = (load(n) for n in (name, name.replace("_seen", "")))
    assert (config.model, config.objective) == (other.model, other.objective)
    assert (config.data.source.setting, other.data.source.setting) == ("all_classes", "zero_shot")
    assert config.data.records != other.data.records
    # Which photos the paper tested is not published.
    assert (config.paper.images, other.paper.images) == (None, 2_967)


def parts_of(config):
    """The kinds of each tower, and of the other parts; others differ in numbers."""
    towers = config.model.towers.items()
    kinds = {(s, t.encoder.name, t.pooling and t.pooling.name, t.head.name) for s, t in towers}
    return kinds | {part.name for part in (config.model.matcher, *config.objective)}


def first_of_their_parts(data):
    """The first rows of a data set that together have every combination of parts."""
    built = set()
    for name in ROWS:
        kinds = parts_of(load(name))
        if name.startswith(data) and not kinds <= built:
            built |= kinds
            yield name


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
def test_rows_are_built_at_the_size_of_their_papers(data, bert):
    for name in first_of_their_parts(data):
        config = load(name)
        if config.model.text.encoder.name == "keras_hub_text":
            assert config.model.text.encoder.preset == "bert_base_en_uncased"
            config = load_config(find_config(name), [f"model.text.encoder.preset={bert}"])
        model = full_size(config)
        for tower in (model.image_tower, model.text_tower):
            output = tower.output
            vectors = output.get("mean", output.get("points", output.get("tokens")))
            assert vectors.shape[-1] == config.model.dimension, name
            assert vectors.dtype == "float32", name


def made_by(tower, dimension):
    """The head and the pooling of a tower, before they know the features."""
    pooling = tower.pooling
    make = None if pooling is None else functools.partial(pooling.build, dimension=dimension)
    return tower.head.build(dimension=dimension, pooling=make)


@pytest.mark.slow
def test_parts_of_every_config_are_made():
    """Heads with their poolings, matchers, losses and re-rankers of configs, studies and grids."""
    made = set()
    for name in (*packaged_configs(), *packaged_ablations()):
        config = load(name)
        for tower in config.model.towers.values():
            key = f"{tower.head} {tower.pooling} {config.model.dimension}"
            if key not in made:
                made.add(key)
                made_by(tower, config.model.dimension)
        choices = (config.model.matcher, *config.objective, *config.evaluation.matchers)
        for choice in (*choices, *config.evaluation.rerankers):
            if str(choice) not in made and getattr(choice, "name", "") != "captioning":
                made.add(str(choice))
                choice.build()
    assert len(made) > 150


@pytest.mark.heavy
def test_every_config_is_built_at_its_size(bert):
    """All but those on pretrained image encoders, whose files are not here."""
    built = set()
    for name in (*packaged_configs(), *packaged_ablations()):
        config = load(name)
        texts, images = (config.model.towers[side].encoder for side in ("text", "image"))
        key = config.model.model_dump_json() + str(config.objective)
        if images.name == "keras_hub_image" or key in built:
            continue
        built.add(key)
        if texts.name == "keras_hub_text":
            config = load_config(find_config(name), [f"model.text.encoder.preset={bert}"])
        full_size(config)
    assert len(built) > 190


def test_every_row_says_what_it_aims_at_and_where_its_numbers_are_from():
    for name in ROWS:
        config = load(name)
        assert config.name == name
        assert all(phase.epochs > 1 for phase in config.train.phases), name
        assert re.search(r"20\d\d|Wei et al\.", config.paper.source), name
        text = "".join(path.read_text("utf-8") for path in _files(find_config(name)))
        for key in ("batch_size", "epochs") if config.train.phases else ():
            assert re.search(rf"{key}: \d+.*", text), name
        assert re.search(r"released code|our choice|[Ss]ection|4-A|IV-A3|B\.3", text), name


def _files(path):
    """A config and the files that it includes."""
    yield path
    included = re.search(r"^include: (.*)$", path.read_text("utf-8"), re.M)
    for name in re.findall(r"[\w/]+\.yaml", included[1] if included else ""):
        yield from _files(path.parent / name)


@pytest.mark.slow
def test_figures_that_can_be_measured_are_measured():
    """A figure of folds, of another matcher or of a re-ranker is one of the evaluation's."""
    for name in ROWS:
        config = load(name)
        matchers = {config.model.matcher.name, *(m.name for m in config.evaluation.matchers)}
        rerankers = {reranker.name for reranker in config.evaluation.rerankers}
        for figures in config.paper.figures:
            assert figures.split in config.evaluation.splits
            assert not figures.folds or config.evaluation.folds == 5
            assert figures.matcher is None or figures.matcher in matchers
            assert figures.reranker is None or figures.reranker in rerankers
        if config.paper.figures and name not in SEEN:
            assert config.paper.images == TESTED[name.partition("_")[0]], name
