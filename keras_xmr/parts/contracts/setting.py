"""The setting of a part: the other parts of its model, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from keras_xmr.parts.registry import components

Mistake = str
"""A dotted key, and why its value cannot work: `model.dimension: 7 is odd, but ...`."""


class EmbeddingSpec(NamedTuple):
    """The kind and keys of an embedding.

    Attributes:
        kind: The kind.
        keys: The keys beyond those that the kind has, or all.
    """

    kind: str
    keys: Set[str]


class ChosenPart(NamedTuple):
    """A part that a config chooses.

    Attributes:
        key: The dotted key of its section.
        family: The family, a key of `keras_xmr.parts.registry.FAMILIES`.
        name: The name in the config.
        cls: The class.
        contract: The declaration, with the options of the section.
        options: The options that the declaration names; no other decides what fits.
    """

    key: str
    family: str
    name: str
    cls: Any
    contract: Any
    options: Mapping[str, object]

    @property
    def side(self) -> str:
        """The side of the tower that it is a part of, "image" or "text"."""
        return self.key.split(".")[1]

    def key_of(self, field: str) -> str:
        """Returns the key of the option that sets a field of the declaration; of the name
        without one.
        """
        return f"{self.key}.{next(iter(self.contract.options_for(field)), 'name')}"


@dataclass(frozen=True)
class Setting:
    """All parts of a run, and what else decides whether a part fits.

    Attributes:
        parts: Encoders, heads, poolings, matchers and losses.
        dimension: The dimension of the embeddings.
        image_size: Height and width of photos, in pixels.
        source: The name of the data source.
        holds: What the source holds, "images" or "regions".
        sampler: The sampler of batches.
        start: How the weights begin, unless from a run.
        continues: Whether training begins with the weights of a run.
        frozen: What each phase of the training freezes.
        in_chunks: Whether a batch is embedded in chunks.
        compiled: Whether XLA compiles the training step.
        stores_captions: Whether features of captions are computed once.
        judged: Whether training learns from judgements.
    """

    parts: tuple[ChosenPart, ...]
    dimension: int
    image_size: int
    source: str
    holds: str
    sampler: str
    start: str
    continues: bool
    frozen: tuple[frozenset[str], ...]
    in_chunks: bool
    compiled: bool
    stores_captions: bool
    judged: bool

    def of(self, *families: str, side: str = "") -> list[ChosenPart]:
        """Returns the parts of some families, of one tower or of both."""
        parts = [part for part in self.parts if part.family in families]
        return [part for part in parts if not side or part.side == side]

    def tower(self, side: str) -> Mapping[str, ChosenPart]:
        """Returns the parts of a tower by their families."""
        return {part.family: part for part in self.of("encoder", "pooling", "head", side=side)}

    @property
    def matcher(self) -> ChosenPart:
        """The matcher of the model."""
        return self.of("matcher")[0]

    @property
    def embeddings(self) -> tuple[EmbeddingSpec, EmbeddingSpec]:
        """The embeddings of images and of captions."""
        heads = [head.contract for head in self.of("head")]
        image, caption = (EmbeddingSpec(head.kind, set(head.keys)) for head in heads)
        return image, caption

    def mistakes(self) -> Iterator[Mistake]:
        """Yields what each part says of its setting."""
        for part in self.parts:
            yield from part.cls.mistakes(part, self)


def names_of(family: str, fits: Callable[[Any], bool]) -> list[str]:
    """Returns the names of the components of a family with a fitting declaration."""
    return [name for name, known in components(family).items() if fits(known.CONTRACT)]


def options_text(options: Mapping[str, object]) -> str:
    """Returns options as written in a config."""
    return ", ".join(f"{name}: {str(value).lower()}" for name, value in options.items())
