"""How time and memory grow, with the batch, the samples and the captions of an evaluation.

Every row has one of the growing sizes. `table.py` draws the rows as
docs/results/benchmarks_growth.png.

usage: python benchmarks/growth.py
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.ticker import LogLocator
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
    """Draws what grows, all axes logarithmic: times, and the memory of an evaluation.

    What a loss takes on top is not drawn: TensorFlow keeps what the first step took.

    Args:
        found: The rows.
        path: A PNG.
    """
    from keras_xmr.evaluation.reporting.pictures import plt, save_plot

    figure, grid = plt.subplots(2, 2, figsize=(9, 7.5))
    axes = [*grid.flat]
    for axis, what in zip(axes, ("batch", "samples", "captions", "captions"), strict=False):
        memory = axis is axes[3]
        rows = [row for row in found if row.what.endswith(f": {what}")]
        for name, group in groupby(rows, key=lambda row: row.what.rpartition(": ")[0]):
            lines: list[Any] = list(group)
            sizes = [int(row.size) for row in lines]
            ours = [row.memory / 1e6 if memory else 1e3 * row.seconds for row in lines]
            axis.plot(sizes, ours, marker="o", label=name)
            plain = [row.baseline_memory if memory else row.baseline for row in lines]
            if None not in plain:
                scale = 1e-6 if memory else 1e3
                scaled = [scale * value for value in plain]
                axis.plot(sizes, scaled, marker="o", label=lines[0].against)
            _ticks(axis, sizes)
        axis.set(xlabel=what, title="MB on top" if memory else "milliseconds")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    save_plot(figure, path)


def _ticks(axis: Any, sizes: list[int]) -> None:
    """Names what was measured, and times as plain numbers."""
    axis.loglog()
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.set_xticks([], minor=True)
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")


if __name__ == "__main__":
    show(rows())
