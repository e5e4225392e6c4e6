"""How many numbers the parts of a model hold, from what they are: formulas of the papers.

Nothing here asks Keras; the tests hold it against what Keras builds.
"""

from __future__ import annotations

from typing import Any

# ResNet of He et al. 2016 as keras.applications has it, without the top and with the statistics of
# batch normalisation; layers as wide as those of BERT-base on its 30,522 word pieces, without the
# pooler.
RESNET50 = 23_587_712
RESNET_WIDTH = 2048
BERT_WIDTH = 768
BERT_LAYERS = 1
BERT = 23_837_184 + BERT_LAYERS * 7_087_872


def linear(inputs: int, outputs: int) -> int:
    """A matrix and a bias."""
    return inputs * outputs + outputs


def gru(inputs: int, units: int) -> int:
    """Three gates, each with a matrix of the input, one of the state, and a bias for both."""
    return 3 * (inputs * units + units * units + 2 * units)


def batch_norm(width: int) -> int:
    """Scale, shift, mean and variance."""
    return 4 * width


def attention(width: int, heads: int = 1) -> int:
    """Two matrices, by way of half of the width."""
    return width * (width // 2) + width // 2 * heads


def pooling(name: str, options: dict[str, Any], width: int, dimension: int) -> int:
    """A pooling from features of a width to D numbers."""
    if name in ("mean", "rectified_mean"):
        return linear(width, dimension)
    if name == "bi_gru":
        return 2 * gru(width, dimension // 2)
    if name == "gru":
        return gru(width, dimension) + (batch_norm(dimension) if options["batch_norm"] else 0)
    if name == "gpo":
        ranks = 2 * gru(options["encoding"], options["hidden"])
        return linear(width, dimension) + ranks + options["hidden"]
    raise ValueError(name)


def head(name: str, options: dict[str, Any], pool: int, width: int, dimension: int) -> int:
    """A head, with its poolings."""
    norm = 2 * dimension
    local = attention(width) + linear(width, dimension)
    if name in ("point", "point_with_features"):
        return pool
    if name == "attentive_point":
        return pool + local + norm
    if name == "gaussian":
        recurrent = options["variance_pooling"] == "bi_gru"
        of_variance = pooling("bi_gru", {}, width, dimension) if recurrent else pool
        return pool + of_variance + (2 * local if options["local_attention"] else 0) + norm
    if name in ("pie_net", "dynamic_sub_embeddings"):
        mask = width * dimension if name == "dynamic_sub_embeddings" else 0
        several = attention(width, options["set_size"]) + linear(width, dimension)
        return pool + several + norm + mask
    if name == "rectangle":
        return 2 * pool + 1
    if name == "slot_attention":
        return pool + slots(options, width, dimension)
    if name == "tokens" and options["context"] == "none":
        return linear(width, dimension)
    if name == "tokens":
        return 2 * gru(width, dimension)
    raise ValueError(name)


def slots(options: dict[str, Any], width: int, dimension: int) -> int:
    """Slots that ask for the features in several heads, and a hidden layer after that, each with a
    LayerNorm before it; two more for what is added up (Kim et al. 2023, section 3.3)."""
    inner = options["heads"] * options["head_dimension"]
    hidden = options["expansion"] * dimension
    asked = 2 * width + 2 * width * inner + dimension * inner + linear(inner, dimension)
    changed = linear(dimension, hidden) + linear(hidden, dimension)
    return asked + changed + 4 * 2 * dimension + options["set_size"] * dimension


def vsrn(regions: int, dimension: int, blocks: int) -> int:
    """A linear layer, and blocks of four of them with batch normalisation."""
    block = 4 * linear(dimension, dimension) + batch_norm(dimension)
    return linear(regions, dimension) + blocks * block


def alignment(name: str, dimension: int, similarity: int, regions: int, steps: int = 3) -> int:
    """SAF, SGR, or both of them on the same towers (Diao et al. 2021, section 3)."""
    if name == "sgraf":
        own = [alignment(part, dimension, similarity, regions, steps) for part in ("saf", "sgr")]
        return sum(own)
    whole = 2 * linear(dimension, dimension) + linear(dimension, 1)
    common = 2 * whole + batch_norm(regions) + batch_norm(dimension)
    common += 2 * linear(dimension, similarity) + linear(similarity, 1)
    if name == "saf":
        return common + linear(similarity, 1) + batch_norm(1)
    return common + steps * 3 * linear(similarity, similarity)


def hypergraphs(dimension: int, layers: int, learn_alpha: bool) -> int:
    """The second loss of MSRM: a matrix a layer and direction, and lambda; alpha may be learned."""
    return 2 * layers * dimension * dimension + 1 + learn_alpha


def captions(width: int, words: int, units: int, word_dimension: int) -> int:
    """A linear layer and a GRU over regions; word vectors, an attention of two layers that sees
    the state beside a region, a GRU, and a linear layer to every word (Li et al. 2019)."""
    reading = linear(width, units) + gru(units, units)
    attention_ = linear(2 * units, units) + units
    return (
        reading
        + words * word_dimension
        + attention_
        + gru(word_dimension + units, units)
        + linear(units, words)
    )
