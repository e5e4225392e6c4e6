"""Quality against latency of a search: candidates, then the matcher, then a re-ranker.

The gallery is the test split of a finished run, and the queries are some of its captions, judged by
the exhaustive truth where the data has one (scenes), else by the annotated pairs. Candidates are
the nearest by the vectors of the index (backend exact). The matcher scores these. The re-ranker
is fast re-ranking for one query: every photo has kept by how much captions of the validation split
score with it (DVSE, Eq. 14: log sum exp over a stored sample of queries in place of all queries),
which is taken off its score; the scale is that of the best precision on the validation split.
Precision is the share of right photos among the first ten; times are in milliseconds of one query,
its embedding (which is the same for all rows) left out.

    python benchmarks/search_quality.py --run=saved_models/scenes_pcme
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_pipelines.records import Records
from data_pipelines.tables import table
from keras_xmr.index.augmentations import AUGMENTATIONS, Reference
from keras_xmr.index.backends import Exact
from keras_xmr.index.calibration import SplitQueries
from keras_xmr.index.model import RunModel
from keras_xmr.reranking.fast import log_sums

K = 10
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_SAMPLE = 500


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--queries", type=int, default=200, help="how many captions ask")
    parser.add_argument("--candidates", default="10,20,50,100,200", help="how many are scored")
    arguments = parser.parse_args()
    model = RunModel(arguments.run)
    records = Records.open(model.config.data.records)
    known = SplitQueries.embed(model, records, "val")
    asked = SplitQueries.embed(model, records, "test")
    random = np.random.default_rng(0)
    sample = some(known.captions, random.permutation(len(known.right))[:_SAMPLE])
    scale = best_scale(model.score(known.images, sample), known.scores(model), known.right)
    offsets = held_against(model.score(asked.images, sample), scale)
    chosen = random.permutation(len(asked.right))[: arguments.queries]
    with tempfile.TemporaryDirectory() as folder:
        search = Search(model, asked, offsets, Path(folder))
        photos = len(asked.right.T)
        wanted = [int(c) for c in arguments.candidates.split(",")]
        rows = [
            [f"{way}, {count:,} candidates", *measure(ask, asked, chosen)]
            for count in [*(c for c in wanted if c < photos), photos]
            for way, ask in search.ways(count).items()
        ]
    print(f"{photos:,} photos, {len(chosen):,} captions, scale of the re-ranker {scale:g}\n")
    print(table(["", f"precision@{K}", "p50", "p95"], rows), flush=True)


def held_against(scores: np.ndarray, scale: float) -> np.ndarray:
    """What is taken off the scores of each photo: log sum exp of a sample of queries (photos,)."""
    return log_sums(scores, {1: scale})[1] / scale


def best_scale(of_sample: np.ndarray, scores: np.ndarray, right: np.ndarray) -> float:
    """The scale with the best precision.

    Args:
        of_sample: Scores (photos, sample) of the stored queries.
        scores: Scores (captions, photos).
        right: Bool (captions, photos).
    """
    found = {s: precision(scores - held_against(of_sample, s), right) for s in _SCALES}
    return max(found, key=lambda scale: found[scale])


def precision(scores: np.ndarray, right: np.ndarray) -> float:
    """The share of right photos among the first ten."""
    first = np.argsort(-scores, axis=1)[:, :K]
    return float(np.take_along_axis(right, first, axis=1).mean())


class Search:
    """The three ways to search for a caption.

    Args:
        model: The model of a run.
        asked: Photos and captions of a split.
        offsets: What is taken off the scores of each photo.
        folder: Takes the vectors.
    """

    def __init__(
        self, model: RunModel, asked: SplitQueries, offsets: np.ndarray, folder: Path
    ) -> None:
        self.model, self.asked, self.offsets = model, asked, offsets
        self.augmentation = AUGMENTATIONS[model.constants["AUGMENTATION"]]
        self.known = Reference(model.search_constants(), asked.images)
        vectors = self.augmentation.gallery_vectors(model.prepare(asked.images, "image"))
        self.backend = Exact(folder / "vectors", vectors.shape[1:])
        self.backend.add(np.arange(len(vectors)), vectors)

    def ways(self, count: int) -> dict[str, Callable[[int], np.ndarray]]:
        """Each finds the ten best photos for the caption of a number, by so many candidates."""

        def found(caption: int) -> np.ndarray:
            prepared = self.model.prepare(some(self.asked.captions, [caption]), "caption")
            vectors = self.augmentation.query_vectors(prepared, self.known)
            return self.backend.search(vectors, count).ids[0]

        def scored(caption: int) -> tuple[np.ndarray, np.ndarray]:
            ids = found(caption)
            query = some(self.asked.captions, [caption])
            return ids, self.model.score(some(self.asked.images, ids), query)[:, 0]

        def matched(caption: int) -> np.ndarray:
            ids, scores = scored(caption)
            return ids[np.argsort(-scores)[:K]]

        def reranked(caption: int) -> np.ndarray:
            ids, scores = scored(caption)
            return ids[np.argsort(self.offsets[ids] - scores)[:K]]

        return {"vectors": lambda c: found(c)[:K], "matcher": matched, "re-ranker": reranked}


def some(embedding: dict[str, np.ndarray], items: np.ndarray | list[int]) -> dict[str, np.ndarray]:
    """Some items of an embedding."""
    return {name: values[items] for name, values in embedding.items()}


def measure(
    ask: Callable[[int], np.ndarray], asked: SplitQueries, chosen: np.ndarray
) -> tuple[str, str, str]:
    """Precision and times of a way to search."""
    times, right = [], []
    ask(int(chosen[0]))
    for caption in chosen.tolist():
        begin = time.perf_counter()
        ids = ask(caption)
        times.append(1e3 * (time.perf_counter() - begin))
        right.append(asked.right[caption, ids].mean())
    p50, p95 = np.percentile(times, [50, 95])
    return f"{100 * np.mean(right):.1f}", f"{p50:.2f}", f"{p95:.2f}"


if __name__ == "__main__":
    main()
