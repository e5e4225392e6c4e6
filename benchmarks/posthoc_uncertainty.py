"""Uncertainty for frozen towers, after the fact, beside what the scores say anyway.

Photos, features and folds are those of benchmarks/real_features.py. In each fold the towers are
frozen at CCA of the training photos, where the configs `csv_pretrained_*` begin, and every method
adds its uncertainty to the same means: a config trains its head on the features (`--methods`), and
the posterior of BayesVLM is computed. Which of a few lengths of training counts is chosen on the
validation photos. Beside them stand the gap between the first two scores, the first score, the
similarity to the nearest training caption, and chance. What a method says of every query is kept, a
JSON line a run, in posthoc.jsonl of the work folder; what is there already is not computed again.

The table has figures of the uncertainty report card for captions and for photos as queries. AURC
gain is the part of the way from a random order of answers to an oracle's. Probabilities, of which
the calibration error (ECE) is taken, are made of uncertainties on the validation photos (Platt
1999).
Intervals are 95 % by bootstrap over photos, each with its captions, within folds.

    python benchmarks/posthoc_uncertainty.py --features my_features --work data/posthoc
    python benchmarks/posthoc_uncertainty.py --photos my_photos --work data/real_features
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from baselines import ranks
from posthoc_tables import Result, Sides, read_results, table_lines
from real_features import Photos, parser_of, read_photos

from keras_xmr.evaluation.uncertainty.assessment import log_sigma, narrow_gaps, risk_coverage

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config
    from keras_xmr.heads import Head
    from keras_xmr.model.retriever import Retriever

SPLITS = ("train", "dev", "test")
METHODS = "csv_pretrained_probvlm,csv_pretrained_asymvlm,csv_pretrained_pcmepp"
RATE = 1e-3
EPOCHS = (3, 10, 30)
"""After how many epochs a trained method is looked at, on the validation photos."""


@dataclass(frozen=True)
class Split:
    """Averages of the features of some photos and of their captions, and who belongs to whom."""

    images: np.ndarray
    captions: np.ndarray
    image_ids: np.ndarray


class Fold:
    """Frozen towers, and what they make of the photos.

    Args:
        photos: All photos.
        number: Which fold.
    """

    def __init__(self, photos: Photos, number: int) -> None:
        self.number = number
        self.splits = {name: _split(photos, rows) for name, rows in photos.fold(number).items()}

    @cached_property
    def base(self) -> Retriever:
        """Points at CCA."""
        return self._begun("csv_pretrained_nt_xent")

    @cached_property
    def posterior(self) -> Retriever:
        """Heads of BayesVLM, whose means are the same."""
        return self._begun("csv_pretrained_laplace")

    def _begun(self, name: str) -> Retriever:
        """The model of a config, as it stands before training."""
        from keras_xmr.training.cca_start import begin_at_cca

        config = _config(name)
        model = self.model(config)
        train, dev = (_averages(model, self.splits[split]) for split in ("train", "dev"))
        begin_at_cca(*_heads(model), train, dev, config.train.cca)
        return model

    @cached_property
    def embedded(self) -> dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """The points of images and captions of each split."""
        return {name: embed(self.base, self.splits[name]) for name in SPLITS}

    def cosines(self, split: str) -> np.ndarray:
        """Scores (images, captions) of a split."""
        images, captions = self.embedded[split]
        return images["mean"] @ captions["mean"].T

    def right(self, split: str) -> Sides:
        """True for queries with a relevant first answer; ties count against it."""
        found = ranks(self.cosines(split), self.splits[split].image_ids)
        return {side: rank == 1 for side, rank in zip(("image", "caption"), found, strict=True)}

    def model(self, config: Config) -> Retriever:
        """The heads, the matcher and the losses of a config, on features that are averages."""
        from keras_xmr.config.registry import build
        from keras_xmr.model.objective import Objective
        from keras_xmr.model.retriever import Retriever

        train = self.splits["train"]
        widths = {"image": train.images.shape[2], "caption": train.captions.shape[2]}
        towers = (config.model.image, config.model.text)
        losses = [build("loss", loss) for loss in config.objective]
        return Retriever(
            *(_tower(tower, w, config) for tower, w in zip(towers, widths.items(), strict=True)),
            build("matcher", config.model.matcher),
            Objective(losses, [loss.weight for loss in config.objective]),
            clip_norm=config.train.clip_norm,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes what is missing, and prints a table."""
    options = _options(arguments)
    path = options.work / "posthoc.jsonl"
    if options.photos or options.features:
        compute(read_photos(options), options, path)
    print("\n".join(table_lines(read_results(path), options.against)))


