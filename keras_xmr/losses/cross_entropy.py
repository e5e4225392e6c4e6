"""Cross entropies of a positive against other candidates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Unpack

from keras_xmr.layers import Temperature
from keras_xmr.layers.operations import ops
from keras_xmr.losses.direction_losses import Direction, DirectionsLoss
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat
from keras_xmr.parts.tensors import Step, Tensor


class _CrossEntropy(DirectionsLoss):
    """A cross entropy over scores divided by a temperature, mean of both directions.

    In each direction it is the mean over the queries and their positives.
    """

    def __init__(self, temperature: float, learnable: bool, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.learnable = learnable
        self.divide = Temperature(temperature, learnable, name="temperature")

    def compute(self, scores: Any, *others: Any, **more: Any) -> dict[str, Tensor]:
        return super().compute(self.divide.call(scores), *others, **more)

    @abstractmethod
    def entropy(self, direction: Direction) -> Tensor:
        """Makes the cross entropy of each candidate (column) of a query (row), if it is right."""

    @abstractmethod
    def entropy_of_pairs(self, direction: Direction) -> Tensor:
        """Makes the cross entropy of each of the pairs that the direction lists, (P,)."""

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        if direction.is_diagonal:
            # Every query has one positive, and every loss is the plain cross entropy.
            log_p = ops.log_softmax(direction.original_scores, axis=int(not direction.is_reversed))
            return -0.5 * ops.mean(ops.diagonal(log_p))
        if "pairs" in direction.relations:
            rows = direction.relations["pairs"][0]
            weights = ops.take(direction.weights(), rows)
            return 0.5 * ops.sum(weights * self.entropy_of_pairs(direction))
        entropy = ops.where(direction.positives, self.entropy(direction), 0.0)
        return 0.5 * ops.sum(direction.weights()[:, None] * entropy)


class InfoNCE(_CrossEntropy):
    """Cross entropy of a positive against the negatives, mean of both directions.

    The loss of Radford et al. 2021: the normalised, temperature-scaled cross entropy of Chen et
    al. 2020 across modalities. Chen et al. 2020 and Bleeker and de Rijke 2022 call it NT-Xent.
    A query with several positives has one cross entropy for each, against that positive and all
    negatives, and their mean counts: relevant items do not compete with one another.

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 0.07,
        learnable: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(temperature, learnable, **kwargs)

    def _others(self, direction: Direction) -> tuple[Tensor, Tensor]:
        """Returns the highest negative, and the log of the sum of all relative to it, (Q, 1)."""
        negatives = direction.negative_scores()
        highest = ops.stop_gradient(ops.amax(negatives, axis=1, keepdims=True))
        return highest, ops.log(ops.sum(ops.exp(negatives - highest), axis=1, keepdims=True))

    def entropy(self, direction: Direction) -> Tensor:
        highest, logs = self._others(direction)
        # Large logits would lose the digits by which they differ in a sum with the logarithm.
        return ops.softplus(logs + (highest - direction.scores))

    def entropy_of_pairs(self, direction: Direction) -> Tensor:
        rows = direction.relations["pairs"][0]
        highest, logs = (ops.take(one[:, 0], rows) for one in self._others(direction))
        return ops.softplus(logs + (highest - direction.scores_of_pairs()))


class SupervisedContrastive(_CrossEntropy):
    """Cross entropy of each positive against all candidates, mean of both directions.

    Khosla et al. 2020, Eq. 2, across modalities: the anchors are the images and the captions in
    turn, and the candidates of an anchor all items of the other modality. Unlike in `info_nce` the
    other positives of a query are in the denominator, which draws all of a class together; made
    for data with classes (`judgements: classes`).

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 0.1,
        learnable: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(temperature, learnable, **kwargs)

    def entropy(self, direction: Direction) -> Tensor:
        return -ops.log_softmax(direction.scores, axis=1)

    def entropy_of_pairs(self, direction: Direction) -> Tensor:
        sums = ops.logsumexp(direction.scores, axis=1)
        return ops.take(sums, direction.relations["pairs"][0]) - direction.scores_of_pairs()
