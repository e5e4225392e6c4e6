"""Sources of data sets; the key `name` of a config section selects one."""

from typing import Annotated

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    MissingFileError,
    OneSource,
    Problems,
    RegionArray,
    Source,
    SourceError,
    Split,
)
from data_pipelines.sources.coco import CocoSource, Flickr8kSource, Flickr30kSource
from data_pipelines.sources.cub import CubSource
from data_pipelines.sources.photos import CsvSource, PhotoFolderSource
from data_pipelines.sources.regions import BottomUpSource, RegionsSource
from data_pipelines.sources.scenes import ScenesSource
from data_pipelines.sources.sharded import HuggingFaceSource, ParquetSource, WebDatasetSource

AnySource = Annotated[
    Source,
    OneSource(
        CocoSource,
        Flickr30kSource,
        Flickr8kSource,
        CubSource,
        CsvSource,
        PhotoFolderSource,
        RegionsSource,
        BottomUpSource,
        WebDatasetSource,
        ParquetSource,
        HuggingFaceSource,
        ScenesSource,
    ),
]
"""Any source; the key `name` of the config section selects it."""
