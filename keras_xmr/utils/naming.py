"""Names of classes in configs and in tables of metrics."""

from __future__ import annotations

import re


def snake_case(name: str) -> str:
    """Returns `soft_contrastive` for `SoftContrastive`, and likewise `info_nce` and `adamp`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z](?!$))|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
