"""What the matrix of losses and matchers says is so, with each backend."""

from __future__ import annotations

from collections.abc import Iterator

import backend_matrix
import pytest

from keras_xmr import losses, matchers

ROWS = backend_matrix.read()
# JAX compiles each operation of an eager call, and each function again.
IN_JAX = ("InfoNCE", "SmoothAP", "SoftContrastive", "HypergraphContrastive", "Cosine", "MaxCosine")
# TensorFlow rewrites their Python, and of all in the page; it takes four times as long.
REWRITTEN = (*IN_JAX, "SCAN")

# Together half a minute.
SLOW = dict.fromkeys(("graph", "gradient", "modes", "float64", "state", "scores"), pytest.mark.slow)

pytestmark = pytest.mark.usefixtures("compiled_parts")


def is_quick(name: str, check: str) -> bool:
    """Whether the suite repeats a check; all are repeated by `pytest -m heavy`."""
    if check == "processes":
        return False  # The tests of `gather` have two parts.
    if backend_matrix.BACKEND == "jax":
        return check == "graph" and name in IN_JAX
    # The mean of SAF and SGR.
    return name != "SGRAF" or check not in ("graph", "gradient", "float64")


def cases() -> Iterator[object]:
    for name in (*backend_matrix.LOSSES, *backend_matrix.MATCHERS):
        for check in backend_matrix.CHECKS:
            marks = SLOW.get(check, ()) if is_quick(name, check) else pytest.mark.heavy
            yield pytest.param(name, check, marks=marks, id=f"{name}-{check}")


@pytest.mark.parametrize(("name", "check"), list(cases()))
def test_an_outcome_is_as_recorded(name, check):
    recorded = ROWS.get((name, check), {}).get(backend_matrix.BACKEND)
    if not recorded:
        pytest.skip("not recorded")
    try:
        if check == "graph" and name not in REWRITTEN:
            backend_matrix.one_graph(name, rewrites=False)
            found = "yes"
        else:
            found = backend_matrix.outcome(check, name)
    except Exception as error:
        if recorded != f"no: {type(error).__name__}":
            raise
        found = recorded
    assert found == recorded


def test_the_page_has_every_loss_and_matcher():
    """If it has not, `KERAS_BACKEND=... python tests/support/backend_matrix.py` writes it."""
    assert backend_matrix.PAGE.read_text("utf-8") == backend_matrix.text()
    parts = {name.partition("_")[0] for name in (*backend_matrix.LOSSES, *backend_matrix.MATCHERS)}
    expected = {
        part.__name__
        for package in (losses, matchers)
        for name in package.__all__
        if isinstance(part := getattr(package, name), type) and hasattr(part, "CONTRACT")
    }
    assert expected - parts == {"Captioning", "LogitMatcher", "Loss", "Matcher"}
