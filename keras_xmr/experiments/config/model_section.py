"""The section `model` of a config."""

from __future__ import annotations

from typing import Annotated

from keras_xmr.parts.option_types import PositiveInt
from keras_xmr.parts.registry import Choice, OneOf
from keras_xmr.parts.section import Section


class TowerOptions(Section):
    """A tower: local features, their pooling, and the kind of embedding."""

    encoder: Annotated[Choice, OneOf("encoder")]
    """Makes local features: positions of an image, regions, or words."""

    pooling: Annotated[Choice, OneOf("pooling")] | None = None
    """Makes one global vector of the local features; none for a head that keeps them all."""

    head: Annotated[Choice, OneOf("head")]
    """Makes the embedding."""


class ModelOptions(Section):
    """Two towers and a matcher."""

    dimension: PositiveInt = 1024
    """Dimension D of the joint embedding space."""

    image: TowerOptions
    """The image tower."""

    text: TowerOptions
    """The text tower."""

    matcher: Annotated[Choice, OneOf("matcher")]
    """Makes the score matrix of a batch of images and a batch of captions."""

    @property
    def towers(self) -> dict[str, TowerOptions]:
        """The towers by the names of their sections."""
        return {"image": self.image, "text": self.text}
