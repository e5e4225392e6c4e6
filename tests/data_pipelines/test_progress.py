"""Progress bars, on a terminal and in a log, and without any."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from command_line import on_a_terminal

from keras_xmr.utils.progress import Progress


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


def work(kind, monkeypatch):
    """Returns the output of some work on a kind of standard error."""
    monkeypatch.setattr(sys, "stderr", kind())
    with Progress("working", 4, "things", initial=1) as bar:
        bar.set_postfix(loss="0.5", refresh=False)
        bar.update(3)
    bar.close()
    with Progress("nothing", 0):
        pass
    return sys.stderr.getvalue()


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
@pytest.mark.parametrize("value", [None, "", "0"])
def test_a_bar_says_what_is_done(monkeypatch, kind, value):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("TQDM_DISABLE", value)
    shown = work(kind, monkeypatch)
    assert "working: 100%" in shown
    assert "4/4" in shown
    assert "nothing" in shown


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_bars_can_be_silenced_at_any_time(monkeypatch, kind):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert work(kind, monkeypatch) == ""


WAITS = """
from keras_xmr.utils.waiting import waiting
with waiting("loading TensorFlow"):
    with waiting("loading Keras"):
        pass
"""


@pytest.mark.slow
def test_what_is_waited_for_is_shown_on_a_terminal_and_taken_away():
    steps = [step for step in on_a_terminal(WAITS).split("\r") if step]
    erase = "\033[K"
    names = ("loading TensorFlow ...", "loading Keras ...", "loading TensorFlow ...", "")
    assert steps == [f"{erase}{name}" for name in names]
    assert on_a_terminal(WAITS, TQDM_DISABLE="1") == ""
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b""), "it is no line of a log"
