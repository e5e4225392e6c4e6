"""A linear map of standardised features."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_xmr.config.contracts import PoolingContract
from keras_xmr.config.option_types import BelowOne, NonNegativeInt, PositiveFloat, PositiveInt
from keras_xmr.layers import l2_normalize
from keras_xmr.pooling.base import Pooling
from keras_xmr.pooling.mean import masked_mean

CLOSED_FORM_WEIGHT = 2 / 3
"""The weight of the closed form until the validation split chooses one."""


class Projection(Pooling):
    """Average over the positions, standardised, then a linear map: for features of frozen towers.

    Pretrained features share a large uninformative part. The average is raised to a power (0.5 is
    the Hellinger map of Arandjelovic and Zisserman 2012, for nonnegative features), projected onto
    the unit sphere, centred, and scaled to a mean square of 1. Centre and scale are statistics of
    the training split: `train.start: cca` sets them, and the linear map with them. Without it they
    stay at 0 and 1.

    Maps in closed form are better on a few hundred photos, and maps trained with dropout on
    thousands. With `closed_form`, the first numbers of the vector are
    those of CCA, which training neither changes nor sees, and the others are learned. Each part is
    on the unit sphere, so the cosine of two vectors is the weighted mean of the cosines of both
    parts; the weight is chosen on the validation split.

    Args:
        dimension: D.
        power: Exponent of the absolute values; signs are kept.
        dropout: Part of the standardised numbers that is dropped in training.
        closed_form: Number of the D numbers that CCA sets and training does not change; 0 trains
            all of them.
        views: Number of views of an item in its positions, one after the other, as with `mirror` of
            an encoder. Training draws one of them at random; otherwise all are averaged.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If `closed_form` leaves nothing to learn.
    """

    CONTRACT = PoolingContract(set_by="cca", closed_form="closed_form")

    def __init__(
        self,
        dimension: int,
        *,
        power: PositiveFloat = 1.0,
        dropout: BelowOne = 0.0,
        closed_form: NonNegativeInt = 0,
        views: PositiveInt = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, **kwargs)
        if closed_form >= dimension:
            raise ValueError(
                f"closed_form: {closed_form} leaves none of the {dimension} numbers of an "
                "embedding to learn; choose fewer, or a larger model.dimension"
            )
        self.closed_form = closed_form
        self.power = power
        self.views = views
        self.seed_generator = keras.random.SeedGenerator() if views > 1 else None
        self.dropout = keras.layers.Dropout(dropout, dtype="float32", name="dropout")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        width, positions = features_shape[-1], features_shape[1]
        if self.views > 1 and (positions is None or positions % self.views):
            raise ValueError(
                f"views: {positions or 'a varying number of'} positions are not those of "
                f"{self.views} views; write 1, or another encoder (mirror: true makes two views)"
            )
        # Also in mixed precision: little is left after centring, and half precision would lose it.
        whole = {"dtype": "float32", "autocast": False}
        fixed = whole | {"trainable": False}
        self.centre = self.add_weight(name="centre", shape=(width,), initializer="zeros", **fixed)
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones", **fixed)
        learned = self.dimension - self.closed_form
        self.kernel = self.add_weight(
            name="kernel", shape=(width, learned), initializer="orthogonal", **whole
        )
        if self.closed_form:
            self.closed_form_kernel = self.add_weight(
                name="closed_form_kernel",
                shape=(width, self.closed_form),
                initializer="zeros",
                **fixed,
            )
            self.closed_form_weight = self.add_weight(
                name="closed_form_weight",
                shape=(),
                initializer=keras.initializers.Constant(CLOSED_FORM_WEIGHT),
                **fixed,
            )

    def average(self, features: Any, mask: Any = None) -> Any:
        """The average of the features (B, L, F), on the unit sphere: float32 (B, F)."""
        mean = masked_mean(ops.cast(features, "float32"), mask)
        if self.power != 1.0:
            # Its gradient at 0 would be infinite.
            mean = ops.sign(mean) * ops.power(ops.abs(mean) + 1e-12, self.power)
        return l2_normalize(mean)

    def standardised(self, features: Any, mask: Any = None) -> Any:
        """The inputs of the linear map: the average, centred and scaled, float32 (B, F)."""
        return (self.average(features, mask) - self.centre) * self.scale

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
        if training and self.views > 1:
            mask = self._one_view(features, mask)
        standardised = self.standardised(features, mask)
        learned = ops.matmul(self.dropout(standardised, training=training), self.kernel)
        if not self.closed_form:
            return learned
        fixed = ops.matmul(standardised, self.closed_form_kernel)
        weight = 0.0 if training else self.closed_form_weight
        parts = (fixed, weight), (learned, 1.0 - weight)
        return ops.concatenate([l2_normalize(part) * share**0.5 for part, share in parts], axis=-1)

    def _one_view(self, features: Any, mask: Any) -> Any:
        """The mask (B, L) of one random view of each item."""
        batch, positions = ops.shape(features)[0], features.shape[1]
        drawn = keras.random.randint((batch, 1), 0, self.views, seed=self.seed_generator)
        chosen = np.arange(positions) * self.views // positions == drawn
        return chosen if mask is None else ops.logical_and(mask, chosen)

    def for_variance(self) -> Projection:
        """A projection without a closed form."""
        return Projection.from_config(self.get_config() | {"closed_form": 0})

    def standardise(self, averages: np.ndarray, centre: np.ndarray) -> None:
        """Sets centre (F,), and scale by what `average` gives of the training split, (N, F)."""
        self.centre.assign(centre)
        self.scale.assign(1 / np.sqrt(np.square(averages - centre).mean()))

    def begin_at(self, kernel: np.ndarray) -> None:
        """Sets the linear map of centred, unscaled averages.

        Args:
            kernel: (F, D), or with `closed_form` the map of these numbers.
        """
        target = self.closed_form_kernel if self.closed_form else self.kernel
        target.assign(kernel / float(self.scale))
