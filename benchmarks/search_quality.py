"""Quality against latency of a search: candidates, then the matcher, then a re-ranker.

The gallery is the test split of a finished run, and the queries are some of its captions, judged by
the exhaustive truth where the data has one (scenes), else by the annotated pairs. Candidates are
the nearest by the vectors of the index (backend exact). The matcher scores these. The re-ranker
is fast re-ranking of one query, as `search --rerank=fast_reranking` does it: against stored
captions of training, with the scale that validation found best. Precision is the share of right
photos among the first ten, and recall the mean of recall at 1, 5 and 10, in percent; times are in
milliseconds of one query, its embedding (which is the same for all rows) left out: p50 and p95 as
they were waited for, and the median of processor time. What the re-ranker adds to the matcher is
told for all captions, with its 95 % interval by bootstrap over photos.

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
from keras_xmr.search.augmentations import AUGMENTATIONS, Reference
from keras_xmr.search.backends import Exact
from keras_xmr.search.calibration import SplitQueries, embed_stored_captions
from keras_xmr.search.query_reranking import Reranking, first_hits, reranked, tune
from keras_xmr.search.run_model import RunModel
from keras_xmr.utils.tables import table

K = 10
_RESAMPLED = 2000


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
    stored = embed_stored_captions(model, records)
    reranking = tune(known.scores, model.score(known.images, stored), known.right)
    photos = len(asked.right.T)
    chosen = np.random.default_rng(0).permutation(len(asked.right))[: arguments.queries]
    with tempfile.TemporaryDirectory() as folder:
        search = Search(model, asked, stored, reranking, Path(folder))
        wanted = [int(c) for c in arguments.candidates.split(",")]
        rows = [
            [f"{way}, {count:,} candidates", *measure(ask, asked, chosen)]
            for count in [*(c for c in wanted if c < photos), photos]
            for way, ask in search.ways(count).items()
        ]
    print(f"{photos:,} photos, {len(chosen):,} captions\n")
    print(table(["", f"precision@{K}", "recall", "p50", "p95", "CPU"], rows))
    scores = asked.scores
    after = reranked(scores, model.score(asked.images, stored), reranking.scale)
    print(f"\n{gain(scores, after, asked)}", flush=True)


def gain(before: np.ndarray, after: np.ndarray, asked: SplitQueries) -> str:
    """The gain of re-ranked scores (captions, photos) in the recall of all captions."""
    answered = asked.right.any(axis=1)
    groups = asked.groups[answered]
    found = [first_hits(s, asked.right).mean(axis=1) for s in (before, after)]
    photos = [(found[1] - found[0])[groups == group].mean() for group in np.unique(groups)]
    random = np.random.default_rng(0)
    means = random.choice(photos, (_RESAMPLED, len(photos))).mean(axis=1)
    low, high = 100 * np.percentile(means, [2.5, 97.5])
    return (
        f"recall of all {len(groups):,} captions: {100 * found[0].mean():.1f}; the re-ranker adds "
        f"{100 * np.mean(photos):+.1f} [{low:+.1f}, {high:+.1f}]"
    )


class Search:
    """The three ways to search for a caption.

    Args:
        model: The model of a run.
        asked: Photos and captions of a split.
        stored: Embeddings of captions of training.
        reranking: The re-ranker.
        folder: Takes the vectors.
    """

    def __init__(
        self,
        model: RunModel,
        asked: SplitQueries,
        stored: dict[str, np.ndarray],
        reranking: Reranking,
        folder: Path,
    ) -> None:
        self.model, self.asked, self.stored, self.reranking = model, asked, stored, reranking
        self.augmentation = AUGMENTATIONS[model.search.augmentation]
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
            scores = self.model.score(some(self.asked.images, ids), query)[:, 0]
            order = np.argsort(-scores)
            return ids[order], scores[order]

        def matched(caption: int) -> np.ndarray:
            return scored(caption)[0][:K]

        def ordered(caption: int) -> np.ndarray:
            ids, scores = scored(caption)
            of_stored = self.model.score(some(self.asked.images, ids), self.stored)
            return ids[self.reranking.order(scores, of_stored)][:K]

        return {"vectors": lambda c: found(c)[:K], "matcher": matched, "re-ranker": ordered}


def some(embedding: dict[str, np.ndarray], items: np.ndarray | list[int]) -> dict[str, np.ndarray]:
    """Some items of an embedding."""
    return {name: values[items] for name, values in embedding.items()}


def measure(ask: Callable[[int], np.ndarray], asked: SplitQueries, chosen: np.ndarray) -> list[str]:
    """Precision, recall and times of a way to search."""
    times, cpu, hits = [], [], []
    ask(int(chosen[0]))
    for caption in chosen.tolist():
        begin, cpu_begin = time.perf_counter(), time.process_time()
        ids = ask(caption)
        times.append(1e3 * (time.perf_counter() - begin))
        cpu.append(1e3 * (time.process_time() - cpu_begin))
        hits.append(asked.right[caption, ids])
    recall = np.mean([[own[:k].any() for k in (1, 5, 10)] for own in hits])
    shares = (f"{100 * share:.1f}" for share in (np.mean(hits), recall))
    return [*shares, *(f"{t:.2f}" for t in (*np.percentile(times, [50, 95]), np.median(cpu)))]


if __name__ == "__main__":
    main()
