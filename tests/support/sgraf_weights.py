"""The reference weights of SAF and SGR, and tokens to score."""

from __future__ import annotations

import numpy as np
import torch_layout

from keras_xmr.matchers import SAF


def attention_layers(attention, prefix):
    """The linear layers of an attention by their golden names."""
    return {
        f"{prefix}.embedding_local.0": attention.local,
        f"{prefix}.embedding_global.0": attention.mean,
        f"{prefix}.embedding_common.0": attention.common,
    }


def linear_layers(matcher):
    layers = attention_layers(matcher.image_attention, "v_global_w")
    layers |= attention_layers(matcher.caption_attention, "t_global_w")
    layers |= {
        "sim_tranloc_w": matcher.local_similarity,
        "sim_tranglo_w": matcher.global_similarity,
        "sim_eval_w": matcher.evaluation,
    }
    if isinstance(matcher, SAF):
        return layers | {"SAF_module.attn_sim_w": matcher.gate}
    names = ("graph_query_w", "graph_key_w", "sim_graph_w")
    for number, layer in enumerate(matcher.step_layers):
        layers[f"SGR_module.{number // 3}.{names[number % 3]}"] = layer
    return layers


def load(matcher, weights):
    for name, layer in linear_layers(matcher).items():
        torch_layout.dense(layer, weights, name)
    for layer, name in (
        (matcher.image_attention.local_norm, "v_global_w.embedding_local.1"),
        (matcher.image_attention.mean_norm, "v_global_w.embedding_global.1"),
    ):
        keys = ("weight", "bias", "running_mean", "running_var")
        layer.set_weights([weights.f32(f"{name}.{key}") for key in keys])
    if isinstance(matcher, SAF):
        for variable, key in (
            (matcher.gamma, "weight"),
            (matcher.beta, "bias"),
            (matcher.moving_mean, "running_mean"),
            (matcher.moving_variance, "running_var"),
        ):
            variable.assign(weights.f32(f"SAF_module.bn.{key}")[0])


def score(matcher, image, caption, training=False, seed=None):
    return matcher(
        matcher.prepare(image, "image", seed, training=training),
        matcher.prepare(caption, "text", seed, training=training),
        training=training,
    )


def golden_tokens(case):
    words = case.f32("in_cap_emb")
    mask = (np.arange(words.shape[1]) < case["in_cap_lens"][:, None]).astype(np.float32)
    regions = case.f32("in_img_emb")
    image = {"tokens": regions, "mask": np.ones(regions.shape[:2], np.float32)}
    return image, {"tokens": words, "mask": mask}
