"""What tests of configs share."""

from __future__ import annotations

import sys

import keras
import pytest

from keras_xmr.utils import plugins
from keras_xmr.utils.plugins import remove_plugins


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes packages that can be imported, which are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    yield write
    remove_plugins(list(plugins._added))
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]
    known = keras.saving.get_custom_objects()
    for name in [name for name in known if name.startswith("my_")]:
        del known[name]
