"""A running server leaves its address in the folder of its index, where searches find it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from keras_xmr.utils.files import atomic_write

_FILE = "server.json"
_PATIENCE = 1.0


@contextmanager
def announced(index: Path, address: str, server_id: str) -> Iterator[None]:
    """Leaves the address of a server in the folder of its index, if that can be written.

    Args:
        index: The folder of the index.
        address: Of the page, for this machine.
        server_id: What `/healthz` says, too: another server may get the same address later.
    """
    path, content = index / _FILE, {"address": address, "server": server_id}
    with suppress(OSError):
        atomic_write(path, json.dumps(content).encode())
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(path.read_bytes()) == content:
                path.unlink()


def server_address(index: Path) -> str:
    """Returns the address of the server that runs for an index and is ready; may be empty."""
    try:
        content = json.loads((index / _FILE).read_bytes())
        address = str(content["address"])
        with urllib.request.urlopen(f"{address}healthz", timeout=_PATIENCE) as answer:
            return address if json.load(answer)["server"] == content["server"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
