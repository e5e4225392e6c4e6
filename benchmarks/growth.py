"""How time and memory grow, with the batch, the samples and the captions of an evaluation.

What grows is the size of a row. `table.py` draws the rows as docs/benchmarks_growth.png.

usage: python benchmarks/growth.py
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from measuring import Row, compare, show

DIMENSION, SAMPLES, BATCH = 256, 7, 64
BY_BATCH = ("nt_xent", "smooth_ap", "soft_contrastive", "hypergraph_contrastive", "mmd")
BY_SAMPLES = ("soft_contrastive", "uniformity")
BATCHES, NUMBERS, CAPTIONS = (32, 64, 128, 256, 512), (1, 2, 4, 8, 16), (1000, 4000, 16000)


def rows(smoke: bool = False) -> Iterator[Row]:
    """Every loss at every batch, and so on."""
    dimension, batch = (8, 4) if smoke else (DIMENSION, BATCH)
    for name in BY_BATCH:
        for size in (2, 4) if smoke else BATCHES:
            yield _loss(
                f"{name}: batch", str(size), name, (size, 2 if smoke else SAMPLES, dimension)
            )
    for name in BY_SAMPLES:
        for size in (1, 2) if smoke else NUMBERS:
            yield _loss(f"{name}: samples", str(size), name, (batch, size, dimension))
    for size in (20, 40) if smoke else CAPTIONS:
        yield _evaluation("evaluation by cosine: captions", size, dimension)


def _loss(what: str, size: str, name: str, sizes: tuple[int, int, int]) -> Row:
    import losses

    inputs = losses.made_up(*sizes)
    step = losses.gradient(losses.ours(name, inputs), losses.CASES[name], inputs)
    return compare(what, size, step)


def _evaluation(what: str, captions: int, dimension: int) -> Row:
    from evaluation import CAPTIONS_PER_IMAGE, TILE, made_up

    from keras_xmr.evaluation.scoring import score_tiles
    from keras_xmr.judgements import Judgements
    from keras_xmr.matchers import Cosine
    from keras_xmr.metrics import evaluate_scores

    image, caption, owner = made_up(captions // CAPTIONS_PER_IMAGE, dimension)
    judgements = Judgements.from_pairs(owner, len(image))
    scores = score_tiles(Cosine(), {"mean": image}, {"mean": caption}, TILE)
    return compare(
        what,
        str(captions),
        lambda: evaluate_scores(scores, judgements),
        lambda: evaluate_scores(scores.dense(), judgements),
        "the whole matrix at once",
    )


def draw(found: list[Row], path: Path) -> None:
    """Draws time and memory against what grows, both on logarithmic axes.

    Args:
        found: The rows.
        path: A PNG.
    """
    from keras_xmr.reporting.plots import plt, save_plot

    grown = sorted({row.what.rpartition(": ")[2] for row in found})
    figure, axes = plt.subplots(2, len(grown), figsize=(4 * len(grown), 6.4), squeeze=False)
    for (over, under), what in zip(axes.T, grown, strict=True):
        rows = [row for row in found if row.what.endswith(f": {what}")]
        for name, group in groupby(rows, key=lambda row: row.what.rpartition(": ")[0]):
            lines: list[Any] = list(group)
            sizes = [float(row.size) for row in lines]
            over.plot(sizes, [1e3 * row.seconds for row in lines], marker="o", label=name)
            under.plot(sizes, [max(row.memory, 1e5) / 1e6 for row in lines], marker="o")
        over.set(title=f"against {what}", ylabel="ms")
        under.set(xlabel=what, ylabel="MB on top (at least 0.1)")
        over.legend(fontsize=8)
        for axis in (over, under):
            axis.loglog()
            axis.grid(alpha=0.3)
    save_plot(figure, path)


if __name__ == "__main__":
    show(rows())
