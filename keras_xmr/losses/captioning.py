"""Captioning loss of VSRN."""

from __future__ import annotations

from typing import Unpack

from keras_xmr.embeddings.kinds import Embedding, Point
from keras_xmr.layers import CaptionDecoder
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import Loss
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, PositiveInt
from keras_xmr.parts.tensors import Shape, Shapes, Tensor
from keras_xmr.utils.errors import ArgumentError


class Captioning(Loss):
    """Minus the log-likelihood of each caption by the local features of its image.

    Li et al. 2019, Eq. 10. The words of a caption are added up, and captions averaged. The
    decoder belongs to the loss and is not exported; its gradient reaches the image encoder. The
    image of a caption is the first one if it matches several.

    Args:
        vocabulary: Number of ids of the tokenizer.
        pad: The id behind a caption.
        units: Width of the decoder.
        word_dimension: Width of its word vectors.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        terms=("captioning",),
        keys=("features",),
        required_keys_side="image",
        reads_words=True,
        reads_scores=False,
        assumes_one_image_per_caption=True,
    )

    def __init__(
        self,
        vocabulary: int,
        pad: int,
        *,
        units: PositiveInt = 512,
        word_dimension: PositiveInt = 300,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary = vocabulary
        self.pad = pad
        self.units = units
        self.word_dimension = word_dimension
        self.decoder = CaptionDecoder(vocabulary, units, word_dimension, dtype=self.dtype_policy)

    def build(
        self,
        scores_shape: Shape | None = None,
        image_shape: Shapes | None = None,
        caption_shape: Shapes | None = None,
        relations_shape: Shapes | None = None,
    ) -> None:
        features_shape = (image_shape or {}).get("features")
        if features_shape is None:
            raise ArgumentError(
                "Captioning reads the local features of images, which the head of the image tower "
                "does not return; use the head point_with_features there"
            )
        self.decoder.build(features_shape)

    def compute(
        self, scores: Tensor, image: Point, caption: Embedding, relations: Relations
    ) -> dict[str, Tensor]:
        image_rows = ops.argmax(ops.cast(relations["positives"], "int32"), axis=0)
        read = [
            ops.take(tensor, image_rows, axis=0) for tensor in self.decoder.read(image["features"])
        ]
        ids = ops.cast(caption["word_ids"], "int32")
        counts = ops.logical_and(ids >= 0, ops.not_equal(ids, self.pad))
        ids = ops.maximum(ids, 0)
        logits = self.decoder(read, ids[:, :-1])
        wrong = ops.sparse_categorical_crossentropy(ids[:, 1:], logits, from_logits=True)
        words = ops.sum(ops.where(counts[:, 1:], wrong, 0.0), axis=1)
        return {"captioning": ops.mean(words)}
