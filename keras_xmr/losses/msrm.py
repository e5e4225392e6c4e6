"""The losses of MSRM.

In both, images query captions and captions query images; only the variance of the query counts.
Points are Gaussians of variance 1, which is "mu only" of Wang et al. 2023, Table 4.
"""

from __future__ import annotations

from typing import Literal, Unpack

import keras

from keras_xmr.embeddings import Embedding, Gaussian, distances
from keras_xmr.embeddings.kinds import tensors
from keras_xmr.layers import HypergraphConvolution
from keras_xmr.layers.operations import ops
from keras_xmr.losses.direction_losses import Direction, DirectionsLoss
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, NonNegativeFloat, PositiveFloat, PositiveInt
from keras_xmr.parts.tensors import Shape, Shapes, Step, Tensor
from keras_xmr.utils.errors import ArgumentError


class _QueryLoss(DirectionsLoss):
    """The sum of one loss for images as queries, and one for captions."""

    CONTRACT = LossContract(
        accepts=(("gaussian", "gaussian"), ("point", "point")), reads_scores=False
    )

    def learned(self, name: str, start: float) -> keras.Variable:
        """Returns a learned scalar that stays at or above 0."""
        return self.add_scalar(name, start, constraint=keras.constraints.NonNeg())

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor:
        zeros, positives = ops.zeros_like(scores), relations["positives"]
        back = match_loss(ops.transpose(zeros), ops.transpose(positives))
        return match_loss(zeros, positives) + back


