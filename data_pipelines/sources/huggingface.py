"""Data sets of the library `datasets` of Hugging Face, written by `save_to_disk`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from data_pipelines.sources.arrow import TableSource, image_of, pyarrow
from data_pipelines.sources.base import EncodedImage, Entry, Problems, inside
from data_pipelines.sources.sharded import unreadable


class HuggingFaceSource(TableSource):
    """Folder saved by `datasets`: one folder of Arrow files per split.

    The files are memory-mapped; `datasets` itself is not needed. They must contain the images
    (`dataset.cast_column("image", Image())` before `save_to_disk` embeds them).
    """

    name: Literal["huggingface"] = "huggingface"

    train: str = "train/*.arrow"
    """Pattern of the training files, under `root`; `*.arrow` for data sets without splits."""

    image_column: str = "image"
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images file by file, row by row."""
        for split, path in self.files():
            try:
                table = _table(path)
                table = table.select(self.columns(table.schema, path))
                name = str(path.relative_to(self.root))
                yield from self.rows(table.to_batches(), split, name, problems)
            except (OSError, ValueError) as error:
                problems.add("damaged Arrow file", f"{path}: {error}")

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the image of a row."""
        path = inside(self.root, entry.file)
        try:
            value = _table(path)[self.image_column][entry.position].as_py()
        except (OSError, ValueError, LookupError) as error:
            raise unreadable(path, error) from None
        return image_of(value, entry)


@lru_cache(maxsize=64)
def _table(path: Path) -> Any:
    """Memory-maps a file."""
    arrow = pyarrow("pyarrow")
    return pyarrow("pyarrow.ipc").open_stream(arrow.memory_map(str(path))).read_all()
