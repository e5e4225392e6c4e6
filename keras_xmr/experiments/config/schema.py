"""The config of a run: typed, documented, and checked before anything is built."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field

from data_pipelines.options import DataOptions
from keras_xmr.judgements.options import JudgementOptions
from keras_xmr.metrics import metric_names
from keras_xmr.parts.option_types import (
    Combination,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    RelevanceMeasure,
    RelevanceTokenizer,
)
from keras_xmr.parts.registry import Choice, OneOf
from keras_xmr.parts.section import Section
from keras_xmr.utils.messages import cut, nearest


def weight_of(loss: Choice) -> float:
    """Returns the factor of a loss in the objective: 1 for one with an option of that name."""
    return 1.0 if "weight" in loss.options() else loss.weight  # type: ignore[attr-defined]


class TowerOptions(Section):
    """A tower: local features, their pooling, and the kind of embedding."""

    encoder: Annotated[Choice, OneOf("encoder")]
    """Makes local features: positions of an image, regions, or words."""

    pooling: Annotated[Choice, OneOf("pooling")] | None = None
    """Makes one global vector of the local features; none for a head that keeps them all."""

    head: Annotated[Choice, OneOf("head")]
    """Makes the embedding."""


class ModelOptions(Section):
    """Two towers and a matcher."""

    dimension: PositiveInt = 1024
    """Dimension D of the joint embedding space."""

    image: TowerOptions
    """The image tower."""

    text: TowerOptions
    """The text tower."""

    matcher: Annotated[Choice, OneOf("matcher")]
    """Makes the score matrix of a batch of images and a batch of captions."""

    @property
    def towers(self) -> dict[str, TowerOptions]:
        """The towers by the names of their sections."""
        return {"image": self.image, "text": self.text}


# Larger rates overflow float32 in the first steps.
_FASTEST = 1000.0
_WEIGHT = (
    float,
    Field(default=1.0, ge=0, le=1e9, description="Factor of this loss in the objective."),
)


class PhaseOptions(Section):
    """One phase of training, with a new optimizer and schedule."""

    epochs: PositiveInt
    """Number of epochs of the phase. An epoch sees every training caption once, and with the
    sampler `images` every training image. Pairs that do not fill a batch are omitted, and
    `one_per_class` draws as many pairs as there are captions."""

    learning_rate: Annotated[float, Field(gt=0, le=_FASTEST)]
    """Learning rate at its highest."""

    learning_rates: dict[str, Annotated[float, Field(ge=0, le=_FASTEST)]] = Field(
        default_factory=dict
    )
    """Other learning rates for parts of the model, for instance `{image.encoder: 1.0e-5}`."""

    freeze: tuple[str, ...] = ()
    """Parts of the model that are not trained: `image`, `text`, or a part of one of them, such
    as `image.encoder`, `text.encoder`, `image.head`; or `matcher`."""

    warmup_epochs: NonNegativeFloat = 0
    """The learning rate grows from 0 during this many epochs; they count among `epochs`."""

    schedule: Literal["constant", "cosine", "step"] = "cosine"
    """The learning rate after the warm-up: constant, a cosine that falls to 0, or steps by
    `decay_factor` at each of `decay_epochs`."""

    cosine_epochs: PositiveFloat | None = None
    """For `schedule: cosine`: the epoch at which the rate would reach 0, at least `epochs`; null is
    the end of the phase."""

    decay_epochs: tuple[PositiveFloat, ...] = ()
    """For `schedule: step`: the epochs of the phase after which the learning rate falls."""

    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """For `schedule: step`: the factor by which it falls."""

    def freezes_encoder(self, side: str) -> bool:
        """Returns whether the phase leaves the encoder of the "image" or the "text" tower
        as it is.
        """
        return bool({side, f"{side}.encoder"} & set(self.freeze))


class WatchdogOptions(Section):
    """Detection of faults in training."""

    on_nan: Literal["stop", "warn"] = "stop"
    """The action when a loss is NaN or infinite. "stop" keeps the last good checkpoint; "warn"
    skips validations that are not possible then."""

    sigma: tuple[PositiveFloat, PositiveFloat] = (1e-3, 1e3)
    """Smallest and largest geometric mean of sigma that is not called collapsed or exploded."""

    on_sigma: Literal["stop", "warn"] = "warn"
    """The action outside of these bounds."""

    flat_steps: NonNegativeInt = 500
    """A loss that stays for this many steps at the value that it has when all scores are equal
    is called flat; 0 turns this off."""

    flat_tolerance: Fraction = 0.05
    """Relative tolerance of that value."""

    on_flat: Literal["stop", "warn"] = "warn"
    """The action on a flat loss."""


class CCAOptions(Section):
    """Options of canonical correlation analysis. The best of all combinations on the validation
    split is taken; without that split, the first value of each option."""

    image_ridges: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (30, 10, 100, 3, 1)
    """Ridge penalties of the image features, as multiples of their mean variance."""

    caption_ridges: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (2, 0.5, 8)
    """Ridge penalties of the caption features."""

    exponents: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1)] = (0.5,)
    """Exponents p: each direction is weighted by its canonical correlation to the power p."""

    directions: tuple[PositiveInt, ...] = ()
    """Numbers of leading directions to keep; empty keeps all. With few photos, fewer are better."""

    @property
    def grid(self) -> tuple[tuple[Any, ...], ...]:
        """The options in the order of `CanonicalCorrelations.projections`."""
        return self.image_ridges, self.caption_ridges, self.exponents, self.directions

    @property
    def settings(self) -> int:
        """Number of combinations."""
        return prod(max(1, len(values)) for values in self.grid)


class BatchRecall(Section):
    """Recall among the items of a batch, a metric of the training."""

    name: Literal["recall"] = "recall"

    k: PositiveInt = 1
    """The number of first answers that count."""

    direction: Literal["both", "image_to_text", "text_to_image"] = "both"
    """The queries that count; `both` takes the mean of both directions."""


_BY_NAME = BeforeValidator(lambda text: {"name": text} if isinstance(text, str) else text)


class TrainOptions(Section):
    """Options of the training."""

    batch_size: Annotated[int, Field(ge=2)] = 128
    """Image-caption pairs per step, over all replicas together; images with the sampler `images`.
    A training split with fewer is trained with all of them at once."""

    gradient_caching: PositiveInt | None = None
    """Number of images, or captions, that a tower embeds at once (Gao et al. 2021); null embeds the
    whole batch. This saves memory for large batches; a step computes embeddings twice. The gradient
    equals the gradient of the whole batch, so no trained part may normalise by batches."""

    sampler: Literal["pairs", "images", "one_per_class", "offline_negatives"] = "pairs"
    """Sampling of batches: `pairs`, all pairs in random order; `images`, all images in random
    order, each with its captions: for losses over several relevant items, such as `smooth_ap` and
    `supervised_contrastive`, and where a step has to read an image once; `one_per_class`, one
    random pair of each of `batch_size` different classes; or `offline_negatives`, a third of a
    batch random pairs, the others pairs that are hard for these among the whole split, which is
    embedded before each epoch."""

    captions_per_image: PositiveInt | None = None
    """With the sampler `images`: the number of captions of an image in a batch, drawn at random;
    null takes all."""

    offline_candidates: PositiveInt = 300
    """With the sampler `offline_negatives`: the hard captions of an image to draw from. A caption
    has as many fewer hard images as there are fewer images than captions."""

    optimizer: Annotated[Choice, OneOf("optimizer")]
    """The optimizer."""

    metrics: tuple[Annotated[BatchRecall, _BY_NAME], ...] = ()
    """Metrics of the batches, for the progress bar and TensorBoard: `[recall]`, or `[{name: recall,
    k: 10}]`. They grow as batches get smaller, and differ from an evaluation."""

    phases: tuple[PhaseOptions, ...]
    """The phases of training, one after another. An empty list, `[]`, trains nothing: `train` saves
    the initial model, such as published weights (zero-shot), or the solution that `start`
    computes."""

    precompute_features: bool = False
    """Whether the features of the images are computed once, and training reads them in place of
    pixels in the phases that freeze `image.encoder`. They are stored in half precision, next to the
    records; images are preprocessed as in evaluation in these phases. The trained and exported
    model is the same as without, up to rounding. Where every phase freezes the encoder, evaluation
    reads them too."""

    precompute_captions: bool = False
    """Whether the features of the captions are computed once, and training reads them in place of
    word ids in the phases that freeze `text.encoder`. They are stored in half precision, next to
    the records; no words are dropped, in any phase. The trained and exported model is the same as
    without, up to rounding. Where every phase freezes the encoder, evaluation reads them too."""

    start: Literal["random", "cca"] = "random"
    """Initial weights without pretraining: random, or, with `pooling: projection` in both towers,
    regularised canonical correlation analysis of the training split. Heads that have the option
    `rezero` then need `rezero: true`."""

    cca: CCAOptions = CCAOptions()
    """For `start: cca`: the hyperparameters to try."""

    initial_weights: Path | None = None
    """The folder of a finished run with the same `model` section, such as
    saved_models/csv_pretrained: training begins with its weights and its vocabulary. Null starts
    without them."""

    devices: PositiveInt | None = None
    """Number of devices of this machine that share a batch; null takes all GPUs."""

    operation_threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of CPU threads that share one operation, in all steps of a run; null takes all cores.
    Small networks are faster with 1: their operations are too short to be shared, and both towers
    still run in parallel. TF_NUM_INTRAOP_THREADS in the environment takes precedence."""

    clip_norm: PositiveFloat | None = 2.0
    """Largest global norm of the gradients; null does not clip."""

    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    """Precision of the towers. Embeddings and losses are float32 in any case."""

    jit_compile: bool = False
    """Whether the training step is compiled with XLA, for GPUs. Captions are then padded to
    multiples of 8, since each length is compiled separately. On a CPU it is slower
    (docs/tables/options.csv)."""

    checkpoint_steps: NonNegativeInt = 1000
    """Steps between two checkpoints, in addition to one at the end of each epoch; 0 for none."""

    validate_every: PositiveInt = 1
    """Epochs between two evaluations on the validation split."""

    patience: PositiveInt | None = None
    """Validations without a gain after which the training ends, of a training with one phase; null
    trains all epochs. A part in closed form is then validated before the first epoch, too, and
    the trained part is used where it gains over it."""

    validate_semantic_precision: bool = False
    """Whether these evaluations measure ASP, too, for its course over the epochs (Li et al. 2022,
    Fig. 4). The relevance of all pairs of the split is computed again each time."""

    monitor: Literal[
        "rsum",
        "i2t_recall_1",
        "i2t_recall_5",
        "i2t_recall_10",
        "i2t_r_precision",
        "i2t_map_at_r",
        "t2i_recall_1",
        "t2i_recall_5",
        "t2i_recall_10",
        "t2i_r_precision",
        "t2i_map_at_r",
    ] = "rsum"
    """The validation metric by which the best model is chosen: image-to-text (i2t) or
    text-to-image (t2i), or the sum of all recalls."""

    log_steps: PositiveInt = 20
    """Number of steps between two entries of TensorBoard, and two checks of the watchdog."""

    watchdog: WatchdogOptions = WatchdogOptions()
    """Detection of faults in training."""


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


