"""Manifests: JSON files that list the content of a folder, written last, and those files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, checksum, replace_atomically

MANIFEST = "manifest.json"

_AGAIN = "move the folder away and build the index again"


def write_manifest(folder: Path, version: int, content: Mapping[str, Any]) -> None:
    """Writes a manifest, whole or not at all, with a checksum of itself.

    Args:
        folder: The folder, which exists.
        version: Of the format of the folder.
        content: Plain data.
    """
    text = json.dumps(content, ensure_ascii=False)
    manifest = {"version": version, "sha256": _digest(text), "content": content}
    atomic_write(
        folder / MANIFEST, json.dumps(manifest, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )


def read_manifest(folder: Path, version: int, key: str) -> dict[str, Any]:
    """Returns the content of a manifest.

    Args:
        folder: The folder.
        version: The expected version of its format.
        key: A key of the content by which this kind of manifest is recognised.

    Raises:
        UserError: If it is missing or damaged, or has another version.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        content: dict[str, Any] = manifest["content"]
        is_whole = manifest["sha256"] == _digest(json.dumps(content, ensure_ascii=False))
        actual_version = manifest["version"]
        is_whole = is_whole and (key in content or actual_version != version)
    except FileNotFoundError:
        inner = folder / "index"
        advice = f"{inner} does" if (inner / MANIFEST).is_file() else "`index` builds one"
        raise UserError(f"{folder} holds no index (no {MANIFEST}); {advice}") from None
    except (OSError, ValueError, TypeError, KeyError):  # A folder, or a loop of links.
        is_whole = False
    if not is_whole:
        raise UserError(f"{path} is damaged; {_AGAIN}")
    if actual_version != version:
        raise UserError(f"{folder} has version {actual_version}, not {version}; {_AGAIN}")
    return content


def write_numbered(
    folder: Path, number: int, writers: Mapping[str, Callable[[Path], Any]]
) -> dict[str, str]:
    """Writes files of one state of a folder, each whole or not at all.

    Args:
        folder: The folder, which exists.
        number: Of the state: their names begin with it.
        writers: By the ends of their names, functions that write a file at a path.

    Returns:
        The checksums by name, for the manifest.
    """
    files = {}
    for end, write in writers.items():
        path = folder / f"{number:06d}.{end}"
        with replace_atomically(path, path.suffix) as temporary:
            write(temporary)
        files[path.name] = checksum(path)
    return files


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
