"""Marks of right and wrong hits, kept as judgements."""

from __future__ import annotations

import threading
from pathlib import Path

from data_pipelines.errors import UserError
from keras_xmr.judgements.files import read_csv
from keras_xmr.judgements.names import one_line
from keras_xmr.judgements.reading import write_rows

COLUMNS = ("image", "caption", "grade")


class RelevanceFeedback:
    """A CSV file `image,caption,grade`, as `read_judgements` reads it.

    A pair stands in it once: a new mark replaces the old one. The file is read again for every
    mark, since people edit it, and it is replaced as a whole.

    Args:
        path: The file, which need not be there yet; None takes no marks.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._turn = threading.Lock()

    @property
    def are_taken(self) -> bool:
        """Whether marks can be set at all."""
        return self._path is not None

    def of_caption(self, caption: str) -> dict[str, float]:
        """The grades of images for a caption, by the names of the images."""
        caption = one_line(caption)
        return {image: grade for (image, text), grade in self._read().items() if text == caption}

    def set(self, image: str, caption: str, grade: float | None) -> int:
        """Sets the grade of a pair, or takes it back if it is None.

        Returns:
            How many pairs are marked now.

        Raises:
            UserError: If marks are not taken, or the file is damaged or cannot be written.
        """
        if self._path is None:
            raise UserError("this server takes no marks")
        with self._turn:
            marks = self._read()
            marks.pop((image, one_line(caption)), None)
            if grade is not None:
                marks[image, one_line(caption)] = grade
            self._write(self._path, marks)
        return len(marks)

    def _read(self) -> dict[tuple[str, str], float]:
        if self._path is None or not self._path.exists():
            return {}
        # Names of photos may begin or end with a blank, captions do not.
        rows = read_csv(self._path)
        return {(image, caption.strip()): grade for _, (image, caption), grade in rows}

    def _write(self, path: Path, marks: dict[tuple[str, str], float]) -> None:
        try:
            write_rows(path, COLUMNS, ((*pair, f"{grade:g}") for pair, grade in marks.items()))
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}") from None
