"""Flickr8K in its original format: photos, a file of captions, and a file per split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    Entry,
    FolderSource,
    Problems,
)
from data_pipelines.sources.text_files import read_lines


class Flickr8kSource(FolderSource):
    """Flickr8K (Hodosh et al. 2013) with its official splits and human judgements.

    The file of captions has 8,092 photos. The 92 without a split are skipped; the file of one of
    them, `2258277193_586949ec62.jpg.1`, does not exist.
    """

    name: Literal["flickr8k"] = "flickr8k"

    images: str = "Flicker8k_Dataset"
    """Folder of the photos, under `root`."""

    captions: str = "Flickr8k.token.txt"
    """File of captions, under `root`: `photo.jpg#n<TAB>caption`. The id of the caption is before
    the tab."""

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
        """Folder of the photos."""
        return self.root / self.images

    def judgement_files(self) -> Mapping[str, Path]:
        """Returns the judgements of the test photos."""
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
                    problems.add("duplicate photo", f"{path}:{number}: {name}")
                elif name:
                    seen.add(name)
                    yield Entry(name, split, tuple(captions.get(name, ())), file=name)

    def _captions(self, problems: Problems) -> dict[str, list[Caption]]:
        """Returns the captions of each photo, in the order of the file."""
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
                problems.add("duplicate caption id", f"{path}:{number}: {key}")
            else:
                seen.add(key)
                captions.setdefault(photo, []).append(Caption(key, text))
        return captions
