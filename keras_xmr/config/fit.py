"""Compatibility of parts by their declarations; the one check for configs and for Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import product
from typing import Any, Literal, NamedTuple

from keras_xmr.config.contracts import LossContract, MatcherContract

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
