"""Data sets of the library `datasets` of Hugging Face, written by `save_to_disk`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from data_pipelines.sources.arrow import TableSource, pyarrow


class HuggingFaceSource(TableSource):
    """Folder saved by `datasets`: one folder of Arrow files per split.

    The files are memory-mapped; `datasets` itself is not needed. They must contain the images
    (`dataset.cast_column("image", Image())` before `save_to_disk` embeds them).
    """

    FORMAT = "Arrow"

    name: Literal["huggingface"] = "huggingface"

    train: str = "train/*.arrow"
    """Pattern of the training files, under `root`; `*.arrow` for data sets without splits."""

    image_column: str = "image"
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file."""
        table = _table(path)
        yield from table.select(self.columns(table.schema, path)).to_batches()

    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        return _table(path)[self.image_column][row].as_py()


@lru_cache(maxsize=64)
def _table(path: Path) -> Any:
    """Memory-maps a file."""
    arrow = pyarrow("pyarrow")
    return pyarrow("pyarrow.ipc").open_stream(arrow.memory_map(str(path))).read_all()
