"""Sources of data sets, one per file; the key `name` of a config section selects one."""

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
from data_pipelines.sources.bottom_up import BottomUpSource
from data_pipelines.sources.choice import OneSource
from data_pipelines.sources.coco import CocoSource
from data_pipelines.sources.csv import CsvSource
from data_pipelines.sources.cub import CubSource
from data_pipelines.sources.flickr8k import Flickr8kSource
from data_pipelines.sources.flickr30k import Flickr30kSource
from data_pipelines.sources.photo_folder import PhotoFolderSource
from data_pipelines.sources.regions import RegionsSource
from data_pipelines.sources.scenes import ScenesSource
from data_pipelines.sources.webdataset import WebDatasetSource

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
