"""The tutorials of PyTorch and JAX, as they are printed, on features of made-up photos."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest

PAGES = {"torch": "pytorch.md", "jax": "jax.md"}
TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


@pytest.mark.skipif(keras.backend.backend() not in PAGES, reason="of PyTorch and JAX")
def test_the_tutorial_learns(random, tmp_path, monkeypatch, capsys):
    topics, owners = random.normal(size=(40, 6)), np.repeat(np.arange(40), 3)
    maps = random.normal(size=(6, 20)), random.normal(size=(6, 15))
    images = topics @ maps[0] + 0.1 * random.normal(size=(40, 20))
    captions = topics[owners] @ maps[1] + 0.1 * random.normal(size=(120, 15))
    monkeypatch.chdir(tmp_path)
    for name, values in (("images", images), ("captions", captions)):
        np.save(f"{name}.npy", values.astype(np.float32))
    np.save("image_ids.npy", owners)
    page = (TUTORIALS / PAGES[keras.backend.backend()]).read_text("utf-8")
    code, names = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S)), {}
    exec(compile(code, PAGES[keras.backend.backend()], "exec"), names)
    if keras.backend.backend() == "jax":
        assert np.isfinite(names["weights"][0])
        assert names["weights"][0] != np.log(0.07)
    rsum = float(capsys.readouterr().out)
    assert rsum > 300, "of 600; chance is 80"
