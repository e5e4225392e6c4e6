"""Flickr8K as it was released: a folder of photos, a file of captions, a file for each split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    Problems,
    Source,
    read_image_file,
)
from data_pipelines.sources.text_files import read_lines


class Flickr8kSource(Source):
    """Flickr8K (Hodosh et al. 2013) with its official splits and human judgements.

    The file of captions has those of 8,092 photos. The 92 that are in no split are left out; one
    of them goes by the name `2258277193_586949ec62.jpg.1`, of which there is no file.
    """

    name: Literal["flickr8k"] = "flickr8k"

    root: Path
    """Folder that holds everything below."""

    images: str = "Flicker8k_Dataset"
    """Folder of the photos, under `root`."""

    captions: str = "Flickr8k.token.txt"
    """File of captions, under `root`: `photo.jpg#n<TAB>caption`. What is before the tab is the id
    of the caption."""

    train: str = "Flickr_8k.trainImages.txt"
    """Names of the training photos, one per line, under `root`."""

    val: str = "Flickr_8k.devImages.txt"
    """Names of the validation photos."""

    test: str = "Flickr_8k.testImages.txt"
    """Names of the test photos."""

    experts: str = "ExpertAnnotations.txt"
    """Judgements by three experts per pair, under `root`: `experts` in `evaluation.judgements`."""

    crowd: str = "CrowdFlowerAnnotations.txt"
    """Judgements by three or more people per pair, under `root`: `crowd` in
    `evaluation.judgements`."""

    @property
    def photos_folder(self) -> Path:
        """The folder of the photos."""
        return self.root / self.images

    def judgement_files(self) -> Mapping[str, Path]:
        """The judgements of the test photos."""
        return {"experts": self.root / self.experts, "crowd": self.root / self.crowd}

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the photos split by split, in the order of the files of names."""
        captions = self._captions(problems)
        seen: set[str] = set()
        for split in SPLITS:
            path = self.root / getattr(self, split)
            for number, line in enumerate(read_lines(path, "one photo per line"), 1):
                name = line.strip()
                if name in seen:
                    problems.add("photo that is listed twice", f"{path}:{number}: {name}")
                elif name:
                    seen.add(name)
                    yield Entry(name, split, tuple(captions.get(name, ())), file=name)

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the photo."""
        return read_image_file(self.photos_folder, entry.file)

    def _captions(self, problems: Problems) -> dict[str, list[Caption]]:
        """The captions of each photo, in the order of the file."""
        path = self.root / self.captions
        captions: dict[str, list[Caption]] = {}
        seen: set[str] = set()
        for number, line in enumerate(read_lines(path, "photo.jpg#n<TAB>caption"), 1):
            key, tab, text = line.partition("\t")
            photo, mark, _ = key.rpartition("#")
            if not line.strip():
                continue
            if not (tab and mark):
                problems.add("malformed line of the captions", f"{path}:{number}: {line[:80]!r}")
            elif key in seen:
                problems.add("caption id that is given twice", f"{path}:{number}: {key}")
            else:
                seen.add(key)
                captions.setdefault(photo, []).append(Caption(key, text))
        return captions
