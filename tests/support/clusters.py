"""Several workers on this machine."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack


def cluster(role: str, index: int, **hosts: list[str]) -> str:
    """What TF_CONFIG says to one worker."""
    return json.dumps({"cluster": hosts, "task": {"type": role, "index": index}})


def two_workers() -> list[str]:
    """What TF_CONFIG says to each of two workers."""
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in listening:
            each.bind(("localhost", 0))
        hosts = [f"localhost:{each.getsockname()[1]}" for each in listening]
    return [cluster("worker", number, worker=hosts) for number in range(2)]
