"""Declarations of the parts of towers: encoders, poolings and heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from keras_xmr.parts.contracts.base import Contract
from keras_xmr.parts.contracts.setting import (
    ChosenPart,
    Mistake,
    Setting,
    names_of,
    options_text,
)
from keras_xmr.parts.registry import components
from keras_xmr.utils.sides import Side


class EncoderContract(Contract):
    """The declaration of an encoder.

    Attributes:
        side: The side that it encodes.
        reads: The kind of its inputs.
        width: The option with the width of its features.
        local: Whether its features are local; false for one global vector.
        batch_norm: Whether it normalises by batches.
        smallest: Minimum height and width of a photo, in pixels.
    """

    side: Side | None = None
    reads: Literal["pixels", "regions", "words"] | None = None
    width: str | None = None
    local: bool = True
    batch_norm: bool = False
    smallest: int | None = None

    def mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why an encoder does not fit its side, the data, or a batch in chunks."""
        yield from _unlike_whole_batches(part, setting)
        if self.side != part.side:
            names = names_of("encoder", lambda other: other.side == part.side)
            yield (
                f"{part.key}.name: {part.name!r} encodes {self.side}s; for {part.side}s there are: "
                f"{', '.join(names)}"
            )
        if part.side != "image":
            return
        if self.smallest is not None and setting.image_size < self.smallest:
            others = self.options_for("smallest")
            name = next((part.options.get(option) for option in others), part.name)
            yield (
                f"data.image.size: {name} sees photos of {self.smallest} pixels and more, not "
                f"{setting.image_size}; write {self.smallest}"
            )
        of_regions = self.reads == "regions"
        if self.reads in ("pixels", "regions") and of_regions != (setting.holds == "regions"):
            yield (
                f"{part.key}.name: {part.name!r} takes {self.reads}, but the source "
                f"{setting.source!r} holds {setting.holds}"
            )


class PoolingContract(Contract):
    """The declaration of a pooling.

    Attributes:
        even: Whether the dimension must be even.
        batch_norm: Whether it normalises by batches.
        attends: Whether it attends to the positions, and implements `attention_weights`.
        keeps_width: Whether the features must be as wide as its output.
        set_by: The `train.start` that sets its weights.
        closed_form: The option with the number of components that are set there and not trained.
        shared: Options that must have the same value in both towers.
        across: How many of the last numbers of a vector compare it with the other side alone.
    """

    even: bool = False
    batch_norm: bool = False
    attends: bool = False
    keeps_width: bool = False
    set_by: Literal["cca"] | None = None
    closed_form: str | None = None
    shared: tuple[str, ...] = ()
    across: int = 0

    def mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why a pooling does not fit its tower, the dimension, or a batch in chunks."""
        yield from _unlike_whole_batches(part, setting)
        yield from _of_other_width(part, setting)
        yield from _of_odd_dimension(part, setting)
        if self.closed_form is not None:
            yield from self._closed_form_mistakes(part, setting, self.closed_form)

    def _closed_form_mistakes(
        self, part: ChosenPart, setting: Setting, option: str
    ) -> Iterator[Mistake]:
        """Yields a closed form must leave some numbers to learn, be in both towers, and be set."""
        width = cast(int, part.options.get(option, 0))
        if width + self.across >= setting.dimension:
            yield (
                f"{part.key}.{option}: {width} leaves none of the {setting.dimension} numbers of "
                "an embedding to learn; choose fewer, or a larger model.dimension"
            )
        if not width:
            return
        # A tower without a pooling has none of these options.
        poolings = [setting.tower(side).get("pooling") for side in ("image", "text")]
        for shared in self.shared:
            if len({one.options.get(shared, 0) if one else 0 for one in poolings}) > 1:
                yield (
                    f"{part.key}.{shared}: both towers need the same number, since their vectors "
                    "are compared"
                )
        if setting.start != "cca" and not setting.continues:
            yield f"{part.key}.{option}: nothing sets the closed form; write train.start: cca"
        if self.across and setting.tower(part.side)["head"].contract.attends:
            yield (
                f"model.{part.side}.head: its attention would be added to numbers of the pooling "
                "that only compare with the other side; remove the attention, or local_scaling of "
                "the pooling"
            )


class HeadContract(Contract):
    """The declaration of a head.

    Attributes:
        kind: The kind of embedding that it makes.
        keys: Keys of its embeddings beyond those that the kind has.
        pools: Whether it needs a pooling.
        attends: Whether it attends to the positions, and adds to `attention_maps`.
        keeps_width: Whether the features must be as wide as the embedding.
        even: Whether the dimension of the embedding must be even.
        needs_start: The `train.start` that computes it.
        begins_as_pooling: Whether its initial output, with `train.start: cca`, is its pooling.
    """

    kind: str = ""
    keys: tuple[str, ...] = ()
    pools: bool = True
    attends: bool = False
    keeps_width: bool = False
    even: bool = False
    needs_start: Literal["cca"] | None = None
    begins_as_pooling: bool = True

    def mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why a head does not fit its pooling, the dimension, or the start of training."""
        yield from _of_other_width(part, setting)
        yield from _of_odd_dimension(part, setting)
        key, has_pooling = f"model.{part.side}", "pooling" in setting.tower(part.side)
        if self.pools and not has_pooling:
            yield (
                f"{key}.pooling: the head {part.name!r} needs a pooling; there are: "
                f"{', '.join(components('pooling'))}"
            )
        if has_pooling and not self.pools:
            yield (
                f"{key}.pooling: has no effect: the head {part.name!r} keeps every local feature; "
                "write null"
            )
        if self.needs_start not in (None, setting.start) and not setting.continues:
            yield (
                f"{part.key}.name: {part.name!r} is computed where training starts; write "
                f"train.start: {self.needs_start}"
            )
        if setting.start == "cca":
            yield from self._start_mistakes(part)

    def _start_mistakes(self, part: ChosenPart) -> Iterator[Mistake]:
        """Yields why an embedding cannot begin as its pooling makes it (`train.start: cca`)."""
        if not self.begins_as_pooling:
            options = self.options_for("begins_as_pooling")
            opposite = {name: not value for name, value in options.items()}
            hint = f"{part.key}.{options_text(opposite)}" if opposite else "another head"
            yield (
                f"train.start: 'cca' begins at the pooling, but the LayerNorm of {part.key} undoes "
                f"it; write {hint}"
            )
        if self.keeps_width:
            name = next(iter(self.options_for("keeps_width")), part.name)
            yield (
                f"train.start: 'cca' sets the mean, which `{name}` of {part.key} leaves as it is; "
                "leave out one of the two"
            )


