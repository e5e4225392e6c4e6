"""Types of tensors and embeddings: mypy reads them only as long as they are not `Any`."""

from __future__ import annotations

import inspect
from typing import NotRequired, get_origin, get_type_hints

import keras
import numpy as np
import pytest

from keras_xmr.embeddings import kinds
from keras_xmr.parts.registry import components
from keras_xmr.parts.tensors import add_up

METHODS = {
    "head": ("call",),
    "pooling": ("call",),
    "matcher": ("call",),
    "loss": ("direction_loss", "items_loss", "sets_loss"),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("point", kinds.Point),
        ("gaussian", kinds.Gaussian),
        ("set", kinds.PointSet),
        ("tokens", kinds.Tokens),
    ],
)
def test_an_embedding_needs_the_keys_of_its_kind(name, kind):
    hints = get_type_hints(kind, include_extras=True)
    needed = {key for key, hint in hints.items() if get_origin(hint) is not NotRequired}
    assert needed == set(kinds.KEYS[name])


@pytest.mark.parametrize("family", METHODS)
def test_tensors_of_parts_have_a_type(family):
    methods = [
        getattr(cls, name)
        for cls in components(family).values()
        for name in METHODS[family]
        if cls.__module__.startswith("keras_xmr.") and hasattr(cls, name)
    ]
    assert len(methods) >= 9
    for method in methods:
        signature = inspect.signature(method)
        types = [one.annotation for one in signature.parameters.values() if one.name != "self"]
        vague = [text for text in (*types, signature.return_annotation) if "Any" in text]
        assert not vague, method


def test_tensors_are_added_up_in_their_order():
    large, small = (keras.ops.full((2,), value) for value in (1e8, 1.0))
    total = np.asarray(add_up([large, small, -large]))
    assert total.tolist() == [0.0, 0.0]
    assert np.asarray(add_up([large, -large, small])).tolist() == [1.0, 1.0]
