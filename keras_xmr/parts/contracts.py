"""Declarations of parts: inputs, outputs and limits of losses, matchers, heads and so on.

A class declares it once:

    CONTRACT = LossContract(parts=("match", "other"), reads_log_odds=True)

Fields that it does not mention are inherited. Configs and calls from Python are checked by it.
Needs no TensorFlow.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.messages import nearest

Pair = tuple[str, str]
"""The kind of the image embedding, and that of the caption embedding."""


def _pairs(kinds: tuple[Any, ...]) -> tuple[Pair, ...]:
    """Expands single kinds to all pairs of them."""
    alone = [kind for kind in kinds if isinstance(kind, str)]
    return (*product(alone, alone), *(tuple(pair) for pair in kinds if not isinstance(pair, str)))


Accepted = Annotated[tuple[str | Pair, ...], AfterValidator(_pairs)]
"""Kinds of embedding that a part works on."""


class Contract(BaseModel):
    """A declaration, with fields that depend on the options of the part.

    Attributes:
        when: Pairs of options and fields: with these options, the declaration has these fields.
            True means any value but 0, false and null.
        only_with: Options without effect unless others have a certain value, or one of a tuple of
            values, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ()
    only_with: dict[str, dict[str, Any]] = {}

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ArgumentError(
                f"{type(self).__name__}{first_mistake(error, type(self))}"
            ) from None

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        for _, fields in self.when:
            type(self).model_validate(fields)
        return self

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Resolves the declaration for these options."""
        changes: dict[str, Any] = {}
        for conditions, fields in self.when:
            if _hold(conditions, options):
                changes |= type(self).model_validate(fields).model_dump(exclude_unset=True)
        return self.model_copy(update=changes) if changes else self

    def options_for(self, field: str) -> dict[str, Any]:
        """The options that change a field; empty if none do."""
        return next((options for options, fields in self.when if field in fields), {})

    def ineffective(
        self, options: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        """Yields the names of options that were set and have no effect, with advice.

        Args:
            options: The options.
            defaults: Their defaults.
        """
        for name, others in self.only_with.items():
            if options.get(name) == defaults.get(name) or _hold(others, options):
                continue
            other, wanted = next((n, w) for n, w in others.items() if not _hold({n: w}, options))
            if wanted is True:
                yield name, f"has no effect without {other}; give it a value above 0"
            else:
                value = options.get(other)
                choices = wanted if isinstance(wanted, tuple) else (wanted,)
                yield (
                    name,
                    f"has no effect with {other} {value!r}; write {other}: "
                    f"{' or '.join(map(str, choices))}",
                )

    def named_options(self) -> set[str]:
        """Names of the options in the declaration."""
        named = {name for options, _ in self.when for name in options} | set(self.only_with)
        named |= {name for options in self.only_with.values() for name in options}
        for field in ("width", "closed_form", "shared", "learned", "accepted_parameters"):
            value = getattr(self, field, None) or ()
            named |= {value} if isinstance(value, str) else set(value)
        return named


def _hold(conditions: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether options meet conditions: True means any value but 0, false and null."""

    def holds(value: Any, wanted: Any) -> bool:
        if isinstance(wanted, tuple):
            return value in wanted
        return bool(value) if wanted is True else value == wanted

    return all(
        name in options and holds(options[name], wanted) for name, wanted in conditions.items()
    )


class LossContract(Contract):
    """The declaration of a loss.

    Attributes:
        parts: Names of the scalars that the loss returns and is the sum of.
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
        reads_step: Whether its `call` takes `step`, the number of steps trained before.
        assumes_one_image_per_caption: Whether it assumes one matching image per caption.
        sampler: The `train.sampler` whose batches it reads; null for any.
        shared_parameters: Learned scalars of the loss that a matcher of its model scores with.
        compiles: Whether XLA can compile it.
    """

    parts: tuple[str, ...] = ()
    accepts: Accepted = ()
    keys: tuple[str, ...] = ()
    required_keys_side: Literal["image", "text"] | None = None
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


class MatcherContract(Contract):
    """The declaration of a matcher.

    Attributes:
        accepts: The kinds of embedding that it scores, as of a loss.
        log_odds: Whether its scores are log-odds of a match.
        directed: Whether a score depends on which side is the query.
        tileable: Whether a score depends on its pair alone in training too; some matchers normalise
            by all pairs of the batch.
        learned: Options with initial values of learned scalars.
        accepted_parameters: Options that are replaced by scalars of losses that share them.
    """

    accepts: Accepted = ()
    log_odds: bool = False
    directed: bool = False
    tileable: bool = True
    learned: tuple[str, ...] = ()
    accepted_parameters: tuple[str, ...] = ()


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


