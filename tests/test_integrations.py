"""Each page of docs/integrations runs as it is printed, where its packages are installed.

Pages of Keras and PyTorch alone run with other tests of these: backends/test_tutorials.py.
"""

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
from command_line import PYTHONPATH, ROOT

import keras_xmr

PAGES = ROOT / "docs" / "integrations"


def require(distributions: dict[str, str]) -> None:
    """Skips a test where a package is missing or older."""
    for name, least in distributions.items():
        try:
            known = metadata.version(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed: pip install '.[integrations]'")
        if _numbers(known) < _numbers(least):
            pytest.skip(f"{name} {known} is installed, {least} is needed")


def run(
    page: str, folder: Path, distributions: dict[str, str], before: str = "", after: str = ""
) -> str:
    """Runs the Python of a page in a process of its own; returns its output.

    Args:
        page: The name of the page.
        folder: The working directory, with the files that the page reads.
        distributions: The packages that it needs, with the least version.
        before: Python to run before.
        after: Python to run after it.
    """
    require(distributions)
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.S)
    script = folder / "page.py"
    script.write_text("\n".join([before, *blocks, after]), "utf-8")
    settings = {"PYTHONPATH": PYTHONPATH, "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
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


TINY_CLIP = """
import json, open_clip
from pathlib import Path

vision = {"image_size": 32, "patch_size": 16, "layers": 1, "width": 64, "head_width": 32}
text = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
Path("configs").mkdir()
sizes = {"embed_dim": 32, "vision_cfg": vision, "text_cfg": text}
Path("configs/tiny.json").write_text(json.dumps(sizes))
open_clip.add_model_config("configs")
create = open_clip.create_model_and_transforms
open_clip.create_model_and_transforms = lambda name, weights: create("tiny")
"""


# The loop of open_clip itself, which calls the loss by names and wants a dict of losses.
OPEN_CLIP_LOOP = """
from types import SimpleNamespace
from open_clip_train.train import train_one_epoch

class Loader:
    num_batches, num_samples = 2, 16

    def __iter__(self):
        return pairs([(images[labels], texts, labels)] * 2, loss)

class Writer(dict):
    def add_scalar(self, name, value, step):
        self[name] = value

options = {"device": "cpu", "precision": "fp32", "batch_size": 8, "accum_freq": 1, "rank": 0}
options |= {"world_size": 1, "log_every_n_steps": 1, "grad_clip_norm": None, "distributed": False}
options |= dict.fromkeys(("distill", "horovod", "wandb", "log_local"), False)
options["skip_scheduler"] = True
before = model.logit_scale.item()
train = SimpleNamespace(dataloader=Loader(), set_epoch=lambda epoch: None)
written = Writer()
train_one_epoch(model, {"train": train}, loss, 0, optimizer, None, None, None,
                SimpleNamespace(**options), written)
changed = abs(model.logit_scale.item() - before)
print(changed, written["train/contrastive_loss"], written["train/loss"])
"""


def numbers(line: str) -> list[float]:
    return [float(word) for word in re.findall(r"\d+\.\d+", line)]


@pytest.mark.slow
def test_sentence_transformers(tmp_path):
    packages = {"sentence-transformers": "6.0", "accelerate": "1.1", "datasets": "3.0"}
    require(packages)
    weights = tmp_path / "sentence-transformers" / "clip-ViT-B-32"
    source = (ROOT / "tests" / "support" / "tiny_clip.py").read_text("utf-8")
    (tmp_path / "write.py").write_text(f"{source}\n\nwrite(Path({str(weights)!r}))\n")
    subprocess.run([sys.executable, "write.py"], cwd=tmp_path, check=True, capture_output=True)
    before, after = numbers(run("sentence_transformers.md", tmp_path, packages).splitlines()[-1])
    assert after > before + 0.2


@pytest.mark.slow
def test_open_clip(tmp_path):
    packages = {"open_clip_torch": "3.0"}
    printed = run("open_clip.md", tmp_path, packages, TINY_CLIP, OPEN_CLIP_LOOP).splitlines()
    first, last, found = numbers(printed[0])
    assert last < first
    assert found > 0.25  # Chance is a quarter.
    changed, contrastive, total = map(float, printed[1].split())
    assert changed > 0
    assert contrastive == total


@pytest.mark.slow
def test_lightning(tmp_path):
    line = run("lightning.md", tmp_path, {"lightning": "2.5"}).splitlines()[-1]
    assert numbers(line)[0] > 0.7
    assert line.endswith("temperature")


@pytest.mark.slow
def test_flax(tmp_path):
    last, found = numbers(run("flax.md", tmp_path, {"flax": "0.11", "optax": "0.2"}))
    assert last < 0.4
    assert found > 0.4  # Chance is 0.02.


def test_the_table_of_names_has_names_that_are_there():
    table = (PAGES / "index.md").read_text("utf-8").partition("## Names")[2]
    named = re.findall(r"`(losses|matchers|metrics|judgements)\.(\w+)", table)
    assert len(named) > 20
    for module, name in named:
        assert hasattr(getattr(keras_xmr, module), name), name
