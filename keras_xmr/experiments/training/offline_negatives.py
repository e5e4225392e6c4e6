"""Negatives that are hard for an item among the whole training split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_pipelines.records import Records
from data_pipelines.samplers import OfflineNegativeSampler
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.training.distribution import Distribution
from keras_xmr.metrics import ScoreTiles
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.files import replace_atomically


def mine_negatives(
    sampler: OfflineNegativeSampler,
    epoch: int,
    model: Retriever,
    records: Records,
    tokenizer: Tokenizer,
    config: Config,
    distribution: Distribution,
    file: Path,
) -> None:
    """Gives a sampler the negatives of an epoch: what the model now ranks first.

    Args:
        sampler: The sampler.
        epoch: The epoch that begins, or that goes on in a new process.
        model: The model, which all workers have alike.
        records: The records, with the features that it is trained on.
        tokenizer: Makes word ids of captions.
        config: The config of the run.
        distribution: The workers; the chief mines for all.
        file: Where they are kept, so that an epoch which goes on has the same.
    """
    split = records.split("train")
    images, captions = len(split), split.num_captions
    most = int(np.diff(split.first_caption).max())
    count = max(1, min(config.train.offline_candidates, captions - most))
    fewer = max(1, min(count * images // captions, images - 1))
    shapes = (images, count), (captions, fewer)
    found = [np.zeros(shape, np.int64) for shape in shapes]
    if distribution.is_chief and not _read(file, epoch, found):
        embedded = embed_split(model, split, tokenizer, config)
        size = config.evaluation.tile
        scores = score_tiles(model.matcher, embedded.images, embedded.captions, size)
        for place, (side, shape) in enumerate(zip(scores.tiles(), shapes, strict=True)):
            found[place] = hardest(side, split.caption_image, shape, of_captions=place == 1)
        file.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(file) as temporary, temporary.open("wb") as opened:
            np.savez(opened, epoch=epoch, captions=found[0], images=found[1])
    sampler.negatives = tuple(np.asarray(indices) for indices in distribution.from_chief(found))


def _read(file: Path, epoch: int, found: list[np.ndarray]) -> bool:
    """Reads the negatives of an epoch, and says whether there are any."""
    if not file.exists():
        return False
    with np.load(file) as kept:
        if kept["epoch"] != epoch:
            return False
        found[:] = kept["captions"], kept["images"]
    return True


def hardest(
    scores: ScoreTiles,
    caption_image: np.ndarray,
    shape: tuple[int, int],
    of_captions: bool = False,
) -> np.ndarray:
    """Finds the candidates of each query that score highest and are not annotated as a match.

    Memory holds one tile and the result.

    Args:
        scores: Scores (N, M) of all images and captions.
        caption_image: The image of each caption, (M,).
        shape: Queries Q and candidates K.
        of_captions: Whether captions are the queries.

    Returns:
        Numbers of candidates int64 (Q, K), best first.
    """
    best = np.full(shape, -np.inf, np.float32)
    found = np.zeros(shape, np.int64)

    def take(row: int, column: int, tile: np.ndarray) -> None:
        images, captions = scores.images[row], scores.captions[column]
        matches = images[:, None] == caption_image[captions]
        tile = np.where(matches, -np.inf, tile)
        queries, candidates = (captions, images) if of_captions else (images, captions)
        tile = tile.T if of_captions else tile
        values = np.concatenate([best[queries], tile], axis=1)
        numbers = np.concatenate([found[queries], np.broadcast_to(candidates, tile.shape)], axis=1)
        order = np.argsort(-values, axis=1, kind="stable")[:, : shape[1]]
        best[queries] = np.take_along_axis(values, order, axis=1)
        found[queries] = np.take_along_axis(numbers, order, axis=1)

    scores.for_each(take, scores.places(), "mining negatives")
    return found
