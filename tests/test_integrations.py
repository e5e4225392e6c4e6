"""Each page of docs/integrations runs as it is printed, where its packages are installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "integrations"


def run(page: str, folder: Path, distributions: dict[str, str], before: str = "") -> str:
    """Runs the Python of a page in a process of its own; returns its output.

    Args:
        page: The name of the page.
        folder: The working directory, with the files that the page reads.
        distributions: The packages that it needs, with the least version.
        before: Python to run before.
    """
    for name, least in distributions.items():
        try:
            known = metadata.version(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed: pip install '.[integrations]'")
        if _numbers(known) < _numbers(least):
            pytest.skip(f"{name} {known} is installed, {least} is needed")
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.S)
    script = folder / "page.py"
    script.write_text("\n".join([before, *blocks]), "utf-8")
    settings = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    inherited = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script.name],
        cwd=folder,
        env=inherited | settings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def test_pages_are_short():
    assert {page.name: lines for page in PAGES.glob("*.md") if (lines := _lines(page)) > 60} == {}


def _lines(page: Path) -> int:
    return len(page.read_text("utf-8").splitlines())


@pytest.mark.slow
def test_exchange(tmp_path):
    packages = {"ranx": "0.3", "ir-measures": "0.3", "datasets": "3.0"}
    first, second, third, fourth = run("exchange.md", tmp_path, packages).splitlines()
    assert first.split()[0] == "True"
    assert float(first.split()[1]) == pytest.approx(float(first.split()[2]))
    assert float(second.split()[0]) == pytest.approx(float(second.split()[1]))
    assert third == "True"
    assert fourth == "(20, 100) text of caption 0"


@pytest.mark.slow
def test_coco(tmp_path, random):
    package = pytest.importorskip("eccv_caption").Metrics()
    pairs = list(package.eccv_gts["i2t"])[:60]
    captions = {image: list(package.coco_gts["i2t"][image]) for image in pairs}
    entries = [
        {"cocoid": i, "split": "test", "sentences": [{"sentid": c} for c in captions[i]]}
        for i in pairs
    ]
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": entries}))
    vectors = random.normal(size=(60, 8))
    owners = np.repeat(np.arange(60), [len(captions[i][:5]) for i in pairs])
    np.save(tmp_path / "images.npy", vectors)
    np.save(tmp_path / "captions.npy", vectors[owners] + 0.5 * random.normal(size=(len(owners), 8)))
    lines = run("coco.md", tmp_path, {"eccv_caption": "0.1"}).splitlines()
    assert [line.split()[0] for line in lines] == ["i2t", "i2t", "t2i", "t2i", "RSUM"]
    assert 100 < float(lines[-1].split()[1]) < 600
    assert 0 < float(lines[1].split()[-1]) < 1
