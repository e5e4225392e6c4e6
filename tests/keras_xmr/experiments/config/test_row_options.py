"""How the rows of the papers are trained, against what papers, released code and jobs say."""

from __future__ import annotations

import csv
import fnmatch
from pathlib import Path

import numpy as np
import pytest

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import (
    find_config,
    packaged_ablations,
    packaged_configs,
)
from keras_xmr.experiments.config.yaml_file import read_yaml
from keras_xmr.heads import AttentivePoint, DynamicSubEmbeddings
from keras_xmr.heads.pooling import Mean

SMOOTH_AP = {
    **{"train.sampler": "images", "train.batch_size": 128},
    **{"train.phases.0.epochs": 150, "train.phases.0.decay_factor": 0.1},
    "objective.smooth_ap.temperature": 0.01,
}
HEAD = {"heads": 4, "head_dimension": 512, "expansion": 4, "iterations": 4}
WANTED = [
    # The released jobs.
    ("*_vsepp_smooth_ap", SMOOTH_AP),
    ("*_vsrn_smooth_ap", SMOOTH_AP),
    ("*_vsepp_smooth_ap", {"train.phases.0.freeze": ["image.encoder"]}),
    ("*_vsepp_smooth_ap", {"train.phases.0.decay_epochs": [75]}),
    ("*_vsrn_smooth_ap", {"train.phases.0.freeze": []}),
    ("coco_vsrn_smooth_ap", {"train.phases.0.decay_epochs": [75]}),
    ("f30k_vsrn_smooth_ap", {"train.phases.0.decay_epochs": [50, 100]}),
    # Bleeker and de Rijke normalise batches on both data sets, Li et al. on Flickr30K alone.
    ("coco_vsrn*", {"model.image.encoder.normalize_first": True}),
    ("coco_vsrn", {"model.image.pooling.batch_norm": False}),
    ("coco_vsrn_aoq", {"model.image.pooling.batch_norm": False}),
    ("coco_vsrn_[hnst]*", {"model.image.pooling.batch_norm": True}),
    ("f30k_vsrn*", {"model.image.pooling.batch_norm": True}),
    ("f30k_vsrn*", {"model.image.encoder.normalize_first": False}),
    ("cub_*", {"data.image.resize": 256, "data.image.size": 224, "data.image.crop": "center"}),
    ("cub_*", {"data.image.flip": False}),
    ("cub_[!d]*", {"train.sampler": "one_per_class"}),
    # That sampler is of PCME's released code, and Wei et al. do not name it.
    ("cub_dvse*", {"train.sampler": "pairs"}),
    ("*_dvse*", {"objective.variance_aware_weighting.sigma": "shared"}),
    ("*_dvse*", {"objective.variance_aware_weighting.reduction": "sum"}),
    ("*_dvse*", {"objective.dynamic_orthogonality.reduction": "sum"}),
    ("*_dvse*", {"model.image.head.dynamic_mask": "sub_embeddings"}),
    ("cub_pcme", {"train.phases.0.epochs": 10, "train.phases.0.cosine_epochs": 50}),
    ("cub_pcme", {"train.phases.1.epochs": 50, "train.phases.1.cosine_epochs": None}),
    ("*_pcme_bert*", {"model.text.pooling.name": "rectified_mean"}),
    ("*_pcme_bert*", {"model.text.head.variance_pooling": "bi_gru"}),
    ("*_dive*", {f"model.image.head.{name}": value for name, value in HEAD.items()}),
    ("*_dive*", {f"model.text.head.{name}": value for name, value in HEAD.items()}),
    ("*_dive*", {"model.image.head.positions": "none", "model.text.head.positions": "sine"}),
    ("*_dive*", {"objective.triplet.margin": 0.2, "objective.mmd.weight": 0.01}),
    ("*_dive*", {"objective.set_uniformity.weight": 0.01, "train.batch_size": 200}),
    ("*_dive*", {"train.sampler": "images"}),
]


def at(data, key):
    """The value of a dotted key of plain data."""
    for part in key.split("."):
        data = data[int(part)] if isinstance(data, list) else data[part]
    return data


