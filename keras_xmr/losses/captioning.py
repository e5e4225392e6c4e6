"""The loss of VSRN by which captions are told from the regions of their images."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import PositiveInt
from keras_xmr.errors import ArgumentError
from keras_xmr.layers import CaptionDecoder
from keras_xmr.losses.queries_base import Queries, QueriesLoss

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_xmr")
class Captioning(QueriesLoss):
    """Minus the log-likelihood of each caption by the local features of its image.

    Li et al. 2019, Eq. 10. The words of a caption are added up, and captions averaged. The
    decoder is the loss's own, and is not exported; what it learns reaches the image encoder. The
    image of a caption is the first one if it matches several.

    Args:
        vocabulary: How many ids the tokenizer has.
        pad: The id behind a caption.
        units: Width of the decoder.
        word_dimension: Width of its word vectors.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("captioning",),
        keys=("features",),
        keys_of="image",
        reads_words=True,
        reads_scores=False,
        one_image=True,
    )

    def __init__(
        self,
        vocabulary: int,
        pad: int,
        *,
        units: PositiveInt = 512,
        word_dimension: PositiveInt = 300,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary = vocabulary
        self.pad = pad
        self.units = units
        self.word_dimension = word_dimension
        self.decoder = CaptionDecoder(vocabulary, units, word_dimension, dtype=self.dtype_policy)

    def build(
        self,
        scores_shape: Any = None,
        image_shape: Any = None,
        caption_shape: Any = None,
        relations_shape: Any = None,
    ) -> None:
        if "features" not in image_shape:
            raise ArgumentError(
                "Captioning reads the local features of images, which the head of the text tower "
                "has, but not that of the image tower; take point_with_features there"
            )
        self.decoder.build(image_shape["features"])

    def of_queries(self, rows: Queries, columns: Queries, step: Tensor | None) -> dict[str, Tensor]:
        del step
        images = self.decoder.read(rows.queries["features"])
        # A caption stands beside its image, on one replica: the features of others are not there.
        here = columns.positives[:, rows.first : rows.first + ops.shape(images[1])[0]]
        own = ops.argmax(ops.cast(here, "int32"), axis=1)
        read = [ops.take(part, own, axis=0) for part in images]
        ids = ops.cast(columns.queries["word_ids"], "int32")
        counts = ops.logical_and(ids >= 0, ops.not_equal(ids, self.pad))
        ids = ops.maximum(ids, 0)
        logits = self.decoder(read, ids[:, :-1])
        wrong = ops.sparse_categorical_crossentropy(ids[:, 1:], logits, from_logits=True)
        words = ops.sum(ops.where(counts[:, 1:], wrong, 0.0), axis=1)
        return {"captioning": columns.share * ops.mean(words)}
