"""Sources of data sets; the key `name` of a config section selects one."""

from typing import Annotated

from data_pipelines.sources.arrow import HuggingFaceSource, ParquetSource
from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    MissingFileError,
    Problems,
    Regions,
    Source,
    SourceError,
    Split,
    UnreadableError,
)
from data_pipelines.sources.choice import OneSource
from data_pipelines.sources.coco import CocoSource, Flickr30kSource
from data_pipelines.sources.cub import CubSource
from data_pipelines.sources.flickr8k import Flickr8kSource
from data_pipelines.sources.photos import CsvSource, PhotoFolderSource
from data_pipelines.sources.regions import BottomUpSource, RegionsSource
from data_pipelines.sources.scenes import ScenesSource
from data_pipelines.sources.sharded import WebDatasetSource

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