def test_rows_have_the_numbers_of_papers_and_released_code():
    rows = [n for n in packaged_configs() if n.startswith(("coco_", "f30k_", "cub_"))]
    for pattern, wanted in WANTED:
        names = [n for n in fnmatch.filter(rows, pattern) if "pretrained" not in n]
        assert names, pattern
        for name in names:
            config = load_config(find_config(name)).model_dump(mode="json")
            config["objective"] = {loss["name"]: loss for loss in config["objective"]}
            assert {key: at(config, key) for key in wanted} == wanted, name


@pytest.mark.parametrize(
    ("name", "folds", "printed"),
    [
        ("coco_pcme", False, {"t2i_recall_10": 74.5, "rsum": 370.1}),
        ("coco_pcme", True, {"t2i_recall_10": 93.8, "rsum": 491.8}),
        ("coco_pvse_k2", False, {"i2t_recall_10": 84.5, "t2i_recall_5": 63.0, "rsum": 374.4}),
        ("coco_pvse_k2", True, {"i2t_recall_5": 91.6, "t2i_recall_10": 93.7, "rsum": 492.8}),
    ],
)
def test_figures_that_other_papers_print_are_there(name, folds, printed):
    figures = load_config(find_config(name)).paper.figures
    values = next(f.values for f in figures if f.folds == folds and f.matcher is None)
    assert printed.items() <= values.items()
    recalls = [values.get(f"{way}_recall_{k}") for way in ("i2t", "t2i") for k in (1, 5, 10)]
    if "rsum" in values:
        assert sum(recalls) == pytest.approx(values["rsum"], abs=0.15)


COMBINATIONS = (
    *("", "_no_mask", "_no_mask_no_variance", "_alone", "_alone_k1", "_no_orthogonality"),
    "_no_variance",
)
"""The ends of the names of Table V of Wei et al. 2023, in its order."""


@pytest.mark.slow
def test_all_seven_combinations_of_table_v_differ(random):
    """Their losses and scores on the same features, all weights that they share being equal."""
    features = random.normal(size=(8, 5, 12)).astype(np.float32)
    words = random.normal(size=(8, 4, 12)).astype(np.float32)
    weights = random.normal(size=(40, 40)).astype(np.float32)
    text = AttentivePoint(6, lambda: Mean(6))
    text(words)

    def measure(combination):
        config = load_config(find_config(f"f30k_dvse_regions{combination}"))
        options = config.model.towers["image"].head.options()
        head = DynamicSubEmbeddings(6, lambda: Mean(6), **options)
        head(features)
        for weight in head.weights:
            if len(weight.shape) == 2:
                weight.assign(weights[: weight.shape[0], : weight.shape[1]])
        image, caption = head(features), text(words)
        losses = 0.0
        for choice in config.objective:
            terms = choice.build().terms(None, image, caption, {"positives": np.eye(8, dtype=bool)})
            losses += choice.weight * sum(float(term) for term in terms.values())
        return np.round(losses, 5), np.round(np.asarray(image["points"]), 5).tobytes()

    found = {name: measure(name) for name in COMBINATIONS}
    assert len({loss for loss, _ in found.values()}) == 7
    # The mask is a part of the embedding, so it matters without the orthogonal loss, too.
    assert found[""][1] == found["_no_orthogonality"][1] != found["_no_mask"][1]


PRINTED = Path(__file__).parents[3] / "support" / "printed_tables.csv"
NOTEBOOK = "coco_vsrn_hardest"
"""Its figures are from the notebook of the released code."""


def test_published_figures_are_those_of_the_papers():
    """All figures of a table of a config are on one line of a paper, or on two."""
    with PRINTED.open(encoding="utf-8", newline="") as file:
        lines = [[float(n) for n in row["numbers"].split()] for row in csv.DictReader(file)]

    def missing(values, line):
        return [v for v in values if not any(abs(v - n) < 0.0501 for n in line)]

    groups = 0
    for name, path in (packaged_configs() | packaged_ablations()).items():
        paper = read_yaml(path).data.get("paper") or {}
        for figures in paper.get("figures", []) if name != NOTEBOOK else []:
            groups += 1
            rest = list(figures["values"].values())
            for _ in range(2):
                rest = min((missing(rest, line) for line in lines), key=len)
            assert not rest, (name, figures)
    assert groups > 150
