"""Pages of the docs for one framework or for each, as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

PAGES = {"torch": "pytorch.md", "jax": "jax.md"}
DOCS = Path(__file__).resolve().parents[2] / "docs"
BACKEND = keras.backend.backend()


def run(page: str) -> dict[str, Any]:
    """Runs the Python of a page; returns its names."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.S))
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)
    return names


@pytest.mark.skipif(BACKEND not in PAGES, reason="of PyTorch and JAX")
def test_the_tutorial_learns_from_features_of_made_up_photos(random, tmp_path, monkeypatch, capsys):
    topics, owners = random.normal(size=(40, 6)), np.repeat(np.arange(40), 3)
    maps = random.normal(size=(6, 20)), random.normal(size=(6, 15))
    images = topics @ maps[0] + 0.1 * random.normal(size=(40, 20))
    captions = topics[owners] @ maps[1] + 0.1 * random.normal(size=(120, 15))
    monkeypatch.chdir(tmp_path)
    for name, values in (("images", images), ("captions", captions)):
        np.save(f"{name}.npy", values.astype(np.float32))
    np.save("image_ids.npy", owners)
    names = run(f"tutorials/{PAGES[BACKEND]}")
    if BACKEND == "jax":
        assert np.isfinite(names["weights"][0])
        assert names["weights"][0] != np.log(0.07)
    rsum = float(capsys.readouterr().out)
    assert rsum > 300, "of 600; chance is 80"


def numbers(output: str) -> list[float]:
    return [float(word) for word in re.findall(r"\d+\.\d+", output)]


def test_a_model_of_keras_learns_with_its_own_training_loop(capsys):
    run("integrations/keras.md")
    output = capsys.readouterr().out
    assert output.startswith(f"{BACKEND}: ")
    first, last, found = numbers(output)
    assert last < first / 2
    assert found > 0.5


@pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")
def test_a_training_loop_of_torch_keeps_the_best_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("integrations/training_loop.md")
    assert numbers(capsys.readouterr().out)[0] > 0.3  # Chance is 0.05.
    assert (tmp_path / "best.pt").is_file()
