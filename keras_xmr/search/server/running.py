"""A running server leaves its address in the folder of its index; searches find it and ask it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from keras_xmr.utils.errors import UserError
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
        from urllib.request import urlopen  # Most searches need none.

        with urlopen(f"{address}healthz", timeout=_PATIENCE) as answer:
            return address if json.load(answer)["server"] == content["server"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def send_search(address: str, body: Mapping[str, Any]) -> Any:
    """Sends a search to the server at an address, and returns its answer.

    Args:
        address: Without a slash at the end.
        body: The fields of `/search`.

    Raises:
        UserError: If the server refuses, or gives no answer.
    """
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    url, headers = f"{address}/search", {"Content-Type": "application/json"}
    try:
        request = Request(url, json.dumps(body).encode(), headers)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except HTTPError as error:
        reason = f"{error.code} {error.reason}"
        with suppress(OSError, ValueError, KeyError, TypeError):
            reason = json.load(error)["error"]
        raise UserError(f"{url} refuses the search: {reason}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{url} gives no answer to the search: {error}") from None
