"""Cross entropies of a positive against other candidates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from keras import ops

from keras_xmr.layers import Temperature
from keras_xmr.losses.directions import LOWEST, Direction, DirectionsLoss
from keras_xmr.parts.option_types import PositiveFloat


class _CrossEntropy(DirectionsLoss):
    """A cross entropy over scores divided by a temperature, mean of both directions.

    In each direction it is the mean over the queries and their positives.
    """

    def __init__(self, temperature: float, learnable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.learnable = learnable
        self.divide = Temperature(temperature, learnable, name="temperature")

    @abstractmethod
    def entropy(self, logits: Any, positives: Any) -> Any:
        """Makes the cross entropy of each candidate (column) of a query (row), if it is right."""

    def direction_loss(self, direction: Direction, part: str, step: Any) -> Any:
        positives = direction.positives
        entropy = self.entropy(direction.scores / self.divide.value(), positives)
        return 0.5 * ops.sum(direction.weights()[:, None] * ops.where(positives, entropy, 0.0))


class NTXent(_CrossEntropy):
    """Cross entropy of a positive against the negatives, mean of both directions.

    The normalised, temperature-scaled cross entropy of Chen et al. 2020, across modalities: the
    InfoNCE loss of Radford et al. 2021. A query with several positives has one cross entropy for
    each, against that positive and all negatives, and their mean counts: relevant items do not
    compete with one another.

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, *, temperature: PositiveFloat = 0.07, learnable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(temperature, learnable, **kwargs)

    def entropy(self, logits: Any, positives: Any) -> Any:
        negatives = ops.where(positives, LOWEST, logits)
        highest = ops.stop_gradient(ops.amax(negatives, axis=1, keepdims=True))
        sums = ops.sum(ops.exp(negatives - highest), axis=1, keepdims=True)
        # Large logits would lose the digits by which they differ in a sum with the logarithm.
        return ops.softplus(ops.log(sums) + (highest - logits))


class SupervisedContrastive(_CrossEntropy):
    """Cross entropy of each positive against all candidates, mean of both directions.

    Khosla et al. 2020, Eq. 2, across modalities: the anchors are the images and the captions in
    turn, and the candidates of an anchor all items of the other modality. Unlike in `nt_xent` the
    other positives of a query are in the denominator, which draws all of a class together; made
    for data with classes (`judgements: classes`).

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, *, temperature: PositiveFloat = 0.1, learnable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(temperature, learnable, **kwargs)

    def entropy(self, logits: Any, positives: Any) -> Any:
        return -ops.log_softmax(logits, axis=1)
