"""Flickr30K, from its folder of images and the Karpathy split file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from data_pipelines.documentation import page
from data_pipelines.sources.base import EncodedImage, Entry, Problems, Source, read_image_file
from data_pipelines.sources.karpathy import karpathy_entries


class Flickr30kSource(Source):
    """Flickr30K (Young et al. 2014) with the splits of Karpathy and Fei-Fei (2015).

    Flickr8K in the same format (`dataset_flickr8k.json`) is read as well.
    """

    origin: ClassVar[str] = (
        f"{page('results/reproduce.md')} says where to get Flickr30K, and where to put it: "
        "https://shannon.cs.illinois.edu/DenotationGraph/"
    )

    name: Literal["flickr30k"] = "flickr30k"

    root: Path
    """Folder that holds everything below."""

    images: str = "flickr30k-images"
    """Folder of the photos, under `root`."""

    split_file: str = "dataset_flickr30k.json"
    """The Karpathy split file with the captions, under `root`."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order of the split file."""
        return karpathy_entries(self.root / self.split_file, False, problems)

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the photo."""
        return read_image_file(self.root / self.images, entry.file)
