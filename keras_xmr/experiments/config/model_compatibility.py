"""Checks that the towers, matchers and losses of a config fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from keras_xmr.experiments.config.schema import Config
from keras_xmr.parts.contracts import EmbeddingSpec, Mismatch, find_mismatches, sides_with_keys
from keras_xmr.parts.registry import FAMILIES, Choice, components

Mistake = str
"""A dotted key, and why its value cannot work: `model.dimension: 7 is odd, but ...`."""


class ChosenPart(NamedTuple):
    """A component that a config chooses.

    Attributes:
        key: The dotted key of its section.
        family: Its family, a key of `keras_xmr.parts.registry.FAMILIES`.
        choice: The section.
        contract: Its declaration, with the options of the section.
    """

    key: str
    family: str
    choice: Choice
    contract: Any

    @property
    def side(self) -> str:
        """The side of the tower that it is a part of, "image" or "text"."""
        return self.key.split(".")[1]


def parts_of(config: Config, *families: str) -> Iterator[ChosenPart]:
    """Yields the encoders, heads, poolings, matchers and losses of a config.

    Args:
        config: The config.
        *families: Their families; by default all.
    """
    chosen: list[tuple[str, str, Choice | None]] = []
    for side, tower in config.model.towers.items():
        chosen += [
            (f"model.{side}.encoder", "encoder", tower.encoder),
            (f"model.{side}.head", "head", tower.head),
            (f"model.{side}.pooling", "pooling", tower.pooling),
        ]
    chosen.append(("model.matcher", "matcher", config.model.matcher))
    for number, matcher in enumerate(config.evaluation.matchers):
        chosen.append((f"evaluation.matchers.{number}", "matcher", matcher))
    for number, loss in enumerate(config.objective):
        chosen.append((f"objective.{number}", "loss", loss))
    for key, family, choice in chosen:
        if choice is not None and family in (families or FAMILIES):
            yield ChosenPart(key, family, choice, choice.contract)


def names_of(family: str, fits: Callable[[Any], bool]) -> list[str]:
    """The names of the components of a family with a fitting declaration."""
    return [name for name, known in components(family).items() if fits(known.CONTRACT)]


def check_model(config: Config) -> Iterator[Mistake]:
    """Yields the mistakes of the towers, the matchers and the losses."""
    yield from _towers(config)
    yield from _matchers(config)
    yield from _losses(config)
    yield from _ineffective(config)
    yield from _scores(config)
    yield from _shared(config)


def embedding_kinds(config: Config) -> tuple[str, str]:
    """The kinds of the image embedding and of the caption embedding."""
    image, caption = _embedding_specs(config)
    return image.kind, caption.kind


def _embedding_specs(config: Config) -> tuple[EmbeddingSpec, EmbeddingSpec]:
    """The image embedding and the caption embedding."""
    heads = [head.contract for head in parts_of(config, "head")]
    image, caption = (EmbeddingSpec(head.kind, set(head.keys)) for head in heads)
    return image, caption


def options_text(options: Mapping[str, Any]) -> str:
    """Options as written in a config."""
    return ", ".join(f"{name}: {str(value).lower()}" for name, value in options.items())


def _towers(config: Config) -> Iterator[Mistake]:
    for side in config.model.towers:
        yield from _tower(config, side)
    yield from _dimension(config)
    yield from _image_size(config)
    image = config.model.image.encoder
    takes, holds = image.contract.reads, config.data.source.holds
    if takes in ("pixels", "regions") and (takes == "regions") != (holds == "regions"):
        yield (
            f"model.image.encoder.name: {image.name!r} takes {takes}, but the source "
            f"{config.data.source.name!r} holds {holds}"
        )


def _tower(config: Config, side: str) -> Iterator[Mistake]:
    """The parts of a tower with one another."""
    tower, key = config.model.towers[side], f"model.{side}"
    encoder, head = tower.encoder.contract, tower.head.contract
    if encoder.side != side:
        names = names_of("encoder", lambda other: other.side == side)
        yield (
            f"{key}.encoder.name: {tower.encoder.name!r} encodes {encoder.side}s; for {side}s "
            f"there are: {', '.join(names)}"
        )
    if head.pools and tower.pooling is None:
        yield (
            f"{key}.pooling: the head {tower.head.name!r} needs a pooling; there are: "
            f"{', '.join(components('pooling'))}"
        )
    if not head.pools and tower.pooling is not None:
        yield (
            f"{key}.pooling: has no effect: the head {tower.head.name!r} keeps every local "
            "feature; write null"
        )
    if head.positions not in (None, encoder.positions):
        names = names_of("encoder", lambda e: (e.side, e.positions) == (side, head.positions))
        yield (
            f"{key}.head.name: {tower.head.name!r} reads {head.positions} features of an item, "
            f"which {tower.encoder.name!r} does not make; encoders that do: {', '.join(names)}"
        )
    yield from _width(config, side, encoder.width)


def _width(config: Config, side: str, option: str | None) -> Iterator[Mistake]:
    """Parts that keep the width of the features, where an option says how wide these are."""
    dimension = config.model.dimension
    # A class that derives from another may have its declaration, and not its options.
    width = getattr(config.model.towers[side].encoder, option, None) if option else None
    width = width[-1] if isinstance(width, tuple) else width
    if width in (None, dimension):
        return
    for part in parts_of(config, "head", "pooling"):
        if not part.contract.keeps_width or part.side != side:
            continue
        others = part.contract.options_for("keeps_width")
        opposite = {n: not v for n, v in others.items() if isinstance(v, bool)}
        says = "".join(f", or {options_text(opposite)}" for _ in opposite)
        value = next((str(v).lower() for v in others.values()), repr(part.choice.name))
        yield (
            f"{part.key}.{next(iter(others), 'name')}: {value} keeps the width of the features, "
            f"{width} by model.{side}.encoder.{option}, but model.dimension is {dimension}; write "
            f"one for both{says}"
        )


def _dimension(config: Config) -> Iterator[Mistake]:
    dimension = config.model.dimension
    for part in parts_of(config, "head", "pooling"):
        if dimension % 2 and part.contract.even:
            name = next(iter(part.contract.options_for("even").values()), part.choice.name)
            yield (
                f"model.dimension: {dimension} is odd, but {name!r} gives one half of it to each "
                f"direction; write an even number, such as {dimension + 1}"
            )
            return


def _image_size(config: Config) -> Iterator[Mistake]:
    encoder, size = config.model.image.encoder, config.data.image.size
    contract = encoder.contract
    if contract.smallest is not None and size < contract.smallest:
        others = contract.options_for("smallest")
        name = next((getattr(encoder, option, "") for option in others), encoder.name)
        yield (
            f"data.image.size: {name} sees photos of {contract.smallest} pixels and more, not "
            f"{size}; write {contract.smallest}"
        )


def _matchers(config: Config) -> Iterator[Mistake]:
    made, trained = _embedding_specs(config), config.model.matcher
    known = {trained.name: _fixed_options(trained)}
    for part in parts_of(config, "matcher"):
        name, options = part.choice.name, _fixed_options(part.choice)
        for mismatch in find_mismatches(part.contract, *made):
            yield _kind_mistake(part, mismatch, made)
        if known.setdefault(name, options) != options:
            yield f"{part.key}.name: {name!r} occurs twice with different options; remove one"
        elif "tokens" in (made[0].kind, made[1].kind) and name != trained.name:
            yield (
                f"{part.key}.name: {name!r} learns weights, which only a run with it as "
                "model.matcher has; remove it"
            )


def _fixed_options(matcher: Choice) -> dict[str, Any]:
    """The options of a matcher except initial values of learned scalars."""
    learned = matcher.contract.learned
    return {n: v for n, v in matcher.options().items() if n not in learned}


def _kind_mistake(
    part: ChosenPart, mismatch: Mismatch, made: tuple[EmbeddingSpec, EmbeddingSpec]
) -> Mistake:
    """A part that does not accept the kinds of embedding of the heads."""
    kinds = made[0].kind, made[1].kind
    others = part.contract.options_for("accepts")
    hint = f"; write {options_text(others)}" if others else _heads_for(part.contract.accepts, kinds)
    return (
        f"{part.key}.{next(iter(others), 'name')}: {part.choice.name!r} {mismatch.text}, but the "
        f"heads make {kinds[0]} and {kinds[1]}{hint}"
    )


def _heads_for(accepts: tuple[tuple[str, str], ...], kinds: tuple[str, str]) -> str:
    """Advice on missing or unsupported token embeddings."""
    if ("tokens", "tokens") in accepts:
        return ": it compares single regions with single words, so both heads must be 'tokens'"
    if "tokens" in kinds:
        names = names_of("matcher", lambda matcher: kinds in matcher.accepts)
        one_by_one = ", ".join(names) or "none, as both heads must make them"
        return f": it works on one vector per item; matchers of tokens are: {one_by_one}"
    return ""


def _losses(config: Config) -> Iterator[Mistake]:
    made, matcher = _embedding_specs(config), config.model.matcher
    log_odds = matcher.contract.log_odds
    for part in parts_of(config, "loss"):
        for mismatch in find_mismatches(part.contract, *made, log_odds):
            begin = f"{part.key}.name: {part.choice.name!r} {mismatch.text}"
            if mismatch.about == "kinds":
                yield _kind_mistake(part, mismatch, made)
            elif mismatch.about == "keys":
                sides, keys = sides_with_keys(part.contract), set(part.contract.keys)
                known = components("head").items()
                names = [name for name, head in known if keys <= set(head.CONTRACT.keys)]
                heads = [config.model.towers[side].head.name for side in sides]
                yield (
                    f"{begin}, which the heads for {' and '.join(sides)} ({', '.join(heads)}) do "
                    f"not give; heads that do: {', '.join(names)}"
                )
            else:
                names = names_of("matcher", lambda other: other.log_odds)
                yield (
                    f"{begin}, and those of {matcher.name!r} are not; such matchers are: "
                    f"{', '.join(names)}"
                )


def _ineffective(config: Config) -> Iterator[Mistake]:
    """Options that have no effect with the others of their part."""
    for key, _, choice, contract in parts_of(config):
        for name, why in contract.ineffective(choice.options(), choice.defaults()):
            yield f"{key}.{name}: {why}"


def _scores(config: Config) -> Iterator[Mistake]:
    """Losses that read the scores, and matchers that are only trained by them."""
    name, contract = config.model.matcher.name, config.model.matcher.contract
    readers = [loss for loss in parts_of(config, "loss") if loss.contract.reads_scores]
    for loss in readers if contract.directed else ():
        yield (
            f"{loss.key}.name: {loss.choice.name!r} reads one score of each pair, and {name!r} has "
            "one for each direction; train with another matcher, such as cosine, and put "
            f"{name} among evaluation.matchers"
        )
    if contract.log_odds and not readers:
        yield (
            f"model.matcher.name: {name!r} learns a scale and a shift, but no loss of the "
            "objective reads its scores; choose a matcher without them, such as cosine"
        )


def _shared(config: Config) -> Iterator[Mistake]:
    """Options of matchers that a loss learns, and that therefore have no effect."""
    losses = parts_of(config, "loss")
    learned = {n: loss.choice.name for loss in losses for n in loss.contract.shared_parameters}
    for key, _, matcher, contract in parts_of(config, "matcher"):
        for name in contract.accepted_parameters:
            if name in learned and getattr(matcher, name, None) != matcher.defaults().get(name):
                why = f"the loss {learned[name]!r} learns it; set it there"
                yield f"{key}.{name}: has no effect: {why}"


def why_not_indexed(config: Config) -> str:
    """Why photos cannot be indexed with the model; empty if they can."""
    if config.data.source.holds != "images":
        return (
            "photos cannot be indexed with a model of precomputed features of regions; train a "
            "config with photos, such as csv_pretrained"
        )
    matcher = config.model.matcher.name
    if config.model.matcher.part.SEARCH is None:
        return (
            f"the matcher {matcher} does not declare how it searches photos: name the nearest "
            "of keras_xmr.search.augmentations in its SEARCH"
        )
    return ""


def is_as_published(config: Config) -> bool:
    """Whether nothing of the model is trained: its weights are the published ones."""
    return not config.train.phases and config.train.start == "random"


def attends(config: Config) -> bool:
    """Whether the image tower attends to positions of a photo."""
    tower = config.model.image
    if config.data.source.holds != "images" or not tower.encoder.contract.local:
        return False
    pooling = tower.pooling and tower.pooling.contract
    return bool(tower.head.contract.attends or (pooling and pooling.attends))
