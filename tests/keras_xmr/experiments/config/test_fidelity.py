"""Whether a run follows its paper: the words of its config, and the keys that were changed."""

from __future__ import annotations

import pytest

from keras_xmr.experiments.config.fidelity import fidelity_of, fidelity_text
from keras_xmr.experiments.config.loader import find_config, load_config


@pytest.mark.parametrize(
    ("name", "settings", "label", "says"),
    [
        ("coco_pcme", [], "as published", "as published."),
        (
            "scenes_pcme",
            ["seed=3", "output=x", "train.log_steps=9"],
            "adapted",
            "as large.",
        ),
        ("coco_pcme", ["model.dimension=8"], "changed", "model.dimension 8 (packaged: 1024)."),
        ("scenes_pcme", ["train.batch_size=7"], "adapted", "train.batch_size 7 (packaged: "),
        ("scenes_pcme", ["name=mine"], "adapted", "No packaged config is called mine."),
    ],
)
def test_changed_keys_are_named(name, settings, label, says):
    fidelity = fidelity_of(load_config(find_config(name), settings))
    assert fidelity.label == label
    assert says in fidelity.sentence
    assert ("Changed from the packaged config: " in fidelity.sentence) is ("packaged: " in says)


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("coco_dvse_bert", ["cosines for", "temperature of 0.05", "a tenth", "ResNeXt-101"], []),
        ("coco_dvse_regions", ["cosines for", "temperature of 0.05"], ["a tenth of the rate"]),
        ("scenes_msrm", ["a residual", "Eq. 8 and 11", "unit sphere"], ["sigma", "KL"]),
        ("cub_msrm_literal", ["Eq. 8 and 11", "unit sphere", "separate W"], ["residual"]),
        ("coco_sgraf_daa", ["share towers", "relevance by CIDEr"], []),
        ("coco_vsrn_smooth_ap", ["150 epochs"], []),
        ("cub_pcme_bert_daa", ["none are published for BERT", "weight of COCO"], []),
        ("scenes_pcme_mean_only", ["as published"], ["sigma"]),
    ],
)
def test_an_inherited_list_is_extended_and_null_takes_away(name, has, has_not):
    text = fidelity_text(load_config(find_config(name)).fidelity)
    assert [words for words in has if words not in text] == []
    assert [words for words in has_not if words in text] == []
