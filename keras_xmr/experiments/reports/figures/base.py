"""The figures by name, and what they are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.messages import cut, nearest

if TYPE_CHECKING:
    from data_pipelines.sources import Split


@dataclass(frozen=True)
class FigureOptions:
    """Options of a figure.

    Attributes:
        split: The split.
        item: The number of the image, from 0 on.
        grid: The values of the axes of a grid; None for the ones of the paper.
        classes: How many classes, or images, are drawn.
        photos: A folder of photos by the names of the images, for runs on regions.
    """

    split: Split = "test"
    item: int = 0
    grid: tuple[float, ...] | None = None
    classes: int = 9
    photos: Path | None = None


class Run(Protocol):
    """An `Experiment` whose model is trained."""

    @property
    def config(self) -> Any: ...

    @property
    def folder(self) -> Any: ...

    @property
    def records(self) -> Any: ...

    @property
    def embedded_records(self) -> Any: ...

    @property
    def retriever(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def results(self) -> Any: ...

    def score(self, split: Split) -> Any: ...


class FigureSpec(NamedTuple):
    """A figure of a paper.

    Attributes:
        title: What it shows.
        function: The module in this package, and the function there that draws it.
        several: Whether it is of several runs.
    """

    title: str
    function: str
    several: bool = False


FIGURES = {
    "chun2021:5": FigureSpec("embeddings in the plane, by class", "planes:draw_plane"),
    "chun2021:eq5": FigureSpec(
        "weights of pairs of samples in the gradient", "analyses:draw_weights"
    ),
    "chun2021:8": FigureSpec("two images and their mixture", "planes:draw_mixtures"),
    "li2022:1a": FigureSpec("captions by CIDEr of an image", "analyses:draw_caption_list"),
    "li2022:3": FigureSpec("ASP of the first N", "curves:draw_asp_of_first", True),
    "li2022:4": FigureSpec("ASP by epoch", "curves:draw_asp_by_epoch", True),
    "wang2023:4": FigureSpec("metrics by gamma", "curves:draw_sweep", True),
    "wang2023:5": FigureSpec("metrics by layers", "curves:draw_sweep", True),
    "wang2023:6": FigureSpec("metrics by batch size", "curves:draw_sweep", True),
    "wang2023:7": FigureSpec("PMRP by zeta", "curves:draw_pmrp_by_zeta", True),
    "wei2023:eq2": FigureSpec("entropy of image embeddings", "analyses:draw_entropy", True),
    "wei2023:6": FigureSpec(
        "correlation of the sub-embeddings of an image",
        "sets:draw_sub_embedding_correlation",
        True,
    ),
    "wei2023:7": FigureSpec("R@1 by the scales of re-ranking", "sets:draw_scale_grid"),
    "wei2023:8": FigureSpec("metrics by beta", "curves:draw_sweep", True),
    "wei2023:9": FigureSpec("metrics by eta", "curves:draw_sweep", True),
    "wei2023:10": FigureSpec(
        "heat maps of the sub-embeddings of an image", "heat_maps:draw_heat_maps"
    ),
}
"""All figures, by paper and number of the figure, or of the equation that is drawn."""


def draw_figure(name: str, runs: Sequence[Run], options: FigureOptions, output: Path) -> Path:
    """Draws a figure of a paper.

    Args:
        name: One of `FIGURES`.
        runs: The runs that it is drawn from.
        options: The options.
        output: The PNG file.

    Returns:
        The file.

    Raises:
        UserError: If there is no such figure, or the runs cannot be drawn.
    """
    if name not in FIGURES:
        known = ", ".join(FIGURES)
        raise UserError(f"unknown figure {cut(repr(name))}.{nearest(name, FIGURES)} Known: {known}")
    spec = FIGURES[name]
    if not runs:
        raise UserError(f"{name} is drawn from runs; give --run=saved_models/NAME")
    if len(runs) > 1 and not spec.several:
        raise UserError(f"{name} is of one run, and {len(runs)} were given")
    module, _, function = spec.function.partition(":")
    draw: Callable[[Sequence[Run], FigureOptions], Any] = getattr(
        import_module(f"keras_xmr.experiments.reports.figures.{module}"), function
    )
    from keras_xmr.experiments.reports.pictures import save_plot

    return save_plot(draw(runs, options), output)
