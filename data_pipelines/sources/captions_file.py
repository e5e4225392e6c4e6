"""Files of captions without photos."""

from __future__ import annotations

from pathlib import Path

from data_pipelines.sources.base import Entry, Problems, Source, SourceError
from data_pipelines.sources.coco import CocoSource
from data_pipelines.sources.csv import CsvSource
from data_pipelines.sources.flickr30k import Flickr30kSource
from data_pipelines.sources.text_files import only_text, read_bytes


def read_captions_file(path: Path, problems: Problems) -> list[Entry]:
    """Reads the captions of a file.

    Args:
        path: A CSV file of `image,caption` rows, a caption annotation file of COCO
            (`captions_val2014.json`), or a split file of Karpathy (`dataset_coco.json`).
        problems: Counts skipped rows.

    Returns:
        The images with their captions, in the order of the file. All splits are "train" unless the
        file is a split file.

    Raises:
        SourceError: If the file is missing or malformed, or holds no captions.
    """
    entries = list(only_text(_source(path).entries(problems), problems))
    if not any(entry.captions for entry in entries):
        raise SourceError(
            f"{path} holds no captions. It should be CSV with the columns image,caption, a caption "
            "annotation file of COCO, or a split file of Karpathy"
        )
    return entries


def is_split_file(path: Path) -> bool:
    """Whether a captions file is a split file of Karpathy."""
    return path.suffix.lower() == ".json" and isinstance(_source(path), Flickr30kSource)


def _source(path: Path) -> Source:
    root, name = path.parent, path.name
    if path.suffix.lower() != ".json":
        return CsvSource(root=root, captions=name, val_share=0, test_share=0)
    if b'"annotations"' in read_bytes(path, "captions"):
        return CocoSource(root=root, captions=(name,), instances=(), split_file=None)
    return Flickr30kSource(root=root, split_file=name)
