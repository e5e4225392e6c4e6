"""The operations of losses and matchers: of Keras, or of PyTorch and JAX where these are better."""

from __future__ import annotations

from typing import Any

import keras

ops: Any = keras.ops
if keras.backend.backend() == "torch":
    from keras_xmr.layers import torch_operations

    ops = torch_operations
elif keras.backend.backend() == "jax":
    from keras_xmr.layers import jax_operations

    ops = jax_operations
