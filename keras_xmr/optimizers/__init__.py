"""Optimizers with a learning rate per part of the model. One file each."""

from keras_xmr.optimizers.adam import Adam, AdamW
from keras_xmr.optimizers.adamp import AdamP
from keras_xmr.optimizers.base import PartwiseLearningRates, accept_summed_gradients

__all__ = ["Adam", "AdamP", "AdamW", "PartwiseLearningRates", "accept_summed_gradients"]
