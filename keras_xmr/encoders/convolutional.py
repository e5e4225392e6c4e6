"""Convolutional networks: `keras.applications`, and a small one for small pictures."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import keras

from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec, synchronize
from keras_xmr.encoders.pretrained.weights import WeightsError, load_weights
from keras_xmr.layers import Preprocessing, batch_normalization
from keras_xmr.parts.contracts import EncoderContract
from keras_xmr.parts.option_types import MultiplesOfEight, PositiveInt
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.files import user_path

if TYPE_CHECKING:
    Architecture = str
else:  # The networks that the installed Keras has.
    Architecture = Literal[tuple(name for name in dir(keras.applications) if name[0].isupper())]


@dataclass(kw_only=True, eq=False)
class KerasApplications(Encoder):
    """A network of `keras.applications`, up to its last feature map.

    Args:
        architecture: The network; the papers have ResNet152 and ResNet50.
        weights: `imagenet` downloads the weights of Keras; a path loads a file of weights
            (`.weights.h5`, `.h5` or `.keras`) of the network without its top; null starts at
            random.
    """

    CONTRACT = EncoderContract(
        side="image",
        reads="pixels",
        smallest=32,
        when=(
            ({"architecture": "InceptionResNetV2"}, {"smallest": 75}),
            ({"architecture": "InceptionV3"}, {"smallest": 75}),
            ({"architecture": "Xception"}, {"smallest": 71}),
        ),
    )

    architecture: Architecture = "ResNet152"
    weights: str | None = "imagenet"

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Pixels (B, H, W, 3) to features (B, h * w, C), without a mask."""
        backbone = self._backbone(inputs.shape[1:], self.weights if spec.pretrained else None)
        backbone.name = "encoder"
        pixels = Preprocessing(_family(self.architecture), name="preprocessing")(inputs)
        feature_map = backbone(pixels)
        positions = keras.layers.Reshape((-1, feature_map.shape[-1]), name="positions")
        return positions(feature_map), None

    def _backbone(self, shape: tuple[int, ...], weights: str | None) -> keras.Model:
        make = getattr(keras.applications, self.architecture)
        try:
            backbone = make(
                include_top=False,
                weights="imagenet" if weights == "imagenet" else None,
                input_shape=shape,
            )
        except Exception as error:
            if weights != "imagenet" or "fetch" not in str(error):
                raise EncoderError(f"model.image.encoder: {error}") from error
            raise EncoderError(
                f"model.image.encoder.weights: the ImageNet weights of {self.architecture} cannot "
                f"be downloaded ({error}). Download them where there is internet and write the "
                "path of the file here, or write null to train from scratch"
            ) from None
        if weights not in (None, "imagenet"):
            try:
                load_weights(backbone, user_path(weights))
            except WeightsError as error:
                raise EncoderError(
                    f"model.image.encoder.weights: {error}. The file should hold the weights of "
                    f"{self.architecture} without its top (include_top=False)"
                ) from None
        synchronize(backbone)
        return backbone


def _family(architecture: str) -> str:
    """Returns the module of `keras.applications` that preprocesses for an architecture."""
    if architecture.startswith("MobileNetV3"):
        return "mobilenet_v3"
    for name, module in inspect.getmembers(keras.applications, inspect.ismodule):
        if hasattr(module, architecture) and hasattr(module, "preprocess_input"):
            return name
    raise EncoderError(f"keras.applications has no {architecture!r}")


_GROUPS = 8


@dataclass(kw_only=True, eq=False)
class SmallCNN(Encoder):
    """Residual blocks of convolutions with group normalisation, on smaller and smaller pictures.

    The network learns from scratch in minutes on a CPU. Two more channels hold the position of each
    pixel, without which a convolution cannot distinguish left and right. The output is
    batch-normalised.

    Args:
        channels: Channels of each stage, multiples of 8. The first stage has patches, every
            further one halves height and width.
        patch: Height and width of the patches, in pixels.
        blocks: Residual blocks per stage.
    """

    CONTRACT = EncoderContract(side="image", reads="pixels", width="channels", batch_norm=True)

    channels: MultiplesOfEight = (48, 96, 192)
    patch: PositiveInt = 4
    blocks: PositiveInt = 1

    def __post_init__(self) -> None:
        if not self.channels or any(width % _GROUPS for width in self.channels):
            raise self.error("channels", f"multiples of {_GROUPS} are needed, not {self.channels}")

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Pixels (B, H, W, 3) to features (B, h * w, C), without a mask."""
        return self._network(inputs.shape[1:])(inputs), None

    def _network(self, shape: tuple[int, ...]) -> keras.Model:
        layers = keras.layers
        inputs = keras.Input(shape, dtype="uint8")
        x = layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
        x = _Coordinates(name="coordinates")(x)
        for stage, channels in enumerate(self.channels):
            stride = 2 if stage else self.patch
            x = layers.Conv2D(
                channels, stride + 1, strides=stride, padding="same", name=f"down_{stage}"
            )(x)
            for block in range(self.blocks):
                x = _residual(x, channels, f"stage_{stage}_block_{block}")
        # New weights map all pictures to similar features. Batch normalisation removes the common
        # part, which training would need its first epochs for.
        x = batch_normalization(name="normalize")(x)
        x = layers.Activation("relu", name="relu")(x)
        return keras.Model(inputs, layers.Reshape((-1, self.channels[-1]))(x), name="encoder")


def _residual(x: Tensor, channels: int, name: str) -> Tensor:
    layers = keras.layers
    y = layers.GroupNormalization(_GROUPS, name=f"{name}_normalize")(x)
    y = layers.Activation("relu", name=f"{name}_relu")(y)
    y = layers.Conv2D(channels, 3, padding="same", name=f"{name}_conv")(y)
    return layers.Add(name=f"{name}_add")([x, y])


@keras.saving.register_keras_serializable(package="keras_xmr", name="Coordinates")
class _Coordinates(keras.layers.Layer):
    """Appends two channels with row and column, from -1 to 1."""

    def call(self, pixels: Tensor) -> Tensor:
        ops = keras.ops
        height, width, channels = pixels.shape[1:]
        rows = ops.linspace(-1.0, 1.0, height)[:, None]
        columns = ops.linspace(-1.0, 1.0, width)[None, :]
        grid = [ops.broadcast_to(axis, (height, width)) for axis in (rows, columns)]
        coordinates = ops.pad(ops.stack(grid, axis=-1), ((0, 0), (0, 0), (channels, 0)))
        # TensorFlow joins a handful of channels one pixel at a time; a product with ones and zeros
        # puts the same numbers there in less than half of the time.
        places = ops.eye(channels, channels + 2, dtype=pixels.dtype)
        return ops.matmul(pixels, places) + ops.cast(coordinates, pixels.dtype)
