"""The section `train` of a config."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from keras_xmr.parts.option_types import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from keras_xmr.parts.registry import Choice, OneOf
from keras_xmr.parts.section import Section

# Larger rates overflow float32 in the first steps.
_FASTEST = 1000.0


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
    """Steps between two checkpoints, in addition to one at the end of each epoch; 0 for none. A
    training that repeats the epochs of a former one, in an update, saves the end of the last."""

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
