"""Losses and heads of the papers where both encoders train."""

from __future__ import annotations

from benchmark_modules import benchmark

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config

study = benchmark("trained_losses", "studies")


def test_each_loss_fits_the_recipe_and_changes_it(study):
    recipe = load_config(find_config("csv_pretrained_trained"), ["data.source.root=photos"])
    objectives = [recipe.objective]
    for changes in study.LOSSES.values():
        config = load_config(find_config(recipe.name), ["data.source.root=photos", *changes])
        assert config.train == recipe.train
        assert config.objective not in objectives
        objectives.append(config.objective)
    assert len(objectives) == 7
