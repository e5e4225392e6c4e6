"""Every config of a row of the papers, built at full size, without data or weights."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import presets
import pytest
import sizes

from data_pipelines.text import SPECIAL
from keras_xmr.config.loader import (
    find_config,
    load_config,
    packaged_ablations,
    packaged_configs,
)
from keras_xmr.encoders.convolutional import KerasApplications
from keras_xmr.encoders.pretrained.presets import Preset
from keras_xmr.model import build
from keras_xmr.model import towers as towers_module

ROOT = Path(__file__).parents[3]
DATA = ("coco_", "f30k_", "cub_")
# Studies of the same data are no rows of papers.
ROWS = [name for name in packaged_configs() if name.startswith(DATA) and "pretrained" not in name]
ABLATIONS = [name for name in packaged_ablations() if name.startswith(DATA)]

VOCABULARY = 8_500
"""About as many words as occur four times in the captions of Flickr30K, with the special ones."""

REGIONS = (36, 2048)
RESNETS = ("ResNet50", "ResNet101", "ResNet152")
TESTED = {"coco": 5_000, "f30k": 1_000, "cub": 2_967}
"""Images of the test lists of the papers."""


@pytest.fixture(scope="module", autouse=True)
def cached():
    """Builds each distinct tower and backbone once: their numbers are only counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KerasApplications, "_backbone", _stand_in)
        tower = functools.cache(_tower(Preset.tower))
        patch.setattr(
            Preset, "tower", lambda self, weights: tower(self.name, self.side, weights, _policy())
        )
        for side in ("image_tower", "text_tower"):
            patch.setattr(build, side, _cached_tower(getattr(build, side)))
        yield
    # Keras would give the weights their numbers later.
    keras.backend.clear_session()
    keras.config.set_dtype_policy("float32")


def _tower(make):
    return lambda name, side, weights, policy: make(Preset(name, side), weights)


def _stand_in(encoder, shape, weights):
    """A network as wide as the ResNets of the papers; test_encoders.py counts their numbers."""
    assert encoder.architecture in RESNETS
    wide = keras.layers.Conv2D(sizes.RESNET_WIDTH, 1, strides=32, use_bias=False)
    return keras.Sequential([keras.Input(shape), wide])


def _cached_tower(make):
    towers = {}

    def tower(options, dimension, spec):
        size = spec.image_size if make is towers_module.image_tower else len(spec.vocabulary)
        key = (options.model_dump_json(), dimension, size, _policy())
        if key not in towers:
            towers[key] = make(options, dimension, spec)
        return towers[key]

    return tower


