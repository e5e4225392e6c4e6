"""Declarations of parts that read embeddings: matchers and losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator

from keras_xmr.parts.contracts.base import Contract
from keras_xmr.parts.contracts.setting import (
    ChosenPart,
    EmbeddingSpec,
    Mistake,
    Setting,
    names_of,
    options_text,
)
from keras_xmr.parts.registry import components, options_of
from keras_xmr.utils.sides import SIDES, Side

Pair = tuple[str, str]
"""The kinds of the image embedding and of the caption embedding."""


def _pairs(kinds: tuple[Any, ...]) -> tuple[Pair, ...]:
    """Expands single kinds to all pairs of them."""
    alone = [kind for kind in kinds if isinstance(kind, str)]
    return (*product(alone, alone), *(tuple(pair) for pair in kinds if not isinstance(pair, str)))


Accepted = Annotated[tuple[str | Pair, ...], AfterValidator(_pairs)]
"""Kinds of embedding that a part works on."""


class Mismatch(NamedTuple):
    """A part that does not work on embeddings, or on the scores of a matcher.

    Attributes:
        about: The mismatch: the kinds of the embeddings, their keys, or the scores.
        text: The requirement, as the end of a sentence that begins with its name.
    """

    about: Literal["kinds", "keys", "scores"]
    text: str


class _Reader(Contract):
    """The declaration of a part that reads two embeddings."""

    accepts: Accepted = ()

    def mismatches(
        self, image: EmbeddingSpec, caption: EmbeddingSpec, log_odds: bool = True
    ) -> Iterator[Mismatch]:
        """Yields the mismatches with two embeddings.

        Args:
            image: The embedding of images.
            caption: The embedding of captions.
            log_odds: For a loss, whether the scores are log-odds of a match.
        """
        del log_odds
        if self.accepts and (image.kind, caption.kind) not in self.accepts:
            yield Mismatch("kinds", f"{self._verb()} {_pairs_text(self.accepts)} embeddings")

    def _verb(self) -> str:
        return "works on"

    def _kind_mistake(self, part: ChosenPart, mismatch: Mismatch, setting: Setting) -> Mistake:
        """Says that a part does not accept the embeddings of the heads, and what to write."""
        kinds = tuple(spec.kind for spec in setting.embeddings)
        others = self.options_for("accepts")
        hint = f"; write {options_text(others)}" if others else _heads_for(self.accepts, kinds)
        return (
            f"{part.key_of('accepts')}: {part.name!r} {mismatch.text}, but the heads make "
            f"{kinds[0]} and {kinds[1]}{hint}"
        )


class MatcherContract(_Reader):
    """The declaration of a matcher.

    Attributes:
        accepts: The kinds of embedding that it scores, as of a loss.
        log_odds: Whether its scores are log-odds of a match.
        directed: Whether a score depends on which side is the query.
        tileable: Whether a score depends on its pair alone in training too; some matchers normalise
            by all pairs of the batch.
        learned: Options with initial values of learned scalars.
        prepared: Keys of the embeddings that it scores which its `prepare` adds.
        accepted_parameters: Options that are replaced by scalars of losses that share them.
    """

    log_odds: bool = False
    directed: bool = False
    tileable: bool = True
    learned: tuple[str, ...] = ()
    prepared: tuple[str, ...] = ()
    accepted_parameters: tuple[str, ...] = ()

    def mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why a matcher does not fit the heads, the losses, or the matcher of the model."""
        for mismatch in self.mismatches(*setting.embeddings):
            yield self._kind_mistake(part, mismatch, setting)
        losses = setting.of("loss")
        if part == setting.matcher:
            if self.log_odds and not any(loss.contract.reads_scores for loss in losses):
                yield (
                    f"{part.key}.name: {part.name!r} learns a scale and a shift, but no loss of "
                    "the objective reads its scores; choose a matcher without them, such as cosine"
                )
        elif part.name != setting.matcher.name and any(
            spec.kind == "tokens" for spec in setting.embeddings
        ):
            yield (
                f"{part.key}.name: {part.name!r} learns weights, which only a run with it as "
                "model.matcher has; remove it"
            )
        learned = {name: loss for loss in losses for name in loss.contract.shared_parameters}
        for name in self.accepted_parameters:
            default = options_of(part.cls).defaults().get(name)
            if name in learned and part.options.get(name) != default:
                yield (
                    f"{part.key}.{name}: has no effect: the loss {learned[name].name!r} learns it; "
                    "set it there"
                )

    def _verb(self) -> str:
        return "scores"


def _heads_for(accepts: tuple[Any, ...], kinds: tuple[str, ...]) -> str:
    """Returns the heads whose embeddings a part accepts, or the matchers of the present heads."""
    if ("tokens", "tokens") in accepts:
        return ": it compares single regions with single words, so both heads must be 'tokens'"
    if "tokens" in kinds:
        names = names_of("matcher", lambda matcher: kinds in matcher.accepts)
        one_by_one = ", ".join(names) or "none, as both heads must make them"
        return f": it works on one vector per item; matchers of tokens are: {one_by_one}"
    # The head that changes: of both, unless the kind of one fits.
    advice = []
    for number, side in enumerate(SIDES):
        wanted = {pair[number] for pair in accepts if pair[1 - number] == kinds[1 - number]}
        if wanted and kinds[number] not in wanted:
            advice.append(_heads_of(wanted, f"model.{side}.head"))
    if not advice:
        both = {pair[0] for pair in accepts if pair[0] == pair[1]}
        advice.append(_heads_of(both or {pair[0] for pair in accepts}, "both heads"))
    return f"; choose for {', or for '.join(advice)}"


def _heads_of(kinds: set[str], place: str) -> str:
    names = names_of("head", lambda head: head.kind in kinds)
    return f"{place}: {', '.join(names)}"


