"""A linear map of standardised features."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.heads.pooling.mean import masked_mean
from keras_xmr.layers import l2_normalize
from keras_xmr.parts.contracts import PoolingContract
from keras_xmr.parts.option_types import BelowOne, NonNegativeInt, PositiveFloat, PositiveInt
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import chunks

CLOSED_FORM_WEIGHT = 2 / 3
"""The weight of the closed form until the validation split chooses one."""

NEIGHBOURS = 10
"""Number of neighbours in the hubness of an item, their mean cosine (K of Conneau et al. 2018)."""

_HUBNESS_SIZE = 4
_OTHER_WAY_ROUND = np.eye(_HUBNESS_SIZE)[[1, 0, 3, 2]]
_NOT_THERE = -2.0  # Below every cosine.
_ROWS = 1024  # Items per block in the computation of hubness.


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

    Some items are near everything, and are retrieved for too many queries: hubs. With
    `local_scaling`, cosines c are those of CSLS (cross-domain similarity local scaling, Conneau et
    al. 2018, section 2.3): c' = c / 2 - (r(image) + r(caption)) / 4, where r is the mean cosine
    with the 10 nearest of some training items of the other side, less the mean of that over this
    side. As c' is an inner product of unit vectors, with four more numbers, matchers, indexes and
    exports need not know; but cosines are halved, and those of two images, or of two captions, are
    near (c + 1) / 2. Training sees r = 0, and so do runs without a validation split, which decides
    whether CSLS helps.

    Args:
        dimension: D.
        power: Exponent of the absolute values; signs are kept.
        dropout: Part of the standardised numbers that is dropped in training.
        closed_form: Number of the D numbers that CCA sets and training does not change; 0 trains
            all of them.
        views: Number of views of an item in its positions, one after the other, as with `mirror` of
            an encoder. Training draws one of them at random; otherwise all are averaged.
        local_scaling: Most training items of the other side that are kept for CSLS; 0 for none.
            It uses four of the D numbers.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.learned = dimension - closed_form - (_HUBNESS_SIZE if local_scaling else 0)
        if self.learned < 1:
            also = f", with {_HUBNESS_SIZE} of local_scaling," if local_scaling else ""
            raise ValueError(
                f"closed_form: {closed_form}{also} leaves none of the {dimension} numbers of an "
                "embedding to learn; choose fewer, or a larger model.dimension"
            )
        self.closed_form = closed_form
        self.local_scaling = local_scaling
        self.power = power
        self.views = views
        self.seed_generator = keras.random.SeedGenerator() if views > 1 else None
        self.dropout = keras.layers.Dropout(dropout, dtype="float32", name="dropout")

    def build(self, features_shape: tuple[Any, ...]) -> None:
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
        if self.local_scaling:
            shape = (self.local_scaling, self.closed_form + self.learned)
            self.neighbours = add_fixed("neighbours", shape)
            self.num_neighbours = add_fixed("num_neighbours", ())
            self.mean_hubness = add_fixed("mean_hubness", ())
            self.hubness_weight = add_fixed("hubness_weight", ())
            # Which of the four numbers is which: the other way round for captions.
            self.hubness_axes = add_fixed("hubness_axes", (_HUBNESS_SIZE,) * 2, "identity")

    def average(self, features: Any, mask: Any = None) -> Any:
        """Returns the average of the features (B, L, F), on the unit sphere: float32 (B, F)."""
        mean = masked_mean(ops.cast(features, "float32"), mask)
        if self.power != 1.0:
            # Its gradient at 0 would be infinite.
            mean = ops.sign(mean) * ops.power(ops.abs(mean) + 1e-12, self.power)
        return l2_normalize(mean)

    def standardised(self, features: Any, mask: Any = None) -> Any:
        """Returns the inputs of the linear map: the average, centred and scaled, float32 (B, F)."""
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
        joined = ops.concatenate(
            [l2_normalize(part) * share**0.5 for part, share in parts], axis=-1
        )
        if not self.local_scaling:
            return joined
        if training:
            shift = ops.zeros_like(joined[:, 0])
        else:
            shift = self.hubness_weight * (self.hubness(joined) - self.mean_hubness)
        return ops.concatenate([joined, self._shifting(shift)], axis=-1) * 0.5**0.5

    def hubness(self, joined: Any) -> Any:
        """Returns the mean cosine with the nearest `NEIGHBOURS` of the other side, (B,).

        Args:
            joined: Both parts of the embeddings, on the unit sphere, (B, D - 4).
        """
        cosines = ops.matmul(joined, ops.transpose(self.neighbours))
        there = ops.arange(self.local_scaling, dtype="float32") < self.num_neighbours
        count = min(NEIGHBOURS, self.local_scaling)
        nearest, _ = ops.top_k(ops.where(there, cosines, _NOT_THERE), count)
        nearest = ops.where(there[:count], nearest, 0.0)
        return ops.sum(nearest, axis=1) / ops.clip(self.num_neighbours, 1.0, count)

    def _shifting(self, shift: Any) -> Any:
        """Returns unit vectors (B, 4) with inner products of two sides of - (shift + shift) / 2.

        An image has (-a, s, rest, 0) and a caption (s, -a, 0, rest), with s^2 = 1/2, a = s shift.
        """
        half = 0.5**0.5
        above = half * ops.clip(shift, -1.0, 1.0)
        rest = ops.sqrt(ops.maximum(0.5 - above * above, 1e-12))
        numbers = [-above, half * ops.ones_like(above), rest, ops.zeros_like(above)]
        return ops.matmul(ops.stack(numbers, axis=-1), self.hubness_axes)

    def _one_view(self, features: Any, mask: Any) -> Any:
        """Returns the mask (B, L) of one random view of each item."""
        batch, positions = ops.shape(features)[0], features.shape[1]
        drawn = keras.random.randint((batch, 1), 0, self.views, seed=self.seed_generator)
        chosen = np.arange(positions) * self.views // positions == drawn
        return chosen if mask is None else ops.logical_and(mask, chosen)

    def for_variance(self) -> Projection:
        """Returns a projection without a closed form."""
        return Projection.from_config(self.get_config() | {"closed_form": 0, "local_scaling": 0})

    def standardise(self, averages: np.ndarray, centre: np.ndarray) -> None:
        """Sets centre (F,), and scale by the averages (N, F) of the training split."""
        self.centre.assign(centre)
        self.scale.assign(1 / np.sqrt(np.square(averages - centre).mean()))

    def reverse_hubness(self) -> None:
        """Puts the four numbers of CSLS the other way round, as those of captions are."""
        if self.local_scaling:
            self.hubness_axes.assign(_OTHER_WAY_ROUND)

    def scale_locally(self, neighbours: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Sets the training items of the other side, and the mean hubness of this one.

        Args:
            neighbours: Both parts of the embeddings of the other side (N, D - 4), of which no more
                than `local_scaling` are kept.
            own: Those of this side that the mean is over, (M, D - 4).

        Returns:
            The hubness of these, less its mean, (M,).
        """
        count = min(len(neighbours), self.local_scaling)
        rest = self.local_scaling - count
        self.neighbours.assign(np.pad(neighbours[:count], [(0, rest), (0, 0)]))
        self.num_neighbours.assign(count)
        rows = np.asarray(own, np.float32)
        hubness = np.concatenate([self.hubness(part) for part in chunks(rows, _ROWS)])
        self.mean_hubness.assign(hubness.mean())
        return hubness - hubness.mean()

    def begin_at(self, kernel: np.ndarray) -> None:
        """Sets the linear map of centred, unscaled averages.

        Args:
            kernel: (F, D), or with `closed_form` the map of these numbers.
        """
        target = self.closed_form_kernel if self.closed_form else self.kernel
        target.assign(kernel / float(self.scale))
