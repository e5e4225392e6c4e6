"""A linear map of standardised features."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.heads.pooling.local_scaling import LocalScaling
from keras_xmr.heads.pooling.mean import masked_mean, random_view
from keras_xmr.layers import l2_normalize
from keras_xmr.parts.contracts import PoolingContract
from keras_xmr.parts.option_types import (
    BelowOne,
    LayerOptions,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from keras_xmr.parts.tensors import Shape, Tensor
from keras_xmr.utils.errors import UserError

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
    the projection by CCA, which training neither changes nor sees, and the others are learned. Each
    part is on the unit sphere, so the cosine of two vectors is the weighted mean of the cosines of
    both parts; the weight is chosen on the validation split.

    With `local_scaling`, cosines are corrected for hubs (CSLS), by training items of the other
    side; see `LocalScaling`. The validation split decides whether this helps; without one, cosines
    are not corrected.

    Args:
        dimension: D.
        power: Exponent of the absolute values; signs are kept.
        dropout: Part of the standardised numbers that is dropped in training.
        closed_form: Number of the D numbers that CCA sets and training does not change; 0 trains
            all of them.
        views: Number of views of an item in its positions, one after the other, as with `mirror` of
            an encoder. Training draws one of them at random; otherwise all are averaged.
        local_scaling: Most training items of the other side that are kept for CSLS; 0 for none.
            CSLS uses four of the D numbers.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If `closed_form` and `local_scaling` leave nothing to learn.
    """

    CONTRACT = PoolingContract(
        set_by="cca",
        closed_form="closed_form",
        shared=("closed_form", "local_scaling"),
        only_with={"local_scaling": {"closed_form": True}},
        when=(({"local_scaling": True}, {"across": 4}),),
    )

    def __init__(
        self,
        dimension: int,
        *,
        power: PositiveFloat = 1.0,
        dropout: BelowOne = 0.0,
        closed_form: NonNegativeInt = 0,
        views: PositiveInt = 1,
        local_scaling: NonNegativeInt = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.learned = dimension - closed_form - (LocalScaling.NUMBERS if local_scaling else 0)
        if self.learned < 1:
            also = f", with {LocalScaling.NUMBERS} of local_scaling," if local_scaling else ""
            raise ValueError(
                f"closed_form: {closed_form}{also} leaves none of the {dimension} numbers of an "
                "embedding to learn; choose fewer, or a larger model.dimension"
            )
        self.closed_form = closed_form
        self.local_scaling = LocalScaling(local_scaling) if local_scaling else None
        self.power = power
        self.views = views
        self.seed_generator = keras.random.SeedGenerator() if views > 1 else None
        self.dropout = keras.layers.Dropout(dropout, dtype="float32", name="dropout")

    def build(self, features_shape: Shape) -> None:
        width, positions = features_shape[-1], features_shape[1]
        if self.views > 1 and (positions is None or positions % self.views):
            raise UserError(
                f"views: {positions or 'a varying number of'} positions cannot be divided into "
                f"{self.views} views; write 1, or another encoder (mirror: true makes two views)"
            )
        # Also in mixed precision: little is left after centring, and half precision would lose it.
        add_fixed = partial(self.add_fixed, autocast=False)
        self.centre = add_fixed("centre", (width,))
        self.scale = add_fixed("scale", (), "ones")
        self.kernel = self.add_weight(
            (width, self.learned), "orthogonal", "float32", autocast=False, name="kernel"
        )
        if self.closed_form:
            constant = keras.initializers.Constant(CLOSED_FORM_WEIGHT)
            self.closed_form_kernel = add_fixed("closed_form_kernel", (width, self.closed_form))
            self.closed_form_weight = add_fixed("closed_form_weight", (), constant)
        if self.local_scaling is not None:
            self.local_scaling.build((*features_shape[:1], self.closed_form + self.learned))

    def average(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the average of the features (B, L, F), on the unit sphere: float32 (B, F)."""
        mean = masked_mean(ops.cast(features, "float32"), mask)
        if self.power != 1.0:
            # Its gradient at 0 would be infinite.
            mean = ops.sign(mean) * ops.power(ops.abs(mean) + 1e-12, self.power)
        return l2_normalize(mean)

    def standardised(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the inputs of the linear map: the average, centred and scaled, float32 (B, F)."""
        return (self.average(features, mask) - self.centre) * self.scale

    def call(
        self, features: Tensor, mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        if training and self.views > 1:
            mask = random_view(features, mask, self.views, self.seed_generator)
        standardised = self.standardised(features, mask)
        learned = ops.matmul(self.dropout(standardised, training=training), self.kernel)
        if not self.closed_form:
            return learned
        fixed = ops.matmul(standardised, self.closed_form_kernel)
        weight = 0.0 if training else self.closed_form_weight
        maps = (fixed, weight), (learned, 1.0 - weight)
        joined = ops.concatenate(
            [l2_normalize(vectors) * share**0.5 for vectors, share in maps], axis=-1
        )
        if self.local_scaling is None:
            return joined
        return self.local_scaling(joined, training=training)

    def for_variance(self) -> Projection:
        """Returns a projection without a closed form."""
        return Projection.from_config(self.get_config() | {"closed_form": 0, "local_scaling": 0})

    def standardise(self, averages: np.ndarray, centre: np.ndarray) -> None:
        """Sets centre (F,), and scale by the averages (N, F) of the training split."""
        self.centre.assign(centre)
        self.scale.assign(1 / np.sqrt(np.square(averages - centre).mean()))

    def begin_at(self, kernel: np.ndarray) -> None:
        """Sets the linear map of centred, unscaled averages.

        Args:
            kernel: (F, D), or with `closed_form` the map of these numbers.
        """
        target = self.closed_form_kernel if self.closed_form else self.kernel
        target.assign(kernel / float(self.scale))
