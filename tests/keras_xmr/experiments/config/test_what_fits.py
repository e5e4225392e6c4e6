"""What could not be built, or would learn nothing, is refused before anything is built."""

from __future__ import annotations

import pytest

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.utils.errors import ConfigError

POINTS = (
    "model.image.head=point",
    "model.text.head=point",
    "model.matcher=cosine",
    "objective=[triplet]",
    "evaluation.matchers=[]",
)
FEATURES = "model.text.head=point_with_features"
KEPT = "model.image.head={name: gaussian, keep_mean: true}"
TOKENS = (
    *("model.image.head=tokens", "model.image.pooling=null"),
    *("model.text.head=tokens", "model.text.pooling=null"),
    *("objective=[triplet]", "model.matcher=saf"),
)
NETWORK = "model.image.encoder={name: keras_applications, architecture: Xception, weights: null}"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["model.image.encoder={name: small_cnn, channels: [8, 12]}"],
            "model.image.encoder.channels.1.*12.*multiple of 8",
        ),
        (
            ["model.image.encoder={name: small_cnn, channels: []}"],
            "model.image.encoder.channels.*at least 1 item",
        ),
        (["model.text.encoder.dropout=1"], "model.text.encoder.dropout.*less than 1"),
        (["train.optimizer={name: adam, beta_1: 1}"], "train.optimizer.beta_1.*less than 1"),
        (
            ["objective=[soft_contrastive, {name: uniformity, max_vectors: 1}]"],
            "objective.1.max_vectors.*greater than or equal to 2",
        ),
        (
            ["model.text.pooling={name: gpo, projection: false}", "model.text.encoder.dimension=7"],
            (
                "model.text.pooling.projection.*7 by model.text.encoder.dimension.*or projection: "
                "true"
            ),
        ),
        (
            [KEPT, "model.image.encoder.channels=[8, 16]"],
            "model.image.head.keep_mean.*16 by.*or keep_mean: false",
        ),
        (
            [
                "model.dimension=7",
                "model.image.pooling=mean",
                "model.text.pooling=mean",
                "model.image.head.variance_pooling=bi_gru",
            ],
            "model.dimension.*7 is odd, but 'bi_gru'.*such as 8",
        ),
        (
            [*POINTS, FEATURES, "objective=[triplet, captioning]"],
            r"objective.1.name.*'captioning' reads the features.*the heads for image \(point\)",
        ),
        (
            ["train.gradient_caching=8"],
            "train.gradient_caching.*'small_cnn'.*freeze image.encoder in phase 1",
        ),
        (
            [
                "train.gradient_caching=8",
                "train.phases.0.freeze=[image]",
                "model.text.pooling={name: gru, batch_norm: true}",
            ],
            "train.gradient_caching.*model.text.pooling.batch_norm",
        ),
        (
            [
                "train.gradient_caching=8",
                "train.phases.0.freeze=[image.encoder]",
                "model.image.pooling=vsrn_pooling",
            ],
            "train.gradient_caching.*the pooling 'vsrn_pooling'.*freeze image.pooling in phase 1",
        ),
        (
            ["train.jit_compile=true", "train.gradient_caching=8"],
            "train.jit_compile.*cannot compile train.gradient_caching",
        ),
        (
            ["train.jit_compile=true", "objective=[soft_contrastive, daa]"],
            "train.jit_compile.*cannot compile the loss 'daa'; leave it out",
        ),
        (
            [*POINTS, "train.jit_compile=true", "objective=[{name: triplet, warmup_steps: 9}]"],
            "train.jit_compile.*objective.0 with mining: hardest, warmup_steps: 0",
        ),
        (
            ["train.phases.0.freeze=[image, text.encoder, text.head]"],
            "train.phases.0.freeze.*nothing is left to train",
        ),
        (
            ["evaluation.matchers=[{name: average_l2, test_samples: 3}, average_l2]"],
            "evaluation.matchers.1.name.*'average_l2' occurs twice with different options",
        ),
        (
            [*TOKENS, "evaluation.matchers=[sgr]"],
            "evaluation.matchers.0.name.*'sgr' learns weights.*remove it",
        ),
        (
            [NETWORK, "data.image.size=64"],
            "data.image.size.*Xception sees photos of 71 pixels and more, not 64",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_way_out(overrides, says):
    with pytest.raises(ConfigError, match=says):
        load_config(find_config("scenes_pcme"), overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        [KEPT, "model.dimension=128"],
        [*POINTS, "train.jit_compile=true"],
        ["train.gradient_caching=8", "train.phases.0.freeze=[image.encoder]"],
        [*POINTS, FEATURES.replace("text", "image"), "objective=[triplet, captioning]"],
        [*TOKENS, "evaluation.matchers=[saf]"],
        ["evaluation.matchers=[{name: match_probability, scale: 9}, mean_only]"],
    ],
)
def test_what_can_be_built_passes(overrides):
    load_config(find_config("scenes_pcme"), overrides)
