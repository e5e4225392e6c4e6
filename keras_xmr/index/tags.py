"""Tags of photos, from a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

from data_pipelines.errors import UserError


def read_tags(path: Path) -> dict[str, list[str]]:
    """The tags of each photo, by its path under the root.

    Args:
        path: CSV, UTF-8, with the columns `image,tag` and a row for each tag of a photo; a field
            may hold several, with `;` between them.

    Raises:
        UserError: If it cannot be read, or lacks a column.
    """
    found: dict[str, set[str]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if missing := {"image", "tag"} - set(rows.fieldnames or ()):
                raise UserError(f"{path} has no column {min(missing)!r}: write image,tag first")
            for row in rows:
                tags = (tag.strip() for tag in (row["tag"] or "").split(";"))
                found.setdefault(row["image"].strip(), set()).update(t for t in tags if t)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {why}") from None
    return {image: sorted(tags) for image, tags in sorted(found.items())}