def _of_odd_dimension(part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
    """Yields the first part of the towers that halves the dimension says so."""
    halving = [one for one in setting.of("head", "pooling") if one.contract.even]
    if setting.dimension % 2 and part in halving[:1]:
        name = next(iter(part.contract.options_for("even").values()), part.name)
        yield (
            f"model.dimension: {setting.dimension} is odd, but {name!r} gives one half of it to "
            f"each direction; write an even number, such as {setting.dimension + 1}"
        )


def _of_other_width(part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
    """Yields why a part keeps the width of features, where an option says how wide these are."""
    encoder = setting.tower(part.side)["encoder"]
    option = encoder.contract.width
    # A class that derives from another may have its declaration, and not its options.
    width = encoder.options.get(option) if option else None
    width = width[-1] if isinstance(width, tuple) else width
    if not part.contract.keeps_width or width in (None, setting.dimension):
        return
    others = part.contract.options_for("keeps_width")
    opposite = {name: not value for name, value in others.items() if isinstance(value, bool)}
    says = "".join(f", or {options_text(opposite)}" for _ in opposite)
    value = next((str(value).lower() for value in others.values()), repr(part.name))
    yield (
        f"{part.key_of('keeps_width')}: {value} keeps the width of the features, {width} by "
        f"{encoder.key}.{option}, but model.dimension is {setting.dimension}; write one for "
        f"both{says}"
    )


def _unlike_whole_batches(part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
    """Yields batch normalisation that the config shows, in towers that embed in chunks."""
    if not (setting.in_chunks and part.contract.batch_norm):
        return
    side, option = part.side, next(iter(part.contract.options_for("batch_norm")), "")
    frozen_by = [f"{side}.encoder"]
    if part.family == "pooling":
        frozen_by = [f"{side}.pooling", f"{side}.head"]
    elif option:
        # A layer that comes before the encoder proper is not frozen with it.
        frozen_by = [side]
    name = f"{part.key}.{option}" if option else f"the {part.family} {part.name!r}"
    for number, frozen in enumerate(setting.frozen, 1):
        if not {side, *frozen_by} & frozen:
            yield (
                f"train.gradient_caching: a batch is embedded in chunks, and {name} would "
                f"normalise each alone; leave it out, or freeze {frozen_by[0]} in phase {number}"
            )
