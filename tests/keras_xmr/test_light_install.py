"""The package without TensorFlow, and with no choice of a framework."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from command_line import PYTHONPATH, ROOT

from keras_xmr.utils import backend_choice
from keras_xmr.utils.missing import NotInstalledError, explain, placeholder

OF_TENSORFLOW = ("tensorflow", "tensorflow_probability", "tf_keras", "keras_hub", "yaml")
BLOCK = """
import importlib.machinery

def find_spec(name, path=None, target=None, find=importlib.machinery.PathFinder.find_spec):
    return None if name.partition(".")[0] in {} else find(name, path, target)

importlib.machinery.PathFinder.find_spec = find_spec
"""


def run(code: str, without: tuple[str, ...], folder: Path, **settings: str) -> str:
    """The output of a process that does not have some packages."""
    environment = {name: v for name, v in os.environ.items() if name != "KERAS_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCK.format(without) + textwrap.dedent(code)],
        env=environment | {"PYTHONPATH": PYTHONPATH, "KERAS_HOME": str(folder)} | settings,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# Keras, imported later, finds by their registered names the losses that no line has imported.
FIND = """
from keras_xmr import Objective
import keras

names = ("InfoNCE", "Triplet")
losses = [{"module": None, "class_name": n, "registered_name": f"keras_xmr>{n}", "config": {}}
          for n in names]
made = keras.layers.deserialize({"module": None, "class_name": "Objective",
                                 "registered_name": "keras_xmr>Objective",
                                 "config": {"losses": losses, "weights": [1.0, 1.0]}})
assert type(made) is Objective, type(made)
"""

LOOK = """
import inspect, pydoc, keras_xmr

page = pydoc.render_doc(keras_xmr, renderer=pydoc.plaintext)
assert "loads the model of a run" in page
members = dict(inspect.getmembers(keras_xmr))
assert set(keras_xmr.__all__) <= set(dir(keras_xmr)) & set(members)
says = {}
for name in keras_xmr.__all__:
    part = getattr(keras_xmr, name)
    assert pydoc.render_doc(part)
    if type(part).__name__ == "_Missing":
        call = lambda: part.SmallCNN
    elif "which is not installed: `pip" in (part.__doc__ or ""):
        call = part
    else:
        continue
    try:
        call()
    except ImportError as error:
        says[name] = str(error)
import keras
print(keras.backend.backend(), *sorted(says))
print(says["load"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_with_one_framework_the_readme_runs_and_every_name_says_what_it_needs(framework, tmp_path):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    other = {"torch": "jax", "jax": "torch"}[framework]
    block, printed = first_block()
    shown, names, load = run(FIND + block + LOOK, (*OF_TENSORFLOW, other), tmp_path).splitlines()
    assert shown == printed
    assert names.split() == [
        *(framework, "Experiment", "Retriever", "TrainedModel", "encoders", "evaluate"),
        *("load", "load_model", "pretrained"),
    ]
    assert "not installed: `pip install" in load
    assert "[tensorflow]" in load


def test_with_all_frameworks_the_readme_runs(capsys):
    block, printed = first_block()
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [printed]


def first_block() -> tuple[str, str]:
    """The first Python of the README, and what it says that this prints."""
    block = (ROOT / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
    return block, block.rpartition("  # ")[2].strip()


def chosen(monkeypatch, installed, imported=(), file=None, folder=None):
    """The framework that is chosen; "" leaves the choice to Keras."""
    if file is not None:
        (folder / "keras.json").write_text(file)
        monkeypatch.setenv("KERAS_HOME", str(folder))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr(backend_choice, "installed", installed.__contains__)
    modules = {name: object() for name in imported}
    monkeypatch.setattr(backend_choice, "sys", type("Sys", (), {"modules": modules}))
    backend_choice.choose_backend()
    found = os.environ.get("KERAS_BACKEND", "")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    return found


def test_the_choice_of_a_framework(monkeypatch, tmp_path):
    everything = ("tensorflow", "torch", "jax")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert chosen(monkeypatch, everything) == ""
    assert chosen(monkeypatch, ("torch",)) == "torch"
    assert chosen(monkeypatch, ("jax",)) == "jax"
    assert chosen(monkeypatch, ()) == ""
    assert chosen(monkeypatch, everything, imported=("torch",)) == "torch"
    assert chosen(monkeypatch, everything, imported=("torch", "tensorflow")) == ""
    assert chosen(monkeypatch, everything, imported=("torch", "keras")) == ""
    by_file = json.dumps({"backend": "jax"})
    assert chosen(monkeypatch, everything, ("torch",), by_file, tmp_path) == ""
    for file in (json.dumps({"backend": "tensorflow"}), "{", "[]"):
        assert chosen(monkeypatch, everything, ("torch",), file, tmp_path) == "torch"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    backend_choice.choose_backend()
    assert os.environ["KERAS_BACKEND"] == "jax"


def test_missing_packages_are_named():
    missing = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert "`pip install torch`, or `pip install jax`" in explain("losses", missing, True)
    assert "load needs torch, which is not installed" in explain("load", missing, False)
    for error in (ImportError("circular"), ModuleNotFoundError("x", name="keras_xmr.typo")):
        with pytest.raises(type(error)):
            explain("load", error, False)
    function, module = (placeholder("load", "install it", kind) for kind in (False, True))
    assert (function.__name__, function.__doc__, module.__doc__) == (
        *("load", "install it"),
        "install it",
    )
    for use in (function, lambda: module.part):
        with pytest.raises(NotInstalledError, match="install it"):
            use()
    assert not hasattr(module, "__path__")
