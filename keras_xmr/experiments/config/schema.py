"""The config of a run: typed, documented, and checked before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from data_pipelines.options import DataOptions
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.config.model_section import ModelOptions
from keras_xmr.experiments.config.paper_section import ReportedResults
from keras_xmr.experiments.config.train_section import TrainOptions
from keras_xmr.judgements.judgement_options import JudgementOptions
from keras_xmr.parts.option_types import (
    Combination,
    NonNegativeInt,
    PositiveInt,
    RelevanceMeasure,
    RelevanceTokenizer,
)
from keras_xmr.parts.registry import Choice, OneOf
from keras_xmr.parts.section import Section

_WEIGHT = (
    float,
    Field(default=1.0, ge=0, le=1e9, description="Factor of this loss in the objective."),
)


class RelevanceOptions(Section):
    """Relevance of captions to images, by the captions that were written for the image.

    Used by losses that learn from relevance, by the evaluation (ASP), and by the command
    `relevance`. The captions of a split are the references of its images, and n-grams are weighed
    by how rare they are in that split.
    """

    measure: RelevanceMeasure = "cider"
    """Measure of relevance: `cider`, the mean cosine of TF-IDF vectors of n-grams of one to four
    words, from 0 to 1; `cider_d`, the clipped and length-penalised variant that `pycocoevalcap`
    computes, from 0 to 10; or `tf_idf`, the cosine of TF-IDF vectors of words, from 0 to 1, which
    the released code of DAA trains with."""

    references: Literal["image", "class"] = "image"
    """References of an image: the captions that were written for it, or for all images of its
    class, for data sets whose labels are classes (Li et al. 2022 on CUB Captions)."""

    train_measure: RelevanceMeasure | None = None
    """The measure in training; null for the measure of the evaluation."""

    tokenizer: RelevanceTokenizer = "ptb"
    """The tokenizer of captions: `ptb`, rules of the Penn Treebank that need nothing else,
    or `java`, the program that `pycocoevalcap` calls; it needs that package and Java."""


class AuditOptions(Section):
    """Options of the command `audit`, which finds unlabelled pairs that models score high."""

    split: Literal["train", "val", "test"] = "test"
    """The audited split."""

    pairs: PositiveInt = 200
    """The most pairs that the annotation page shows."""

    per_image: PositiveInt = 3
    """The most pairs of one image, so that no image fills the annotation page."""

    per_caption: PositiveInt = 3
    """The most pairs of one caption."""

    combine: Combination = "mean"
    """How several models are combined: the mean or the minimum of their scores, in standard
    deviations from the mean of all pairs."""

    thumbnail: Annotated[int, Field(ge=16, le=2048)] = 480
    """The longer side of the pictures of the annotation page, in pixels. They are shown smaller,
    and a click enlarges them."""


class ExportOptions(Section):
    """Options of the export."""

    weights: Literal["best", "last"] = "best"
    """Whether the weights with the best validation metric are exported, or the last ones. The
    evaluation uses the same."""

    keep_training_files: bool = False
    """Whether checkpoints and the files of the best and the last weights stay after the export.
    These files take several times the size of `model.keras`, which has the chosen weights, too."""

    keep: PositiveInt = 2
    """Number of SavedModel versions that are kept. Every export writes the next one, so that a
    server which watches the folder takes it."""


class Config(Section):
    """One run: data, model, objective, training, evaluation, export, and published results."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the run; its outputs go to `<output>/<name>/`."""

    output: Path = Path("saved_models")
    """Folder of the outputs of all runs."""

    seed: NonNegativeInt = 0
    """Seed of everything that is random."""

    plugins: tuple[str, ...] = ()
    """Packages, or modules, with further sources, encoders, heads, matchers, losses and so on.
    Installed packages with entry points need not be named."""

    data: DataOptions
    """Data and preprocessing."""

    model: ModelOptions
    """Two towers and a matcher."""

    objective: Annotated[
        tuple[Annotated[Choice, OneOf("loss", weight=_WEIGHT)], ...],
        Field(min_length=1),
    ]
    """The losses, each with its `weight`; their weighted sum is minimised."""

    relevance: RelevanceOptions = RelevanceOptions()
    """Relevance of captions to images, for losses that learn from it, and for ASP."""

    train: TrainOptions
    """Options of the training."""

    evaluation: EvaluationOptions = EvaluationOptions()
    """Options of the evaluation."""

    audit: AuditOptions = AuditOptions()
    """Options of the search for missing labels."""

    export: ExportOptions = ExportOptions()
    """Options of the export."""

    paper: ReportedResults | None = None
    """The row of a paper that the config reproduces, and its published figures."""

    fidelity: (
        Annotated[str, Field(pattern=r"^(as published|no paper: [^|\n]+)$")]
        | dict[str, Annotated[str, Field(pattern=r"^[^|\n]+$")] | None]
        | None
    ) = None
    """Whether the method is trained as in its paper: `as published`; what is adapted, a sentence
    per item of the paper; or `no paper: ` and a description. Configs of the project, and what
    includes them, have it from `docs/tables/fidelity.csv`, by the keys that they have in the end. A
    config of yours may add to it. Reports print it, with the keys that differ from the packaged
    config of the same name."""

    @property
    def folder(self) -> Path:
        """The folder of all outputs of the run."""
        return self.output / self.name

    def judgements_of(self, split: str) -> tuple[JudgementOptions, ...]:
        """Returns `evaluation.judgements` of a split, with files in place of names of the data set.

        Judgements that come with the data set are for the test split alone.
        """
        files = self.data.source.judgement_files()
        return tuple(
            judgements.with_files(files)
            for judgements in self.evaluation.judgements
            if split == "test" or judgements.source not in files
        )
