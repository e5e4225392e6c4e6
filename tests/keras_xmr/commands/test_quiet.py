"""What TensorFlow logs when it is imported does not reach the terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from command_line import ROOT, on_a_terminal

from keras_xmr.commands._quiet import without_log_lines

LOGS = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    b"I0000 00:00:1795364897.065658   31812 port.cc:153] oneDNN custom operations are on.\n"
)


def test_log_lines_are_left_out_and_the_rest_is_not(capfd):
    with without_log_lines():
        os.write(2, LOGS + b"E0000 00:00:1795364897.0 1 gpu.cc:1] no memory\nsomething else\n")
    said = capfd.readouterr().err
    assert said == "E0000 00:00:1795364897.0 1 gpu.cc:1] no memory\nsomething else\n"


def test_an_import_that_fails_says_what_it_said(capfd):
    @without_log_lines()
    def execute():
        os.write(2, LOGS + b"libsomething.so is missing\n")
        raise ImportError("no")

    with pytest.raises(ImportError):
        execute()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "libsomething.so is missing\nafter\n"


def test_what_is_written_before_an_abort_is_shown():
    code = """
import os
from keras_xmr.commands._quiet import without_log_lines
with without_log_lines():
    os.write(2, b"I0000 00:00:1795364897.0 1 port.cc:1] oneDNN\\nfree(): invalid pointer\\n")
    os.abort()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == b"free(): invalid pointer\n"


def test_on_a_terminal_it_is_said_what_is_being_loaded(tmp_path):
    (tmp_path / "keras.py").write_text("import os\nos.write(2, b'something is wrong\\n')\n")
    code = """
from keras_xmr.commands._quiet import import_tensorflow
import_tensorflow()
"""
    shown = on_a_terminal(code, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert shown.index("loading TensorFlow ...") < shown.index("something is wrong")
    assert shown.endswith("\033[K")
