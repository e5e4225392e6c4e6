"""What declarations of all families have in common."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from keras_xmr.parts.contracts.setting import ChosenPart, Mistake, Setting
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.messages import nearest


class Contract(BaseModel):
    """A declaration, with fields that depend on the options of the part.

    Attributes:
        when: Pairs of options and fields: with these options, the declaration has these fields.
            True means any value but 0, false and null.
        only_with: Options without effect unless others have a certain value, or one of a tuple of
            values, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: tuple[tuple[dict[str, object], dict[str, object]], ...] = ()
    only_with: dict[str, dict[str, object]] = {}

    def __init__(self, **fields: object) -> None:
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

    def with_options(self, options: Mapping[str, object]) -> Self:
        """Resolves the declaration for these options."""
        changes: dict[str, Any] = {}
        for conditions, fields in self.when:
            if _hold(conditions, options):
                changes |= type(self).model_validate(fields).model_dump(exclude_unset=True)
        return self.model_copy(update=changes) if changes else self

    def options_for(self, field: str) -> dict[str, Any]:
        """Returns the options that change a field; empty if none do."""
        return next((options for options, fields in self.when if field in fields), {})

    def ineffective(
        self, options: Mapping[str, object], defaults: Mapping[str, object]
    ) -> Iterator[tuple[str, str]]:
        """Yields the names of options that were set and have no effect, with advice.

        Args:
            options: The options.
            defaults: The defaults.
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

    def mistakes(self, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why a part with this declaration, and these options, does not fit its setting.

        Args:
            part: The part, and its key in the config.
            setting: The other parts, and the training.
        """
        del part, setting
        yield from ()

    def named_options(self) -> set[str]:
        """Returns names of the options in the declaration."""
        named = {name for options, _ in self.when for name in options} | set(self.only_with)
        named |= {name for options in self.only_with.values() for name in options}
        for field in ("width", "closed_form", "shared", "learned", "accepted_parameters"):
            value = getattr(self, field, None) or ()
            named |= {value} if isinstance(value, str) else set(value)
        return named


def _hold(conditions: Mapping[str, object], options: Mapping[str, object]) -> bool:
    """Returns whether options meet conditions: True means any value but 0, false and null."""

    def holds(value: object, wanted: object) -> bool:
        if isinstance(wanted, tuple):
            return value in wanted
        return bool(value) if wanted is True else value == wanted

    return all(
        name in options and holds(options[name], wanted) for name, wanted in conditions.items()
    )


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

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.DECLARED = vars(cls).get("CONTRACT")
        for name in ("CONTRACT", "SEARCH"):
            known = [vars(base)[name] for base in cls.__mro__ if vars(base).get(name) is not None]
            if known:
                fields = ChainMap(*(one.model_dump(exclude_unset=True) for one in known))
                setattr(cls, name, type(known[-1])(**fields))

    @classmethod
    def mistakes(cls, part: ChosenPart, setting: Setting) -> Iterator[Mistake]:
        """Yields why a part of this class does not fit its setting.

        By default these are the mistakes that `CONTRACT` finds; a class may add its own.

        Args:
            part: The part with its options, and its key in the config.
            setting: The other parts, and the training.
        """
        del cls
        yield from part.contract.mistakes(part, setting)


def first_mistake(error: ValidationError, model: type[BaseModel]) -> str:
    """Returns the first mistake in the fields of a model, as the end of a sentence."""
    mistake = error.errors(include_url=False)[0]
    field = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        return f" has no field {field!r}.{nearest(field, model.model_fields)}"
    return f": {field}: got {mistake['input']!r}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"
