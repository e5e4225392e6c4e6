"""Declarations of parts: inputs, outputs and limits of losses, matchers, heads and so on.

A class declares it once:

    CONTRACT = LossContract(terms=("match", "other"), reads_log_odds=True)

Fields that it does not mention are inherited. A declaration says what does not fit its part, in a
config (`mistakes`) or in calls from Python (`mismatches`). Needs no TensorFlow.
"""

from keras_xmr.parts.contracts.base import Contract, Declared, first_mistake
from keras_xmr.parts.contracts.scoring_parts import LossContract, MatcherContract, SearchContract
from keras_xmr.parts.contracts.setting import (
    ChosenPart,
    EmbeddingSpec,
    Mistake,
    Setting,
    names_of,
    options_text,
)
from keras_xmr.parts.contracts.tower_parts import EncoderContract, HeadContract, PoolingContract

__all__ = [
    "ChosenPart",
    "Contract",
    "Declared",
    "EmbeddingSpec",
    "EncoderContract",
    "HeadContract",
    "LossContract",
    "MatcherContract",
    "Mistake",
    "PoolingContract",
    "SearchContract",
    "Setting",
    "first_mistake",
    "names_of",
    "options_text",
]
