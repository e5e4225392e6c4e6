"""Whether a run follows its paper: the words of its config, and the keys that were changed."""

from __future__ import annotations

import pytest

from keras_xmr.experiments.config.fidelity import fidelity_of, fidelity_text
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.packaged_configs import find_config


@pytest.mark.parametrize(
    ("name", "settings", "label", "says"),
    [
        ("coco_saf", [], "as published", "as published."),
        (
            "scenes_pcme",
            ["seed=3", "output=x", "train.log_steps=9"],
            "adapted",
            "and tuned rates.",
        ),
        ("coco_saf", ["model.dimension=8"], "changed", "model.dimension 8 (packaged: 1024)."),
        ("scenes_pcme", ["train.batch_size=7"], "adapted", "train.batch_size 7 (packaged: "),
        ("coco_saf", ["name=coco_saf-seed3", "seed=3"], "as published", "as published."),
        ("scenes_pcme", ["name=scenes_pcme-seed3"], "adapted", "is called scenes_pcme-seed3."),
        ("scenes_pcme", ["name=mine"], "adapted", "No packaged config is called mine."),
    ],
)
def test_changed_keys_are_named(name, settings, label, says):
    fidelity = fidelity_of(load_config(find_config(name), settings))
    assert fidelity.label == label
    assert says in fidelity.sentence
    assert ("Changed from the packaged config: " in fidelity.sentence) is ("packaged: " in says)


def test_nothing_is_called_as_published_that_cannot_be_compared():
    changed = ["name=mine", "objective=[info_nce]"]
    config = load_config(find_config("coco_saf"), changed)
    assert config.fidelity == "as published"
    assert fidelity_of(config) is None


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("coco_dvse_bert", ["cosines for", "temperature of 0.05", "a tenth", "ResNeXt-101"], []),
        ("coco_dvse_regions", ["cosines for", "temperature of 0.05"], ["a tenth of the rate"]),
        ("scenes_msrm", ["a residual", "Eq. 8 and 11", "unit sphere"], ["sigma", "KL"]),
        ("cub_msrm_literal", ["Eq. 8 and 11", "unit sphere", "separate W"], ["residual"]),
        ("cub_msrm_literal_printed", ["unit sphere"], ["residual", "Eq. 8 and 11"]),
        ("coco_dvse_regions_k1", ["w/o SE"], ["Eq. 4 and 11", "inner products", "a tenth of"]),
        ("coco_dvse_regions_k10", ["inner products"], ["w/o SE"]),
        ("coco_vsrn_aoq", ["mined again", "caption decoder"], ["all negatives"]),
        ("coco_sgraf_daa", ["share towers", "relevance by CIDEr"], []),
        ("coco_vsrn_smooth_ap", ["150 epochs"], []),
        ("cub_pcme_bert_daa", ["none are published for BERT", "weight of COCO"], []),
        ("scenes_pcme_mean_only", ["small or frozen towers"], ["sigma", "as published"]),
        ("coco_mvvse", ["on VSE-infinity without"], ["pooling of regions alone"]),
        ("f30k_saf", ["29,000 photos train and 1,014 validate"], ["as published"]),
        ("coco_scan", ["average the scores of two"], ["towers"]),
        ("scenes_attention_vse0", ["no paper: VSE0 with the head"], []),
    ],
)
def test_fidelity_is_that_of_the_keys_of_a_config(name, has, has_not):
    text = fidelity_text(load_config(find_config(name)).fidelity)
    assert [words for words in has if words not in text] == []
    assert [words for words in has_not if words in text] == []


def test_fidelity_follows_changed_keys(tmp_path):
    changed = ["model.image.head.dynamic_mask=coordinates"]
    text = fidelity_text(load_config(find_config("coco_dvse"), changed).fidelity)
    assert "the mask selects coordinates, in Eq. 4 alone" in text
    assert "selects sub-embeddings" not in text
    mine = tmp_path / "mine.yaml"
    include = f"include: {find_config('coco_dvse')}\nname: mine\n"
    mine.write_text(include + "fidelity: {mine: three eyes}\nobjective.1.normalize: false\n")
    text = fidelity_text(load_config(mine).fidelity)
    assert "three eyes" in text
    assert "a tenth of the rate" in text
    assert "inner products" not in text


def test_a_run_keeps_the_fidelity_that_it_had(tmp_path):
    config = load_config(find_config("coco_dvse"), ["objective.1.normalize=false"])
    record = tmp_path / "config.yaml"
    record.write_text(dump_config(config), "utf-8")
    assert load_config(record).fidelity == config.fidelity