def _policy():
    return keras.config.dtype_policy().name


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A preset as wide as BERT-base, with few layers and word pieces, and without weights."""
    folder = presets.bert(tmp_path_factory.mktemp("bert") / "preset")
    path = folder / "config.json"
    preset = json.loads(path.read_text("utf-8"))
    preset["config"] |= {
        "vocabulary_size": 30_522,
        "num_layers": sizes.BERT_LAYERS,
        "num_heads": 12,
        "hidden_dim": sizes.BERT_WIDTH,
        "intermediate_dim": 3072,
        "max_sequence_length": 512,
    }
    path.write_text(json.dumps(preset), "utf-8")
    (folder / "model.weights.h5").unlink()
    return folder


@functools.cache
def load(name):
    return load_config(find_config(name))


def full_size(config):
    """The model of a config, for the data that it is meant for."""
    holds = config.data.source.holds
    records = SimpleNamespace(
        holds=holds,
        region_shape=REGIONS if holds == "regions" else None,
        word_counts=lambda: [(f"word{i}", 9) for i in range(VOCABULARY - len(SPECIAL))],
    )
    tokenizer = build.build_tokenizer(config, records)
    # Weights are counted, and have no numbers yet.
    with keras.StatelessScope(initialize_variables=False):
        return build.build_model(config, records, tokenizer, pretrained=False)


def expected(config):
    """Parameters of both encoders, both heads, the matcher and the losses, by formula."""
    model, dimension = config.model, config.model.dimension
    image, image_width = image_encoder(model.image.encoder)
    text, text_width = text_encoder(config)
    heads = []
    for tower, width in ((model.image, image_width), (model.text, text_width)):
        pool = 0
        if tower.pooling is not None:
            options = tower.pooling.options()
            pool = sizes.pooling(tower.pooling.name, options, width, dimension)
        heads.append(sizes.head(tower.head.name, tower.head.options(), pool, width, dimension))
    return [image, text, *heads, matcher(config), losses(config)]


def image_encoder(encoder):
    if encoder.name == "keras_applications":
        return 3 * sizes.RESNET_WIDTH, sizes.RESNET_WIDTH
    if encoder.name == "vsrn":
        count = sizes.vsrn(REGIONS[1], encoder.dimension, encoder.blocks)
        return count, encoder.dimension
    assert encoder.options() == {
        "dimension": None, "normalize": False, "batch_norm": False, "dropout": 0,
    }  # fmt: skip
    return 0, REGIONS[1]


def text_encoder(config):
    encoder = config.model.text.encoder
    if encoder.name == "keras_hub_text":
        return sizes.BERT, sizes.BERT_WIDTH
    return VOCABULARY * encoder.dimension, encoder.dimension


def matcher(config):
    choice = config.model.matcher
    if choice.name in ("match_probability", "mean_only", "closed_form_sampled"):
        return 2
    if choice.name in ("saf", "sgr", "sgraf"):
        similarity = choice.similarity_dimension
        return sizes.alignment(choice.name, config.model.dimension, similarity, REGIONS[0])
    if choice.name == "imram":
        # The memory, and its gate, of both directions.
        return 2 * 2 * sizes.linear(2 * config.model.dimension, config.model.dimension)
    if choice.name == "naaf":
        return 2
    assert choice.name in WITHOUT_WEIGHTS
    return 0


WITHOUT_WEIGHTS = {"cosine", "max_cosine", "scan", "smooth_chamfer", "mahalanobis_cosine"}
WITHOUT_WEIGHTS |= {"point_to_rectangle"}


def losses(config):
    return sum(size_of_loss(config, loss) for loss in config.objective)


def size_of_loss(config, loss):
    if loss.name == "mahalanobis_contrastive":
        return 1
    if loss.name == "hypergraph_contrastive":
        return sizes.hypergraphs(config.model.dimension, loss.layers, loss.learn_alpha)
    if loss.name == "captioning":
        width = config.model.image.encoder.dimension
        return sizes.captions(width, VOCABULARY, loss.units, loss.word_dimension)
    return 0


def counted(model):
    """The same of a model."""
    encoders, heads = [], []
    for tower in (model.image_tower, model.text_tower):
        layers = [layer for layer in tower.layers if layer.name == "encoder"]
        encoders.append(sum(numbers(layer) for layer in layers))
        heads.append(numbers(tower.get_layer("head")))
        assert numbers(tower) == encoders[-1] + heads[-1], "and nothing else"
    return [*encoders, *heads, numbers(model.matcher), numbers(model.objective)]


def numbers(layer):
    """How many numbers the weights hold, but for the states of random generators."""
    return sum(int(np.prod(w.shape)) for w in layer.weights if "seed" not in w.path)


@pytest.fixture(scope="module")
def built():
    """The models that were counted."""
    return set()


SEEN = [name for name in ROWS if name.endswith("_seen")]


@pytest.mark.parametrize("name", SEEN)
def test_all_classes_are_other_data_for_the_same_model(name):
    config, other = (load(n) for n in (name, name.removesuffix("_seen")))
    assert (config.model, config.objective) == (other.model, other.objective)
    assert (config.data.source.setting, other.data.source.setting) == ("seen", "zero_shot")
    assert config.data.records != other.data.records


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ROWS if name not in SEEN),
        *(pytest.param(name, marks=pytest.mark.heavy) for name in ABLATIONS),
    ],
)
def test_row_has_the_parameters_of_its_architecture(name, bert, built):
    config = load(name)
    if config.model.text.encoder.name == "keras_hub_text":
        assert config.model.text.encoder.preset == "bert_base_en_uncased"
        config = load_config(find_config(name), [f"model.text.encoder.preset={bert}"])
    for phase in config.train.phases:
        assert phase.epochs > 1
    made_of = repr((config.model, config.objective, config.data.image.size, config.train.precision))
    if made_of in built:
        return  # It is a row of the same model on other data.
    built.add(made_of)
    model = full_size(config)
    assert counted(model) == expected(config)
    for tower in (model.image_tower, model.text_tower):
        vectors = tower.output.get("mean", tower.output.get("points", tower.output.get("tokens")))
        assert vectors.shape[-1] == config.model.dimension
        assert vectors.dtype == "float32"


def test_every_row_says_what_it_aims_at_and_where_its_numbers_are_from():
    for name in ROWS:
        config = load(name)
        assert config.name == name
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
