"""What an encoder is."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from data_pipelines.errors import UserError


class EncoderError(UserError):
    """An encoder cannot be built, for instance because its weights are missing."""


@dataclass(frozen=True)
class InputSpec:
    """What the towers are fed.

    Attributes:
        image_size: Height and width of the pixels, for pictures.
        regions: Number and width (R, F) of the region features, for regions; R may be None.
        vocabulary: Words by id, for captions.
        pretrained: Whether weights and word vectors are loaded from where the config says. They
            need not be where the weights of the whole model are loaded afterwards.
        seed: Seed of what is drawn at random.
    """

    image_size: int | None = None
    regions: tuple[int | None, int] | None = None
    vocabulary: Sequence[str] = ()
    pretrained: bool = True
    seed: int = 0


class Encoder(abc.ABC):
    """Builds the first part of a functional tower.

    A subclass says in `SIDE` and `INPUT` what it encodes. Its options are the keyword-only
    parameters of its constructor. All its weights belong to one layer of the name "encoder", so
    that they can be frozen together.
    """

    SIDE: ClassVar[Literal["image", "text"]]
    INPUT: ClassVar[Literal["pixels", "regions", "words"]]

    @abc.abstractmethod
    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Adds the encoder to a functional model.

        Args:
            inputs: The symbolic input: pixels uint8 (B, H, W, 3), regions float (B, R, F), or
                word ids int32 (B, L).
            spec: What the tower is fed.

        Returns:
            Symbolic local features (B, L, F), and a boolean mask (B, L) or None.

        Raises:
            EncoderError: If weights or vectors cannot be loaded.
        """