class HeadContract(Contract):
    """The declaration of a head.

    Attributes:
        kind: The kind of embedding that it makes.
        keys: Keys of its embeddings beyond those that the kind has.
        pools: Whether it needs a pooling.
        positions: Number of local features that it takes; null for any number.
        attends: Whether it attends to the positions, and adds to `attention_maps`.
        keeps_width: Whether the features must be as wide as the embedding.
        even: Whether the dimension of the embedding must be even.
        needs_start: The `train.start` that computes it.
        begins_as_pooling: Whether its initial output, with `train.start: cca`, is its pooling.
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


class EncoderContract(Contract):
    """The declaration of an encoder.

    Attributes:
        side: The side that it encodes.
        reads: The kind of its inputs.
        width: The option with the width of its features.
        positions: Number of positions per item, if known.
        local: Whether its features are local; false for one global vector.
        batch_norm: Whether it normalises by batches.
        smallest: Minimum height and width of a photo, in pixels.
    """

    side: Literal["image", "text"] | None = None
    reads: Literal["pixels", "regions", "words"] | None = None
    width: str | None = None
    positions: int | None = None
    local: bool = True
    batch_norm: bool = False
    smallest: int | None = None


class Declared:
    """A class with a `CONTRACT` that inherits unmentioned fields from its base classes.

    Attributes:
        CONTRACT: The declaration, with the fields of the base classes.
        SEARCH: The declaration of how a matcher searches photos; None if it does not.
        DECLARED: The declaration that the class itself has written; None without one.
    """

    CONTRACT: ClassVar[Any]
    SEARCH: ClassVar[Any] = None
    DECLARED: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.DECLARED = vars(cls).get("CONTRACT")
        for name in ("CONTRACT", "SEARCH"):
            known = [vars(base)[name] for base in cls.__mro__ if vars(base).get(name) is not None]
            if known:
                fields = ChainMap(*(one.model_dump(exclude_unset=True) for one in known))
                setattr(cls, name, type(known[-1])(**fields))


def first_mistake(error: ValidationError, kind: type[BaseModel]) -> str:
    """Returns the first mistake in the fields of a model, as the end of a sentence."""
    mistake = error.errors(include_url=False)[0]
    field = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        return f" has no field {field!r}.{nearest(field, kind.model_fields)}"
    return f": {field}: got {mistake['input']!r}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"


SIDES: tuple[Literal["image", "text"], ...] = ("image", "text")


class EmbeddingSpec(NamedTuple):
    """The kind and keys of an embedding.

    Attributes:
        kind: Its kind.
        keys: Its keys beyond those that the kind has, or all.
    """

    kind: str
    keys: Set[str]


class Mismatch(NamedTuple):
    """A part that does not work on embeddings, or on the scores of a matcher.

    Attributes:
        about: The mismatch: the kinds of the embeddings, their keys, or the scores.
        text: Its requirement, as the end of a sentence that begins with its name.
    """

    about: Literal["kinds", "keys", "scores"]
    text: str


def find_mismatches(
    contract: LossContract | MatcherContract,
    image: EmbeddingSpec,
    caption: EmbeddingSpec,
    log_odds: bool = True,
) -> Iterator[Mismatch]:
    """Yields the mismatches of a loss, or a matcher, with two embeddings.

    Args:
        contract: Its declaration, with its options.
        image: The embedding of images.
        caption: That of captions.
        log_odds: For a loss, whether the scores are log-odds of a match.
    """
    kinds = image.kind, caption.kind
    if contract.accepts and kinds not in contract.accepts:
        verb = "scores" if isinstance(contract, MatcherContract) else "works on"
        yield Mismatch("kinds", f"{verb} {pairs_text(contract.accepts)} embeddings")
    if isinstance(contract, MatcherContract):
        return
    sides = {"image": image, "text": caption}
    needed, searched = set(contract.keys), sides_with_keys(contract)
    if needed and not any(needed <= sides[side].keys for side in searched):
        yield Mismatch("keys", f"reads the {' and the '.join(sorted(needed))} of an embedding")
    if contract.reads_log_odds and not log_odds:
        yield Mismatch("scores", "reads scores as log-odds of a match")


def sides_with_keys(contract: LossContract) -> tuple[Literal["image", "text"], ...]:
    """The sides of which one must have the keys that a loss reads."""
    return SIDES if contract.required_keys_side is None else (contract.required_keys_side,)


def pairs_text(pairs: Sequence[Any]) -> str:
    """Pairs of kinds, in words: "set or point" where both sides may be either."""
    kinds = list(dict.fromkeys(kind for pair in pairs for kind in pair))
    if set(pairs) == set(product(kinds, kinds)):
        return " or ".join(kinds)
    return ", ".join(f"{image} and {caption}" for image, caption in pairs)
