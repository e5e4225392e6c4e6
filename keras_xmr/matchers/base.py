"""Base classes of matchers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar, Unpack, cast

import keras

from keras_xmr.embeddings.kinds import (
    Embedding,
    Gaussian,
    kind,
    shapes_of,
)
from keras_xmr.embeddings.samples import sample, sample_with_common_noise
from keras_xmr.embeddings.validation import (
    as_embedding,
    check_fit,
    check_ranges,
    described,
    items,
    shapes,
)
from keras_xmr.layers import compiled
from keras_xmr.layers.backend import (
    device_of,
    fresh_seed,
    is_at_hand,
    is_known_not_finite,
    read_as,
    split_seed,
)
from keras_xmr.layers.operations import ops
from keras_xmr.parts.contracts import MatcherContract
from keras_xmr.parts.keras_state import in_autocast, is_symbolic
from keras_xmr.parts.option_types import LayerOptions, PositiveInt
from keras_xmr.parts.part import Part
from keras_xmr.parts.tensors import Seed, Tensor
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.sides import ITEMS, Side, check_side

Checked = TypeVar("Checked", bound=Embedding)

# Seeds of the noise in evaluation: all images have the same noise, and all captions another.
_EVALUATION_SEEDS: dict[Side, tuple[int, int]] = {"image": (2021, 0), "text": (2021, 1)}


class Matcher(Part):
    """Scores every image of a batch with every caption of a batch.

    A subclass declares the kinds of embedding that it scores in `CONTRACT`; see
    `keras_xmr.parts.contracts.MatcherContract`. It implements `call(image, caption)`, which
    returns scores float32 (images, captions), larger is better. Its options are the keyword-only
    parameters of its constructor.

    The same matcher serves training, evaluation in tiles, and export: a score depends on
    nothing but its image and its caption.

    Some score by direction: the score of a pair depends on which of the two is the query. They
    declare `directed` and implement `call(image, caption, query="image")`, which returns (images,
    captions) whichever side the query is.

    For the index there are `SEARCH`, which declares how it searches images (see
    `keras_xmr.parts.contracts.SearchContract`), `search_constants` and `score_bound`. Without them
    the matcher trains and evaluates like all others, but cannot search.
    """

    CONTRACT = MatcherContract()
    takes_training: bool

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.takes_training = "training" in inspect.signature(cls.call).parameters

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.built = not self.builds()

    def __call__(
        self,
        image: Any,
        caption: Any,
        *,
        query: Side | None = None,
        training: bool | None = None,
        seed: Seed = None,
    ) -> Tensor:
        """Returns scores (images, captions) of two embeddings, or of tensors (N, D) of points.

        Embeddings are prepared unless they are already; see `prepare`.

        Args:
            image: Embeddings of images.
            caption: Embeddings of captions.
            query: The side of the queries, "image" or "text", for a matcher that scores by
                direction.
            training: Whether dropout, statistics of batches and fresh noise are on. None takes the
                mode that `train` and `eval` of PyTorch have set; with TensorFlow and JAX, false.
            seed: Makes what is drawn in training repeatable: an int, or a
                `keras.random.SeedGenerator`, which gives others in each step.

        Raises:
            ArgumentError: If they are not embeddings, empty, of kinds that it does not take, not in
                one space, or too large for float32; or if the output is not a score matrix.
        """
        if query is not None:
            check_side(query, "query")
        with device_of(image):
            image, caption = as_embedding(image, "images"), as_embedding(caption, "captions")
            check_fit(self, image, caption)
            training = self.in_training(training)
            self.ensure_built(image, caption)
            seeds = split_seed(seed)
            if not self._is_prepared(image):
                image = self.prepare(image, "image", seeds[0], training=training)
            if not self._is_prepared(caption):
                caption = self.prepare(caption, "text", seeds[1], training=training)
            options: dict[str, Any] = {"query": query, "training": training}
            if training and self.takes_training:
                scores = self.score_prepared(image, caption, **options)
            else:
                score = self.score_prepared
                scores = compiled.run(score, (self,), image, caption, **options)
            if is_at_hand(scores) and is_known_not_finite(ops.sum(scores)):
                check_ranges(image, caption)
            return scores

    def _is_prepared(self, embedding: Embedding) -> bool:
        return all(key in embedding for key in self.contract.prepared)

    def ensure_built(self, image: Embedding, caption: Embedding) -> None:
        """Makes the weights that depend on the shapes of embeddings, if there are none yet."""
        if not self.built:
            self.refuse_late_weights()
            self.build(shapes_of(image), shapes_of(caption))
            self.warn_of_late_weights()

    def score_prepared(
        self,
        image: Embedding,
        caption: Embedding,
        *,
        query: Side | None = None,
        training: bool = False,
    ) -> Tensor:
        """Returns scores (images, captions) of valid embeddings that are prepared.

        Keras' own call of a layer is left out where it has nothing to do, as it takes longer than
        the scores of a small batch.
        """
        kwargs: dict[str, Any] = {} if query is None else {"query": query}
        if self.takes_training:
            kwargs["training"] = training
        if is_symbolic(image, caption) or in_autocast():
            scores = super().__call__(image, caption, **kwargs)
        else:
            scores = self.call(image, caption, **kwargs)
        self._check_scores(scores, items(image), items(caption))
        return scores

    def _check_scores(self, scores: Tensor, images: int | None, captions: int | None) -> None:
        """Checks the output of `call`, as far as sizes are known.

        Raises:
            ArgumentError: If it is not a score matrix.
        """
        name, shape = type(self).__name__, tuple(getattr(scores, "shape", ()))
        sizes = (images, captions)
        if len(shape) == 2 and None not in (*shape, *sizes) and shape != sizes == shape[::-1]:
            raise ArgumentError(
                f"{name}.call returned scores {shape} of {images} images and {captions} captions: "
                "rows are images and columns captions, so transpose them"
            )
        known = [size for pair in zip(shape, sizes, strict=False) for size in pair]
        if len(shape) != 2 or (None not in known and shape != sizes):
            raise ArgumentError(
                f"{name}.call returned {described(scores)} of {images or 'N'} images and "
                f"{captions or 'M'} captions; return scores of the shape (images, captions)"
            )
        if keras.backend.standardize_dtype(scores.dtype) not in ("float32", "float64"):
            raise ArgumentError(
                f"{name}.call returned {described(scores)}; scores are float32: "
                "keras.ops.cast(..., 'float32')"
            )

    def prepare(
        self,
        embedding: Embedding,
        side: Side,
        seed: Seed = None,
        *,
        training: bool | None = None,
    ) -> Embedding:
        """Adds the keys that the matcher needs to an embedding, such as random samples.

        A call does it. Preparing once spares time where embeddings are scored several times, as in
        tiles.

        Args:
            embedding: An embedding of images, or of captions.
            side: "image" or "text".
            seed: Seed of what is drawn in training; None draws anew each time.
            training: As of a call. In evaluation samples do not depend on the batch.

        Returns:
            The embedding, with more keys if the matcher needs them.

        Raises:
            ArgumentError: If the matcher draws something, and this is not an embedding of a kind
                that it takes.
        """
        return embedding

    def checked(self, embedding: Checked, side: Side) -> Checked:
        """Checks that an embedding is of a kind that the matcher accepts on a side.

        Raises:
            ArgumentError: If it is not.
        """
        check_side(side, "side")
        items = f"{ITEMS[side]}s"
        checked = as_embedding(embedding, items)
        known = dict.fromkeys(pair[side == "text"] for pair in self.contract.accepts)
        if kind(checked) not in known:
            raise ArgumentError(
                f"{type(self).__name__} takes {items} of the kind {' or '.join(known)}, not "
                f"{kind(checked)}: {shapes(*known)}"
            )
        return cast(Checked, checked)

    def search_constants(self) -> dict[str, float]:
        """Returns the numbers that the augmentation of the query needs of the matcher, by name."""
        return {}

    def score_bound(
        self, similarity: Tensor, image: Embedding, caption: Embedding
    ) -> Tensor | None:
        """Returns an upper bound of the scores of images that the augmentation ranks no higher.

        Args:
            similarity: Inner products of the augmentation with each query (M,).
            image: Any image of the gallery, prepared.
            caption: The queries, prepared.

        Returns:
            A bound for each query (M,); None if none is known.
        """
        return None

    def share_parameters_with(self, losses: Iterable[object]) -> None:
        """Uses the scalars that the losses of its model learn and share."""


class LogitMatcher(Matcher):
    """A matcher with log-odds of a match as scores, -scale * distance + shift.

    Args:
        scale: Initial value of the learned scale (a of Chun et al. 2021, Eq. 3). The released code
            takes the sigmoid of twice the logit, so its 15 on COCO and 5 on CUB are 30 and 10
            here.
        shift: Initial value of the learned shift (b); the same holds.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(log_odds=True, learned=("scale", "shift"))

    def __init__(self, *, scale: float = 30.0, shift: float = 30.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = self.add_scalar("scale", scale)
        self.shift = self.add_scalar("shift", shift)

    def logits(self, distance: Tensor) -> Tensor:
        """Returns -scale * distance + shift."""
        scale, shift = self.scale_and_shift(distance)
        return shift - scale * distance

    def scale_and_shift(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Returns both learned numbers, in the type of a tensor."""
        return read_as(self.scale, like), read_as(self.shift, like)

    def probability(self, scores: Tensor) -> Tensor:
        """Returns probability of a match, from scores of any shape."""
        return ops.sigmoid(scores)


class SampledMatcher(Matcher):
    """A matcher that draws samples of Gaussian embeddings.

    Args:
        samples: Samples per item in training.
        test_samples: Samples per item in evaluation.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("gaussian",), prepared=("samples",))

    def __init__(
        self,
        *,
        samples: PositiveInt = 7,
        test_samples: PositiveInt = 7,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.samples = samples
        self.test_samples = test_samples

    def prepare(
        self,
        embedding: Embedding,
        side: Side,
        seed: Seed = None,
        *,
        training: bool | None = None,
    ) -> Embedding:
        """Adds `samples` (B, J, D): in training independent ones, else by common noise."""
        gaussian = cast(Gaussian, self.checked(embedding, side))
        if not self.in_training(training):
            noise = _EVALUATION_SEEDS[side]
            samples = sample_with_common_noise(gaussian, self.test_samples, noise)
        else:
            seed = fresh_seed(gaussian["mean"]) if seed is None else seed
            samples = sample(gaussian, self.samples, seed)
        return {**gaussian, "samples": samples}