class MahalanobisContrastive(_QueryLoss):
    """Semantic distribution learning of MSRM (Wang et al. 2023, Eq. 4 to 7).

    Every query spreads a probability over the candidates of the batch, softmax(-tau d^2), with
    the squared Mahalanobis distance d^2 of the mean of a candidate to the Gaussian of the query.
    The loss is the mean over all pairs of -log P for matches, and -log(1 - P) for the others. The
    paper gives it the weight 0.8 (gamma) next to `hypergraph_contrastive`.

    Args:
        temperature: Where the learned tau starts.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(shared_parameters=("temperature",))

    def __init__(
        self, *, temperature: PositiveFloat = 10.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = self.learned("temperature", temperature)

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        distance = query_distances(direction.queries, direction.candidates)
        _check_candidates(self, distance)
        return match_loss(
            -ops.cast(self.temperature, distance.dtype) * distance, direction.positives
        )


class HypergraphContrastive(_QueryLoss):
    """Multilateral relations modelling of MSRM (Wang et al. 2023, Eq. 8 to 11).

    Candidates are nodes and queries hyperedges of a hypergraph. A candidate belongs to a query
    as far as 1, if they match, and exp(-alpha d^2) elsewhere, with the squared Mahalanobis
    distance d^2 to the Gaussian of the query. Convolutions renew the means of the candidates;
    then softmax(lambda cos) of a query with them is treated as in `MahalanobisContrastive`.

    Eq. 8 and 11 are printed with exp(alpha d^2), which leaves [0, 1], and with -lambda cos, which
    rewards mismatches; by default the signs are the other ones.

    Args:
        layers: Number of convolutions of each direction.
        alpha: Where alpha starts. The paper's best is 2; with 0 every candidate belongs to every
            query alike, as in the first line of its Table 5.
        learn_alpha: Whether alpha is learned. False keeps it where it starts, for Table 5.
        cosine_scale: Where the learned lambda starts.
        residual: Whether candidates keep their means and move from there, instead of becoming
            the sigmoid of a convolution; see `HypergraphConvolution`. False is the paper's, which
            leaves hardly a gradient (docs/tables/options.csv).
        signs: "reversed", or "printed" as in Eq. 8 and 11: candidates belong to a query the more
            the farther they are, and cosines of matches fall.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(shared_parameters=("cosine_scale",))

    def __init__(
        self,
        *,
        layers: PositiveInt = 2,
        alpha: NonNegativeFloat = 2.0,
        learn_alpha: bool = True,
        cosine_scale: PositiveFloat = 5.0,
        residual: bool = True,
        signs: Literal["reversed", "printed"] = "reversed",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.layers = layers
        self.signs = signs
        self.sign = -1.0 if signs == "reversed" else 1.0
        self.learn_alpha = learn_alpha
        self.residual = residual
        self.alpha = self.learned("alpha", alpha) if learn_alpha else alpha
        self.cosine_scale = self.learned("cosine_scale", cosine_scale)
        self.image_to_text, self.text_to_image = (
            [
                HypergraphConvolution(residual, name=f"{term}_{number}", dtype="float32")
                for number in range(layers)
            ]
            for term in self.CONTRACT.terms
        )

    def build(
        self,
        scores_shape: Shape | None = None,
        image_shape: Shapes | None = None,
        caption_shape: Shapes | None = None,
        relations_shape: Shapes | None = None,
    ) -> None:
        # The convolutions of a direction change the candidates.
        layers = (self.image_to_text, caption_shape), (self.text_to_image, image_shape)
        for convolutions, shapes in layers:
            for convolution in convolutions:
                convolution.build((shapes or {})["mean"])

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        distance = query_distances(direction.queries, direction.candidates)
        _check_candidates(self, distance)
        alpha = ops.cast(self.alpha, distance.dtype) if self.learn_alpha else self.alpha
        logs = ops.where(direction.positives, 0.0, self.sign * alpha * distance)
        # The convolution does not change with the scale of its incidence, so this cannot overflow.
        relation = ops.exp(logs - ops.stop_gradient(ops.amax(logs)))
        nodes = tensors(direction.candidates)["mean"]
        for convolution in getattr(self, term):
            nodes = convolution.call(nodes, ops.transpose(relation))
        cosines = distances.cosine(tensors(direction.queries)["mean"], nodes)
        logits = ops.cast(self.cosine_scale, cosines.dtype) * cosines
        return match_loss(-self.sign * logits, direction.positives)


def _check_candidates(loss: DirectionsLoss, logits: Tensor) -> None:
    """Checks that queries have two candidates at least.

    Raises:
        ArgumentError: If they have one, which has all of the probability whether it matches or not.
    """
    if logits.shape[1] == 1:
        raise ArgumentError(
            f"{type(loss).__name__} compares the candidates of a query, and there is only one: "
            "give at least 2 images and 2 captions, and drop a smaller last batch"
        )


def query_distances(queries: Embedding, candidates: Embedding) -> Tensor:
    """Measures candidates (M) from the Gaussians of queries (N): squared distances (N, M)."""
    mean = tensors(queries)["mean"]
    log_variance = tensors(queries).get("log_variance", ops.zeros_like(mean))
    gaussians: Gaussian = {"mean": mean, "log_variance": log_variance}
    return ops.transpose(distances.mahalanobis_squared(tensors(candidates)["mean"], gaussians))


def match_loss(logits: Tensor, positives: Tensor) -> Tensor:
    """Averages over all pairs -log P for matches, and -log(1 - P) elsewhere; P = softmax(logits).

    Args:
        logits: Float32 (N, M), one row per query; M is at least 2.
        positives: Boolean (N, M).
    """
    log_p = ops.log_softmax(logits, axis=1)
    # 1 - P loses its digits for the one candidate of a query that P can be near 1 for: there it
    # is the probability of all the others.
    largest = ops.one_hot(ops.argmax(logits, axis=1), ops.shape(logits)[1], dtype="bool")
    others = ops.logsumexp(ops.where(largest, -float("inf"), log_p), axis=1, keepdims=True)
    log_not_p = ops.where(largest, others, ops.log1p(-ops.where(largest, 0.0, ops.exp(log_p))))
    return -ops.mean(ops.where(positives, log_p, log_not_p))
