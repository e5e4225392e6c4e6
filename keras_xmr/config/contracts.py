"""Declarations of parts: what a loss, a matcher, a head and so on reads, makes and refuses.

A class declares it once, as a literal:

    CONTRACT = LossContract(parts=("match", "other"), reads_log_odds=True)

What it does not mention it has from the class that it derives from. Configs read the declaration
from the source text, before TensorFlow has been imported, and calls from Python read it from the
class: both are checked by `keras_xmr.config.fit`. Needs no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

Pair = tuple[str, str]
"""The kind of the image embedding, and that of the caption embedding."""


def _pairs(kinds: tuple[Any, ...]) -> tuple[Pair, ...]:
    """Pairs of kinds, of which single kinds stand for all that they make with one another."""
    alone = [kind for kind in kinds if isinstance(kind, str)]
    return (*product(alone, alone), *(tuple(pair) for pair in kinds if not isinstance(pair, str)))


Accepted = Annotated[tuple[str | Pair, ...], AfterValidator(_pairs)]
"""Kinds of embedding that a part works on."""


class Contract(BaseModel):
    """A declaration, with what changes by the options of the part.

    Attributes:
        when: Pairs of options and fields: with these options, the fields of the declaration are
            others. An option that is to be true is any but 0, false and null.
        only_with: Options that have an effect only together with others, by name: these others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ()
    only_with: dict[str, dict[str, Any]] = {}

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        for _, fields in self.when:
            type(self).model_validate(fields)
        return self

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """The declaration of a part with these options."""
        changes: dict[str, Any] = {}
        for conditions, fields in self.when:
            if _hold(conditions, options):
                changes |= dict(type(self).model_validate(fields).declared())
        return self.model_copy(update=changes) if changes else self

    def options_for(self, field: str) -> dict[str, Any]:
        """The options by which a field becomes another; empty if none do."""
        return next((options for options, fields in self.when if field in fields), {})

    def ineffective(self, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
        """Options that were set and have no effect, with the way out, as `name: text`.

        Args:
            options: The options.
            defaults: Their defaults.
        """
        found = []
        for name, others in self.only_with.items():
            if options.get(name) == defaults.get(name) or _hold(others, options):
                continue
            other, wanted = next((n, w) for n, w in others.items() if not _hold({n: w}, options))
            if wanted is True:
                found.append(f"{name}: has no effect without {other}; give it a value above 0")
            else:
                found.append(
                    f"{name}: has no effect with {other} {options.get(other)!r}; write "
                    f"{other}: {wanted}"
                )
        return found

    def options_named(self) -> set[str]:
        """The options that the declaration names."""
        named = {name for options, _ in self.when for name in options} | set(self.only_with)
        named |= {name for options in self.only_with.values() for name in options}
        for field in ("width", "closed_form", "learned", "shared"):
            value = getattr(self, field, None) or ()
            named |= {value} if isinstance(value, str) else set(value)
        return named

    def declared(self) -> dict[str, Any]:
        """The fields that were written."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def derived(self, heir: Contract | None) -> Self:
        """The declaration of a class that derives from one with this, and declares something."""
        return self if heir is None else type(self)(**self.declared() | heir.declared())


def _hold(conditions: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether options are as they are wanted; True stands for any but 0, false and null."""
    return all(
        name in options and (bool(options[name]) if wanted is True else options[name] == wanted)
        for name, wanted in conditions.items()
    )


class LossContract(Contract):
    """The declaration of a loss.

    Attributes:
        parts: Names of the scalars that the loss returns and is the sum of.
        accepts: The kinds of embedding that it works on; empty for all. A pair is of the image and
            of the caption; of single kinds, both may be any.
        keys: Keys of an embedding that it reads, beyond those that its kind has. It works on the
            sides that have all of them, and one must.
        keys_of: The side that must have these keys; null for either.
        reads_scores: Whether it reads the scores of the matcher.
        reads_log_odds: Whether it reads the scores as log-odds of a match.
        reads_matches: Whether it learns from who matches whom.
        reads_relevance: Whether it reads `relations["relevance"]`.
        reads_words: Whether it reads `word_ids` of the caption embedding, which the model adds. Its
            constructor then takes how many ids there are, and the id of the padding, too.
        reads_step: Whether its `call` takes `step`, how many steps were trained before this one.
        takes_mixed: Whether it can be right about mixed images, by `relations["targets"]`.
        one_image: Whether it takes a caption to match one image alone.
        shares: Learned scalars of the loss that a matcher of its model scores with.
        compiles: Whether XLA can compile it.
    """

    parts: tuple[str, ...] = ()
    accepts: Accepted = ()
    keys: tuple[str, ...] = ()
    keys_of: Literal["image", "text"] | None = None
    reads_scores: bool = True
    reads_log_odds: bool = False
    reads_matches: bool = True
    reads_relevance: bool = False
    reads_words: bool = False
    reads_step: bool = False
    takes_mixed: bool = False
    one_image: bool = False
    shares: tuple[str, ...] = ()
    compiles: bool = True


class MatcherContract(Contract):
    """The declaration of a matcher.

    Attributes:
        accepts: The kinds of embedding that it scores, as of a loss.
        log_odds: Whether its scores are log-odds of a match.
        directed: Whether a score depends on which side is the query.
        in_parts: Whether a score depends on nothing but its pair in training too; some matchers
            normalise there by all pairs of the batch.
        learned: Options that say where learned scalars start.
        shared: Options in place of which it takes scalars of the losses that share them.
    """

    accepts: Accepted = ()
    log_odds: bool = False
    directed: bool = False
    in_parts: bool = True
    learned: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


class SearchContract(Contract):
    """How the index searches by a matcher: the declaration `SEARCH` of its class.

    Attributes:
        augmentation: The vectors of `keras_xmr.index.augmentations` under which images with large
            scores have large inner products with the query.
        exact: Whether these rank exactly as the matcher does. If not, they give candidates that the
            matcher scores itself, and its `score_bound` may prove that no other image was missed.
    """

    augmentation: str
    exact: bool = False


class HeadContract(Contract):
    """The declaration of a head.

    Attributes:
        kind: The kind of embedding that it makes.
        keys: Keys of its embeddings beyond those that the kind has.
        pools: Whether it needs a pooling.
        positions: How many local features it takes; null for any number.
        attends: Whether it attends to the positions, and adds to `attention_maps`.
        keeps_width: Whether the features must be as wide as the embedding.
        even: Whether the dimension of the embedding must be even.
        needs_start: The `train.start` that computes it.
        begins_as_pooling: Whether, with `train.start: cca`, it begins as the vector of its pooling.
        reads_pooling: Whether it reads more of its pooling than the vector, which must then be one
            linear map.
    """

    kind: str = ""
    keys: tuple[str, ...] = ()
    pools: bool = True
    positions: int | None = None
    attends: bool = False
    keeps_width: bool = False
    even: bool = False
    needs_start: Literal["cca"] | None = None
    begins_as_pooling: bool = True
    reads_pooling: bool = False


class PoolingContract(Contract):
    """The declaration of a pooling.

    Attributes:
        even: Whether the dimension must be even.
        batch_norm: Whether it normalises by batches.
        attends: Whether it attends to the positions, and implements `attention_weights`.
        keeps_width: Whether the features must be as wide as what it makes.
        set_by: The `train.start` that sets its weights.
        closed_form: The option that says how many numbers of the vector are set there and not
            trained.
    """

    even: bool = False
    batch_norm: bool = False
    attends: bool = False
    keeps_width: bool = False
    set_by: Literal["cca"] | None = None
    closed_form: str | None = None


class EncoderContract(Contract):
    """The declaration of an encoder.

    Attributes:
        side: What it encodes.
        reads: What it is called on.
        width: The option that says how wide its features are.
        positions: How many positions it makes of every item, if that is known.
        local: Whether its features are of places; false for one vector of the whole.
        batch_norm: Whether it normalises by batches.
        smallest: The least height and width of a photo, in pixels.
    """

    side: Literal["image", "text"] | None = None
    reads: Literal["pixels", "regions", "words"] | None = None
    width: str | None = None
    positions: int | None = None
    local: bool = True
    batch_norm: bool = False
    smallest: int | None = None


CONTRACTS: Mapping[str, type[Contract]] = {
    "encoder": EncoderContract,
    "pooling": PoolingContract,
    "head": HeadContract,
    "matcher": MatcherContract,
    "loss": LossContract,
}
"""The declaration of each family of parts that has one."""


class Declared:
    """A class with a `CONTRACT`, which has what it does not mention from its base classes."""

    CONTRACT: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("CONTRACT", "SEARCH"):
            declared = [vars(base).get(name) for base in cls.__mro__]
            if (merged := derived_contract(declared)) is not None:
                setattr(cls, name, merged)


def derived_contract(declared: Sequence[Contract | None]) -> Any:
    """The declaration of a class, of those of itself and what it derives from, nearest first."""
    merged: Any = None
    for contract in reversed(declared):
        if contract is not None:
            merged = contract if merged is None else merged.derived(contract)
    return merged
