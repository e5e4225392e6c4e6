"""The `data` section of a config."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from data_pipelines.sources import AnySource
from keras_xmr.parts.section import Section

MANIFEST = "manifest.json"
"""File in a folder of records that is written last."""

_Share = Annotated[float, Field(gt=0, le=1)]
_Fraction = Annotated[float, Field(gt=0, lt=1)]


class ImageOptions(Section):
    """Decoding, resizing and augmentation of photos."""

    size: Annotated[int, Field(ge=16, le=2048)] = 224
    """Height and width of the input of the model, in pixels."""

    resize: Annotated[int, Field(ge=16, le=2048)] = 256
    """In evaluation the short side is resized to this before the centre is cropped, in pixels."""

    fit: Literal["center", "stretch"] = "center"
    """Part of a photo that evaluation uses: its centre, or all of it, stretched to a square as for
    SigLIP. `resize` has no effect then."""

    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """Interpolation in evaluation. `bicubic`, and `fit: stretch`, scale the whole photo as Pillow
    does, with which CLIP and SigLIP were trained; that takes longer than the centre alone. Random
    crops in training are always bilinear."""

    store_side: Annotated[int, Field(ge=16, le=4096)] | None = None
    """Maximum length of the short side of photos in the records, in pixels; null keeps photos
    unchanged. Photos that are embedded later are shrunk likewise. Small photos are read faster, but
    change embeddings slightly (docs/how_to/data.md)."""

    crop: Literal["random_resized", "center"] = "random_resized"
    """Cropping of training images."""

    crop_area: tuple[_Share, _Share] = (0.08, 1.0)
    """Smallest and largest share of the image that a random resized crop covers."""

    flip: bool = True
    """Whether training images are mirrored left to right with probability 0.5."""

    cutout: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Probability that a rectangle of a training image is erased (Cutout, random erasing)."""

    cutout_area: tuple[_Fraction, _Fraction] = (0.02, 1 / 3)
    """Smallest and largest share of the image that is erased."""

    @property
    def augments(self) -> bool:
        """Whether training images are augmented at random."""
        return self.crop != "center" or self.flip or self.cutout > 0

    @property
    def seen(self) -> dict[str, int | str]:
        """Options that determine the pixels in evaluation, without defaults of later options."""
        options: dict[str, int | str] = {"size": self.size, "resize": self.resize}
        if self.fit != "center":
            options["fit"] = self.fit
        if self.interpolation != "bilinear":
            options["interpolation"] = self.interpolation
        if self.store_side is not None:
            options["store_side"] = self.store_side
        return options

    @model_validator(mode="after")
    def _check(self) -> ImageOptions:
        if self.resize < self.size:
            raise ValueError(f"resize ({self.resize}) must not be below size ({self.size})")
        if self.store_side is not None and self.store_side < self.resize:
            raise ValueError(
                f"store_side ({self.store_side}) must not be below resize ({self.resize}): "
                "evaluation would see enlarged photos"
            )
        self._check_effects()
        for name in ("crop_area", "cutout_area"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must be [smallest, largest]; got [{low}, {high}]")
        return self

    def _check_effects(self) -> None:
        """Refuses areas of an augmentation that is off."""
        for area, is_off, remedy in (
            ("crop_area", self.crop == "center", "crop 'center'; write crop: random_resized"),
            ("cutout_area", self.cutout == 0, "cutout 0; write a value above 0"),
        ):
            default = type(self).model_fields[area].default
            if is_off and getattr(self, area) != default:
                raise ValueError(
                    f"{area} has no effect with {remedy}, or {area}: {list(default)}, its default"
                )


class TextOptions(Section):
    """Tokenization and augmentation of captions."""

    min_count: Annotated[int, Field(ge=1)] = 4
    """Words that occur less often in the training captions become `<unk>`. No effect with a text
    encoder that has its tokenizer (`keras_hub_text`)."""

    max_words: Annotated[int, Field(ge=1, le=1024)] = 64
    """Captions are truncated after this many words. With a text encoder that has its tokenizer
    these are word pieces, limited by the maximum length of the encoder."""

    drop_words: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Random caption word dropping in training: the probability that a word becomes `<unk>` (the
    mask of a tokenizer that has one), and the share of words that is removed after that."""


class PrepareOptions(Section):
    """Parallel writing of records, which does not change their content."""

    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of processes of this machine, which write one shard each. Null uses all processors, or
    only this process for small data sets."""

    cluster: Annotated[str, Field(pattern=r"^(local|auto|ray://.+)$")] = "local"
    """The machines that write: "local" is only this one, "auto" a Ray cluster that this machine
    belongs to, and `ray://HOST:10001` any other (`pip install 'keras-xmr[ray]'`,
    docs/how_to/data.md)."""


def _folder_of(source: BaseModel | None) -> Path:
    """Returns the default folder of records: folders with the same name have different digests."""
    root = getattr(source, "root", None)
    if root is None:  # A source that generates its data, or an invalid one.
        return Path("data") / getattr(source, "name", "records")
    digest = hashlib.sha256(os.path.abspath(root).encode()).hexdigest()[:6]
    return Path("data") / f"{getattr(source, 'name', 'records')}-{root.name}-{digest}"


class DataOptions(Section):
    """The data set, its records and its preprocessing."""

    source: AnySource
    """The data set, by its `name`: coco, flickr30k, flickr8k, cub, csv, photo_folder, regions,
    bottom_up, webdataset, parquet, huggingface or scenes."""

    judgements: Literal["pairs", "classes"] = "pairs"
    """Relevant pairs: the annotated ones, or all pairs of the same class."""

    training_judgements: Path | None = None
    """CSV file `image,caption,grade` of relevance judgements, such as the labels of an audit: in
    training a grade above 0 is a match and 0 is not, overriding the annotation. Captions are
    identified by id or text; a new text becomes a caption of every image that it is relevant to.
    Pairs of other splits are ignored. The run keeps a copy."""

    records: Path = Field(default_factory=lambda data: _folder_of(data.get("source")))
    """Folder of the records. They are written once, by the command `prepare`. The default is named
    after the folder of the data, such as data/csv-my_photos-1a2b3c."""

    images_per_shard: Annotated[int, Field(ge=1)] = 1024
    """Number of images per TFRecord file."""

    max_skipped: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Largest share of images that may be missing or broken. They are skipped, counted and
    reported; above this, the run stops and names them. Up to 5 stop it only if this is 0."""

    prepare: PrepareOptions = PrepareOptions()
    """Parallel writing of records."""

    image: ImageOptions = ImageOptions()
    """Preprocessing of photos. No effect on precomputed regions."""

    text: TextOptions = TextOptions()
    """Preprocessing of captions."""

    @property
    def is_prepared(self) -> bool:
        """Whether the records are complete."""
        return (self.records / MANIFEST).exists()
