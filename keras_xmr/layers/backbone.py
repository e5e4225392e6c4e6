"""Backbones of KerasHub as one layer of a tower."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Literal, Unpack

import keras
import numpy as np
from keras import ops

from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.layers.normalization import l2_normalize
from keras_xmr.layers.positions import filled, last_positions
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import RecordedLayer
from keras_xmr.parts.tensors import Tensor

Output = Literal["tokens", "average", "pooled"]


class Backbone(RecordedLayer):
    """Base class of backbones for text and for images.

    While it is frozen it works as in inference: without dropout, and with the pretrained
    statistics of batch normalisation.

    Args:
        backbone: A backbone of KerasHub, or its serialized config.
        output: The output: the features of all positions, or one vector per item.
        projection: Width of the linear layer between the pooled vector and the joint space that
            the backbone was trained for; None for none.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        backbone: keras.Model,
        *,
        output: Output = "tokens",
        projection: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(backbone, dict):
            import keras_hub  # noqa: F401 (registers the backbones)

            backbone = keras.saving.deserialize_keras_object(backbone)
        serialized = keras.saving.serialize_keras_object(backbone)
        # As text, because Keras would track the parts of a dictionary.
        self._serialized = json.dumps(serialized)
        # Its config is recorded, and not the backbone itself, of which parts may be needed alone.
        self._arguments.pop("backbone", None)
        self.class_name = serialized["class_name"]
        self.output_kind = output
        self.projection = projection
        # A model of the needed layers: weight decay would train an unused head.
        self.network = keras.Model(
            {tensor.name: tensor for tensor in backbone.inputs}, self.features_of(backbone)
        )
        if projection is not None:
            self.linear = self.new_dense(projection, "projection", use_bias=False)

    def features_of(self, backbone: keras.Model) -> Tensor | list[Tensor]:
        """Returns the symbolic output of the backbone that is needed."""
        pools = type(backbone).__name__ in ("SigLIPTextEncoder", "SigLIPVisionEncoder")
        if pools and self.output_kind != "pooled":
            return backbone.post_layer_norm.output
        return backbone.output

    def option(self, name: str) -> Any:
        """Returns an argument that the backbone was made with."""
        return json.loads(self._serialized)["config"][name]

    def run(self, inputs: Tensor | dict[str, Tensor], training: bool | None) -> Tensor:
        """Returns the network, as in inference while it is frozen."""
        return self.network(inputs, training=bool(training) and self.trainable)

    def one(self, vector: Tensor) -> Tensor:
        """Returns a pooled vector (B, F) as the only position (B, 1, D)."""
        if self.projection is not None:
            vector = self.linear(vector)
        return vector[:, None]

    def get_config(self) -> dict[str, object]:
        return super().get_config() | {"backbone": json.loads(self._serialized)}


