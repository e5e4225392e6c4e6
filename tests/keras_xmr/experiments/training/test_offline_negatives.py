"""Negatives that are mined over the whole training split."""

from __future__ import annotations

import models
import numpy as np
import pytest
from interruptions import interrupted, last_weights

from data_pipelines.samplers import OfflineNegativeSampler
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training.offline_negatives import hardest
from keras_xmr.matchers import Cosine
from keras_xmr.utils.errors import ConfigError, UserError

AOQ = (
    "objective=[{name: adaptive_offline_quintuplet}]",
    "model.image.head=point",
    "model.text.head=point",
    "model.matcher=cosine",
    "evaluation.matchers=[]",
    "train.sampler=offline_negatives",
    "train.offline_candidates=10",
    "train.batch_size=24",
)


class Split:
    """Seven images with one to three captions."""

    first_caption = np.array([0, 3, 5, 6, 9, 11, 12, 15])
    caption_image = np.repeat(np.arange(7), np.diff(first_caption))
    num_captions = 15

    def __len__(self):
        return 7


def test_each_pair_of_a_batch_is_followed_by_its_hard_ones():
    sampler = OfflineNegativeSampler(Split(), 12, 3)
    sampler.negatives = (
        (3 + np.arange(7))[:, None] % 15 + np.array([0, 7]) % 15,
        (Split.caption_image[:, None] + 1) % 7,
    )
    batches = sampler.epoch(1)
    assert batches.shape == (3, 12)
    pairs, hard, of_hard = np.split(batches, 3, axis=1)
    assert len(np.unique(pairs)) == pairs.size
    for pair, caption, other in zip(pairs.ravel(), hard.ravel(), of_hard.ravel(), strict=True):
        assert caption in sampler.negatives[0][Split.caption_image[pair]]
        assert Split.caption_image[other] in sampler.negatives[1][pair]
    np.testing.assert_array_equal(sampler.epoch(1), batches)
    assert (sampler.epoch(2) != batches).any()
    # Before the first mining they are drawn of everything.
    sampler = OfflineNegativeSampler(Split(), 15, 3)
    drawn = np.concatenate([sampler.epoch(number)[:, 5:].ravel() for number in range(30)])
    assert set(drawn) == set(range(15))
    with pytest.raises(UserError, match="multiple of 6"):
        OfflineNegativeSampler(Split(), 9, 3, devices=2)


@pytest.mark.parametrize("of_captions", [False, True])
def test_the_hardest_are_those_of_the_whole_matrix(random, of_captions):
    images = {"mean": random.normal(size=(7, 4)).astype(np.float32)}
    captions = {"mean": random.normal(size=(15, 4)).astype(np.float32)}
    tiles, _ = score_tiles(Cosine(), images, captions, (3, 4)).tiles()
    queries, count = (15, 4) if of_captions else (7, 6)
    found = hardest(tiles, Split.caption_image, (queries, count), of_captions)
    scores = np.array(Cosine()(images, captions))
    scores[Split.caption_image, np.arange(15)] = -9.0
    scores = scores.T if of_captions else scores
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1)[:, :count])


@pytest.mark.heavy
@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_with_the_negatives_of_its_epoch(tmp_path, monkeypatch):
    def start(name):
        few = "data.source={name: scenes, train: 16, val: 4, test: 4, captions_per_image: 2}"
        return Experiment(models.tiny_config(tmp_path, f"name={name}", few, *AOQ))

    whole, killed = start("whole"), start("killed")
    whole.prepare()
    whole.train()
    # 32 captions are 4 steps an epoch, and every third one has a checkpoint.
    interrupted(start("killed"), 7, monkeypatch)
    killed.train()
    expected, found = last_weights(whole), last_weights(killed)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.sampler=pairs",), "set train.sampler to offline_negatives"),
        (
            ("train.sampler=pairs", "objective=[{name: triplet}]"),
            "train.offline_candidates has no effect",
        ),
        (("train.captions_per_image=2",), "captions_per_image has no effect .* set that to images"),
    ],
)
def test_the_loss_and_its_sampler_belong_together(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        models.tiny_config(tmp_path, *AOQ, *overrides)
