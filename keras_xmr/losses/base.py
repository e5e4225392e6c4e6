"""What a loss is."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from keras_xmr.embeddings.kinds import Embedding

Tensor = Any

Relations = dict[str, Tensor]
"""Who matches whom in a batch: `positives`, boolean (N, M), true where an image and a caption
match; for losses that need it `relevance`, float32 (N, M), from 0; and where images are mixed
`targets`, float32 (N, M), how far an image and a caption match, from 0 to 1."""


class Loss(keras.layers.Layer):
    """A loss over one global batch of N images and M captions.

    A subclass names in `PARTS` the parts it is the sum of, and implements `call(scores, image,
    caption, relations)`, where scores are float32 (N, M), which returns the parts as a dict of
    scalars. It says, for the config to be checked by:

    * in `NEEDS` which kinds of embedding it works on, if not on all, or in `ACCEPTS` which pairs
      of kinds (image, caption);
    * in `NEEDS_KEYS` which further keys of an embedding it reads, and in `NEEDS_KEYS_IF`, as pairs
      of an option and a key, which it reads with that option. It works on the sides that have
      all of them;
    * in `NEEDS_LOGITS` whether it reads the scores as log-odds of a match, and in `READS_SCORES`
      whether it reads them at all;
    * in `NEEDS_RELEVANCE` whether it reads `relevance`;
    * in `TAKES_MIXED` whether it can be right about mixed images;
    * in `SHARES` which of its learned scalars a matcher of the same model scores with, if it has
      an option of that name; see `Matcher.follow`;
    * in `NEEDS_STEP` whether its `call` also takes `step`, how many steps were trained before
      this one.

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
    NEEDS_LOGITS: ClassVar[bool] = False
    NEEDS_RELEVANCE: ClassVar[bool] = False
    NEEDS_STEP: ClassVar[bool] = False
    READS_SCORES: ClassVar[bool] = True
    SHARES: ClassVar[tuple[str, ...]] = ()
    TAKES_MIXED: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))

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