def compute(photos: Photos, options: argparse.Namespace, path: Path) -> None:
    """Runs what has no line in the file of results yet, and appends it."""
    done = {result.key for result in read_results(path)}
    for number in range(options.folds):
        fold = Fold(photos, number)
        for method, seed in _plan(options):
            if (method, number, seed) in done:
                continue
            unsure = (COMPUTED.get(method) or _trained(method))(fold, seed)
            right = {split: fold.right(split) for split in ("dev", "test")}
            result = Result(method, number, seed, unsure, right)
            with path.open("a") as file:
                file.write(result.as_json() + "\n")
            print(method, number, seed, flush=True)


def _plan(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Methods and seeds; what has no chance in it has one seed."""
    for method, seed in itertools.product([*COMPUTED, *options.methods], range(options.seeds)):
        if seed == 0 or method in ("chance", *options.methods):
            yield method, seed


def _of_queries(fold: Fold, of: Callable[[np.ndarray, str, str], np.ndarray]) -> dict[str, Sides]:
    """The values of a function of scores (queries, candidates) for the queries of both sides."""
    return {
        split: {
            "image": of(fold.cosines(split), split, "image"),
            "caption": of(fold.cosines(split).T, split, "caption"),
        }
        for split in ("dev", "test")
    }


def gap(fold: Fold, seed: int) -> dict[str, Sides]:
    """The gap between the first two scores."""
    return _of_queries(fold, lambda scores, split, side: narrow_gaps(scores))


def first_score(fold: Fold, seed: int) -> dict[str, Sides]:
    """The first score."""
    return _of_queries(fold, lambda scores, split, side: -scores.max(axis=1))


def nearest(fold: Fold, seed: int) -> dict[str, Sides]:
    """The cosine to the nearest of the training captions."""
    known = fold.embedded["train"][1]["mean"]

    def of(scores: np.ndarray, split: str, side: str) -> np.ndarray:
        own = fold.embedded[split][0 if side == "image" else 1]["mean"]
        return -(own @ known.T).max(axis=1)

    return _of_queries(fold, of)


def chance(fold: Fold, seed: int) -> dict[str, Sides]:
    """Random numbers."""
    random = np.random.default_rng([seed, fold.number])
    return _of_queries(fold, lambda scores, split, side: random.random(len(scores)))


def posterior(fold: Fold, seed: int) -> dict[str, Sides]:
    """BayesVLM: sigma of the embedding of the query."""
    return {split: _sigmas(fold, split, fold.posterior) for split in ("dev", "test")}


def cosine_moments(
    mean_1: np.ndarray, log_variance_1: np.ndarray, mean_2: np.ndarray, log_variance_2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Expected cosines of Gaussians (N, M), and their variances.

    ProbCosine of Baumann et al. 2024: norms are replaced by the roots of their expected squares.
    """
    variance_1, variance_2 = np.exp(log_variance_1), np.exp(log_variance_2)
    squares_1, squares_2 = np.square(mean_1), np.square(mean_2)
    norms_1 = np.sum(squares_1 + variance_1, axis=1)[:, None]
    norms_2 = np.sum(squares_2 + variance_2, axis=1)[None, :]
    variance = (squares_1 + variance_1) @ variance_2.T + variance_1 @ squares_2.T
    norms = norms_1 * norms_2
    return mean_1 @ mean_2.T / np.sqrt(norms), variance / norms


def posterior_of_cosine(fold: Fold, seed: int) -> dict[str, Sides]:
    """BayesVLM: the standard deviation of the cosine to the first answer."""
    found = {}
    for split in ("dev", "test"):
        sides = embed(fold.posterior, fold.splits[split])
        parts = (e[k] for e in sides for k in ("mean", "log_variance"))
        deviations = np.sqrt(cosine_moments(*parts)[1])
        first = (fold.cosines(split).argmax(axis=axis) for axis in (1, 0))
        found[split] = {
            "image": deviations[np.arange(len(deviations)), next(first)],
            "caption": deviations[next(first), np.arange(deviations.shape[1])],
        }
    return found


COMPUTED: dict[str, Callable[[Fold, int], dict[str, Sides]]] = {
    "gap of the first two scores": gap,
    "first score": first_score,
    "nearest training caption": nearest,
    "chance": chance,
    "BayesVLM": posterior,
    "BayesVLM, of the cosine": posterior_of_cosine,
}


def _trained(method: str) -> Callable[[Fold, int], dict[str, Sides]]:
    """Trains the head of a config, and looks at it a few times."""

    def run(fold: Fold, seed: int) -> dict[str, Sides]:
        import keras

        keras.utils.set_random_seed(seed)
        config = _config(method)
        model = fold.model(config)
        _freeze_at(model, fold.base)
        looks = [
            {split: _sigmas(fold, split, model) for split in ("dev", "test")}
            for _ in _epochs(model, fold.splits["train"], config)
        ]
        return max(looks, key=lambda look: _dev_gain(fold, look["dev"]))

    return run


def _dev_gain(fold: Fold, unsure: Sides) -> float:
    right = fold.right("dev")
    return sum(risk_coverage(unsure[side], right[side].astype(float)).gain for side in unsure)


def _epochs(model: Retriever, train: Split, config: Config) -> Iterator[None]:
    """Trains, and yields after each of `EPOCHS`."""
    from keras_xmr.config.registry import build

    model.compile(optimizer=build("optimizer", config.train.optimizer, learning_rate=RATE))
    x = {"image": train.images[train.image_ids], "caption": train.captions}
    for epochs in np.diff([0, *EPOCHS]):
        model.fit(x, train.image_ids, batch_size=config.train.batch_size, epochs=epochs, verbose=0)
        yield


def _freeze_at(model: Retriever, base: Retriever) -> None:
    """Gives a model the means of another one, for good."""
    from keras_xmr.heads.pooling import Projection
    from keras_xmr.layers.keras_compat import all_layers

    for head, other in zip(_heads(model), _heads(base), strict=True):
        for layer in all_layers(head):
            if isinstance(layer, Projection):
                layer.centre.assign(other.pooling.centre)
                layer.scale.assign(other.pooling.scale)
        head.global_pooling.set_weights(other.pooling.get_weights())
        head.global_pooling.trainable = False


def _sigmas(fold: Fold, split: str, model: Retriever) -> Sides:
    """Log sigma of every query; where photos are points, that of the caption found first."""
    images, captions = (log_sigma(side) for side in embed(model, fold.splits[split]))
    if images is None:
        images = captions[fold.cosines(split).argmax(axis=1)]
    return {"image": images, "caption": captions}


def embed(model: Retriever, split: Split) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Embeddings of the photos and of the captions of a split."""
    towers = (model.image_tower, split.images), (model.text_tower, split.captions)
    found = [
        {key: np.asarray(value) for key, value in tower(features, training=False).items()}
        for tower, features in towers
    ]
    return found[0], found[1]


def _heads(model: Retriever) -> tuple[Head, Head]:
    return model.image_tower.get_layer("head"), model.text_tower.get_layer("head")


def _config(name: str) -> Config:
    """A config whose poolings are maps of averages, all of them learned, as CCA begins them."""
    from keras_xmr.config.loader import find_config, load_config

    linear = [f"model.{side}.pooling.closed_form=0" for side in ("image", "text")]
    size = ["model.dimension=128", "model.image.pooling.views=1"]
    return load_config(find_config(name), [*linear, *size])


def _tower(tower: Any, width: tuple[str, int], config: Config) -> Any:
    import keras

    from keras_xmr.config.registry import build

    dimension = config.model.dimension
    inputs = keras.Input((1, width[1]), name=width[0])
    head = build(
        "head",
        tower.head,
        dimension=dimension,
        pooling=lambda: build("pooling", tower.pooling, dimension=dimension),
        name="head",
    )
    return keras.Model(inputs, head(inputs), name=f"{width[0]}_tower")


def _split(photos: Photos, rows: np.ndarray) -> Split:
    images = photos.features[rows].astype(np.float32).mean(axis=1, keepdims=True)
    sentences = photos.sentences[rows].astype(np.float32)
    captions = sentences.reshape(-1, 1, sentences.shape[2])
    return Split(images, captions, np.repeat(np.arange(len(rows)), sentences.shape[1]))


def _averages(model: Retriever, split: Split) -> Any:
    """The inputs of the poolings for a split."""
    from keras_xmr.judgements import Judgements
    from keras_xmr.training.cca_start import Averages

    image, caption = (head.pooling for head in _heads(model))
    return Averages(
        image.average(split.images).numpy().astype(float),
        caption.average(split.captions).numpy().astype(float),
        split.image_ids,
        Judgements.from_pairs(split.image_ids, len(split.images)),
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__, "data/posthoc", METHODS)
    parser.add_argument("--against", default="gap of the first two scores")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
