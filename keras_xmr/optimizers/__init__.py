"""Optimizers with a learning rate per part of the model. One file per optimizer."""

from keras_xmr.optimizers.adam import Adam, AdamW
from keras_xmr.optimizers.adamp import AdamP
from keras_xmr.optimizers.base import PartwiseLearningRates

__all__ = ["Adam", "AdamP", "AdamW", "PartwiseLearningRates"]
