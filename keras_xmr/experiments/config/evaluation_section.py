"""The section `evaluation` of a config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ByteSize, Field

from keras_xmr.judgements.judgement_options import JudgementOptions
from keras_xmr.parts.option_types import NonNegativeInt, PositiveFloat, PositiveInt
from keras_xmr.parts.registry import Choice, OneOf
from keras_xmr.parts.section import Section

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
    Matchers with a scale and a shift take the trained ones."""

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
