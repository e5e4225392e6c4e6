"""A server of a small index, whose model takes its time, as a process of its own.

python stub_server.py INDEX SECONDS [NAME]
"""

import sys
import time
from pathlib import Path

from small_index import StubEmbedder

from keras_xmr.search.server.process import serve
from keras_xmr.search.server.requests import Settings
from keras_xmr.search.server.service import Service


class SlowEmbedder(StubEmbedder):
    """A model that takes as long for many texts as for one."""

    def embed_texts(self, texts):
        time.sleep(float(sys.argv[2]))
        return super().embed_texts(texts)


if __name__ == "__main__":
    service = Service(Path(sys.argv[1]), Settings(names=frozenset(sys.argv[3:])), load=SlowEmbedder)
    serve(service, "127.0.0.1", 0, lambda address: print(address, flush=True))
    print("tensorflow" in sys.modules)
