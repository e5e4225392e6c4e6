"""Checks which components make a model and its objective, and says why others do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keras_xmr.config.contracts import HeadContract, LossContract
from keras_xmr.config.fit import SIDES, Made, Misfit, misfits, sides_with_keys
from keras_xmr.config.registry import Choice, components, declared

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config, TowerOptions

Mistake = tuple[tuple[str | int, ...], str]
"""The key of what cannot work, and why."""


def check_model(config: Config) -> Iterator[Mistake]:
    """Yields what cannot work of the towers, the matchers and the losses."""
    yield from _towers(config)
    yield from _matchers(config)
    yield from _losses(config)
    yield from _ineffective(config)
    yield from _scores(config)
    yield from _shared(config)


def embedding_kinds(config: Config) -> tuple[str, str]:
    """The kinds of the image embedding and of the caption embedding."""
    image, caption = _made(config)
    return image.kind, caption.kind


def _made(config: Config) -> tuple[Made, Made]:
    """The image embedding and the caption embedding."""
    heads: list[HeadContract] = [
        declared("head", getattr(config.model, side).head) for side in SIDES
    ]
    image, caption = (Made(head.kind, set(head.keys)) for head in heads)
    return image, caption


def written(options: Mapping[str, Any], joiner: str = ", ") -> str:
    """Options as a config has them."""
    return joiner.join(f"{name}: {str(value).lower()}" for name, value in options.items())


def _towers(config: Config) -> Iterator[Mistake]:
    for side in SIDES:
        tower: TowerOptions = getattr(config.model, side)
        made_for = declared("encoder", tower.encoder).side
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
    takes, holds = declared("encoder", image).reads, config.data.source.holds
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
    for side in SIDES:
        for family, part in _parts(getattr(config.model, side)):
            contract = declared(family, part)
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
    contract = declared("encoder", encoder)
    if contract.smallest is not None and size < contract.smallest:
        others = contract.options_for("smallest")
        name = next((getattr(encoder, option, "") for option in others), encoder.name)
        yield (
            ("data", "image", "size"),
            f"{name} sees photos of {contract.smallest} pixels and more, not {size}; write "
            f"{contract.smallest}",
        )


def _positions(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    count = declared("head", tower.head).positions
    if count is None or declared("encoder", tower.encoder).positions == count:
        return
    names = [
        name
        for name, encoder in components("encoder").items()
        if encoder.contract.side == side and encoder.contract.positions == count
    ]
    yield (
        ("model", side, "head", "name"),
        f"{tower.head.name!r} reads {count} features of an item, which {tower.encoder.name!r} does "
        f"not make; encoders that do: {', '.join(names)}",
    )


def _width(side: str, tower: TowerOptions, dimension: int) -> Iterator[Mistake]:
    """Parts that keep the width of the features, where an option says how wide these are."""
    option = declared("encoder", tower.encoder).width
    # A class that derives from another may have its declaration, and not its options.
    width = getattr(tower.encoder, option, None) if option else None
    width = width[-1] if isinstance(width, tuple) else width
    if width in (None, dimension):
        return
    for family, part in _parts(tower):
        contract = declared(family, part)
        if not contract.keeps_width:
            continue
        others = contract.options_for("keeps_width")
        opposite = {n: not v for n, v in others.items() if isinstance(v, bool)}
        says = "".join(f", or {written(opposite)}" for _ in opposite)
        value = next((str(v).lower() for v in others.values()), repr(part.name))
        yield (
            ("model", side, family, next(iter(others), "name")),
            f"{value} keeps the width of the features, {width} by model.{side}.encoder.{option}, "
            f"but model.dimension is {dimension}; write one for both{says}",
        )


def _pooling(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    pools = declared("head", tower.head).pools
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
    made = _made(config)
    for key, matcher in _all_matchers(config):
        for misfit in misfits(declared("matcher", matcher), *made):
            yield _of_kinds(matcher, misfit, "matcher", made, key)
    yield from _further_matchers(config, embedding_kinds(config))


def _further_matchers(config: Config, kinds: tuple[str, str]) -> Iterator[Mistake]:
    own = config.model.matcher
    known = {own.name: _not_learned(own)}
    for number, matcher in enumerate(config.evaluation.matchers):
        key = ("evaluation", "matchers", number, "name")
        if known.setdefault(matcher.name, _not_learned(matcher)) != _not_learned(matcher):
            yield key, f"{matcher.name!r} is there already, with other options; leave out one"
        elif "tokens" in kinds and matcher.name != own.name:
            yield (
                key,
                f"{matcher.name!r} learns weights, which only a run with it as model.matcher has; "
                "leave it out",
            )


def _not_learned(matcher: Choice) -> dict[str, Any]:
    """The options of a matcher but those that say where learned scalars start."""
    learned = declared("matcher", matcher).learned
    return {n: v for n, v in matcher.options().items() if n not in learned}


def _of_kinds(
    choice: Choice,
    misfit: Misfit,
    family: str,
    made: tuple[Made, Made],
    key: tuple[str | int, ...],
) -> Mistake:
    """A part that does not work on the kinds of embedding that the heads make."""
    kinds = made[0].kind, made[1].kind
    contract = declared(family, choice)
    others = contract.options_for("accepts")
    hint = f"; write {written(others)}" if others else _heads_for(contract.accepts, kinds)
    return (
        (*key, next(iter(others), "name")),
        f"{choice.name!r} {misfit.text}, but the heads make {kinds[0]} and {kinds[1]}{hint}",
    )


def _keys_of_embeddings(
    config: Config, loss: Choice, misfit: Misfit, key: tuple[str | int, ...]
) -> Mistake:
    contract: LossContract = declared("loss", loss)
    sides = sides_with_keys(contract)
    heads = components("head").items()
    names = [n for n, h in heads if set(contract.keys) <= set(h.contract.keys)]
    own = [getattr(config.model, side).head.name for side in sides]
    return (
        key,
        f"{loss.name!r} {misfit.text}, which the heads for {' and '.join(sides)} "
        f"({', '.join(own)}) do not give; heads that do: {', '.join(names)}",
    )


def _heads_for(accepts: tuple[tuple[str, str], ...], kinds: tuple[str, str]) -> str:
    """What to do about tokens where there are none, or where they are not wanted."""
    if ("tokens", "tokens") in accepts:
        return ": it compares single regions with single words, so both heads must be 'tokens'"
    if "tokens" in kinds:
        names = [n for n, m in components("matcher").items() if kinds in m.contract.accepts]
        one_by_one = ", ".join(names) or "none, as both heads must make them"
        return f": it knows one vector an item; matchers of tokens are: {one_by_one}"
    return ""


def _losses(config: Config) -> Iterator[Mistake]:
    made = _made(config)
    log_odds = declared("matcher", config.model.matcher).log_odds
    for number, loss in enumerate(config.objective):
        key = ("objective", number)
        contract: LossContract = declared("loss", loss)
        for misfit in misfits(contract, *made, log_odds):
            if misfit.about == "kinds":
                yield _of_kinds(loss, misfit, "loss", made, key)
            elif misfit.about == "keys":
                yield _keys_of_embeddings(config, loss, misfit, (*key, "name"))
            else:
                names = [n for n, m in components("matcher").items() if m.contract.log_odds]
                yield (
                    (*key, "name"),
                    f"{loss.name!r} {misfit.text}, and those of {config.model.matcher.name!r} are "
                    f"not; such matchers are: {', '.join(names)}",
                )


def _ineffective(config: Config) -> Iterator[Mistake]:
    """Options that have no effect with the others of their part."""
    parts: list[tuple[tuple[str | int, ...], str, Choice]] = [
        (("objective", number), "loss", loss) for number, loss in enumerate(config.objective)
    ]
    parts += [(key, "matcher", matcher) for key, matcher in _all_matchers(config)]
    for side in SIDES:
        tower: TowerOptions = getattr(config.model, side)
        parts.append((("model", side, "encoder"), "encoder", tower.encoder))
        parts += [(("model", side, family), family, part) for family, part in _parts(tower)]
    for key, family, part in parts:
        for text in declared(family, part).ineffective(part.options(), part.defaults()):
            name, _, why = text.partition(": ")
            yield (*key, name), why


def _scores(config: Config) -> Iterator[Mistake]:
    """Losses that read the scores, and matchers that are only trained by them."""
    matcher = config.model.matcher
    contract = declared("matcher", matcher)
    readers = [n for n, loss in enumerate(config.objective) if declared("loss", loss).reads_scores]
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
        name: loss.name for loss in config.objective for name in declared("loss", loss).shares
    }
    for key, matcher in _all_matchers(config):
        for name in declared("matcher", matcher).shared:
            if name in learned and getattr(matcher, name, None) != matcher.defaults().get(name):
                yield (
                    (*key, name),
                    f"has no effect: the loss {learned[name]!r} learns it; set it there",
                )
