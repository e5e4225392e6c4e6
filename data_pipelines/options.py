"""The `data` section of a config."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data_pipelines.sources import AnySource

MANIFEST = "manifest.json"
"""The file of a folder of records that is written last."""


class Section(BaseModel):
    """A section of a config: typed, frozen, no unknown keys; its docstrings are its help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class ImageOptions(Section):
    """How a photo becomes pixels."""

    size: Annotated[int, Field(ge=16, le=2048)] = 224
    """Height and width of what the model sees, in pixels."""

    resize: Annotated[int, Field(ge=16, le=2048)] = 256
    """In evaluation the short side is resized to this before the centre is cropped, in pixels."""

    fit: Literal["center", "stretch"] = "center"
    """What evaluation sees of a photo: its centre, or all of it, stretched to a square as SigLIP
    sees it. `resize` has no effect then."""

    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """How evaluation scales photos. `bicubic`, and `fit: stretch`, scale the whole photo as Pillow
    does, by which CLIP and SigLIP were trained: that takes longer than the centre alone. Random
    crops in training are bilinear in any case."""

    store_side: Annotated[int, Field(ge=16, le=4096)] | None = None
    """What the short side of a photo becomes in the records, in pixels, where it is longer; null
    keeps photos as they are. Small ones are read faster, but embeddings are not quite those of the
    originals (docs/data.md)."""

    crop: Literal["random_resized", "center"] = "random_resized"
    """How training images are cropped."""

    crop_area: tuple[
        Annotated[float, Field(gt=0, le=1)],
        Annotated[float, Field(gt=0, le=1)],
    ] = (0.08, 1.0)
    """Smallest and largest part of the image that a random resized crop covers."""

    flip: bool = True
    """Whether training images are mirrored left to right half of the time."""

    cutout: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Probability that a rectangle of a training image is erased (Cutout, random erasing)."""

    cutout_area: tuple[
        Annotated[float, Field(gt=0, lt=1)],
        Annotated[float, Field(gt=0, lt=1)],
    ] = (0.02, 1 / 3)
    """Smallest and largest part of the image that is erased."""

    mixup: Annotated[float, Field(ge=0, le=1)] = 0
    """Probability that a training image is blended with one of another pair (Mixup). Its caption
    stays, and is right as far as the image is its own. Needs losses that know of this."""

    cutmix: Annotated[float, Field(ge=0, le=1)] = 0
    """Probability that a rectangle of a training image is replaced by that of another (CutMix)."""

    mix_concentration: Annotated[float, Field(gt=0)] = 1.0
    """Both parameters of the Beta distribution of the part of the image that is its own."""

    @property
    def mixes(self) -> bool:
        """Whether any training image is mixed with another."""
        return self.mixup + self.cutmix > 0

    @property
    def augments(self) -> bool:
        """Whether a training image looks different each time, and not as in evaluation."""
        return self.crop != "center" or self.flip or self.cutout > 0 or self.mixes

    @property
    def seen(self) -> dict[str, int | str]:
        """What decides which pixels evaluation sees of a photo; what was always so is left out."""
        found: dict[str, int | str] = {"size": self.size, "resize": self.resize}
        if self.fit != "center":
            found["fit"] = self.fit
        if self.interpolation != "bilinear":
            found["interpolation"] = self.interpolation
        return found

    @model_validator(mode="after")
    def _check(self) -> ImageOptions:
        if self.mixup + self.cutmix > 1:
            raise ValueError(
                f"an image is mixed in one way: mixup ({self.mixup}) and cutmix ({self.cutmix}) "
                "must not add up to more than 1"
            )
        if self.resize < self.size:
            raise ValueError(f"resize ({self.resize}) must not be below size ({self.size})")
        if self.store_side is not None and self.store_side < self.resize:
            raise ValueError(
                f"store_side ({self.store_side}) must not be below resize ({self.resize}): "
                "evaluation would see enlarged photos"
            )
        for name in ("crop_area", "cutout_area"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must be [smallest, largest]; got [{low}, {high}]")
        return self


class TextOptions(Section):
    """How a caption becomes words."""

    min_count: Annotated[int, Field(ge=1)] = 4
    """Words that occur less often in the training captions become `<unk>`. Without effect with a
    text encoder that brings a tokenizer of its own (`keras_hub_text`)."""

    max_words: Annotated[int, Field(ge=1, le=1024)] = 64
    """Longer captions are cut after this many words. With a text encoder that brings a tokenizer
    of its own these are parts of words, and at most as many as the encoder can read."""

    drop_words: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Random caption word dropping in training: the probability that a word becomes `<unk>` (the
    mask of a tokenizer that has one), and the part of the words that is removed after that."""


class PrepareOptions(Section):
    """Who writes the records. They are the same whoever does."""

    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """How many processes of this machine write, one shard each. Null takes as many as there are
    processors, or none but this one where they would not be worth their start."""

    cluster: Annotated[str, Field(pattern=r"^(local|auto|ray://.+)$")] = "local"
    """The machines that write: "local" is this one alone, "auto" a Ray cluster that this machine
    is part of, and `ray://HOST:10001` any other (`pip install 'keras-xmr[ray]'`, docs/data.md)."""


def _folder_of(source: BaseModel | None) -> Path:
    """Where records go by themselves: folders of one name have different digests."""
    root = getattr(source, "root", None)
    if root is None:  # Of a source that makes its data, or of one that is wrong anyway.
        return Path("data") / getattr(source, "name", "records")
    digest = hashlib.sha256(os.path.abspath(root).encode()).hexdigest()[:6]
    return Path("data") / f"{getattr(source, 'name', 'records')}-{root.name}-{digest}"


class DataOptions(Section):
    """What is read, and how it becomes records and batches."""

    source: AnySource
    """The data set, by its `name`: coco, flickr30k, flickr8k, cub, csv, photo_folder, regions,
    bottom_up, webdataset, parquet, huggingface or scenes."""

    judgements: Literal["pairs", "classes"] = "pairs"
    """What counts as a right answer: the annotated pairs, or every pair of one class."""

    training_judgements: Path | None = None
    """CSV file `image,caption,grade` of pairs that people have called right or wrong, such as the
    marks of the search page: training takes a grade above 0 for a match and 0 for none, whatever
    was annotated. A caption goes by its id or its text; a new text becomes a caption of every
    image that it is right for. Pairs of other splits are left out. The run keeps a copy."""

    records: Path = Field(default_factory=lambda data: _folder_of(data.get("source")))
    """Folder of the records. They are written once, by the command `prepare`. Without one it is
    named after the folder of the data, so that each has its own: data/csv-my_photos-1a2b3c."""

    images_per_shard: Annotated[int, Field(ge=1)] = 1024
    """How many images one TFRecord file holds."""

    max_skipped: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Largest part of the images that may be missing or broken. They are skipped, counted and
    reported; above this, the run stops and names them. A few, up to 5, stop it only if this is
    0."""

    prepare: PrepareOptions = PrepareOptions()
    """Who writes the records."""

    image: ImageOptions = ImageOptions()
    """How photos become pixels. Without effect on precomputed regions."""

    text: TextOptions = TextOptions()
    """How captions become words."""

    @property
    def is_prepared(self) -> bool:
        """Whether the records are finished."""
        return (self.records / MANIFEST).exists()
