"""Models and measures of studies/birds.py: rows on the features of three splits of classes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.special import softmax

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from baselines import csls

from keras_xmr.config.registry import components
from keras_xmr.config.schema import weight_of
from keras_xmr.evaluation.cca import CanonicalCorrelations
from keras_xmr.evaluation.scoring import score_tiles
from keras_xmr.heads.pooling import Projection
from keras_xmr.layers import region_mask
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever
from keras_xmr.training.phases import phase_schedule
from keras_xmr.utils.vectors import unit_rows

RATES = (4e-4, 1.6e-3)
BATCH = 250


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        config: The rest of the name of a config `csv_pretrained_*`.
        knob: The option that is tuned in addition to the rate.
        values: Its values.
        sets: Further texts `key=value`.
        local: Whether its heads see places and words, not their average alone.
        begins: "cca", or "random" weights, which need larger rates.
        csls: Whether it is also measured with the correction for hubs.
    """

    config: str
    knob: str
    values: tuple[float, float]
    sets: tuple[str, ...] = ()
    local: bool = False
    begins: str = "cca"
    csls: bool = False

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates that are tried."""
        return tuple(4 * rate for rate in RATES) if self.begins == "random" else RATES


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
    """

    images: np.ndarray
    captions: Any
    image_means: np.ndarray
    caption_means: np.ndarray
    caption_image: np.ndarray
    classes: np.ndarray
    relevance: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    @property
    def caption_classes(self) -> np.ndarray:
        """The class of each caption, (M,)."""
        return self.classes[self.caption_image]

    def read_images(self, rows: np.ndarray, local: bool) -> np.ndarray:
        """Inputs of the image tower, float32."""
        return (self.images if local else self.image_means)[rows].astype(np.float32)

    def read_captions(self, rows: np.ndarray, local: bool) -> np.ndarray:
        """Inputs of the text tower, float32."""
        return self.captions.read(rows) if local else self.caption_means[rows]


def measure(scores: Any, image_classes: np.ndarray, caption_classes: np.ndarray) -> np.ndarray:
    """R-Precision, R@1 and mAP@R of both directions by class, as fractions: (6, classes).

    Where relevance is by classes, a class is sorted at once: a tenth of the time of
    `keras_xmr.metrics`, of which the test says that it has the same figures.

    Args:
        scores: Scores of images as queries (N, M) and of captions as queries (M, N).
        image_classes: (N,).
        caption_classes: (M,).
    """
    found = []
    sides = (image_classes, caption_classes)
    for matrix, queries, items in zip(scores, sides, sides[::-1], strict=True):
        columns = []
        for label in np.unique(image_classes):
            rows, count = matrix[queries == label], int((items == label).sum())
            first = np.argpartition(-rows, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(rows, first, 1), axis=1, kind="stable")
            right = items[np.take_along_axis(first, order, 1)] == label
            precision = right.cumsum(axis=1) / np.arange(1, count + 1)
            columns.append(
                [right.mean(), right[:, 0].mean(), (precision * right).sum(axis=1).mean() / count]
            )
        found.append(np.array(columns).T)
    return np.concatenate(found)


def of_validation(figures: np.ndarray) -> float:
    """What chooses: the mean R-Precision of both directions, in percent."""
    return 100 * float(figures[[0, 3]].mean())