class SearchContract(Contract):
    """How the index searches by a matcher: the declaration `SEARCH` of its class.

    Attributes:
        augmentation: The vectors of `keras_xmr.search.augmentations` under which images with large
            scores have large inner products with the query.
        exact: Whether these rank exactly as the matcher does. If not, they give candidates that the
            matcher scores itself, and its `score_bound` may prove that no other image was missed.
    """

    augmentation: str
    exact: bool = False


class LossContract(_Reader):
    """The declaration of a loss.

    Attributes:
        terms: Names of the scalars that the loss returns and is the sum of.
        accepts: The kinds of embedding that it works on; empty for all. A pair is of the image and
            of the caption; of single kinds, both may be any.
        keys: Keys of an embedding that it reads, beyond those that its kind has. It works on the
            sides that have all of them, and one must.
        required_keys_side: The side that must have these keys; null for either.
        reads_scores: Whether it reads the scores of the matcher.
        reads_log_odds: Whether it reads the scores as log-odds of a match.
        reads_matches: Whether it learns from matching pairs.
        reads_relevance: Whether it reads `relations["relevance"]`.
        reads_words: Whether it reads `word_ids` of the caption embedding, which the model adds. Its
            constructor then also takes the number of ids and the id of the padding.
        reads_step: Whether its `compute` takes `step`, the number of steps trained before.
        assumes_one_image_per_caption: Whether it assumes one matching image per caption.
        sampler: The `train.sampler` whose batches it reads; null for any.
        shared_parameters: Learned scalars of the loss that a matcher of its model scores with.
        compiles: Whether XLA can compile it.
    """

    terms: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    required_keys_side: Side | None = None
    reads_scores: bool = True
    reads_log_odds: bool = False
    reads_matches: bool = True
    reads_relevance: bool = False
    reads_words: bool = False
    reads_step: bool = False
    assumes_one_image_per_caption: bool = False
    sampler: str | None = None
    shared_parameters: tuple[str, ...] = ()
    compiles: bool = True

    def mismatches(
        self, image: EmbeddingSpec, caption: EmbeddingSpec, log_odds: bool = True
    ) -> Iterator[Mismatch]:
        """Yields the mismatches with two embeddings, and with the scores of a matcher."""
        yield from super().mismatches(image, caption)
        sides = {"image": image, "text": caption}
        needed = set(self.keys)
        if needed and not any(needed <= sides[side].keys for side in self._searched_sides()):
            yield Mismatch("keys", f"reads the {' and the '.join(sorted(needed))} of an embedding")
        if self.reads_log_odds and not log_odds:
            yield Mismatch("scores", "reads scores as log-odds of a match")

    def _searched_sides(self) -> tuple[Side, ...]:
        """Returns the sides of which one must have the keys that the loss reads."""
        return SIDES if self.required_keys_side is None else (self.required_keys_side,)

    def mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why a loss does not fit the heads, the matcher, or the training."""
        matcher = setting.matcher
        for mismatch in self.mismatches(*setting.embeddings, matcher.contract.log_odds):
            yield self._mistake_of(part, mismatch, setting)
        if self.reads_scores and matcher.contract.directed:
            yield (
                f"{part.key}.name: {part.name!r} reads one score of each pair, and "
                f"{matcher.name!r} has one for each direction; train with another matcher, such as "
                f"cosine, and put {matcher.name} among evaluation.matchers"
            )
        yield from self._training_mistakes(part, setting)

    def _mistake_of(self, part: ChosenPart, mismatch: Mismatch, setting: Setting) -> Mistake:
        if mismatch.about == "kinds":
            return self._kind_mistake(part, mismatch, setting)
        begin = f"{part.key}.name: {part.name!r} {mismatch.text}"
        if mismatch.about == "scores":
            names = names_of("matcher", lambda other: other.log_odds)
            return (
                f"{begin}, and the scores of {setting.matcher.name!r} are not; such matchers are: "
                f"{', '.join(names)}"
            )
        sides, known = self._searched_sides(), components("head").items()
        names = [name for name, head in known if set(self.keys) <= set(head.CONTRACT.keys)]
        heads = [setting.tower(side)["head"].name for side in sides]
        return (
            f"{begin}, which the heads for {' and '.join(sides)} ({', '.join(heads)}) do not give; "
            f"heads that do: {', '.join(names)}"
        )

    def _training_mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Batches, judgements, stored features and XLA."""
        if self.sampler not in (None, setting.sampler):
            yield (
                f"{part.key}.name: {part.name!r} reads the batches of another sampler; set "
                f"train.sampler to {self.sampler}"
            )
        if setting.judged and self.assumes_one_image_per_caption:
            yield (
                f"{part.key}.name: {part.name!r} assumes one image per caption, and "
                "data.training_judgements may name several, or none; remove one of the two"
            )
        if setting.stores_captions and self.reads_words:
            yield (
                f"train.precompute_captions: {part.name!r} reads the words of captions; leave this "
                "out"
            )
        if setting.compiled and not self.compiles:
            begin = f"train.jit_compile: XLA cannot compile the loss {part.name!r}"
            needed = options_text(self.options_for("compiles"))
            hint = f" with these options; leave it out, or write {part.key} with {needed}"
            yield begin + (hint if needed else "; leave it out")


def _pairs_text(pairs: Sequence[Any]) -> str:
    """Returns pairs of kinds, in words: "set or point" where both sides may be either."""
    kinds = list(dict.fromkeys(kind for pair in pairs for kind in pair))
    if set(pairs) == set(product(kinds, kinds)):
        return " or ".join(kinds)
    return ", ".join(f"{image} and {caption}" for image, caption in pairs)
