"""What a matcher is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import keras

from keras_xmr.embeddings.given import as_embedding, check_dimensions, shapes
from keras_xmr.embeddings.kinds import Embedding, kind, sample, sample_with_common_noise
from keras_xmr.errors import ArgumentError

Tensor = Any
Side = Literal["image", "caption"]

# Seeds of the noise in evaluation: all images have the same noise, and all captions another.
_EVALUATION_SEEDS: dict[Side, tuple[int, int]] = {"image": (2021, 0), "caption": (2021, 1)}


class Matcher(keras.layers.Layer):
    """Scores every image of a batch with every caption of a batch.

    A subclass says in `ACCEPTS` which pairs of kinds of embedding (image, caption) it takes, in
    `LOGITS` whether its scores are log-odds of a match, and implements `call(image, caption)`,
    which returns scores float32 (images, captions), larger is better. Its options are the
    keyword-only parameters of its constructor.

    The same matcher serves training, evaluation in tiles, and export: a score depends on
    nothing but its image and its caption. `SLICES` says whether that is so in training too, where
    some normalise by all pairs of the batch.

    How images are searched by it: `AUGMENTATION` names the vectors of `keras_xmr.index` under
    which images with large scores have large inner products with the query, and `REDUCES` says
    whether these rank exactly as the matcher does. If not, they give candidates that the matcher
    scores itself, and `score_bound` may prove that no other image was missed.

    Some score by direction: the score of a pair depends on which of the two is the query. They
    set `DIRECTED` and implement `call(image, caption, query="image")`, which returns (images,
    captions) whichever side the query is.
    """

    ACCEPTS: ClassVar[tuple[tuple[str, str], ...]]
    LOGITS: ClassVar[bool] = False
    DIRECTED: ClassVar[bool] = False
    SLICES: ClassVar[bool] = True
    AUGMENTATION: ClassVar[str]
    REDUCES: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))

    def __call__(self, image: Any, caption: Any, **kwargs: Any) -> Tensor:
        """Scores (images, captions) of two embeddings, or of tensors (N, D) of points.

        Raises:
            ArgumentError: If they are no embeddings, of kinds that it does not take, or not in one
                space.
        """
        image, caption = as_embedding(image, "images"), as_embedding(caption, "captions")
        self.check_kinds(kind(image), kind(caption))
        check_dimensions(image, caption)
        return super().__call__(image, caption, **kwargs)

    def check_kinds(self, image: str, caption: str) -> None:
        """Checks that the matcher scores embeddings of these kinds. Gaussians are points too.

        Raises:
            ArgumentError: If it does not.
        """
        as_points = tuple("point" if kind == "gaussian" else kind for kind in (image, caption))
        if not {(image, caption), as_points} & set(self.ACCEPTS):
            pairs = ", ".join(f"{i} and {c}" for i, c in self.ACCEPTS)
            known = dict.fromkeys(kind for pair in self.ACCEPTS for kind in pair)
            raise ArgumentError(
                f"{type(self).__name__} scores images and captions of the kinds {pairs}, not "
                f"{image} and {caption}: {shapes(*known)}"
            )

    def prepare(self, embedding: Embedding, side: Side, seed: Tensor | None = None) -> Embedding:
        """Adds to an embedding what the matcher draws from it, such as samples.

        Args:
            embedding: An embedding of images, or of captions.
            side: Which of the two.
            seed: Stateless seed, int (2,), of a training step; None in evaluation, where what is
                drawn must not depend on the batch.

        Returns:
            The embedding, with more keys if the matcher needs them.

        Raises:
            ArgumentError: If the matcher draws something, and this is not an embedding of a kind
                that it takes.
        """
        del side, seed
        return embedding

    def checked(self, embedding: Any, side: Side) -> Embedding:
        """An embedding of one side, of a kind that the matcher takes there.

        Raises:
            ArgumentError: If it is not.
        """
        embedding = as_embedding(embedding, f"{side}s")
        known = dict.fromkeys(pair[side == "caption"] for pair in self.ACCEPTS)
        if kind(embedding) not in known:
            raise ArgumentError(
                f"{type(self).__name__} takes {side}s of the kind {' or '.join(known)}, not "
                f"{kind(embedding)}: {shapes(*known)}"
            )
        return embedding

    def search_constants(self) -> dict[str, float]:
        """The numbers that the augmentation of the query needs of the matcher, by name."""
        return {}

    def score_bound(self, similarity: Tensor, image: Embedding, caption: Embedding) -> Tensor:
        """The largest score that an image can have which the augmentation puts no higher.

        Args:
            similarity: Inner products of the augmentation with each query (M,).
            image: Any image of the gallery, prepared.
            caption: The queries, prepared.

        Returns:
            A bound for each query (M,); None if none is known.
        """
        del similarity, image, caption
        return None

    def follow(self, losses: Iterable[Any]) -> None:
        """Takes from the losses of its model what both know and they learn; see `Loss.SHARES`."""


class LogitMatcher(Matcher):
    """A matcher whose scores are log-odds of a match, -scale * distance + shift.

    Args:
        scale: Where the learned scale starts (a of Chun et al. 2021, Eq. 3).
        shift: Where the learned shift starts (b).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    LOGITS = True

    def __init__(self, scale: float, shift: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initial_scale = scale
        self.initial_shift = shift
        constant = keras.initializers.Constant
        self.scale = self.add_weight(name="scale", shape=(), initializer=constant(scale))
        self.shift = self.add_weight(name="shift", shape=(), initializer=constant(shift))

    def build(self, *shapes: Any, **more_shapes: Any) -> None:
        """Nothing is left to build: scale and shift are there from the start."""

    def logits(self, distance: Tensor) -> Tensor:
        """-scale * distance + shift."""
        return self.shift - self.scale * distance

    def probability(self, scores: Tensor) -> Tensor:
        """Probability of a match, from scores of any shape."""
        return keras.ops.sigmoid(scores)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"scale": self.initial_scale, "shift": self.initial_shift}


class SampledMatcher(Matcher):
    """A matcher that draws samples of Gaussian embeddings.

    Args:
        samples: Samples an item in training.
        test_samples: Samples an item in evaluation.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    ACCEPTS = (("gaussian", "gaussian"),)

    def __init__(self, samples: int, test_samples: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.samples = samples
        self.test_samples = test_samples

    def __call__(self, image: Any, caption: Any, **kwargs: Any) -> Tensor:
        for embedding in (image, caption):
            if isinstance(embedding, Mapping) and "samples" not in embedding:
                raise ArgumentError(
                    f"{type(self).__name__} compares samples, which `prepare(embedding, "
                    '"image")`, or of captions "caption", draws'
                )
        return super().__call__(image, caption, **kwargs)

    def prepare(self, embedding: Embedding, side: Side, seed: Tensor | None = None) -> Embedding:
        embedding = self.checked(embedding, side)
        if seed is None:
            noise = _EVALUATION_SEEDS[side]
            return embedding | {
                "samples": sample_with_common_noise(embedding, self.test_samples, noise)
            }
        return embedding | {"samples": sample(embedding, self.samples, seed)}

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "samples": self.samples,
            "test_samples": self.test_samples,
        }
