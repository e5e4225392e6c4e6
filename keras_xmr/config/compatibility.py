"""Which parts of a config fit together, and why others do not.

A component says in its class attributes what it takes and what it gives:

* an encoder: `SIDE` ("image" or "text") and `INPUT` ("pixels", "regions" or "words");
* a pooling: `EVEN`, whether the dimension of the joint space must be even;
* a head: `KIND`, the kind of embedding that it makes, `KEYS`, what it holds beyond that, and
  `POOLS`, whether it needs a pooling;
* a matcher: `ACCEPTS`, the pairs of kinds (image, caption) that it can score, and `LOGITS`,
  whether its scores are log-odds of a match, and `DIRECTED`, whether a score depends on which
  side is the query;
* a loss: `NEEDS`, the kinds of embedding that it works on (empty for any), or `ACCEPTS`, the
  pairs of kinds; `NEEDS_KEYS` and `NEEDS_KEYS_IF`, further keys of one of the embeddings;
  `NEEDS_LOGITS`, `READS_SCORES`, and `TAKES_MIXED`, whether it can be right about mixed images.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ByteSize

from data_pipelines.sources import Source
from keras_xmr.config.messages import cut, nearest
from keras_xmr.config.registry import Choice, components
from keras_xmr.judgements import EXTENDED_COCO, TRUTH, name_clashes

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config, TowerOptions

Mistake = tuple[tuple[str | int, ...], str]

LARGEST = 2**31 - 1
"""The largest whole number of a config."""

PARTS = ("encoder", "pooling", "head", "log_variance")
"""The parts of a tower, which can be frozen or have a learning rate of their own."""


def check(config: Config) -> Iterator[Mistake]:
    """Yields the key and the explanation of every combination that cannot work."""
    yield from _numbers(config, ())
    yield from _towers(config)
    yield from _matchers(config)
    yield from _losses(config)
    yield from _scores(config)
    yield from _followed(config)
    yield from _mixing(config)
    yield from _data(config)
    yield from _phases(config)
    yield from _precomputed(config)
    yield from _precomputed_captions(config)
    yield from _start(config)
    yield from _judgements(config)
    yield from _training_judgements(config)
    yield from _paper(config)


def _numbers(value: Any, key: tuple[str | int, ...]) -> Iterator[Mistake]:
    """Whole numbers that TensorFlow cannot hold as counts, sizes and seeds are held."""
    if isinstance(value, BaseModel | dict):
        for name, inner in dict(value).items():
            yield from _numbers(inner, (*key, name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _numbers(inner, (*key, number))
    elif isinstance(value, int) and not isinstance(value, ByteSize) and abs(value) > LARGEST:
        yield key, f"got {cut(str(value))}; whole numbers go to {LARGEST:,}"


def embedding_kinds(config: Config) -> tuple[str, str]:
    """The kinds of the image embedding and of the caption embedding."""
    return _constant("head", config.model.image.head, "KIND"), _constant(
        "head", config.model.text.head, "KIND"
    )


def _constant(family: str, choice: Choice, name: str) -> Any:
    return components(family)[choice.name].constants.get(name)


def _towers(config: Config) -> Iterator[Mistake]:
    for side in ("image", "text"):
        encoder = getattr(config.model, side).encoder
        made_for = _constant("encoder", encoder, "SIDE")
        if made_for != side:
            names = [n for n, c in components("encoder").items() if c.constants["SIDE"] == side]
            yield (
                ("model", side, "encoder", "name"),
                f"{encoder.name!r} encodes {made_for}s; for {side}s there are: {', '.join(names)}",
            )
        yield from _pooling(side, getattr(config.model, side))
    yield from _dimension(config)
    image = config.model.image.encoder
    takes, holds = _constant("encoder", image, "INPUT"), config.data.source.holds
    if takes in ("pixels", "regions") and (takes == "regions") != (holds == "regions"):
        yield (
            ("model", "image", "encoder", "name"),
            f"{image.name!r} takes {takes}, but the source {config.data.source.name!r} holds "
            f"{holds}",
        )


def _dimension(config: Config) -> Iterator[Mistake]:
    dimension = config.model.dimension
    for side in ("image", "text"):
        pooling = getattr(config.model, side).pooling
        if dimension % 2 and pooling is not None and _constant("pooling", pooling, "EVEN"):
            yield (
                ("model", "dimension"),
                f"{dimension} is odd, but {pooling.name!r} gives one half of it to each direction; "
                f"write an even number, such as {dimension + 1}",
            )
            return


def _pooling(side: str, tower: TowerOptions) -> Iterator[Mistake]:
    pools = _constant("head", tower.head, "POOLS") is not False
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


def _pair_of_kinds(
    family: str, choice: Choice, kinds: tuple[str, str], key: tuple[str | int, ...]
) -> Iterator[Mistake]:
    accepts = _constant(family, choice, "ACCEPTS")
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
    needed = set(_constant("loss", loss, "NEEDS_KEYS") or ())
    for option, name in _constant("loss", loss, "NEEDS_KEYS_IF") or ():
        if getattr(loss, option):
            needed.add(name)
    given = [
        set(_constant("head", getattr(config.model, side).head, "KEYS") or ())
        for side in ("image", "text")
    ]
    if needed and not any(needed <= keys for keys in given):
        heads = components("head").items()
        names = [n for n, h in heads if needed <= set(h.constants.get("KEYS", ()))]
        yield (
            key,
            f"{loss.name!r} reads the {' and the '.join(sorted(needed))} of an embedding, which "
            f"the heads ({config.model.image.head.name}, {config.model.text.head.name}) do not "
            f"give; heads that do: {', '.join(names)}",
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
    gives_logits = _constant("matcher", config.model.matcher, "LOGITS")
    for number, loss in enumerate(config.objective):
        key = ("objective", number, "name")
        needs = _constant("loss", loss, "NEEDS")
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
        if _constant("loss", loss, "NEEDS_LOGITS") and not gives_logits:
            names = [n for n, m in components("matcher").items() if m.constants.get("LOGITS")]
            yield (
                key,
                f"{loss.name!r} reads scores as log-odds of a match, and those of "
                f"{config.model.matcher.name!r} are not; such matchers are: {', '.join(names)}",
            )


def _reads_scores(loss: Choice) -> bool:
    similarity = getattr(loss, "similarity", "scores")
    return _constant("loss", loss, "READS_SCORES") is not False and similarity == "scores"


def _scores(config: Config) -> Iterator[Mistake]:
    """Losses that read the scores, and matchers that are only trained by them."""
    matcher = config.model.matcher
    readers = [number for number, loss in enumerate(config.objective) if _reads_scores(loss)]
    if _constant("matcher", matcher, "DIRECTED"):
        for number in readers:
            yield (
                ("objective", number, "name"),
                f"{config.objective[number].name!r} reads one score of each pair, and "
                f"{matcher.name!r} has one for each direction; train with another matcher, such "
                f"as cosine, and put {matcher.name} among evaluation.matchers",
            )
    if _constant("matcher", matcher, "LOGITS") and not readers:
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
        for name in _constant("loss", loss, "SHARES") or ()
    }
    for key, matcher in _all_matchers(config):
        for name, field in type(matcher).model_fields.items():
            if name in learned and getattr(matcher, name) != field.default:
                yield (
                    (*key, name),
                    f"has no effect: the loss {learned[name]!r} learns it; set it there",
                )


def _mixing(config: Config) -> Iterator[Mistake]:
    if not config.data.image.mixes:
        return
    key = "mixup" if config.data.image.mixup else "cutmix"
    if config.data.source.holds == "regions":
        yield ("data", "image", key), "images are mixed as pixels, and the source holds regions"
    for loss in config.objective:
        if not _constant("loss", loss, "TAKES_MIXED"):
            names = [n for n, c in components("loss").items() if c.constants.get("TAKES_MIXED")]
            yield (
                ("data", "image", key),
                f"{loss.name!r} knows pairs that match and pairs that do not, and a mixed image "
                f"matches in part; losses that know of this are: {', '.join(names)}",
            )


def _data(config: Config) -> Iterator[Mistake]:
    classes = config.data.source.label_kind == "class"
    for key, value, wanted in (
        (("data", "judgements"), config.data.judgements, "classes"),
        (("train", "sampler"), config.train.sampler, "one_per_class"),
    ):
        if value == wanted and not classes:
            yield (
                key,
                f"{wanted!r} needs one class an image, which the source "
                f"{config.data.source.name!r} does not have",
            )


def _training_judgements(config: Config) -> Iterator[Mistake]:
    """Pairs that people have judged: who of the losses can learn from them."""
    if config.data.training_judgements is None:
        return
    key = ("data", "training_judgements")
    if not any(_constant("loss", loss, "READS_PAIRS") for loss in config.objective):
        names = ", ".join(loss.name for loss in config.objective)
        yield key, f"no loss of the objective ({names}) learns from who matches whom; leave it out"
    for number, loss in enumerate(config.objective):
        if _constant("loss", loss, "ONE_IMAGE"):
            yield (
                ("objective", number, "name"),
                f"{loss.name!r} takes a caption to match one image, and data.training_judgements "
                "may name several, or none; leave one of the two out",
            )
    if config.data.image.mixes:
        yield key, "says nothing of mixed images; write data.image: {mixup: 0, cutmix: 0}"


def _precomputed(config: Config) -> Iterator[Mistake]:
    """Features that are computed once do not change, nor do the pixels that they are made of."""
    if not config.train.precompute_features:
        return
    key = ("train", "precompute_features")
    if _constant("encoder", config.model.image.encoder, "INPUT") != "pixels":
        yield key, f"the source {config.data.source.name!r} holds features already; leave it out"
        return
    if not any(phase.freezes_encoder("image") for phase in config.train.phases):
        yield (
            key,
            "every phase trains image.encoder, so features change with every step; freeze it in a "
            "phase (freeze: [image.encoder])",
        )
    image = config.data.image
    random = {"crop": image.crop == "random_resized", "flip": image.flip, "cutout": image.cutout}
    random |= {"mixup": image.mixup, "cutmix": image.cutmix}
    if changed := [f"data.image.{name}" for name, is_on in random.items() if is_on]:
        yield (
            key,
            f"features are computed once, of images as evaluation sees them, but "
            f"{', '.join(changed)} changes them at random; write data.image: {{crop: center, "
            "flip: false, cutout: 0, mixup: 0, cutmix: 0}",
        )


def _precomputed_captions(config: Config) -> Iterator[Mistake]:
    """Features of captions, likewise."""
    if not config.train.precompute_captions:
        return
    key = ("train", "precompute_captions")
    if not any(phase.freezes_encoder("text") for phase in config.train.phases):
        yield (
            key,
            "every phase trains text.encoder, so features change with every step; freeze it in a "
            "phase (freeze: [text.encoder])",
        )
    if config.data.text.drop_words:
        yield (
            key,
            "features are computed once, of whole captions, but data.text.drop_words drops words "
            "at random; write data.text.drop_words: 0",
        )
    for loss in config.objective:
        if _constant("loss", loss, "NEEDS_CAPTION_IDS"):
            yield key, f"{loss.name!r} reads the words of captions; leave this out"


def _start(config: Config) -> Iterator[Mistake]:
    """What begins at CCA has the linear maps that are set."""
    if config.train.start != "cca":
        return
    if config.train.initial_weights is not None:
        yield (
            ("train", "initial_weights"),
            "the weights of a run would be replaced by those of CCA; write train.start: random",
        )
    for side in ("image", "text"):
        tower = getattr(config.model, side)
        if tower.pooling is None or tower.pooling.name != "projection":
            yield (
                ("train", "start"),
                f"'cca' sets the pooling `projection`, which model.{side} does not have; write "
                f"model.{side}.pooling: projection",
            )
        if getattr(tower.head, "rezero", True) is False:
            yield (
                ("train", "start"),
                f"'cca' begins at the pooling, but the LayerNorm of model.{side}.head undoes it; "
                f"write model.{side}.head.rezero: true",
            )
        if getattr(tower.head, "keep_mean", False):
            yield (
                ("train", "start"),
                f"'cca' sets the mean, which `keep_mean` of model.{side}.head leaves as it is; "
                "leave out one of the two",
            )


def _judgements(config: Config) -> Iterator[Mistake]:
    for number, source in enumerate(config.evaluation.judgements):
        key = ("evaluation", "judgements", number)
        if source not in EXTENDED_COCO:
            if not os.path.isfile(source):
                yield (
                    key,
                    f"there is no file {cut(repr(source))}; it should be a CSV file, or one of "
                    f"{', '.join(EXTENDED_COCO)}",
                )
        elif config.data.source.name != "coco":
            yield key, f"{source!r} judges COCO, not the source {config.data.source.name!r}"
        elif find_spec("eccv_caption") is None:
            yield key, f"{source!r} needs a package: pip install 'keras-xmr[eccv]'"
    knows_truth = type(config.data.source).truth is not Source.truth
    for number, clash in name_clashes(config.evaluation.judgements, [TRUTH] if knows_truth else ()):
        yield ("evaluation", "judgements", number), clash


def _paper(config: Config) -> Iterator[Mistake]:
    """Names in the figures of a paper. What is not evaluated has no figure of ours, no more."""
    for number, figures in enumerate(config.paper.figures if config.paper else ()):
        for family in ("matcher", "reranker"):
            name = getattr(figures, family)
            if name is not None and name not in components(family):
                yield (
                    ("paper", "figures", number, family),
                    f"there is no {family} {cut(repr(name))}.{nearest(name, components(family))}",
                )


def _unpooled(config: Config) -> list[str]:
    sides = [side for side in ("image", "text") if getattr(config.model, side).pooling is None]
    return [f"{side}.pooling" for side in sides]


def _without_variance(config: Config) -> list[str]:
    kinds = zip(("image", "text"), embedding_kinds(config), strict=True)
    return [f"{side}.log_variance" for side, kind in kinds if kind != "gaussian"]


def _phases(config: Config) -> Iterator[Mistake]:
    if not config.train.phases and config.train.start != "random":
        yield ("train", "start"), "has no effect without phases of training; write start: random"
    parts = ["matcher", *(s for s in ("image", "text"))]
    parts += [f"{side}.{part}" for side in ("image", "text") for part in PARTS]
    for number, phase in enumerate(config.train.phases):
        key = ("train", "phases", number)
        for name in (*phase.freeze, *phase.learning_rates):
            where = "freeze" if name in phase.freeze else "learning_rates"
            if name not in parts:
                yield (
                    (*key, where),
                    f"there is no part {cut(repr(name))}. There are: {', '.join(parts)}",
                )
            if name in _unpooled(config):
                yield (*key, where), f"the tower of {name!r} has no pooling"
            if name in _without_variance(config):
                yield (*key, where), f"the head of {name!r} has no log-variance"
        if {"image", "text"} <= set(phase.freeze):
            yield (*key, "freeze"), "both towers are frozen: nothing is left to train"
        if phase.warmup_epochs > phase.epochs:
            yield (
                (*key, "warmup_epochs"),
                f"{phase.warmup_epochs} is more than the {phase.epochs} epochs of the phase",
            )
        if phase.schedule == "step" and not phase.decay_epochs:
            yield (*key, "decay_epochs"), "schedule 'step' needs the epochs of its steps"
        if phase.cosine_epochs and phase.schedule != "cosine":
            yield (
                (*key, "cosine_epochs"),
                f"has no effect with schedule {phase.schedule!r}; write schedule: cosine",
            )
        elif phase.cosine_epochs and phase.cosine_epochs < phase.epochs:
            yield (
                (*key, "cosine_epochs"),
                f"{phase.cosine_epochs} is less than the {phase.epochs} epochs of the phase, the "
                "last of which would have a learning rate of 0",
            )
        if phase.schedule != "step" and phase.decay_epochs:
            yield (
                (*key, "decay_epochs"),
                f"has no effect with schedule {phase.schedule!r}; write schedule: step",
            )