class TextBackbone(Backbone):
    """A backbone that reads tokens.

    The inputs are ids int32 (B, L), with -1 behind the last token of a caption. The outputs are
    features (B, L, F) and their mask (B, L), or one vector per item (B, 1, F) and its mask: the
    averages over the tokens of each layer, each on the unit sphere, or the pooled token: the
    first one for the BERT family, else the last.

    Args:
        backbone: A backbone of KerasHub, or its serialized config.
        layers: The transformer layers, from 1, with outputs that are concatenated as features;
            None for the output of the backbone.
        pad: The padding id of a backbone that attends to padding; None repeats the last token of
            the caption.
        **kwargs: Passed on to `Backbone`.
    """

    def __init__(
        self,
        backbone: keras.Model,
        *,
        layers: tuple[int, ...] | None = None,
        pad: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        self.layers = None if layers is None else tuple(layers)
        self.pad = pad
        super().__init__(backbone, **kwargs)
        # SigLIP looks at the padding, too: it always reads as many tokens as it can.
        self._length = None
        if self.class_name == "SigLIPTextEncoder":
            self._length = self.option("max_sequence_length")

    def features_of(self, backbone: keras.Model) -> Tensor | list[Tensor]:
        if self.layers is not None:
            outputs = [backbone.get_layer(_LAYER.format(n - 1)).output for n in self.layers]
            return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=-1)
        output = super().features_of(backbone)
        return output["sequence_output"] if isinstance(output, dict) else output

    def call(self, ids: Tensor, training: bool | None = None) -> tuple[Tensor, Tensor]:
        # XLA knows the length of every batch, and has to compute the padding.
        if training and self.trainable and self._length is None and ids.shape[1] is None:
            return run_by_length(lambda some: self._features(some, True), ids, -1)
        return self._features(ids, training)

    def _features(self, ids: Tensor, training: bool | None) -> tuple[Tensor, Tensor]:
        mask, length = ids >= 0, ops.shape(ids)[1]
        tokens = filled(ids, self._length, self.pad)
        tensors = {
            "token_ids": tokens,
            "segment_ids": ops.zeros_like(tokens),
            "padding_mask": ops.cast(mask, "int32"),
        }
        features = self.run({name: tensors[name] for name in self.network.input}, training)
        features = features if self.output_kind == "pooled" else features[:, :length]
        if self.output_kind == "tokens":
            return features, mask
        if self.output_kind == "average":
            shares = ops.cast(mask, features.dtype)
            shares /= ops.maximum(ops.sum(shares, axis=1, keepdims=True), 1)
            means = ops.einsum("bl,blf->bf", shares, features)
            width, count = means.shape[-1], len(self.layers or (1,))
            of_layers = l2_normalize(ops.reshape(means, (-1, count, width // count)))
            return ops.reshape(of_layers, (-1, 1, width)), ops.ones_like(mask[:, :1])
        if len(features.shape) == 3 and self.class_name.removesuffix("Backbone") in _POOL_FIRST:
            features = features[:, 0]
        elif len(features.shape) == 3:
            last = last_positions(mask)[..., None]
            features = ops.take_along_axis(features, last, axis=1)[:, 0]
        return self.one(features), ops.ones_like(mask[:, :1])


_LAYER = "transformer_layer_{}"


def run_by_length(
    encode: Callable[[Tensor], tuple[Tensor, Tensor]], ids: Tensor, padding: int
) -> tuple[Tensor, Tensor]:
    """Encodes captions of like length together, so that less of a batch is padding.

    Args:
        encode: Gives features (B, L, F) of ids, and their mask (B, L); padding changes neither.
        ids: The ids int32 (B, L) of captions.
        padding: The id behind the last one of a caption.

    Returns:
        The features of all captions, filled with zeros, and their mask.
    """
    lengths = ops.sum(ops.cast(ids != padding, "int32"), axis=1)
    order, size, encoded = ops.argsort(lengths), ops.shape(ids)[0], []
    for group in range(_GROUPS):
        rows = order[size * group // _GROUPS : size * (group + 1) // _GROUPS]
        longest = ops.max(ops.take(lengths, rows), initial=1)
        encoded.append(encode(ops.take(ids, rows, axis=0)[:, :longest]))
    length = ops.amax([ops.shape(mask)[1] for _, mask in encoded])
    spare = [[0, length - ops.shape(mask)[1]] for _, mask in encoded]
    features = [ops.pad(f, [[0, 0], s, [0, 0]]) for (f, _), s in zip(encoded, spare, strict=True)]
    masks = [ops.pad(mask, [[0, 0], s]) for (_, mask), s in zip(encoded, spare, strict=True)]
    back = ops.argsort(order)
    return (
        ops.take(ops.concatenate(features), back, axis=0),
        ops.take(ops.concatenate(masks), back, axis=0),
    )


_GROUPS = 4
"""Groups of a batch that are padded to separate lengths."""


def number_of_layers(backbone: keras.Model) -> int:
    """Returns the number of transformer layers of a backbone of KerasHub, by their names."""
    names = {layer.name for layer in backbone.layers}
    return next(n for n in itertools.count() if _LAYER.format(n) not in names)


_POOL_FIRST = (
    "Albert",
    "Bert",
    "DebertaV3",
    "DistilBert",
    "Electra",
    "Roberta",
    "RoformerV2",
    "XLMRoberta",
)


class ImageBackbone(Backbone):
    """A backbone that sees pixels.

    The inputs are pixels from 0 to 255 (B, H, W, 3) of any dtype. The outputs are features
    (B, L, F), one for each position of a feature map or for each token, or one vector per item
    (B, 1, F): of the class token, or else the mean. Features of a mirrored photo follow.

    Args:
        backbone: A backbone of KerasHub, or its serialized config.
        scale: Factor of the pixels, for all channels or per channel.
        offset: Offset added to the scaled pixels.
        grid: Rows and columns to which a feature map is averaged by area; None keeps it.
        levels: The levels of the feature pyramid (5 is the last map, 4 the last of twice its size)
            with features that are concatenated, each scaled to a mean magnitude of 1 in each
            photo, on a grid of one cell if `grid` is None. None for the output of the backbone.
        mirror: Whether positions of the mirror image follow the photo. While the backbone trains,
            one of both is drawn for each photo, and its positions stand for both.
        frozen_levels: Levels of the feature pyramid, from the first, with layers that never train.
        frozen_batch_normalization: Whether batch normalisation stays as it is pretrained.
        **kwargs: Passed on to `Backbone`.
    """

    def __init__(
        self,
        backbone: keras.Model,
        *,
        scale: float | list[float] | None = None,
        offset: float | list[float] | None = None,
        grid: int | None = None,
        levels: tuple[int, ...] | None = None,
        mirror: bool = False,
        frozen_levels: int = 0,
        frozen_batch_normalization: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        self.levels = None if levels is None else tuple(levels)
        self._frozen_layers: tuple[str, ...] = ()
        self.frozen_levels = frozen_levels
        self.frozen_batch_normalization = frozen_batch_normalization
        super().__init__(backbone, **kwargs)
        self.scale = scale
        self.offset = offset
        self.grid = grid
        self.mirror = mirror
        self.seed = keras.random.SeedGenerator() if mirror else None
        self._class_token = self.class_name in _CLASS_TOKEN
        if self.class_name == "ViTBackbone":
            self._class_token = self.option("use_class_token")
        if frozen_levels:
            below = keras.Model(backbone.inputs, backbone.pyramid_outputs[f"P{frozen_levels}"])
            self._frozen_layers = tuple(layer.name for layer in below.layers)
        self._keep_frozen()

    @property
    def trainable(self) -> bool:
        """Whether it trains, but for the layers that never do."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        self._keep_frozen()

    def _keep_frozen(self) -> None:
        """Freezes the layers that never train."""
        for name in self._frozen_layers:
            self.network.get_layer(name).trainable = False
        if self.frozen_batch_normalization:
            for layer in all_layers(self.network):
                if isinstance(layer, keras.layers.BatchNormalization):
                    layer.trainable = False

    def features_of(self, backbone: keras.Model) -> Tensor | list[Tensor]:
        if self.levels is not None:
            return [backbone.pyramid_outputs[f"P{level}"] for level in self.levels]
        return super().features_of(backbone)

    def call(self, pixels: Tensor, training: bool | None = None) -> Tensor:
        prepared = ops.cast(pixels, "float32")
        if self.scale is not None:
            prepared = prepared * ops.convert_to_tensor(self.scale, "float32")
        if self.offset is not None:
            prepared = prepared + ops.convert_to_tensor(self.offset, "float32")
        if self.mirror and training and self.trainable:
            # The pooling takes one view of the two: the other one would be encoded for nothing.
            draws = keras.random.uniform((ops.shape(prepared)[0], 1, 1, 1), seed=self.seed)
            prepared = ops.where(draws < 0.5, ops.flip(prepared, axis=2), prepared)
            features = self._features(prepared, training)
            features = ops.concatenate([features, features], axis=1)
        elif self.mirror:
            mirrored = self._features(ops.flip(prepared, axis=2), training)
            features = ops.concatenate([self._features(prepared, training), mirrored], axis=1)
        else:
            features = self._features(prepared, training)
        if self.output_kind == "tokens":
            return features
        if len(features.shape) == 3:
            features = features[:, 0] if self._class_token else ops.mean(features, axis=1)
        return self.one(features)

    def _features(self, pixels: Tensor, training: bool | None) -> Tensor:
        """Returns features (B, L, F) of scaled pixels, or the pooled ones (B, F)."""
        (name,) = self.network.input
        features = self.run({name: pixels}, training)
        if self.levels is not None:
            maps = [_averaged(level, self.grid or 1) for level in features]
            magnitudes = [ops.mean(ops.abs(m), axis=(1, 2, 3), keepdims=True) for m in maps]
            scaled = [m / ops.maximum(a, 1e-12) for m, a in zip(maps, magnitudes, strict=True)]
            features = ops.concatenate(scaled, axis=-1)
        elif len(features.shape) == 4 and self.grid is not None:
            features = _averaged(features, self.grid)
        if len(features.shape) == 4:
            shape = features.shape
            features = ops.reshape(features, (-1, shape[1] * shape[2], shape[3]))
        return features


def _averaged(features: Tensor, grid: int) -> Tensor:
    """Returns a feature map (B, H, W, F), averaged by area to (B, grid, grid, F)."""
    rows, columns = (_shares(size, grid) for size in features.shape[1:3])
    return ops.einsum(
        "gh,bhwf,kw->bgkf",
        ops.cast(rows, features.dtype),
        features,
        ops.cast(columns, features.dtype),
    )


def _shares(size: int, grid: int) -> np.ndarray:
    """Shares of `size` positions in each of `grid` equal cells: (grid, size)."""
    edges = np.arange(grid + 1)[:, None] * size / grid
    covered = np.clip(edges - np.arange(size), 0, 1)
    return (covered[1:] - covered[:-1]) * grid / size


_CLASS_TOKEN = ("CLIPVisionEncoder", "DINOV2Backbone", "DINOV3Backbone", "DeiTBackbone")
