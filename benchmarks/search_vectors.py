"""The vectors that the benchmarks of the search look for: of a finished run, of a file, or made up.

Those of Gaussians are for closed-form sampled distance, others for the matcher of the run.

A run that was trained on scenes looks at new ones, drawn for it; any other at the photos of its
records. Where still more are asked for, there are points between two neighbours among these, mean
and log-variance alike. Queries are captions of the test split. What is made up are Gaussians
whose means lie in clusters, and queries near to some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_xmr.search.augmentations import AUGMENTATIONS, Augmentation, Reference

Vectors = tuple[np.ndarray, np.ndarray]
"""Vectors float32 (N, K, D) of a gallery, and (M, K', D) of queries."""

Embedding = dict[str, np.ndarray]

_CLUSTERS = 500
_NEAREST = 10
_KNOWN = 5000
_AT_ONCE = 2048


def made_up(size: int, queries: int, dimension: int) -> Vectors:
    """Vectors (size, 1, D + 1) of closed-form sampled distance, and of queries near to some."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(_CLUSTERS, dimension))
    mean = centres[random.integers(0, _CLUSTERS, size)]
    mean = mean + 0.8 * random.normal(size=mean.shape)
    near = mean[random.integers(0, size, queries)]
    near = near + 0.8 * random.normal(size=near.shape)
    spread = random.normal(-3, 0.5, size=(size, 1)) * np.ones(dimension)
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (mean, near)]
    gallery = {"mean": unit[0], "log_variance": spread - np.log(dimension)}
    asked = {"mean": unit[1], "log_variance": np.zeros((queries, dimension))}
    return gaussian_vectors(gallery), gaussian_vectors(asked, query=True)


def of_file(path: Path) -> Vectors:
    """Vectors of Gaussian embeddings that `embed` has written, of which every fifth asks."""
    with np.load(path) as arrays:
        found = {name: arrays[name] for name in ("mean", "log_variance")}
    asked = np.arange(len(found["mean"])) % 5 == 0
    gallery, queries = ({n: v[keep] for n, v in found.items()} for keep in (~asked, asked))
    return gaussian_vectors(gallery), gaussian_vectors(queries, query=True)


def gaussian_vectors(embedding: Embedding, query: bool = False) -> np.ndarray:
    """Vectors of Gaussian embeddings, for closed-form sampled distance."""
    augmentation = AUGMENTATIONS["closed_form_sampled"]
    if query:
        return augmentation.query_vectors(embedding, Reference({}, {}))
    return augmentation.gallery_vectors(embedding)


class Embedded:
    """Embeddings of the photos and captions of a run.

    Args:
        run: Its folder.
        photos: How many scenes are drawn for it.
    """

    def __init__(self, run: Path, photos: int) -> None:
        from data_pipelines.records import Records
        from keras_xmr.search.calibration import embed_split_images, embed_texts
        from keras_xmr.search.run_model import RunModel
        from keras_xmr.utils.vectors import concatenate

        self.model = RunModel(run)
        data = self.model.config.data
        records = Records.open(data.records)
        if data.source.name == "scenes" and data.source.image_size == data.image.size:
            self.photos = concatenate(list(self._drawn(photos)))
        else:
            splits = ("train", "val", "test")
            self.photos = concatenate([embed_split_images(self.model, records, s) for s in splits])
        texts = [caption.text for caption in records.split("test").captions]
        chosen = np.random.default_rng(0).permutation(len(texts))[:1000]
        self.captions = embed_texts(self.model, [texts[i] for i in chosen])

    def _drawn(self, count: int) -> Iterator[Embedding]:
        """Embeddings of scenes that no split has."""
        from data_pipelines.scenes.world import draw, sample_scene

        side = self.model.config.data.image.size
        size = self.model.config.evaluation.batch_size
        for start in range(0, count, size):
            numbers = range(start, min(start + size, count))
            scenes = [sample_scene(np.random.default_rng([0, 99, n])) for n in numbers]
            yield self.model.embed_pixels(np.stack([np.asarray(draw(s, side)) for s in scenes]))

    def vectors(self, size: int, queries: int) -> Vectors:
        """Vectors (size, K, D') of photos and what lies between them, and of captions."""
        asked = {name: values[:queries] for name, values in self.captions.items()}
        found = np.empty((size, *self._of_photos(_first(self.photos)).shape[1:]), np.float32)
        end = 0
        for some in between(self.photos, size):
            part = self._of_photos(some)
            found[end : end + len(part)] = part
            end += len(part)
        return found, self._of_captions(asked)

    def _of_photos(self, embedding: Embedding) -> np.ndarray:
        if self._is_gaussian:
            return gaussian_vectors(embedding)
        return self._augmentation.gallery_vectors(self.model.prepare(embedding, "image"))

    def _of_captions(self, embedding: Embedding) -> np.ndarray:
        if self._is_gaussian:
            return gaussian_vectors(embedding, query=True)
        known = Reference(self.model.search_constants(), self.photos)
        return self._augmentation.query_vectors(self.model.prepare(embedding, "caption"), known)

    @property
    def _is_gaussian(self) -> bool:
        return "log_variance" in self.photos

    @property
    def _augmentation(self) -> Augmentation:
        return AUGMENTATIONS[self.model.search.augmentation]


def _first(embedding: Embedding) -> Embedding:
    return {name: values[:1] for name, values in embedding.items()}


def between(embedding: Embedding, size: int) -> Iterator[Embedding]:
    """Embeddings, and points on the lines between each and one of its neighbours, until enough.

    Yields:
        Some of them after another.
    """
    random = np.random.default_rng(0)
    count = min(size, len(embedding["mean"]))
    for start in range(0, count, _AT_ONCE):
        yield {name: v[start : min(start + _AT_ONCE, count)] for name, v in embedding.items()}
    if size == count:
        return
    near = neighbours(embedding["mean"].reshape(count, -1))
    for start in range(count, size, _AT_ONCE):
        more = min(_AT_ONCE, size - start)
        first = random.integers(0, count, more)
        second = near[first, random.integers(0, near.shape[1], more)]
        part = random.random((more, 1), np.float32)
        yield {n: (1 - part) * v[first] + part * v[second] for n, v in embedding.items()}


def neighbours(mean: np.ndarray) -> np.ndarray:
    """The nearest of each point by cosine among some of them, int (N, 10 or fewer)."""
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    some = unit[:_KNOWN]
    wanted = min(_NEAREST, len(some) - 1)
    found = []
    for start in range(0, len(unit), _AT_ONCE):
        scores = unit[start : start + _AT_ONCE] @ some.T
        own = np.arange(start, min(start + len(scores), len(some)))
        scores[own - start, own] = -np.inf
        # A copy: a view would keep all of the numbers of a block.
        found.append(np.argpartition(-scores, wanted - 1, axis=1)[:, :wanted].copy())
    return np.concatenate(found)
