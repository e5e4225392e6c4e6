"""A server of Milvus as it is deployed, from the package `milvus`, which the benchmarks start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

INSTALLED = find_spec("milvus") is not None
_SERVE = """
import sys, time
from milvus import MilvusServer
server = MilvusServer()
server.set_base_dir(sys.argv[1])
server.listen_port = int(sys.argv[2])
server.start()
print("started", flush=True)
time.sleep(3600)
"""


def wait_for_index(uri: str, folder: Path) -> None:
    """Waits until a server has the graph of a saved backend, which it builds after the vectors."""
    from pymilvus import MilvusClient

    name = json.loads((folder / "manifest.json").read_text("utf-8"))["content"]["name"]
    client = MilvusClient(uri)
    while client.describe_index(name, "vector")["pending_index_rows"]:
        time.sleep(0.1)
    client.close()


class Server:
    """A server on this machine, which can be killed and started again.

    Args:
        folder: Where it keeps its data.

    Attributes:
        uri: Its address.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Waits until it answers.

        The package takes the next port where connections of a killed server still keep this one,
        which they do for a minute; so they are waited for, too.

        Raises:
            RuntimeError: If it ends before.
        """
        while not self._port_is_free():
            time.sleep(1)
        command = [sys.executable, "-c", _SERVE, str(self.folder), str(self.port)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        if not any("started" in line for line in self.process.stdout or ()):
            raise RuntimeError("the server of Milvus has ended")

    def _port_is_free(self) -> bool:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", self.port))
            return True
        return False

    def kill(self) -> None:
        """Ends it and its child in the middle of their work, and waits until they are gone."""
        with suppress(ProcessLookupError):
            while True:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.poll()
                time.sleep(0.1)
        if self.process.stdout:
            self.process.stdout.close()
