"""What a loss is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.errors import ArgumentError
from keras_xmr.losses.given import checked_inputs

Tensor = Any

Relations = dict[str, Tensor]
"""Who matches whom in a batch: `positives`, boolean (N, M), true where an image and a caption
match; for losses that need it `relevance`, float32 (N, M), from 0; and where images are mixed, or
pairs were judged, `targets`, float32 (N, M), how far an image and a caption match, from 0 to 1."""


class Loss(keras.layers.Layer):
    """A loss over one global batch of N images and M captions.

    A subclass names in `PARTS` the parts it is the sum of, and implements `call(scores, image,
    caption, relations)`, where scores are float32 (N, M), which returns the parts as a dict of
    scalars. It says, for the config to be checked by:

    * in `NEEDS` which kinds of embedding it works on, if not on all, or in `ACCEPTS` which pairs
      of kinds (image, caption);
    * in `NEEDS_KEYS` which further keys of an embedding it reads, and in `NEEDS_KEYS_IF`, as pairs
      of an option and a key, which it reads with that option. It works on the sides that have
      all of them; one of `NEEDS_KEYS_OF` must;
    * in `NEEDS_LOGITS` whether it reads the scores as log-odds of a match, and in `READS_SCORES`
      whether it reads them at all;
    * in `NEEDS_RELEVANCE` whether it reads `relevance`;
    * in `NEEDS_CAPTION_IDS` whether it reads `word_ids` of the caption embedding, which the model
      adds. Its constructor then takes how many ids there are and that of the padding, too;
    * in `READS_PAIRS` whether it learns from who matches whom, and in `ONE_IMAGE` whether it takes
      a caption to match one image alone;
    * in `TAKES_MIXED` whether it can be right about mixed images;
    * in `SHARES` which of its learned scalars a matcher of the same model scores with, if it has
      an option of that name; see `Matcher.follow`;
    * in `NEEDS_STEP` whether its `call` also takes `step`, how many steps were trained before
      this one, and in `warmup_steps`, for how many first steps it is another loss than after them;
    * in `COMPILED_WITH` the options without which XLA cannot compile it, or None if it never can.

    Its options are the keyword-only parameters of its constructor. Weights of its own whose shape
    depends on the embeddings are made in `build`, which takes the shapes of the arguments of
    `call`; those of a dict are a dict of shapes.

    Nothing may be assumed of the batch but what the relations say: an image can stand in it
    twice, with two of its captions.
    """

    PARTS: ClassVar[tuple[str, ...]]
    NEEDS: ClassVar[tuple[str, ...]] = ()
    ACCEPTS: ClassVar[tuple[tuple[str, str], ...]] = ()
    NEEDS_KEYS: ClassVar[tuple[str, ...]] = ()
    NEEDS_KEYS_IF: ClassVar[tuple[tuple[str, str], ...]] = ()
    NEEDS_KEYS_OF: ClassVar[tuple[str, ...]] = ("image", "text")
    NEEDS_LOGITS: ClassVar[bool] = False
    NEEDS_RELEVANCE: ClassVar[bool] = False
    NEEDS_CAPTION_IDS: ClassVar[bool] = False
    NEEDS_STEP: ClassVar[bool] = False
    READS_SCORES: ClassVar[bool] = True
    READS_PAIRS: ClassVar[bool] = True
    ONE_IMAGE: ClassVar[bool] = False
    SHARES: ClassVar[tuple[str, ...]] = ()
    TAKES_MIXED: ClassVar[bool] = False
    COMPILED_WITH: ClassVar[Mapping[str, Any] | None] = {}
    warmup_steps: int = 0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))

    def keys_read(self) -> set[str]:
        """The further keys of an embedding that it reads, with the options that it has."""
        return {*self.NEEDS_KEYS, *(key for name, key in self.NEEDS_KEYS_IF if getattr(self, name))}

    def build(
        self,
        scores_shape: Any = None,
        image_shape: Any = None,
        caption_shape: Any = None,
        relations_shape: Any = None,
    ) -> None:
        """Makes the weights that depend on the embeddings; most losses have none."""

    def call(
        self, scores: Tensor, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Tensor]:
        """The parts of the loss."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """The parts of the loss; see `call`.

        Raises:
            ArgumentError: If it is called on embeddings alone, which is what `of` is for.
        """
        if len(args) + len(kwargs) < 4:
            raise ArgumentError(
                f"{type(self).__name__} is called by a model, on (scores, image, caption, "
                "relations); its value for embeddings is .of(images, captions, image_of)"
            )
        return super().__call__(*args, **kwargs)

    def of(
        self,
        images: Any,
        captions: Any,
        image_of: Any = None,
        *,
        positives: Any = None,
        relevance: Any = None,
        matcher: Any = None,
    ) -> Tensor:
        """The value of the loss for embeddings, to be differentiated or looked at.

        Args:
            images: Embeddings of N images: a tensor (N, D), or a dict of tensors; see
                `keras_xmr.embeddings.kinds`.
            captions: Embeddings of M captions.
            image_of: The row of each caption's image, int (M,); None if N == M and caption i is
                of image i. All captions of an image are right for it.
            positives: Who matches whom, boolean (N, M), in place of `image_of`: captions that are
                right for several images, or classes.
            relevance: How relevant captions are to images, float (N, M), for a loss with
                `NEEDS_RELEVANCE`; see `keras_xmr.relevance`.
            matcher: What scores the pairs, for a loss that reads scores. None takes the cosine of
                points and of the means of Gaussians, and the largest cosine of two sets.

        Returns:
            A scalar, the sum of all parts.

        Raises:
            ArgumentError: If shapes do not fit, or the loss needs another kind of embedding, a
                relevance, or a matcher.
        """
        inputs = checked_inputs(self, images, captions, image_of, positives, relevance, matcher)
        return sum(self(*inputs).values())

    @property
    def adds_up(self) -> bool:
        """Whether its parts are sums over queries, which replicas can share; see `QueriesLoss`."""
        return False

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        """The value at which the loss gets stuck if the model learns nothing.

        Args:
            scores: Scores (N, M) that are all equal.
            relations: The `positives` of some batch.

        Returns:
            A scalar, or None if no such value is known.
        """
        del scores, relations
        return None
