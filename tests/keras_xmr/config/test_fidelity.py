"""Whether a run follows its paper: the words of its config, and the keys that were changed."""

from __future__ import annotations

import pytest

from keras_xmr.config.fidelity import fidelity_of
from keras_xmr.config.loader import find_config, load_config, packaged_configs


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


def test_many_changes_are_counted():
    other = load_config(find_config("scenes_vsepp"), ["name=scenes_pcme"])
    assert "; and " in fidelity_of(other).sentence
    assert "(packaged: missing)" in fidelity_of(other).sentence


def test_packaged_configs_are_unchanged():
    for name in list(packaged_configs())[::20]:
        fidelity = fidelity_of(load_config(find_config(name)))
        assert fidelity is None or "Changed" not in fidelity.sentence
