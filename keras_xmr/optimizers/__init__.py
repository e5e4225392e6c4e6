"""Optimizers with a learning rate a part of the model. One file each."""

from keras_xmr.optimizers.adam import Adam
from keras_xmr.optimizers.adamp import AdamP
from keras_xmr.optimizers.adamw import AdamW
from keras_xmr.optimizers.base import PartwiseLearningRates
from keras_xmr.optimizers.sums import take_sums

__all__ = ["Adam", "AdamP", "AdamW", "PartwiseLearningRates", "take_sums"]
