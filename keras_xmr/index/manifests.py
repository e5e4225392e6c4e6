"""Manifests: the JSON file of a folder that says what belongs to it, written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_pipelines.errors import UserError
from data_pipelines.files import atomic_write

MANIFEST = "manifest.json"

_AGAIN = "delete the folder and build the index again"


def write_manifest(folder: Path, version: int, content: Mapping[str, Any]) -> None:
    """Writes a manifest, whole or not at all, with a checksum of itself.

    Args:
        folder: The folder, which is there.
        version: Of the format of the folder.
        content: Plain data.
    """
    text = json.dumps(content, ensure_ascii=False)
    told = {"version": version, "sha256": _digest(text), "content": content}
    atomic_write(
        folder / MANIFEST, json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )


def read_manifest(folder: Path, version: int, key: str) -> dict[str, Any]:
    """The content of a manifest.

    Args:
        folder: The folder.
        version: The expected version of its format.
        key: A key of the content that manifests of other folders do not have.

    Raises:
        UserError: If there is none, or it was damaged, or is of another version.
    """
    path = folder / MANIFEST
    try:
        told = json.loads(path.read_bytes())
        content: dict[str, Any] = told["content"]
        is_whole = told["sha256"] == _digest(json.dumps(content, ensure_ascii=False))
        of_version = told["version"]
        is_whole = is_whole and (key in content or of_version != version)
    except FileNotFoundError:
        raise UserError(f"{folder} holds no index (no {MANIFEST}); `index` builds one") from None
    except (OSError, ValueError, TypeError, KeyError):  # A folder, or a loop of links.
        is_whole = False
    if not is_whole:
        raise UserError(f"{path} is damaged; {_AGAIN}")
    if of_version != version:
        raise UserError(f"{folder} has version {of_version}, not {version}; {_AGAIN}")
    return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
