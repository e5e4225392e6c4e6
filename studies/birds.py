"""Methods of the papers on CUB Captions: real photos, unseen classes, frozen encoders.

A row is a config `csv_pretrained_*` with configs/bases/cub_pretrained.yaml on top. Features are
computed once. Rate and one further option of each row are tuned on the validation classes with
seed 0, on a grid of the same size for every row; seeds 1 to 3 are trained with the best, the
validation classes choose the epoch, and the test classes are measured once. A line per run is
appended to `--results`; what has a line is not run again, so a study that was stopped goes on.

    python studies/birds.py --cub data/raw/cub      # what is missing
    python studies/result_pages.py methods_page            # the tables
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from scipy.special import softmax

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from birds_tables import (
    COLUMNS,
    METRICS,
    RANDOM,
    Line,
    add_paths,
    append_row,
    read_lines,
)

from data_pipelines.batches import image_batches
from keras_xmr.encoders import InputSpec
from keras_xmr.experiments.build import weight_of
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import join
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training.phases import phase_schedule
from keras_xmr.heads.pooling import Projection
from keras_xmr.judgements import judge
from keras_xmr.layers import ImageBackbone, region_mask
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.linear.cca import CanonicalCorrelations
from keras_xmr.metrics import ScoreMatrices, evaluate_scores
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.registry import components
from keras_xmr.relevance import TOKENIZERS, BatchRelevance, weigh
from keras_xmr.reranking import CSLS, ScoreBank
from keras_xmr.utils.directions import DIRECTIONS, split_name
from keras_xmr.utils.vectors import unit_rows

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results/birds.csv"
SEEDS = (1, 2, 3)

RATES = (6.25e-6, 2.5e-5, 1e-4, 4e-4, 1.6e-3, 6.4e-3)


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        config: The rest of the name of a config `csv_pretrained_*`.
        knob: The option that is tuned in addition to the rate.
        values: Its values.
        sets: Further texts `key=value`.
        local: Whether its heads see places and words, not their average alone.
        freed: The side whose encoder has its last stage trained, too: the last two layers of the
            text encoder, or what is between the last two maps of the image encoder.
        begins: "cca", or "random" weights, which need rates that are 16 times as large.
        csls: Whether it is also measured with the correction for hubs.
        batch: Number of pairs of a step.
    """

    config: str
    knob: str
    values: tuple[float, float]
    sets: tuple[str, ...] = ()
    local: bool = False
    freed: str = ""
    begins: str = "cca"
    csls: bool = False
    batch: int = 250

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates that are tried: of rows that take minutes to train the smaller ones."""
        rates = RATES[:4] if self.local or self.freed else RATES
        return tuple(16 * rate for rate in rates) if self.begins == "random" else rates


@dataclass(eq=False)
class Split:
    """Features of the photos and captions of a split.

    Attributes:
        images: Features (N, L, F) of places.
        captions: Features of the words of each caption; see `data_pipelines.features.Features`.
        image_means: Averages over the places (N, 1, F).
        caption_means: Averages over the words (M, 1, G).
        caption_image: The row of the photo of each caption, (M,).
        classes: The class of each photo, (N,).
        relevance: Relevance of captions to photos, CIDEr; None where it is not read.
        maps: A function that gives the last map but one of the image encoder, (N, H, W, C).
    """

    images: np.ndarray
    captions: Any
    image_means: np.ndarray
    caption_means: np.ndarray
    caption_image: np.ndarray
    classes: np.ndarray
    relevance: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    maps: Any = None

    @property
    def caption_classes(self) -> np.ndarray:
        """The class of each caption, (M,)."""
        return self.classes[self.caption_image]

    def read_images(self, rows: np.ndarray, row: Row) -> np.ndarray:
        """Inputs of the image tower, float32."""
        if row.freed == "image":
            return self.maps()[rows].astype(np.float32)
        return (self.images if row.local else self.image_means)[rows].astype(np.float32)

    def read_captions(self, rows: np.ndarray, row: Row) -> np.ndarray:
        """Inputs of the text tower, float32."""
        whole = row.local or row.freed == "text"
        return self.captions.read(rows) if whole else self.caption_means[rows]


def measure(scores: Any, image_classes: np.ndarray, caption_image: np.ndarray) -> np.ndarray:
    """`METRICS` by class, as fractions: (6, classes).

    Args:
        scores: Scores (N, M), a matrix for each side as queries, or `ScoreMatrices`.
        image_classes: (N,).
        caption_image: The row of the photo of each caption, (M,).
    """
    labels = [(int(label),) for label in image_classes]
    truth = judge("classes", caption_image, labels, len(labels))
    found = evaluate_scores(scores, truth).directions
    of_class = dict(zip(DIRECTIONS, (image_classes, image_classes[caption_image]), strict=True))
    return np.array([
        [found[direction].values[metric][of_class[direction] == label].mean()
         for label in np.unique(image_classes)]
        for direction, metric in map(split_name, METRICS)
    ])  # fmt: skip


def of_validation(figures: np.ndarray) -> float:
    """What chooses: the mean R-Precision of both directions, in percent."""
    return 100 * float(figures[[0, 3]].mean())


def _csls(images: np.ndarray, captions: np.ndarray, train: Sequence[np.ndarray]) -> Any:
    """Cosines of both directions, (N, M) each, less the hubness of what is ranked."""
    bank = ScoreBank(train[0] @ captions.T, train[1] @ images.T)
    return CSLS(bank, neighbours=10)(images @ captions.T)


class Study:
    """Trains and measures rows on three splits.

    Args:
        train: The training classes.
        val: The classes that choose.
        test: The classes that are measured.
        settings: Gives the config of a row, with texts `key=value`.
        dimension: The dimension of these configs.
    """

    def __init__(
        self,
        train: Split,
        val: Split,
        test: Split,
        settings: Callable[[Row, Sequence[str]], Any],
        dimension: int = 128,
    ) -> None:
        self.train, self.val, self.test, self.settings = train, val, test, settings
        self.vectors = [
            (
                unit_rows(np.sqrt(np.maximum(s.image_means[:, 0], 0)).astype(np.float64)),
                unit_rows(s.caption_means[:, 0].astype(np.float64)),
            )
            for s in (train, val, test)
        ]
        self.cca = CanonicalCorrelations(*self.vectors[0], train.caption_image)
        grid = (0.3, 1, 3), (0.1, 0.3, 1), (0.5, 1), (dimension // 2, dimension)
        self.cca_val, self.maps = max(
            (
                (self._val(self.projected(maps, 1)), maps)
                for maps in self.cca.projections(dimension, *grid)
            ),
            key=lambda each: each[0],
        )

    def projected(self, maps: Any, split: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of photos and captions of a split by its number, by CCA."""
        return self.cca.project(maps, *self.vectors[split])

    def save_vectors(self, path: Path) -> None:
        """Writes what CCA sees of the three splits, the photo of each caption, and classes."""
        splits = zip(("train", "val", "test"), (self.train, self.val, self.test), strict=True)
        arrays = {}
        for (name, split), (images, captions) in zip(splits, self.vectors, strict=True):
            arrays[f"{name}_images"] = images.astype(np.float32)
            arrays[f"{name}_captions"] = captions.astype(np.float32)
            arrays[f"{name}_owner"] = split.caption_image
            arrays[f"{name}_classes"] = split.classes
        np.savez(path, **arrays)

    def _val(self, vectors: Sequence[np.ndarray]) -> float:
        return of_validation(self._measured(vectors[0] @ vectors[1].T, self.val))

    @staticmethod
    def _measured(scores: Any, split: Split) -> np.ndarray:
        return measure(scores, split.classes, split.caption_image)

    def plain(self, name: str) -> Iterator[tuple[str, float, np.ndarray]]:
        """A baseline in closed form, and it with the correction: name, validation, figures."""
        if name == "cca":
            vectors, val = self.projected(self.maps, 2), self.cca_val
            near = self._near(self.projected(self.maps, 0))
            yield "cca_csls", val, self._measured(_csls(*vectors, near), self.test)
        else:
            val, vectors = self._classifier()
        yield name, val, self._measured(vectors[0] @ vectors[1].T, self.test)

    def _near(self, vectors: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The training items of CSLS: every photo with its first caption."""
        return vectors[0], vectors[1][np.unique(self.train.caption_image, return_index=True)[1]]

    def _classifier(self) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
        """Probabilities of the training classes by ridge regression, compared by cosine.

        The semantic matching of Rasiwasia et al. 2010, section 4.2.
        """
        labels = (self.train.classes, self.train.caption_classes)
        found = []
        for side, own in enumerate(labels):
            vectors = [split[side] - self.vectors[0][side].mean(axis=0) for split in self.vectors]
            target = (own[:, None] == np.unique(own)).astype(np.float64)
            target -= target.mean(axis=0)
            values, axes = np.linalg.eigh(vectors[0].T @ vectors[0])
            between = axes.T @ (vectors[0].T @ target)
            found.append([])
            for ridge in (0.1, 1, 10):
                kernel = axes @ (between / (values + ridge * values.mean())[:, None])
                logits = [v @ kernel / (vectors[0] @ kernel).std() for v in vectors]
                found[-1].append(logits)
        best: Any = (-1.0, None)
        for (images, captions), sharpness in product(product(*found), (0.5, 1, 2)):
            sides = [
                tuple(
                    unit_rows(np.sqrt(softmax(sharpness * side[split], axis=1)))
                    for side in (images, captions)
                )
                for split in (1, 2)
            ]
            best = max(best, (self._val(sides[0]), sides[1]), key=lambda each: each[0])
        return best

    def fit(self, row: Row, rate: float, knob: float, seed: int) -> Any:
        """Trains a row: the model with the best weights, its validation figure and epoch."""
        sets = [f"{row.knob}={knob}", f"train.phases.0.learning_rate={rate}"]
        config = self.settings(row, [*row.sets, *sets, "data.judgements=pairs", f"seed={seed}"])
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        model, phase = self._model(config, row), config.train.phases[0]
        captions = len(self.train.caption_image)
        size = min(row.batch, captions)
        steps = captions // size
        optimizer = components("optimizer")[config.train.optimizer.name]
        model.compile(
            optimizer=optimizer(phase_schedule(phase, steps), **config.train.optimizer.options())
        )
        random = np.random.default_rng(seed)
        x = {
            side: tf.TensorSpec([None, *tower.input.shape[1:]], tf.float32)
            for side, tower in (("image", model.image_tower), ("caption", model.text_tower))
        }
        y = {
            "image_id": tf.TensorSpec([None], tf.int64),
            "labels": tf.TensorSpec([None, 1], tf.int64),
        }
        if model.objective.needs_relevance:
            y["relevance"] = tf.TensorSpec([None, None], tf.float32)
        batches = tf.data.Dataset.from_generator(
            lambda: self._epoch(random, size, row, "relevance" in y), output_signature=(x, y)
        )
        best: Any = (-1.0, 0, None)
        for epoch in range(1, phase.epochs + 1):
            model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0, shuffle=False)
            val = of_validation(self._measured(self.scores(model, row, self.val), self.val))
            if val > best[0]:
                best = val, epoch, model.get_weights()
        model.set_weights(best[2])
        return model, best[0], best[1]

    def _epoch(self, random: Any, size: int, row: Row, relevance: bool) -> Iterator[Any]:
        split = self.train
        order = random.permutation(len(split.caption_image))
        for rows in order[: len(order) // size * size].reshape(-1, size):
            images = split.caption_image[rows]
            x = {
                "image": split.read_images(images, row),
                "caption": split.read_captions(rows, row),
            }
            y = {"image_id": images, "labels": split.classes[images][:, None]}
            if relevance and split.relevance is not None:
                y["relevance"] = split.relevance(images, rows)
            yield x, y

    def _model(self, config: Any, row: Row) -> Any:
        """The model of a config on features, at the start of its row."""
        towers: list[keras.Model] = []
        starts = zip(
            (config.model.image, config.model.text),
            self._inputs(config, row),
            self.vectors[0],
            (self.cca.image_mean, self.cca.caption_mean),
            (self.maps.image, self.maps.caption),
            strict=True,
        )
        size = config.model.dimension
        for options, (inputs, features, mask), vectors, mean, kernel in starts:
            pooling = options.pooling and partial(options.pooling.build, dimension=size)
            head = options.head.build(dimension=size, pooling=pooling, name="head")
            towers.append(keras.Model(inputs, head(features, mask=mask)))
            for layer in all_layers(head):
                if isinstance(layer, Projection):
                    layer.standardise(vectors, mean)
            if row.begins == "cca":
                norm = np.linalg.norm((vectors - mean) @ kernel, axis=1).mean()
                head.global_pooling.begin_at(kernel / norm)
        losses = [choice.build() for choice in config.objective]
        return Retriever(
            *towers,
            config.model.matcher.build(name="matcher"),
            Objective(losses, [weight_of(choice) for choice in config.objective]),
            judgements=config.data.judgements,
            clip_norm=config.train.clip_norm,
            seed=config.seed,
        )

    def _inputs(self, config: Any, row: Row) -> Iterator[tuple[Any, Any, Any]]:
        """The input of each tower, the features that are made of it, and their mask."""
        places, words = self.train.images.shape[1:], self.train.caption_means.shape[2]
        if row.freed == "image":
            _, last = split_images(config)
            yield last.input, last.output, None
        else:
            inputs = keras.Input(places if row.local else (1, places[1]))
            yield inputs, inputs, region_mask(inputs)
        inputs = keras.Input((None if row.local or row.freed == "text" else 1, words))
        mask = region_mask(inputs)
        if row.freed == "text":
            yield inputs, last_layers(config, inputs, mask), mask
        else:
            yield inputs, inputs, mask

    def embed(self, model: Any, row: Row, split: Split) -> tuple[dict[str, np.ndarray], ...]:
        """The embeddings of photos and captions of a split."""
        sides = (
            (model.image_tower, split.read_images, len(split.classes)),
            (model.text_tower, split.read_captions, len(split.caption_image)),
        )
        return tuple(
            _joined(tower.predict_on_batch(read(rows, row)) for rows in blocks(count))
            for tower, read, count in sides
        )

    def scores(self, model: Any, row: Row, split: Split) -> ScoreMatrices:
        """Scores of both directions."""
        return score_tiles(model.matcher, *self.embed(model, row, split), (512, 4096)).dense()

    def tested(self, model: Any, row: Row) -> Iterator[tuple[str, np.ndarray]]:
        """Figures of the test classes, of a row and of it with the correction for hubs."""
        yield "", self._measured(self.scores(model, row, self.test), self.test)
        if row.csls:
            train, test = (
                [side["mean"] for side in self.embed(model, row, s)]
                for s in (self.train, self.test)
            )
            yield "_csls", self._measured(_csls(*test, self._near(train)), self.test)


def split_images(config: Any) -> tuple[keras.Model, keras.Model]:
    """The image encoder up to its last map but one, and from there to its features."""
    size = config.data.image.size
    pixels = keras.Input((size, size, 3), dtype="uint8")
    features, _ = config.model.image.encoder.build().features(pixels, InputSpec(image_size=size))
    encoder = keras.Model(pixels, features).get_layer("encoder")
    before, last = encoder.network.outputs
    begin = keras.Model(next(iter(encoder.network.input.values())), before)
    scaled = keras.layers.Rescaling(encoder.scale or 1, encoder.offset or 0)(pixels)
    first = keras.Model(pixels, begin(scaled))
    maps = keras.Input(first.output.shape[1:])
    stage = keras.Model(maps, keras.Model(before, last)(maps))
    names = (f"P{level}" for level in encoder.levels)
    stage.pyramid_outputs = dict(zip(names, (maps, stage.output), strict=True))
    for layer in all_layers(stage):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False  # Statistics of batches would make other features.
    rest = ImageBackbone(stage, grid=encoder.grid, levels=encoder.levels)
    return first, keras.Model(maps, rest(maps))


def last_layers(config: Any, features: Any, mask: Any) -> Any:
    """The features of words (B, L, 2 F), of which the last F are computed from the first."""
    ids = keras.Input((None,), dtype="int32")
    tokens, _ = config.model.text.encoder.build().features(ids, InputSpec())
    network = keras.Model(ids, tokens).get_layer("encoder").network
    first, last = config.model.text.encoder.layers
    width = features.shape[-1] // 2
    state = features[..., :width]
    for number in range(first, last):
        layer = network.get_layer(f"transformer_layer_{number}")
        state = layer(state, padding_mask=mask)
    return keras.ops.concatenate([features[..., :width], state], axis=-1)


def blocks(count: int, size: int = 1024) -> Iterator[np.ndarray]:
    for begin in range(0, count, size):
        yield np.arange(begin, min(begin + size, count))


def _joined(parts: Iterable[dict[str, np.ndarray]]) -> dict[str, Any]:
    parts = list(parts)
    if "tokens" in parts[0]:
        masks = [np.asarray(part["mask"]) > 0 for part in parts]
        pairs = zip(parts, masks, strict=True)
        return join([(np.asarray(p["tokens"])[mask], mask.sum(axis=1)) for p, mask in pairs])
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}


_MARGIN, _SHIFT = ("objective.0.margin", (0.1, 0.2)), ("model.matcher.shift", (3.9, 5.9))
_LOGITS = "model.matcher.scale=7.8", "model.matcher.shift=3.9"
"""Logistic regression of matches on distances of the start, with one match in 250 pairs."""
_PCME = "{name: soft_contrastive, reduction: mean}"
_KL = "{name: kl_divergence, reduction: mean, weight: 1.0e-7}"
_WARM = "objective.0.warmup_steps=84"
_PVSE = "objective=[{name: triplet, mining: hardest, reduction: mean, warmup_steps: 84}]"
_DVSE = "objective=[{name: variance_aware_weighting, weight: 0.6, warmup_steps: 84}]"


def _sets_of(k: int) -> tuple[str, ...]:
    return tuple(f"model.{side}.head.set_size={k}" for side in ("image", "text"))


_TEMPERATURE = "objective.0.temperature", (0.05, 0.1)
_MAHALANOBIS = "objective.0.temperature", (10, 5)

# fmt: off
ROWS = {
    "dual_encoder": Row("info_nce", *_TEMPERATURE, begins="random", csls=True),
    "info_nce": Row("info_nce", *_TEMPERATURE, csls=True),
    **{f"info_nce_freed_{side}": Row("info_nce", "objective.0.temperature", (0.1, 0.05), (
        "train.phases.0.epochs=1",), freed=side, csls=True) for side in ("text", "image")},
    "vse0": Row("vse0", *_MARGIN),
    "vsepp": Row("vsepp", *_MARGIN),
    "smooth_ap": Row("smooth_ap", "objective.0.temperature", (0.01, 0.03)),
    "pcme": Row("pcme", *_SHIFT, _LOGITS),
    "mean_only": Row("mean_only", *_SHIFT, _LOGITS),
    "pcme_daa": Row("daa", "objective.2.weight", (0.06, 0.6), _LOGITS),
    "pcme_smooth_ap": Row("pcme", "objective.2.weight", (0.06, 0.6), (
        f"objective=[{_PCME}, {_KL}, {{name: smooth_ap, temperature: 0.1, weight: 1}}]",
        *_LOGITS)),
    "msrm": Row("msrm", *_MAHALANOBIS),
    "msrm_no_hypergraph": Row("msrm", *_MAHALANOBIS, (
        "objective=[{name: mahalanobis_contrastive, weight: 0.8}]",)),
    "msrm_no_distribution": Row("msrm", "objective.0.cosine_scale", (5, 10), (
        "objective=[{name: hypergraph_contrastive, residual: true}]",)),
    "msrm_mean_only": Row("msrm", *_MAHALANOBIS, (
        *(f"model.{side}.head={{name: point}}" for side in ("image", "text")),
        "model.matcher={name: cosine}")),
    "msrm_literal": Row("msrm_literal", *_MAHALANOBIS),
    "dvse_k1": Row("dvse", *_MARGIN, ("model.image.head.set_size=1", _DVSE), local=True),
    **{f"dvse_k{k}": Row("dvse", *_MARGIN, (f"model.image.head.set_size={k}", _WARM), local=True)
       for k in (2, 4, 8)},
    "pvse_k1": Row("pvse", *_MARGIN, (*_sets_of(1), _PVSE), local=True),
    **{f"pvse_k{k}": Row("pvse", *_MARGIN, (*_sets_of(k), _WARM), local=True) for k in (2, 4)},
}
# fmt: on
_NOT_AGAIN = "info_nce", "pvse_k2", "dvse_k2", "dvse_k8"
ROWS |= {
    f"{name}{RANDOM}": replace(row, begins="random", csls=False)
    for name, row in ROWS.items()
    if row.begins == "cca" and not row.freed and name not in _NOT_AGAIN
}
"""Rows with gradient descent, in the order in which they are run."""

PLAIN = ("cca", "classifier")


def make_settings(options: argparse.Namespace, *data: str) -> Callable[[Row, Sequence[str]], Any]:
    """Gives the configs of rows, with the paths of the command line; `data` has `key=value`."""

    def settings(row: Row, sets: Sequence[str]) -> Any:
        path = options.work / f"{row.config}.yaml"
        names = f"csv_pretrained_{row.config}.yaml", "bases/cub_pretrained.yaml"
        includes = [str(ROOT / "configs" / name) for name in names]
        path.write_text(f"include: {includes}\nname: {row.config}\n", "utf-8")
        paths = [
            *data,
            f"data.records={options.work / 'records'}",
            f"output={options.work / 'runs'}",
            f"model.image.encoder.preset={options.image_preset}",
            f"model.text.encoder.preset={options.text_preset}",
        ]
        return load_config(path, [*paths, *sets])

    options.work.mkdir(parents=True, exist_ok=True)
    return settings


def read_splits(settings: Callable[[Row, Sequence[str]], Any]) -> Study:
    """Prepares records and features, each once, and reads them; without classes, photos are."""
    # CCA makes the run compute the features of all splits; then it ends, as nothing is trained.
    cca = "train.cca={image_ridges: [10], caption_ridges: [3], exponents: [0.5], directions: [128]}"
    run = Experiment(settings(ROWS["info_nce"], ["train.phases=[]", "train.start=cca", cca]))
    if not run.config.data.is_prepared:
        run.prepare()
    run.train()
    splits, named = [], run.records.label_kind == "class"
    for name in ("train", "val", "test"):
        part = run.embedded_records.split(name)
        images = np.concatenate([part.regions(rows) for rows in blocks(len(part))])
        means = [
            part.caption_features.read(rows).sum(axis=1) / part.caption_features.lengths[rows, None]
            for rows in blocks(part.num_captions)
        ]
        splits.append(
            Split(
                images.astype(np.float16),
                part.caption_features,
                images.mean(axis=1, keepdims=True, dtype=np.float32),
                np.concatenate(means).astype(np.float32)[:, None],
                part.caption_image,
                np.array([own[0] for own in part.labels]) if named else np.arange(len(part)),
                maps=cache(partial(read_maps, run, name)),
            )
        )
        if name == "train" and named:
            words = TOKENIZERS["ptb"]([caption.text for caption in part.captions])
            weighed = weigh(words, part.caption_image, len(part), run.config.relevance.measure)
            splits[0].relevance = BatchRelevance(weighed)
    return Study(*splits, settings)


def read_maps(run: Experiment, name: str) -> np.ndarray:
    """The last map but one of the image encoder of all photos of a split, float16 (N, H, W, C)."""
    first, _ = split_images(run.config)
    batches = image_batches(run.records.split(name), run.config.data.image, 32)
    return np.concatenate([first.predict_on_batch(batch).astype(np.float16) for batch in batches])


def run_missing(study: Study, results: Path, rows: Sequence[str]) -> None:
    """Runs all that has no line in the results, and appends one for each."""
    done = {line.key: line for line in read_lines(results)}
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip

    def append(line: Line) -> None:
        append_row(results, COLUMNS, line.cells(commit))
        done[line.key] = line
        print(line.row, line.labels, line.seed, f"val {line.val:.2f}", *line.summary(), flush=True)

    def tune(name: str) -> tuple[float, float]:
        """The best rate with the first value of the knob, then the better value."""
        row = ROWS[name]

        def tried(rate: float, knob: float) -> Line:
            line = Line("tune", name, "pairs", 0, rate, knob)
            if line.key not in done:
                begin = time.perf_counter()
                _, line.val, line.epoch = study.fit(row, rate, knob, 0)
                line.seconds = time.perf_counter() - begin
                append(line)
            return done[line.key]

        best = max((tried(rate, row.values[0]) for rate in row.rates), key=lambda line: line.val)
        best = max(best, tried(best.rate, row.values[1]), key=lambda line: line.val)
        return best.rate, best.knob

    for name in PLAIN:
        if Line("test", name, "pairs", 0, 0, 0).key not in done:
            for each, val, figures in study.plain(name):
                append(Line("test", each, "pairs", 0, val=val, figures=figures))
    for seed, name in product(SEEDS, rows):
        setting = tune(name)
        line = Line("test", name, "pairs", seed, *setting)
        if line.key in done:
            continue
        begin = time.perf_counter()
        model, val, epoch = study.fit(ROWS[name], *setting, seed)
        seconds = time.perf_counter() - begin
        # Last the row itself, whose line says that all of them are there.
        for suffix, figures in reversed(list(study.tested(model, ROWS[name]))):
            append(
                Line("test", name + suffix, "pairs", seed, *setting, epoch, val, seconds, figures)
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cub", type=Path, required=True, help="folder of CUB-200-2011 with captions and classes"
    )
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS))
    options = add_paths(parser, RESULTS).parse_args(arguments)
    settings = make_settings(options, f"data.source.root={options.cub}")
    run_missing(read_splits(settings), options.results, options.rows)


if __name__ == "__main__":
    main()