def _csls(images: np.ndarray, captions: np.ndarray, train: Sequence[np.ndarray]) -> Any:
    """Cosines (N, M) less the hubness of both sides, by training items; see `baselines.csls`."""
    scores = csls(images, captions, *train)
    return scores, scores.T


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
        self._vectors = [
            (
                unit_rows(np.sqrt(np.maximum(s.image_means[:, 0], 0)).astype(np.float64)),
                unit_rows(s.caption_means[:, 0].astype(np.float64)),
            )
            for s in (train, val, test)
        ]
        self.cca = CanonicalCorrelations(*self._vectors[0], train.caption_image)
        grid = (0.3, 1, 3), (0.1, 0.3, 1), (0.5, 1), (dimension // 2, dimension)
        self.cca_val, self.maps = max(
            (
                (self._val(self._projected(maps, 1)), maps)
                for maps in self.cca.projections(dimension, *grid)
            ),
            key=lambda each: each[0],
        )

    def _projected(self, maps: Any, split: int) -> tuple[np.ndarray, np.ndarray]:
        return self.cca.project(maps, *self._vectors[split])

    def _val(self, vectors: Sequence[np.ndarray]) -> float:
        return of_validation(self._measured(vectors[0] @ vectors[1].T, self.val))

    @staticmethod
    def _measured(scores: Any, split: Split) -> np.ndarray:
        both = scores if isinstance(scores, tuple) else (scores, scores.T)
        return measure(both, split.classes, split.caption_classes)

    def plain(self, name: str) -> Iterator[tuple[str, float, np.ndarray]]:
        """A baseline in closed form, and it with the correction: name, validation, figures."""
        if name == "cca":
            vectors, val = self._projected(self.maps, 2), self.cca_val
            near = self._near(self._projected(self.maps, 0))
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
            vectors = [split[side] - self._vectors[0][side].mean(axis=0) for split in self._vectors]
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

    def fit(self, row: Row, rate: float, knob: float, seed: int, labels: str = "pairs") -> Any:
        """Trains a row: the model with the best weights, its validation figure and epoch."""
        sets = [f"{row.knob}={knob}", f"train.phases.0.learning_rate={rate}"]
        config = self.settings(row, [*row.sets, *sets, f"data.judgements={labels}", f"seed={seed}"])
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        model, phase = self._model(config, row), config.train.phases[0]
        steps = len(self.train.caption_image) // min(BATCH, len(self.train.caption_image))
        optimizer = components("optimizer")[config.train.optimizer.name]
        model.compile(
            optimizer=optimizer(phase_schedule(phase, steps), **config.train.optimizer.options())
        )
        random = np.random.default_rng(seed)
        x = {
            side: tf.TensorSpec([None, *shape], tf.float32)
            for side, shape in zip(("image", "caption"), self._shapes(row), strict=True)
        }
        y = {
            "image_id": tf.TensorSpec([None], tf.int64),
            "labels": tf.TensorSpec([None, 1], tf.int64),
        }
        if model.objective.needs_relevance:
            y["relevance"] = tf.TensorSpec([None, None], tf.float32)
        batches = tf.data.Dataset.from_generator(
            lambda: self._epoch(random, row.local, "relevance" in y), output_signature=(x, y)
        )
        best: Any = (-1.0, 0, None)
        for epoch in range(1, phase.epochs + 1):
            model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0, shuffle=False)
            val = of_validation(self._measured(self.scores(model, row, self.val), self.val))
            if val > best[0]:
                best = val, epoch, model.get_weights()
        model.set_weights(best[2])
        return model, best[0], best[1]

    def _epoch(self, random: Any, local: bool, relevance: bool) -> Iterator[Any]:
        split = self.train
        order = random.permutation(len(split.caption_image))
        size = min(BATCH, len(order))
        for rows in order[: len(order) // size * size].reshape(-1, size):
            images = split.caption_image[rows]
            x = {
                "image": split.read_images(images, local),
                "caption": split.read_captions(rows, local),
            }
            y = {"image_id": images, "labels": split.classes[images][:, None]}
            if relevance and split.relevance is not None:
                y["relevance"] = split.relevance(images, rows)
            yield x, y

    def _shapes(self, row: Row) -> list[list[int | None]]:
        places, words = self.train.images.shape[1:], self.train.caption_means.shape[2]
        return [list(places), [None, words]] if row.local else [[1, places[1]], [1, words]]

    def _model(self, config: Any, row: Row) -> Any:
        """The model of a config on features, at the start of its row."""
        towers = []
        starts = zip(
            (config.model.image, config.model.text),
            self._shapes(row),
            self._vectors[0],
            (self.cca.image_mean, self.cca.caption_mean),
            (self.maps.image, self.maps.caption),
            strict=True,
        )
        size = config.model.dimension
        for options, shape, vectors, mean, kernel in starts:
            inputs = keras.Input(shape, dtype="float32")
            pooling = partial(options.pooling.build, dimension=size)
            head = options.head.build(dimension=size, pooling=pooling, name="head")
            towers.append(keras.Model(inputs, head(inputs, mask=region_mask(inputs))))
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

    def embed(self, model: Any, row: Row, split: Split) -> tuple[dict[str, np.ndarray], ...]:
        """The embeddings of photos and captions of a split."""
        sides = (
            (model.image_tower, split.read_images, len(split.classes)),
            (model.text_tower, split.read_captions, len(split.caption_image)),
        )
        return tuple(
            _joined(tower.predict_on_batch(read(rows, row.local)) for rows in blocks(count))
            for tower, read, count in sides
        )

    def scores(self, model: Any, row: Row, split: Split) -> tuple[np.ndarray, np.ndarray]:
        """Scores of both directions, (N, M) and (M, N)."""
        return score_tiles(model.matcher, *self.embed(model, row, split), (512, 4096)).by_query

    def tested(self, model: Any, row: Row) -> Iterator[tuple[str, np.ndarray]]:
        """Figures of the test classes, of a row and of it with the correction for hubs."""
        yield "", self._measured(self.scores(model, row, self.test), self.test)
        if row.csls:
            train, test = (
                [side["mean"] for side in self.embed(model, row, s)]
                for s in (self.train, self.test)
            )
            yield "_csls", self._measured(_csls(*test, self._near(train)), self.test)


def blocks(count: int, size: int = 1024) -> Iterator[np.ndarray]:
    for begin in range(0, count, size):
        yield np.arange(begin, min(begin + size, count))


def _joined(parts: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    parts = list(parts)
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