_BY_SOURCE = BeforeValidator(lambda text: {"source": text} if isinstance(text, str) else text)


class LabelFiles(Section):
    """Files of the labels of images."""

    instances: Path
    """Instance annotations as COCO has them."""

    ids: Path | None = None
    """The id of each image there, one per line in the order of the images, or of their captions;
    null if the data set has these ids."""

    optional: bool = False
    """Whether PMRP is left out, with a sentence, where one of the files does not exist; otherwise
    that is an error."""

    @property
    def missing(self) -> Path | None:
        """The first of the files that does not exist; None if all do."""
        files = [path for path in (self.instances, self.ids) if path is not None]
        return next((path for path in files if not path.is_file()), None)


class EvaluationOptions(Section):
    """Options of the evaluation."""

    splits: tuple[Literal["train", "val", "test"], ...] = ("test",)
    """The splits that the command `evaluate` evaluates."""

    batch_size: PositiveInt = 64
    """Images, or captions, that are embedded at once."""

    matchers: tuple[Annotated[Choice, OneOf("matcher")], ...] = ()
    """Further matchers for the evaluation, in addition to the one that the model was trained with.
    Those that have a scale and a shift take the trained ones."""

    rerankers: tuple[Annotated[Choice, OneOf("reranker")], ...] = ()
    """Re-rankers of the scores of every matcher. Each uses all queries of a split at once
    (transductive), so its results are in separate tables."""

    metrics: tuple[Annotated[Choice, OneOf("metric")], ...] = ()
    """Further metrics of every query, in addition to the standard ones."""

    tile: tuple[PositiveInt, PositiveInt] = (256, 1024)
    """Images and captions that are scored at once."""

    memory_budget: Annotated[ByteSize, Field(gt=0)] = ByteSize(8 << 30)
    """The most memory that score matrices take, such as `8 GiB` or `500 MB`, or a number of bytes.
    Beyond it, ranks are counted tile by tile: the same figures, in memory that grows with the
    images and captions, not with their pairs. What reads whole matrices must fit into it, or be
    switched off: `semantic_precision`, `plausible_match`, `metrics`, `rerankers`,
    `save_scores`."""

    time_limit: PositiveFloat | None = 12.0
    """The most hours that scoring a split with one matcher may take, projected from the time of
    one tile. A longer evaluation is refused before it begins; null, or `--yes`, allows any time. In
    training nothing is refused."""

    semantic_precision: bool = True
    """Whether the average semantic precision (ASP) is computed: by the `relevance` of captions, and
    also by TF-IDF, as the released evaluators of ASP do. It takes about a minute for 5,000 images
    and 25,000 captions."""

    plausible_match: bool = True
    """Whether Plausible-Match R-Precision (PMRP) is computed where images have label vectors."""

    labels: LabelFiles | None = None
    """Files of the labels of the test images, for PMRP of a source without labels, such as
    regions of COCO: `{instances: instances_val2014.json, ids: testall_ids.txt}`."""

    folds: NonNegativeInt = 0
    """Number of consecutive folds over which the mean is also reported: 5 on COCO, for "1K test
    images". 0 for none."""

    judgements: tuple[Annotated[JudgementOptions, _BY_SOURCE], ...] = ()
    """Further judgements to measure against, in addition to `data.judgements`, by their source or
    with options: `identical_captions`, by which a caption is also relevant for other images with
    the same caption; `eccv_caption` or `cxc` on COCO's test split (they need
    `pip install 'keras-xmr[eccv]'`), `experts` or `crowd` on Flickr8K's, or a CSV file with the
    columns `image,caption,grade`, which goes by the ids of the data set, or the file of a
    benchmark: CIRCO, Flickr8K, HierarCaps, INQUIRE, Marqo-GS."""

    report_card: bool = True
    """Whether the report assesses the calibration of match probabilities and the informativeness of
    sigma of Gaussian embeddings. This embeds 64 images with pixels erased and 200 captions with
    words dropped."""

    save_scores: bool = False
    """Whether the scores of `model.matcher` are stored, as `scores-<split>.npy` next to the report,
    with `ground-truth-<split>.json`. Both together are the inputs of
    `evaluate --scores=... --ground-truth=...`."""


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
    They take several times the size of `model.keras`, which has the chosen weights, too."""

    keep: PositiveInt = 2
    """Number of SavedModel versions that are kept. Every export writes the next one, so that a
    server which watches the folder takes it."""


def _known(values: dict[str, float]) -> dict[str, float]:
    """Checks that figures are of metrics that exist."""
    names = metric_names()
    for name in values:
        if name not in names:
            raise ValueError(f"unknown metric {cut(repr(name))}.{nearest(name, names)}")
    return values


class ReportedFigures(Section):
    """Figures of one table of the report: a split, whole or in folds, of one matcher."""

    row: str | None = None
    """The row of the paper, if it is not the row of the section."""

    split: Literal["train", "val", "test"] = "test"
    """The split."""

    folds: bool = False
    """Whether they are means over folds ("1K test images" of COCO)."""

    matcher: str | None = None
    """The matcher, of `evaluation.matchers`; null is the one that the model trains with."""

    reranker: str | None = None
    """The re-ranker, of `evaluation.rerankers`; null for none."""

    values: Annotated[dict[str, float], Field(min_length=1), AfterValidator(_known)]
    """The figures by the names of our metrics (`i2t_recall_1`), as the paper prints them:
    percent, but for ranks and `relevant_K`, which are counts."""


class ReportedResults(Section):
    """The row of a paper that the config aims at."""

    source: str
    """Paper and table."""

    row: str
    """Name of the row in the table."""

    images: PositiveInt | None = None
    """Images of the test split of the paper, of all its folds together. Tables of a split with
    another number say that they are not comparable. Null where it is not known."""

    figures: tuple[ReportedFigures, ...] = ()
    """The printed figures; the report compares ours with them. Empty where the paper has none."""


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

        Those that come with the data set are for the test split alone.
        """
        files = self.data.source.judgement_files()
        return tuple(
            judgements.with_files(files)
            for judgements in self.evaluation.judgements
            if split == "test" or judgements.source not in files
        )
