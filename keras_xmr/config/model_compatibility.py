"""Checks that the towers, matchers and losses of a config fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keras_xmr.config.contracts import (
    EmbeddingSpec,
    LossContract,
    Mismatch,
    find_mismatches,
    sides_with_keys,
)
from keras_xmr.config.registry import Choice, components, contract_of

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config, TowerOptions

Mistake = tuple[tuple[str | int, ...], str]
"""A key, and why its value cannot work."""


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
    heads = [contract_of("head", tower.head) for tower in config.model.towers.values()]
    image, caption = (EmbeddingSpec(head.kind, set(head.keys)) for head in heads)
    return image, caption


def options_text(options: Mapping[str, Any]) -> str:
    """Options as written in a config."""
    return ", ".join(f"{name}: {str(value).lower()}" for name, value in options.items())


def _towers(config: Config) -> Iterator[Mistake]:
    for side, tower in config.model.towers.items():
        made_for = contract_of("encoder", tower.encoder).side
        if made_for != side:
            names = [n for n, c in components("encoder").items() if c.contract.side == side]
            yield (
                ("model", side, "encoder", "name"),
                f"{tower.encoder.name!r} encodes {made_for}s; for {side}s there are: "
                f"{', '.join(names)}",
            )
        yield from _pooling(side, tower)
        yield from _positions(side, tower)
        yield from _width(side, tower, config.model.dimension)
    yield from _dimension(config)
    yield from _image_size(config)
    image = config.model.image.encoder
    takes, holds = contract_of("encoder", image).reads, config.data.source.holds
    if takes in ("pixels", "regions") and (takes == "regions") != (holds == "regions"):
        yield (
            ("model", "image", "encoder", "name"),
            f"{image.name!r} takes {takes}, but the source {config.data.source.name!r} holds "
            f"{holds}",
        )


def _parts(tower: TowerOptions) -> Iterator[tuple[str, Choice]]:
    """The head of a tower, and its pooling if it has one, by family."""
    yield "head", tower.head
    if tower.pooling is not None:
        yield "pooling", tower.pooling


def _dimension(config: Config) -> Iterator[Mistake]:
    dimension = config.model.dimension
    for tower in config.model.towers.values():
        for family, part in _parts(tower):
            contract = contract_of(family, part)
            if dimension % 2 and contract.even:
                name = next(iter(contract.options_for("even").values()), part.name)
                yield (
                    ("model", "dimension"),
                    f"{dimension} is odd, but {name!r} gives one half of it to each direction; "
                    f"write an even number, such as {dimension + 1}",
                )
                return


def _image_size(config: Config) -> Iterator[Mistake]:
    encoder, size = config.model.image.encoder, config.data.image.size
    contract = contract_of("encoder", encoder)
    if contract.smallest is not None and size < contract.smallest:
        others = contract.options_for("smallest")
        name = next((getattr(encoder, option, "") for option in others), encoder.name)
        yield (
            ("data", "image", "size"),
            f"{name} sees photos of {contract.smallest} pixels and more, not {size}; write "
            f"{contract.smallest}",
        )


def _positions(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    count = contract_of("head", tower.head).positions
    if count is None or contract_of("encoder", tower.encoder).positions == count:
        return
    known = {n: c.contract for n, c in components("encoder").items()}
    names = [n for n, c in known.items() if (c.side, c.positions) == (side, count)]
    yield (
        ("model", side, "head", "name"),
        f"{tower.head.name!r} reads {count} features of an item, which {tower.encoder.name!r} does "
        f"not make; encoders that do: {', '.join(names)}",
    )


def _width(side: str, tower: TowerOptions, dimension: int) -> Iterator[Mistake]:
    """Parts that keep the width of the features, where an option says how wide these are."""
    option = contract_of("encoder", tower.encoder).width
    # A class that derives from another may have its declaration, and not its options.
    width = getattr(tower.encoder, option, None) if option else None
    width = width[-1] if isinstance(width, tuple) else width
    if width in (None, dimension):
        return
    for family, part in _parts(tower):
        contract = contract_of(family, part)
        if not contract.keeps_width:
            continue
        others = contract.options_for("keeps_width")
        opposite = {n: not v for n, v in others.items() if isinstance(v, bool)}
        says = "".join(f", or {options_text(opposite)}" for _ in opposite)
        value = next((str(v).lower() for v in others.values()), repr(part.name))
        yield (
            ("model", side, family, next(iter(others), "name")),
            f"{value} keeps the width of the features, {width} by model.{side}.encoder.{option}, "
            f"but model.dimension is {dimension}; write one for both{says}",
        )


def _pooling(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    pools = contract_of("head", tower.head).pools
    key = ("model", side, "pooling")
    if pools and tower.pooling is None:
        yield (
            key,
            f"the head {tower.head.name!r} needs a pooling; there are: "
            f"{', '.join(components('pooling'))}",
        )
    if not pools and tower.pooling is not None:
        yield (
            key,
            f"has no effect: the head {tower.head.name!r} keeps every local feature; write null",
        )


def _all_matchers(config: Config) -> Iterator[tuple[tuple[str | int, ...], Choice]]:
    """Every matcher of a config, and its key."""
    yield ("model", "matcher"), config.model.matcher
    for number, matcher in enumerate(config.evaluation.matchers):
        yield ("evaluation", "matchers", number), matcher


def _matchers(config: Config) -> Iterator[Mistake]:
    made = _embedding_specs(config)
    for key, matcher in _all_matchers(config):
        for mismatch in find_mismatches(contract_of("matcher", matcher), *made):
            yield _kind_mistake(matcher, mismatch, "matcher", made, key)
    yield from _further_matchers(config, embedding_kinds(config))


def _further_matchers(config: Config, kinds: tuple[str, str]) -> Iterator[Mistake]:
    trained = config.model.matcher
    known = {trained.name: _fixed_options(trained)}
    for number, matcher in enumerate(config.evaluation.matchers):
        key = ("evaluation", "matchers", number, "name")
        if known.setdefault(matcher.name, _fixed_options(matcher)) != _fixed_options(matcher):
            yield key, f"{matcher.name!r} occurs twice with different options; remove one"
        elif "tokens" in kinds and matcher.name != trained.name:
            yield (
                key,
                f"{matcher.name!r} learns weights, which only a run with it as model.matcher has; "
                "remove it",
            )


def _fixed_options(matcher: Choice) -> dict[str, Any]:
    """The options of a matcher except initial values of learned scalars."""
    learned = contract_of("matcher", matcher).learned
    return {n: v for n, v in matcher.options().items() if n not in learned}


def _kind_mistake(
    choice: Choice,
    mismatch: Mismatch,
    family: str,
    made: tuple[EmbeddingSpec, EmbeddingSpec],
    key: tuple[str | int, ...],
) -> Mistake:
    """A part that does not accept the kinds of embedding of the heads."""
    kinds = made[0].kind, made[1].kind
    contract = contract_of(family, choice)
    others = contract.options_for("accepts")
    hint = f"; write {options_text(others)}" if others else _heads_for(contract.accepts, kinds)
    return (
        (*key, next(iter(others), "name")),
        f"{choice.name!r} {mismatch.text}, but the heads make {kinds[0]} and {kinds[1]}{hint}",
    )


def _heads_for(accepts: tuple[tuple[str, str], ...], kinds: tuple[str, str]) -> str:
    """Advice on missing or unsupported token embeddings."""
    if ("tokens", "tokens") in accepts:
        return ": it compares single regions with single words, so both heads must be 'tokens'"
    if "tokens" in kinds:
        names = _matchers_of(kinds)
        one_by_one = ", ".join(names) or "none, as both heads must make them"
        return f": it works on one vector per item; matchers of tokens are: {one_by_one}"
    return ""


def _losses(config: Config) -> Iterator[Mistake]:
    made = _embedding_specs(config)
    log_odds = contract_of("matcher", config.model.matcher).log_odds
    for number, loss in enumerate(config.objective):
        key = ("objective", number)
        contract: LossContract = contract_of("loss", loss)
        for mismatch in find_mismatches(contract, *made, log_odds):
            if mismatch.about == "kinds":
                yield _kind_mistake(loss, mismatch, "loss", made, key)
            elif mismatch.about == "keys":
                sides, heads = sides_with_keys(contract), components("head").items()
                names = [n for n, h in heads if set(contract.keys) <= set(h.contract.keys)]
                heads_of_sides = [config.model.towers[side].head.name for side in sides]
                yield (
                    (*key, "name"),
                    f"{loss.name!r} {mismatch.text}, which the heads for {' and '.join(sides)} "
                    f"({', '.join(heads_of_sides)}) do not give; heads that do: {', '.join(names)}",
                )
            else:
                names = [n for n, m in components("matcher").items() if m.contract.log_odds]
                yield (
                    (*key, "name"),
                    f"{loss.name!r} {mismatch.text}, and those of {config.model.matcher.name!r} "
                    f"are not; such matchers are: {', '.join(names)}",
                )


def _ineffective(config: Config) -> Iterator[Mistake]:
    """Options that have no effect with the others of their part."""
    parts: list[tuple[tuple[str | int, ...], str, Choice]] = [
        (("objective", number), "loss", loss) for number, loss in enumerate(config.objective)
    ]
    parts += [(key, "matcher", matcher) for key, matcher in _all_matchers(config)]
    for side, tower in config.model.towers.items():
        parts.append((("model", side, "encoder"), "encoder", tower.encoder))
        parts += [(("model", side, family), family, part) for family, part in _parts(tower)]
    for key, family, part in parts:
        for name, why in contract_of(family, part).ineffective(part.options(), part.defaults()):
            yield (*key, name), why


def _scores(config: Config) -> Iterator[Mistake]:
    """Losses that read the scores, and matchers that are only trained by them."""
    matcher = config.model.matcher
    contract = contract_of("matcher", matcher)
    readers = [
        n for n, loss in enumerate(config.objective) if contract_of("loss", loss).reads_scores
    ]
    if contract.directed:
        for number in readers:
            yield (
                ("objective", number, "name"),
                f"{config.objective[number].name!r} reads one score of each pair, and "
                f"{matcher.name!r} has one for each direction; train with another matcher, such "
                f"as cosine, and put {matcher.name} among evaluation.matchers",
            )
    if contract.log_odds and not readers:
        yield (
            ("model", "matcher", "name"),
            f"{matcher.name!r} learns a scale and a shift, but no loss of the objective reads its "
            "scores; choose a matcher without them, such as cosine",
        )


def _shared(config: Config) -> Iterator[Mistake]:
    """Options of matchers that a loss learns, and that therefore have no effect."""
    learned = {
        name: loss.name
        for loss in config.objective
        for name in contract_of("loss", loss).shared_parameters
    }
    for key, matcher in _all_matchers(config):
        for name in contract_of("matcher", matcher).accepted_parameters:
            if name in learned and getattr(matcher, name, None) != matcher.defaults().get(name):
                yield (
                    (*key, name),
                    f"has no effect: the loss {learned[name]!r} learns it; set it there",
                )


def why_not_indexed(config: Config) -> str:
    """Why photos cannot be indexed with the model; empty if they can."""
    if config.data.source.holds != "images":
        return (
            "photos cannot be indexed with a model of precomputed features of regions; train a "
            "config with photos, such as csv_pretrained"
        )
    matcher = config.model.matcher.name
    if components("matcher")[matcher].search is None:
        return (
            f"the matcher {matcher} does not declare how it searches photos: name the nearest "
            "of keras_xmr.index.augmentations in its SEARCH"
        )
    return ""


def is_as_published(config: Config) -> bool:
    """Whether nothing of the model is trained: its weights are the published ones."""
    return not config.train.phases and config.train.start == "random"


def attends(config: Config) -> bool:
    """Whether the image tower attends to positions of a photo."""
    tower = config.model.image
    if config.data.source.holds != "images" or not contract_of("encoder", tower.encoder).local:
        return False
    pooling = tower.pooling and contract_of("pooling", tower.pooling)
    return bool(contract_of("head", tower.head).attends or (pooling and pooling.attends))


def further_matchers(config: Config) -> list[str]:
    """Matchers that can score the embeddings of the model, in addition to `model.matcher`.

    None for tokens, whose matchers learn weights. Directed matchers are included.
    """
    kinds = embedding_kinds(config)
    if "tokens" in kinds:
        return []
    return [name for name in _matchers_of(kinds) if name != config.model.matcher.name]


def _matchers_of(kinds: tuple[str, str]) -> list[str]:
    """The matchers that score an image and a caption of these kinds."""
    return [n for n, m in components("matcher").items() if kinds in m.contract.accepts]
