"""Which components make a model and its objective, and why others do not.

A component says in its class attributes what it takes and what it gives:

* an encoder: `SIDE` ("image" or "text"), `INPUT` ("pixels", "regions" or "words"), `WIDTH`, the
  option that says how wide its features are, `POSITIONS`, how many of them it always makes, and
  `SMALLEST`, the least size of photos by `architecture`;
* a pooling: `EVEN`, whether the dimension of the joint space must be even;
* a head: `KIND`, the kind of embedding that it makes, `KEYS`, what it holds beyond that, `POOLS`,
  whether it needs a pooling, and `POSITIONS`, how many features it takes;
* a matcher: `ACCEPTS`, the pairs of kinds (image, caption) that it can score, and `LOGITS`,
  whether its scores are log-odds of a match, and `DIRECTED`, whether a score depends on which
  side is the query;
* a loss: `NEEDS`, the kinds of embedding that it works on (empty for any), or `ACCEPTS`, the
  pairs of kinds; `NEEDS_KEYS` and `NEEDS_KEYS_IF`, further keys of one of the embeddings, or of
  that of one of `NEEDS_KEYS_OF`;
  `NEEDS_LOGITS`, `READS_SCORES`, `TAKES_MIXED`, whether it can be right about mixed images, and
  `COMPILED_WITH`, the options without which XLA cannot compile it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keras_xmr.config.registry import Choice, components

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config, TowerOptions

Mistake = tuple[tuple[str | int, ...], str]
"""The key of what cannot work, and why."""


def check_model(config: Config) -> Iterator[Mistake]:
    """Yields what cannot work of the towers, the matchers and the losses."""
    yield from _towers(config)
    yield from _matchers(config)
    yield from _losses(config)
    yield from _scores(config)
    yield from _followed(config)


def embedding_kinds(config: Config) -> tuple[str, str]:
    """The kinds of the image embedding and of the caption embedding."""
    return constant("head", config.model.image.head, "KIND"), constant(
        "head", config.model.text.head, "KIND"
    )


def constant(family: str, choice: Choice, name: str) -> Any:
    """What a component says of itself in a class attribute; None if it does not."""
    return components(family)[choice.name].constants.get(name)


def _towers(config: Config) -> Iterator[Mistake]:
    for side in ("image", "text"):
        encoder = getattr(config.model, side).encoder
        made_for = constant("encoder", encoder, "SIDE")
        if made_for != side:
            names = [n for n, c in components("encoder").items() if c.constants["SIDE"] == side]
            yield (
                ("model", side, "encoder", "name"),
                f"{encoder.name!r} encodes {made_for}s; for {side}s there are: {', '.join(names)}",
            )
        yield from _pooling(side, getattr(config.model, side))
        yield from _positions(side, getattr(config.model, side))
        yield from _width(side, getattr(config.model, side), config.model.dimension)
    yield from _dimension(config)
    yield from _image_size(config)
    image = config.model.image.encoder
    takes, holds = constant("encoder", image, "INPUT"), config.data.source.holds
    if takes in ("pixels", "regions") and (takes == "regions") != (holds == "regions"):
        yield (
            ("model", "image", "encoder", "name"),
            f"{image.name!r} takes {takes}, but the source {config.data.source.name!r} holds "
            f"{holds}",
        )


def _dimension(config: Config) -> Iterator[Mistake]:
    dimension = config.model.dimension
    for side in ("image", "text"):
        tower = getattr(config.model, side)
        names = [getattr(tower.head, "variance_pooling", "same")]
        names += [tower.pooling.name] if tower.pooling is not None else []
        even = [n for n in names if n != "same" and components("pooling")[n].constants.get("EVEN")]
        if dimension % 2 and even:
            yield (
                ("model", "dimension"),
                f"{dimension} is odd, but {even[0]!r} gives one half of it to each direction; "
                f"write an even number, such as {dimension + 1}",
            )
            return


def _image_size(config: Config) -> Iterator[Mistake]:
    encoder, size = config.model.image.encoder, config.data.image.size
    smallest = constant("encoder", encoder, "SMALLEST")
    if smallest is None:
        return
    architecture = encoder.architecture  # type: ignore[attr-defined]
    least = smallest.get(architecture, 32)
    if size < least:
        yield (
            ("data", "image", "size"),
            f"{architecture} sees photos of {least} pixels and more, not {size}; write {least}",
        )


def _positions(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    count = constant("head", tower.head, "POSITIONS")
    if count is None or constant("encoder", tower.encoder, "POSITIONS") == count:
        return
    found = components("encoder").items()
    names = [
        name
        for name, encoder in found
        if encoder.constants["SIDE"] == side and encoder.constants.get("POSITIONS") == count
    ]
    yield (
        ("model", side, "head", "name"),
        f"{tower.head.name!r} reads {count} features of an item, which {tower.encoder.name!r} does "
        f"not make; encoders that do: {', '.join(names)}",
    )


def _width(side: str, tower: TowerOptions, dimension: int) -> Iterator[Mistake]:
    """Parts that keep the width of the features, where an option says how wide these are."""
    option = constant("encoder", tower.encoder, "WIDTH")
    width = getattr(tower.encoder, option) if option else None
    width = width[-1] if isinstance(width, tuple) else width
    keeps = {
        ("head", "keep_mean"): getattr(tower.head, "keep_mean", False),
        ("pooling", "projection"): getattr(tower.pooling, "projection", True) is False,
    }
    for (part, name), keeps_it in keeps.items():
        if keeps_it and width not in (None, dimension):
            value = getattr(getattr(tower, part), name)
            yield (
                ("model", side, part, name),
                f"{str(value).lower()} keeps the width of the features, {width} by model.{side}."
                f"encoder.{option}, but model.dimension is {dimension}; write one for both, or "
                f"{name}: {str(not value).lower()}",
            )


def _pooling(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    pools = constant("head", tower.head, "POOLS") is not False
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
    kinds = embedding_kinds(config)
    for key, matcher in _all_matchers(config):
        yield from _pair_of_kinds("matcher", matcher, kinds, (*key, "name"))
    yield from _further_matchers(config, kinds)


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
    """The options of a matcher but the scale and the shift, which are learned where there are."""
    return {n: v for n, v in matcher.options().items() if n not in ("scale", "shift")}


def _pair_of_kinds(
    family: str, choice: Choice, kinds: tuple[str, str], key: tuple[str | int, ...]
) -> Iterator[Mistake]:
    accepts = constant(family, choice, "ACCEPTS")
    if accepts and kinds not in accepts:
        pairs = ", ".join(f"{a} and {b}" for a, b in accepts)
        verb = "scores" if family == "matcher" else "works on"
        yield (
            key,
            f"{choice.name!r} {verb} {pairs} embeddings, but the heads make {kinds[0]} and "
            f"{kinds[1]}{_heads_for(accepts, kinds)}",
        )


def _keys_of_embeddings(
    config: Config, loss: Choice, key: tuple[str | int, ...]
) -> Iterator[Mistake]:
    needed = set(constant("loss", loss, "NEEDS_KEYS") or ())
    for option, name in constant("loss", loss, "NEEDS_KEYS_IF") or ():
        if getattr(loss, option):
            needed.add(name)
    sides = constant("loss", loss, "NEEDS_KEYS_OF") or ("image", "text")
    towers = [getattr(config.model, side) for side in sides]
    given = [set(constant("head", tower.head, "KEYS") or ()) for tower in towers]
    if needed and not any(needed <= keys for keys in given):
        heads = components("head").items()
        names = [n for n, h in heads if needed <= set(h.constants.get("KEYS", ()))]
        own = [tower.head.name for tower in towers]
        yield (
            key,
            f"{loss.name!r} reads the {' and the '.join(sorted(needed))} of an embedding, which "
            f"the heads for {' and '.join(sides)} ({', '.join(own)}) do not give; heads that do: "
            f"{', '.join(names)}",
        )


def _heads_for(accepts: tuple[tuple[str, str], ...], kinds: tuple[str, str]) -> str:
    """What to do about tokens where there are none, or where they are not wanted."""
    if ("tokens", "tokens") in accepts:
        return ": it compares single regions with single words, so both heads must be 'tokens'"
    if "tokens" in kinds:
        names = [n for n, m in components("matcher").items() if kinds in m.constants["ACCEPTS"]]
        one_by_one = ", ".join(names) or "none, as both heads must make them"
        return f": it knows one vector an item; matchers of tokens are: {one_by_one}"
    return ""


def _losses(config: Config) -> Iterator[Mistake]:
    kinds = embedding_kinds(config)
    gives_logits = constant("matcher", config.model.matcher, "LOGITS")
    for number, loss in enumerate(config.objective):
        key = ("objective", number, "name")
        needs = constant("loss", loss, "NEEDS")
        if needs and not set(kinds) <= set(needs):
            yield (
                key,
                f"{loss.name!r} works on {' or '.join(needs)} embeddings, but the heads make "
                f"{kinds[0]} and {kinds[1]}",
            )
        yield from _pair_of_kinds("loss", loss, kinds, key)
        yield from _keys_of_embeddings(config, loss, key)
        mining = getattr(loss, "mining", "hardest")
        if mining != "hardest" and loss.warmup_steps:  # type: ignore[attr-defined]
            yield (
                ("objective", number, "warmup_steps"),
                f"has no effect with mining {mining!r}; write mining: hardest",
            )
        if getattr(loss, "pseudo_positives", None) == 0 and loss.warmup_steps:  # type: ignore[attr-defined]
            yield (
                ("objective", number, "warmup_steps"),
                "has no effect without pseudo_positives; give them a weight above 0",
            )
        if constant("loss", loss, "NEEDS_LOGITS") and not gives_logits:
            names = [n for n, m in components("matcher").items() if m.constants.get("LOGITS")]
            yield (
                key,
                f"{loss.name!r} reads scores as log-odds of a match, and those of "
                f"{config.model.matcher.name!r} are not; such matchers are: {', '.join(names)}",
            )


def _reads_scores(loss: Choice) -> bool:
    similarity = getattr(loss, "similarity", "scores")
    return constant("loss", loss, "READS_SCORES") is not False and similarity == "scores"


def _scores(config: Config) -> Iterator[Mistake]:
    """Losses that read the scores, and matchers that are only trained by them."""
    matcher = config.model.matcher
    readers = [number for number, loss in enumerate(config.objective) if _reads_scores(loss)]
    if constant("matcher", matcher, "DIRECTED"):
        for number in readers:
            yield (
                ("objective", number, "name"),
                f"{config.objective[number].name!r} reads one score of each pair, and "
                f"{matcher.name!r} has one for each direction; train with another matcher, such "
                f"as cosine, and put {matcher.name} among evaluation.matchers",
            )
    if constant("matcher", matcher, "LOGITS") and not readers:
        yield (
            ("model", "matcher", "name"),
            f"{matcher.name!r} learns a scale and a shift, but no loss of the objective reads its "
            "scores; choose a matcher without them, such as cosine",
        )
    kinds = embedding_kinds(config)
    for number, loss in enumerate(config.objective):
        if getattr(loss, "similarity", "scores") != "scores":
            odd = [kind for kind in kinds if kind not in ("point", "gaussian")]
            if odd:
                yield (
                    ("objective", number, "similarity"),
                    f"{loss.similarity!r} compares vectors, of which {odd[0]} embeddings have "  # type: ignore[attr-defined]
                    "several; write similarity: scores",
                )


def _followed(config: Config) -> Iterator[Mistake]:
    """Constants of matchers that a loss learns, and that therefore have no effect."""
    learned = {
        name: loss.name
        for loss in config.objective
        for name in constant("loss", loss, "SHARES") or ()
    }
    for key, matcher in _all_matchers(config):
        for name, field in type(matcher).model_fields.items():
            if name in learned and getattr(matcher, name) != field.default:
                yield (
                    (*key, name),
                    f"has no effect: the loss {learned[name]!r} learns it; set it there",
                )
