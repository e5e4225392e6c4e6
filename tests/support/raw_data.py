"""Small samples of the raw data of the papers, in the folders of docs/how_to/reproduce.md."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import Config


def write_raw_data(root: Path) -> None:
    """Writes `data/raw/` under a folder: COCO, Flickr30K, CUB, regions of two, and GloVe."""
    raw = root / "data" / "raw"
    for name, write in (("coco", datasets.coco), ("flickr30k", datasets.flickr30k)):
        write(raw / name)
        (raw / name / "dataset.json").rename(raw / name / f"dataset_{name}.json")
    datasets.cub(raw / "cub", images=2)
    for name in ("coco_precomp", "f30k_precomp"):
        datasets.regions(raw / name)
    for file in ("ims.npy", "caps.txt"):
        (raw / "coco_precomp" / f"test_{file}").rename(raw / "coco_precomp" / f"testall_{file}")
    random = np.random.default_rng(3)
    lines = [
        f"{word} {' '.join(f'{number:.3f}' for number in random.normal(size=300))}"
        for word in datasets.WORDS.split()
    ]
    (raw / "glove.840B.300d.txt").write_text("\n".join(lines) + "\n", "utf-8")


def small_overrides(name: str, preset: Path) -> list[str]:
    """What makes a config small enough for a test; all that its method is made of stays.

    Args:
        name: The config.
        preset: A folder with a small preset, in place of BERT.
    """
    config = load_config(find_config(name))
    overrides = [
        "model.dimension=8",
        # A batch of one pair a class: there are three.
        f"train.batch_size={3 if config.train.sampler == 'one_per_class' else 4}",
        "train.precision=float32",
        "train.devices=1",
        "data.image.size=32",
        "data.image.resize=32",
        "data.text.min_count=1",
        "evaluation.batch_size=32",  # all in one batch: none of another shape is traced
        "evaluation.matchers=[]",
        "evaluation.report_card=false",  # embeds again, and draws a lot
        # One fold: of two test images, each alone would have nobody to be ranked against.
        f"evaluation.folds={min(config.evaluation.folds, 1)}",
        f"train.phases={json.dumps([_short(config)])}",
    ]
    if config.model.image.encoder.name == "keras_applications":
        overrides.append("model.image.encoder={name: small_cnn, channels: [8, 8]}")
    if config.model.image.encoder.name == "vsrn":
        overrides.append("model.image.encoder.dimension=8")
    if config.model.matcher.name in ("saf", "sgr", "sgraf"):
        overrides.append("model.matcher.similarity_dimension=6")
    if config.model.text.encoder.name == "keras_hub_text":
        overrides.append(f"model.text.encoder.preset={preset}")
    return overrides


def _short(config: Config) -> dict:
    """The first phase for one epoch."""
    phase = config.train.phases[0].model_dump(mode="json")
    decay = [0.5] if phase["decay_epochs"] else []
    return phase | {"epochs": 1, "warmup_epochs": 0, "decay_epochs": decay}
