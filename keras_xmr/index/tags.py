"""Tags of photos, from a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

from data_pipelines.errors import UserError


def read_tags(path: Path) -> dict[str, list[str]]:
    """Reads the tags of each photo, by its path relative to the root.

    Args:
        path: CSV, UTF-8, with the columns `image,tag` and a row per tag of a photo; a field
            may have several, separated by `;`.

    Raises:
        UserError: If it cannot be read, or lacks a column.
    """
    tags_by_image: dict[str, set[str]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if missing := {"image", "tag"} - set(rows.fieldnames or ()):
                raise UserError(f"{path} has no column {min(missing)!r}: line 1 must be image,tag")
            for row in rows:
                tags = (tag.strip() for tag in (row["tag"] or "").split(";"))
                tags_by_image.setdefault(row["image"].strip(), set()).update(t for t in tags if t)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {why}") from None
    return {image: sorted(tags) for image, tags in sorted(tags_by_image.items())}
