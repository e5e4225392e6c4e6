"""Options are checked where they are given, and once."""

from __future__ import annotations

import pytest

from keras_xmr.losses import Loss
from keras_xmr.parts import part
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.registry import options_of
from keras_xmr.utils.errors import ArgumentError


class Doubled(Loss):
    """A loss that makes a second one of its class, with another option.

    Args:
        margin: Option.
        inner: Option of the second one; none is made for null.
    """

    CONTRACT = LossContract(terms=("value",))

    def __init__(self, *, margin: float = 0.2, inner: float | None = None, **kwargs):
        super().__init__(**kwargs)
        self.other = None if inner is None else Doubled(margin=inner)


@pytest.fixture
def checks(monkeypatch):
    checked, check = [], part._check_options
    monkeypatch.setattr(part, "_check_options", lambda *one: (checked.append(one), check(*one)))
    return checked


def test_a_section_of_a_config_has_checked_the_options_of_what_it_builds(checks):
    section = options_of(Doubled)(name="doubled", margin=0.3)
    assert section.build().get_config()["margin"] == 0.3
    assert not checks


def test_a_part_within_it_and_the_next_one_are_checked(checks):
    options_of(Doubled)(name="doubled", inner=0.1).build()
    assert [arguments["margin"] for _, arguments in checks] == [0.1]
    with pytest.raises(ArgumentError, match="margin"):
        Doubled(margin="wide")
    with pytest.raises(ArgumentError, match=r"margin is the text '0.1', not a float: margin=0.1"):
        Doubled(margin="0.1")
