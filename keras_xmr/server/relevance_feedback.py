"""Relevance feedback of users: hits marked as right or wrong, stored as judgements."""

from __future__ import annotations

import threading
from pathlib import Path

from data_pipelines.errors import UserError
from keras_xmr.judgements.formats import read_csv
from keras_xmr.judgements.reading import one_line, write_rows

COLUMNS = ("image", "caption", "grade")


class RelevanceFeedback:
    """A CSV file `image,caption,grade`, in the format of `read_judgements`.

    It has a line per pair: a new mark replaces the old one. The file is read again for every mark,
    since people edit it, and replaced atomically.

    Args:
        path: The file, which may be missing; None disables feedback.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def grades(self, caption: str) -> dict[str, float]:
        """The grades of images for a caption, by image."""
        caption = one_line(caption)
        return {image: grade for (image, text), grade in self._read().items() if text == caption}

    def set(self, image: str, caption: str, grade: float | None) -> int:
        """Sets the grade of a pair, or removes it if it is None.

        Returns:
            The number of marked pairs.

        Raises:
            UserError: If feedback is disabled, or the file is damaged or cannot be written.
        """
        if self._path is None:
            raise UserError("relevance feedback is disabled on this server")
        with self._lock:
            marks = self._read()
            marks.pop((image, one_line(caption)), None)
            if grade is not None:
                marks[image, one_line(caption)] = grade
            rows = ((*pair, f"{grade:g}") for pair, grade in marks.items())
            try:
                write_rows(self._path, COLUMNS, rows)
            except OSError as error:
                raise UserError(f"{self._path} cannot be written: {error.strerror}") from None
        return len(marks)

    def _read(self) -> dict[tuple[str, str], float]:
        if self._path is None or not self._path.exists():
            return {}
        # Names of photos may begin or end with a blank, captions do not.
        rows = read_csv(self._path)
        return {(image, caption.strip()): grade for _, (image, caption), grade in rows}
