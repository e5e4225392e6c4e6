"""Hinge losses: of VSE0, VSE++ and DVSE, and of PVSE on sets."""

from __future__ import annotations

from typing import Literal, Unpack

from keras_xmr.embeddings import Point, PointSet, distances, points
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import dtype_of
from keras_xmr.losses.direction_losses import LOWEST, Direction, DirectionsLoss
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, NonNegativeInt, PositiveFloat, Reduction
from keras_xmr.parts.tensors import Step, Tensor


class Triplet(DirectionsLoss):
    """Hinge loss of a query, one of its positives and a negative, in both directions.

    max(0, margin + s(query, negative) - s(query, positive)) for every pair of a query and one of
    its positives; over all negatives (VSE0) or the one that scores highest (VSE++), Faghri et al.
    2018, Eq. 5 and 6; or the mean over those that violate the margin (Hermans et al. 2017, "batch
    all" without zeros). A positive of the query is never among its negatives. On the scores of
    `max_cosine` it is the multiple-instance loss of Song and Soleymani 2019, Eq. 5.

    Args:
        margin: Required difference of the scores of a positive and a negative.
        mining: "sum" takes all negatives, "mean" the mean over those that violate the margin,
            "hardest" the one that scores highest. Where many "negatives" are relevant but not
            annotated, "mean" does best (docs/results/hardest_negatives.md).
        reduction: "sum" adds up all pairs, as the released code of VSE++ does; "mean" divides
            by their number, as the released code of PVSE does. With "sum" mining every candidate
            counts, so the divisor is the number of pairs times the number of candidates.
        warmup_steps: Number of first steps in which "hardest" takes all negatives: a model that
            begins with the hardest ones may never leave the state in which all scores are equal.
            Calls then need `step`, the number of steps trained before.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        reads_step=True,
        only_with={"warmup_steps": {"mining": "hardest"}},
        # XLA must know the shapes in each branch of a graph, and matches are counted there.
        compiles=False,
        when=(({"mining": "hardest", "warmup_steps": 0}, {"compiles": True}),),
    )

    def __init__(
        self,
        *,
        margin: PositiveFloat = 0.2,
        mining: Literal["sum", "mean", "hardest"] = "hardest",
        reduction: Reduction = "sum",
        warmup_steps: NonNegativeInt = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.margin = margin
        self.mining = mining
        self.reduction = reduction
        self.warmup_steps = warmup_steps

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        totals = {"sum": self._over_all, "mean": self._over_violating}
        then = totals.get(self.mining, self._over_hardest)
        total = self.switch_after_warm_up(
            step, lambda: self._over_all(direction), lambda: then(direction)
        )
        return total if self.reduction == "sum" else total / direction.number_of_pairs()

    def _over_all(self, direction: Direction) -> Tensor:
        """Adds up the hinges of all pairs of a query and a positive, and all its negatives.

        With the reduction "mean" it is divided by the number of candidates.
        """
        total = ops.sum(self._hinges(direction))
        if self.reduction == "sum":
            return total
        return total / ops.cast(ops.shape(direction.positives)[1], direction.dtype)

    def _over_violating(self, direction: Direction) -> Tensor:
        """Returns the sum over the pairs of the mean of those hinges that are not 0."""
        return ops.sum(_mean_of_violating(self._hinges(direction)))

    def _hinges(self, direction: Direction) -> Tensor:
        """Makes hinges (P, M) of all P pairs of a query and a positive with negatives; else 0."""
        pairs = direction.positive_pairs()
        hinges = ops.relu(self.margin + (pairs.scores - pairs.positive_scores))
        return ops.where(pairs.positives, 0.0, hinges) * pairs.exists[:, None]

    def _over_hardest(self, direction: Direction) -> Tensor:
        """Adds up the hinges of all those pairs and the hardest negative of the query."""
        # A query that all candidates match has no negative, and no hinge.
        hardest = ops.amax(direction.negative_scores(), axis=1, keepdims=True)
        if direction.is_diagonal:
            return ops.sum(ops.relu(self.margin + (hardest[:, 0] - direction.scores_of_pairs())))
        if "pairs" in direction.relations:
            hardest = ops.take(hardest[:, 0], direction.relations["pairs"][0])
            return ops.sum(ops.relu(self.margin + (hardest - direction.scores_of_pairs())))
        hinges = ops.relu(self.margin + (hardest - direction.scores))
        return ops.sum(ops.where(direction.positives, hinges, 0.0))


class VarianceAwareWeighting(DirectionsLoss):
    """Hardest-negative hinges of every sub-embedding, over the variance of the other scores.

    hinge / sigma^2 + log sigma, added up over the K sub-embeddings, in both directions (Wei et
    al., Eq. 11). The hinge has a query, one of its positives and its hardest negative, all
    with the k-th sub-embeddings. sigma is 1 + the sample deviation over all candidates but that
    positive: other positives are in this mixed distribution too (Eq. 7, 8).

    The scores are cosines of the embeddings, one matrix for each sub-embedding; scores of the
    matcher are not used.

    Args:
        margin: alpha, the required difference of the scores of a positive and a negative.
        sigma: "shared" takes the deviation over the captions in both directions, as Eq. 11 has one
            sigma per sub-embedding; "query" takes the deviation over the candidates of each query;
            "one" sets sigma to 1, which weights all sub-embeddings alike: the ablation of this
            loss.
        sigma_of: The numbers with the deviation sigma. "probabilities" takes, as Eq. 5 to 8,
            softmax(scores / temperature) over the candidates of a query. "scores" takes the
            scores themselves, which deviate more where they are correct. So it draws all scores
            together, unless `stop_gradient` is set (docs/tables/options.csv).
        temperature: Divisor of the scores in the probabilities; Eq. 5 has none. With 1 they are so
            similar that sigma is nearly 1, and no sub-embedding weighs more than another. With any,
            the deviation of probabilities over M candidates is at most 1 / sqrt(M - 1).
        stop_gradient: Whether sigma is a constant of the step.
        mining: "hardest" takes the negative that scores highest, as printed. "mean" takes the
            mean over all negatives that violate the margin, and sigma is a constant: where many
            "negatives" are relevant items, the hardest one mostly is, and training on it undoes
            learning (docs/results/hardest_negatives.md).
        reduction: "mean" divides by the number of pairs that match, "sum" does not.
        warmup_steps: Number of first steps in which "hardest" works as "mean": a model that begins
            with the hardest ones may never leave the state in which all scores are equal. Calls
            then need `step`, the number of steps trained before.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        accepts=(("set", "point"), ("point", "set"), ("point", "point")),
        reads_scores=False,
        reads_step=True,
        only_with={"warmup_steps": {"mining": "hardest"}},
        compiles=False,
        when=(({"warmup_steps": 0}, {"compiles": True}),),
    )

    def __init__(
        self,
        *,
        margin: PositiveFloat = 0.2,
        sigma: Literal["shared", "query", "one"] = "shared",
        sigma_of: Literal["scores", "probabilities"] = "probabilities",
        temperature: PositiveFloat = 0.05,
        stop_gradient: bool = False,
        mining: Literal["mean", "hardest"] = "hardest",
        reduction: Reduction = "mean",
        warmup_steps: NonNegativeInt = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.margin = margin
        self.mining = mining
        self.sigma = sigma
        self.sigma_of = sigma_of
        self.temperature = temperature
        self.stop_gradient = stop_gradient
        self.reduction = reduction
        self.warmup_steps = warmup_steps

    def similarities(self, image: Point | PointSet, caption: Point | PointSet) -> Tensor:
        """Returns cosines (K, N, M) of N sets of K and M points, or the other way round."""
        images, captions = points(image), points(caption)
        cosines = distances.set_cosines(images, captions)
        size = images.shape[1] * captions.shape[1]
        cosines = ops.transpose(cosines, (1, 3, 0, 2))
        return ops.reshape(cosines, (size, ops.shape(images)[0], ops.shape(captions)[0]))

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        """Adds up all sub-embeddings and all P pairs of a query (row) and a positive."""
        scores, positives = direction.scores, direction.positives
        if self.sigma == "shared" and term == "text_to_image":
            sigma = ops.swapaxes(self._deviation(ops.swapaxes(scores, 1, 2)), 1, 2)
        else:
            sigma = self._deviation(scores)
        rows, columns, exists = direction.pairs()

        def select_pairs(values: Tensor) -> Tensor:
            """Returns (K, P) out of (K, N, M)."""
            flat = ops.reshape(values, (values.shape[0], -1))
            return ops.take(flat, rows * ops.shape(values)[2] + columns, axis=1)

        positive_scores = select_pairs(scores)[..., None]
        weight = None if sigma is None else select_pairs(sigma)

        def hinges(rivals: Tensor) -> Tensor:
            """Returns those (K, P, R) of the pairs with some rivals (K, N, R) of the query."""
            return ops.relu(self.margin + (ops.take(rivals, rows, axis=1) - positive_scores))

        def over_all() -> Tensor:
            # Their sum would be a hundred times as large as the other losses of DVSE, and over
            # a sigma that learns it would reward scores that scatter, right or wrong.
            constant = None if weight is None else ops.stop_gradient(weight)
            of_all = hinges(ops.where(positives, LOWEST, scores))
            return _weighted(_mean_of_violating(of_all), constant)

        def over_hardest() -> Tensor:
            return _weighted(hinges(_hardest_negatives(scores, positives))[..., 0], weight)

        then = over_all if self.mining == "mean" else over_hardest
        total = ops.sum(self.switch_after_warm_up(step, over_all, then) * exists)
        return total if self.reduction == "sum" else total / direction.number_of_pairs()

    def _deviation(self, scores: Tensor) -> Tensor | None:
        """Makes sigma (K, N, M) of each query without each candidate; None where it is 1."""
        if self.sigma == "one":
            return None
        if self.sigma_of == "probabilities":
            scores = ops.softmax(scores / self.temperature, axis=-1)
        sigma = 1.0 + _deviation_of_others(scores)
        return ops.stop_gradient(sigma) if self.stop_gradient else sigma


def _weighted(hinges: Tensor, sigma: Tensor | None) -> Tensor:
    """Returns eq. 11 of each pair (K, P); the hinges alone where sigma is None, for 1."""
    return hinges if sigma is None else hinges / (sigma * sigma) + ops.log(sigma)


def _deviation_of_others(scores: Tensor) -> Tensor:
    """Measures deviations (..., M) of the last axis, each without the number at its position."""
    others = ops.cast(ops.shape(scores)[-1] - 1, dtype_of(scores))
    centered = scores - ops.mean(scores, axis=-1, keepdims=True)
    squares = ops.sum(centered * centered, axis=-1, keepdims=True)
    squares = squares - centered * centered * (1.0 + 1.0 / ops.maximum(others, 1.0))
    squares = ops.where(others > 1.0, squares, 0.0)  # One number does not deviate.
    return distances.root(squares / ops.maximum(others - 1.0, 1.0), smallest=1e-12)


def _mean_of_violating(hinges: Tensor) -> Tensor:
    """Averages (...,) over the last axis those hinges that are not 0; 0 where all are."""
    violating = ops.sum(ops.cast(hinges > 0, dtype_of(hinges)), axis=-1)
    return ops.sum(hinges, axis=-1) / ops.maximum(violating, 1.0)


def _hardest_negatives(scores: Tensor, positives: Tensor) -> Tensor:
    """Returns the highest score among a query's negatives; `LOWEST` if all candidates match.

    Args:
        scores: Float32 (..., N, M), one row per query.
        positives: Boolean (N, M).

    Returns:
        Float32 (..., N, 1).
    """
    return ops.amax(ops.where(positives, LOWEST, scores), axis=-1, keepdims=True)
