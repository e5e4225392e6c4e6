"""Heads of Gaussian embeddings."""

from __future__ import annotations

import math
from typing import Literal, Unpack

import keras

from keras_xmr.embeddings import kinds
from keras_xmr.heads.base import Head, HeadError, PoolingMaker
from keras_xmr.heads.pooling import BiGRU, Pooling
from keras_xmr.heads.pooling.mean import masked_mean
from keras_xmr.layers import LocalAttention, ReZero, l2_normalize
from keras_xmr.parts.contracts import HeadContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat
from keras_xmr.parts.tensors import Shape, Tensor


class Gaussian(Head):
    """Mean and log-variance, each from a pooled vector and a local attention branch.

    Chun et al. 2021, Fig. 3. The mean is LayerNorm(pooled + sigmoid(local)) on the unit sphere;
    the log-variance is pooled + local, without sigmoid, LayerNorm or projection.

    The released code of the paper samples with the exponential of this number as a standard
    deviation and reads it as a log-variance in its KL term. Here it is a log-variance everywhere.

    Wang et al. 2023, Eq. 1 and 2, read that number as a variance after a ReLU, and do without the
    unit sphere. A ReLU can be 0, where no variance is left and nothing is learned any more: a
    floor keeps the variance above, and a softplus keeps learning.

    Args:
        dimension: D.
        pooling: Makes a pooling for the mean and another for the log-variance.
        local_attention: Whether the local branch is added.
        initial_log_variance: The approximate initial log-variance.
        variance: The variance as a function of the output of the branches: its exponential, or
            its softplus or its ReLU, plus `variance_floor`.
        variance_floor: The least variance that a softplus or a ReLU can give.
        normalize: Whether the mean is projected onto the unit sphere.
        variance_pooling: The pooling of the log-variance: another pooling of the same kind, or
            a BiGRU, as the released code of Li et al. 2022 does on the tokens of BERT.
        variance_norm: Whether the log-variance is LayerNorm(pooled + sigmoid(local)), as the mean:
            the ablation of Chun et al. 2021, section 3.2.1, by which uncertainty is poor.
        keep_mean: Whether the mean is the mean of the local features themselves, which must be D
            wide, without learned weights: for the uncertainty of existing
            embeddings, such as the `pooled` ones of a frozen CLIP.
        rezero: Whether the local branch of the mean has a factor that begins at 0, in place of the
            LayerNorm, and all branches of the log-variance have one: the head begins as its
            pooling, equally sure of every item. For frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(
        kind="gaussian",
        only_with={
            "variance_floor": {"variance": ("softplus", "relu")},
            "variance_norm": {"rezero": False},
        },
        when=(
            ({"local_attention": True}, {"attends": True}),
            ({"variance_pooling": "bi_gru"}, {"even": True}),
            ({"rezero": False}, {"begins_as_pooling": False}),
            ({"keep_mean": True}, {"keeps_width": True}),
        ),
    )

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        local_attention: bool = True,
        initial_log_variance: float = 0.0,
        variance: Literal["exponential", "softplus", "relu"] = "exponential",
        variance_floor: PositiveFloat = 1.0e-4,
        normalize: bool = True,
        variance_pooling: Literal["same", "bi_gru"] = "same",
        variance_norm: bool = False,
        keep_mean: bool = False,
        rezero: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.local_attention = local_attention
        self.initial_log_variance = initial_log_variance
        self.variance = variance
        self.variance_floor = variance_floor
        self.normalize = normalize
        self.variance_pooling = variance_pooling
        self.variance_norm = variance_norm
        self.keep_mean = keep_mean
        self.rezero = rezero
        if not keep_mean:
            self.mean_pooling = self.new_pooling("mean_pooling")
            if not rezero:
                self.mean_norm = self.new_norm("mean_norm")
        # Initial weights are drawn in the order in which layers are made: a seed depends on it.
        if variance_pooling == "same":
            self.log_variance_pooling = self.new_pooling("log_variance_pooling").for_variance()
            self.log_variance_pooling.name = "log_variance_pooling"
        else:
            self.log_variance_pooling = BiGRU(
                dimension, dtype=self.dtype_policy, name="log_variance_pooling"
            )
        if local_attention and not keep_mean:
            self.mean_attention = self._attention("mean_attention")
            self.mean_linear = self.new_dense(dimension, "mean_linear")
        if local_attention:
            self.log_variance_attention = self._attention("log_variance_attention")
            self.log_variance_linear = self.new_dense(dimension, "log_variance_linear")
        if rezero and local_attention and not keep_mean:
            self.mean_factor = ReZero(name="mean_factor")
        if variance_norm:
            self.log_variance_norm = self.new_norm("log_variance_norm")
        if rezero:
            self.log_variance_factor = ReZero(name="log_variance_factor")

    @property
    def global_pooling(self) -> Pooling | None:
        return None if self.keep_mean else self.mean_pooling

    @property
    def log_variance_layers(self) -> list[keras.layers.Layer]:
        names = ("pooling", "attention", "linear", "norm", "factor")
        layers = [getattr(self, f"log_variance_{name}", None) for name in names]
        return [layer for layer in layers if layer is not None]

    def _attention(self, name: str) -> LocalAttention:
        return LocalAttention(dtype=self.dtype_policy, name=name)

    def build(self, features_shape: Shape) -> None:
        if not self.keep_mean:
            self.mean_pooling.build(features_shape)
        elif features_shape[-1] != self.dimension:
            raise HeadError(
                f"model.dimension: {self.dimension}, but the features of the encoder are "
                f"{features_shape[-1]} wide, and `keep_mean` of the head keeps them as they "
                f"are; write {features_shape[-1]}"
            )
        self.log_variance_pooling.build(features_shape)

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Gaussian:
        mean = self._mean(features, mask)
        log_variance = self._float32(self.log_variance_pooling(features, mask=mask))
        if self.local_attention:
            local, _ = self.log_variance_attention(features, mask=mask)
            branch = self.log_variance_linear(local[:, 0])
            branch = keras.ops.sigmoid(branch) if self.variance_norm else branch
            log_variance = log_variance + self._float32(branch)
        if self.variance_norm:
            log_variance = self.log_variance_norm(log_variance)
        if self.rezero:
            log_variance = self.log_variance_factor(log_variance)
        return {
            "mean": l2_normalize(mean) if self.normalize else mean,
            "log_variance": self._log_variance(log_variance),
        }

    def attention_maps(self, features: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        maps = super().attention_maps(features, mask)
        for name, attribute in (("mean", "mean_attention"), ("sigma", "log_variance_attention")):
            if (attention := getattr(self, attribute, None)) is not None:
                maps[name] = attention(features, mask=mask)[1]
        return maps

    def _mean(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the mean, float32, not yet on the unit sphere."""
        if self.keep_mean:
            return masked_mean(self._float32(features), mask)
        mean = self._float32(self.mean_pooling(features, mask=mask))
        if self.local_attention:
            local, _ = self.mean_attention(features, mask=mask)
            branch = self._float32(keras.ops.sigmoid(self.mean_linear(local[:, 0])))
            mean = mean + (self.mean_factor(branch) if self.rezero else branch)
        return mean if self.rezero else self.mean_norm(mean)

    def _float32(self, branch: Tensor) -> Tensor:
        """Poolings may be float32 where the rest of the head is in half precision."""
        return keras.ops.cast(branch, "float32")

    def _log_variance(self, raw: Tensor) -> Tensor:
        """Returns the log-variance; a raw 0 gives the initial one."""
        if self.variance == "exponential":
            return raw + self.initial_log_variance
        start = math.exp(self.initial_log_variance)
        if self.variance == "softplus":
            variance = keras.ops.softplus(raw + start + math.log(-math.expm1(-start)))
        else:
            variance = keras.ops.relu(raw + start)
        return keras.ops.log(variance + self.variance_floor)
