"""What holds for each loss and each matcher, with each backend: checks, and the page of them.

`KERAS_BACKEND=torch python tests/support/backend_matrix.py` does all checks with PyTorch, records
them in docs/tables/matrix.csv and writes docs/reference/matrix.md; names of parts, and `--checks`,
limit it to these.
"""

from __future__ import annotations

import argparse
import copy
import csv
import functools
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import every_part
import filelock
import keras
import numpy as np

from keras_xmr import losses

ROOT = Path(__file__).resolve().parents[2]
TABLE, PAGE = ROOT / "docs" / "tables" / "matrix.csv", ROOT / "docs" / "reference" / "matrix.md"
BACKENDS = ("tensorflow", "torch", "jax")
NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}
BACKEND = keras.backend.backend()
# Variants of one class are rows of other tests.
LOSSES = [name for name in every_part.LOSSES if "_" not in name or name == "InfoNCE_learnable"]
MATCHERS = [name for name in every_part.MATCHERS if "_" not in name]
READS_EMBEDDINGS = "reads embeddings"
NOT_RUN = "not run"


def tensors(tree: Any, dtype: str = "float32") -> Any:
    return keras.tree.map_structure(lambda x: keras.ops.convert_to_tensor(x, dtype), tree)


def array(value: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(value)


class Subject:
    """A loss with its matcher, or a matcher; scores of a matcher are added up with weights.

    Attributes:
        parts: The loss and the matcher, or the matcher.
        arrays: The embeddings of images and captions.
    """

    def __init__(self, name: str) -> None:
        random = np.random.default_rng(0)
        keras.utils.set_random_seed(0)
        is_loss = name in every_part.LOSSES
        self.case = (every_part.LOSSES if is_loss else every_part.MATCHERS)[name]
        self.name, self.loss = name, self.case.make() if is_loss else None
        self.matcher = (self.case.matcher and self.case.matcher()) if is_loss else self.case.make()
        self.parts = [part for part in (self.loss, self.matcher) if part is not None]
        self.arrays = every_part.sides(self.case, random)
        self.more = every_part.relevance(self.case, random)
        self.ids = np.int32(every_part.IMAGE_IDS)
        self.weights = random.normal(size=(every_part.IMAGES, every_part.CAPTIONS)).astype("f")
        shapes = [{key: one.shape for key, one in side.items()} for side in self.arrays]
        for part in self.parts:
            if not part.built:
                part.build(*([None] if part is self.loss else []), *shapes)
            for variable in part.trainable_variables:
                moved = 0.3 * random.normal(size=variable.shape).astype("f")
                variable.assign(keras.ops.convert_to_numpy(variable) + moved)
        self.set_training(False)

    def set_training(self, training: bool) -> None:
        """Sets the mode of modules of PyTorch."""
        if BACKEND == "torch":
            for part in self.parts:
                part.train(training)

    def variables(self) -> list[Any]:
        return [variable for part in self.parts for variable in part.variables]

    def value(self, image: Any, caption: Any, ids: Any = None, **more: Any) -> Any:
        """The loss, or the weighted sum of the scores."""
        if self.loss is None:
            scores = self.matcher(image, caption, **more)
            weights = keras.ops.convert_to_tensor(self.weights)
            return keras.ops.sum(scores * keras.ops.cast(weights, scores.dtype))
        ids = self.ids if ids is None else ids
        return self.loss(image, caption, ids, matcher=self.matcher, **self.more, **more)


def compiled(function: Callable[..., Any], rewrites: bool = True) -> Callable[..., Any]:
    """The function as one graph; if TensorFlow rewrites no Python, in a fifth of the time."""
    if BACKEND == "torch":
        import torch

        torch._dynamo.reset()
        return torch.compile(function, fullgraph=True, backend="eager")
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=rewrites)


def enable_float64() -> AbstractContextManager[Any]:
    """Lets JAX have float64, which the others have."""
    if BACKEND != "jax":
        return nullcontext()
    import jax

    context: AbstractContextManager[Any] = jax.enable_x64(True)
    return context


def slopes(function: Callable[..., Any], sides: Any) -> list[np.ndarray]:
    """The gradients of a function of the embeddings, by the transformation of the backend."""
    if BACKEND == "torch":
        import torch

        found = torch.func.grad(function, argnums=(0, 1))(*sides)
    elif BACKEND == "jax":
        import jax

        found = jax.jit(jax.grad(function, argnums=(0, 1)))(*sides)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(sides)
            value = function(*sides)
        found = tape.gradient(value, sides, unconnected_gradients="zero")
    return [array(slope) for slope in keras.tree.flatten(list(found))]


def eager(name: str) -> None:
    subject = Subject(name)
    sides = tensors(subject.arrays)
    value = subject.value(*sides)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    assert np.isfinite(array(value))


def one_graph(name: str, rewrites: bool = True) -> None:
    subject = Subject(name)
    sides, ids = tensors(subject.arrays), tensors(subject.ids, "int32")
    subject.more, subject.weights = tensors(subject.more), tensors(subject.weights)
    expected = subject.value(*sides, ids)
    found = compiled(subject.value, rewrites)(*sides, ids)
    np.testing.assert_allclose(array(found), array(expected), rtol=2e-4, atol=2e-5)


@functools.lru_cache(1)  # Two checks in turn read it.
def precise(name: str) -> tuple[list[np.ndarray], list[np.ndarray], float]:
    """Gradients of float64, a direction, and the slope along it by differences."""
    subject = Subject(name)
    arrays = keras.tree.map_structure(np.float64, subject.arrays)
    flat = keras.tree.flatten(arrays)
    random = np.random.default_rng(1)
    masks = [key == "mask" for side in subject.arrays for key in sorted(side)]
    # Padding stays 0, where a norm has no gradient.
    ways = [
        random.normal(size=one.shape) * ((one != 0) & (not mask))
        for one, mask in zip(flat, masks, strict=True)
    ]
    # One function at all points: JAX compiles it once.
    value = compiled(subject.value) if BACKEND == "jax" else subject.value

    def at(step: float) -> Any:
        moved = [one + step * way for one, way in zip(flat, ways, strict=True)]
        return value(*tensors(keras.tree.pack_sequence_as(arrays, moved), "float64"))

    steps = 1e-5 * np.array([-2, -1, 1, 2])
    with enable_float64():
        moved = [at(step) for step in steps]
        found = slopes(value, tensors(arrays, "float64"))
    assert all(keras.backend.standardize_dtype(one.dtype) == "float64" for one in moved)
    assert all(slope.dtype == np.float64 for slope in found)
    # Exact for polynomials up to the fourth degree.
    return found, ways, float(np.dot([1, -8, 8, -1], [float(array(one)) for one in moved]) / 12e-5)


def float64(name: str) -> None:
    found, ways, slope = precise(name)
    along = sum(float(np.sum(one * way)) for one, way in zip(found, ways, strict=True))
    np.testing.assert_allclose(along, slope, rtol=2e-5, atol=2e-6)


def gradient(name: str) -> None:
    subject = Subject(name)
    found = slopes(subject.value, tensors(subject.arrays))
    assert all(np.isfinite(slope).all() for slope in found)
    _, ways, slope = precise(name)
    along = sum(float(np.sum(one * way)) for one, way in zip(found, ways, strict=True))
    size = np.sqrt(sum(float(np.sum(np.square(one))) for one in found))
    assert abs(along - slope) <= 2e-3 * size + 1e-4, (along, slope)


def modes(name: str) -> None:
    """In evaluation nothing is random or moves; in training what is to be random or moves does."""
    subject = Subject(name)
    sides = tensors(subject.arrays)

    def run(training: bool, seed: int) -> tuple[Any, list[Any]]:
        if BACKEND == "jax":
            with keras.StatelessScope() as scope:
                value = subject.value(*sides, training=training, seed=seed)
                state = [scope.get_current_value(one) for one in subject.variables()]
            pairs = zip(subject.variables(), state, strict=True)
            return array(value), [array(old if new is None else new) for old, new in pairs]
        more = {"training": training} if BACKEND == "tensorflow" else {}
        subject.set_training(training)
        value = array(subject.value(*sides, **more))
        return value, [array(one).copy() for one in subject.variables()]

    before = [array(one).copy() for one in subject.variables()]
    (first, state), (second, _) = run(False, 1), run(False, 2)
    assert first == second
    assert all(np.array_equal(*pair) for pair in zip(before, state, strict=True))
    if name in ("SAF", "SGR", "SGRAF", "NAAF") or subject.case.seeded:
        (first, state), (second, _) = run(True, 1), run(True, 2)
        moved = any(not np.array_equal(*pair) for pair in zip(before, state, strict=True))
        assert moved or first != second
        assert moved == (name in ("SAF", "SGR", "SGRAF", "NAAF"))


def state(name: str) -> None:
    """Weights into a fresh object; pickled and copied objects score alike."""
    subject, other = Subject(name), Subject(name)
    sides = tensors(subject.arrays)
    expected = array(subject.value(*sides))
    for part, fresh in zip(subject.parts, other.parts, strict=True):
        for variable in fresh.trainable_variables:
            variable.assign(0.5 * array(variable))
        if BACKEND == "torch":
            _torch_state(part, fresh)
        else:
            fresh.set_weights(part.get_weights())
    np.testing.assert_allclose(array(other.value(*sides)), expected, rtol=1e-5)
    for copied in (copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))):  # noqa: S301
        other.loss, other.matcher = (
            part and copied(part) for part in (subject.loss, subject.matcher)
        )
        np.testing.assert_allclose(array(other.value(*sides)), expected, rtol=1e-5)


def _torch_state(part: Any, fresh: Any) -> None:
    import io

    import torch

    state = part.state_dict()
    assert not any("/" in key or "torch_params" in key for key in state)
    pointers = [one.data_ptr() for one in state.values() if one.dtype.is_floating_point]
    assert len(set(pointers)) == len(pointers) == len(part.weights)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file))
    frozen = next(iter(part.parameters()), None)
    if frozen is not None:
        trained = frozen.requires_grad
        frozen.requires_grad_(False)
    file = io.BytesIO()
    torch.save(torch.nn.ModuleList([part]), file)
    file.seek(0)
    for other in (torch.load(file, weights_only=False)[0], copy.deepcopy(part)):
        assert not other.training
        flags = [sum(p.requires_grad for p in one.parameters()) for one in (part, other)]
        assert flags[0] == flags[1]
    if frozen is not None:
        frozen.requires_grad_(trained)


def score_matrix(name: str) -> str | None:
    """A loss of a score matrix, and of a function as matcher, is the loss of the matcher."""
    subject = Subject(name)
    sides, loss, matcher = tensors(subject.arrays), subject.loss, subject.matcher
    if loss is None:
        loss = losses.InfoNCE()
    elif not loss.contract.reads_scores or loss.contract.keys:
        return READS_EMBEDDINGS
    more = subject.more | {"image_ids": subject.ids}
    expected = loss(*sides, matcher=matcher, **more)
    if matcher is None:
        unit = [
            side["mean"] / np.linalg.norm(side["mean"], axis=1)[:, None] for side in subject.arrays
        ]
        scores = tensors(unit[0] @ unit[1].T)
    else:
        scores = matcher(*sides)
    for found in (
        loss.of_scores(scores, **more),
        loss(*sides, matcher=lambda image, caption: scores, **more),
    ):
        np.testing.assert_allclose(array(found), array(expected), rtol=1e-4, atol=1e-5)
    return None


def two_processes(name: str) -> None:
    error = of_two_processes([name])[name]
    assert not error, error


def of_two_processes(names: list[str]) -> dict[str, str]:
    """Runs tests/support/two_processes.py; returns its errors by name, empty where it is right."""
    import os

    script = Path(__file__).with_name("two_processes.py")
    settings = {
        "KERAS_BACKEND": BACKEND,
        "PYTHONPATH": f"{ROOT}:{script.parent}",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    with tempfile.TemporaryDirectory() as folder:
        ranks = (0, 1) if BACKEND == "torch" else (0,)
        runs = [
            subprocess.Popen(
                [sys.executable, str(script), str(rank), folder, *names],
                env=os.environ | settings,
            )
            for rank in ranks
        ]
        codes = [run.wait(timeout=1800) for run in runs]
        assert codes == [0] * len(ranks), codes
        read = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in ranks]
    return {name: "".join(one[name] for one in read) for name in names}


CHECKS: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "eager": ("eager", eager),
    "graph": ("one graph", one_graph),
    "gradient": ("gradient of a function", gradient),
    "modes": ("train, eval", modes),
    "float64": ("float64", float64),
    "state": ("state, copies", state),
    "processes": ("two processes", two_processes),
    "scores": ("score matrix", score_matrix),
}
"""The checks by name: the heading of their column, and a function of the name of a part."""


def outcome(check: str, name: str) -> str:
    """Returns "yes", or the reason why a check does not apply; raises where one fails."""
    return CHECKS[check][1](name) or "yes"


def read() -> dict[tuple[str, str], dict[str, str]]:
    """Returns the recorded outcomes by part and check, and backend."""
    if not TABLE.is_file():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {(row["part"], row["check"]): row for row in csv.DictReader(file)}


def record(names: list[str], checks: list[str]) -> None:
    """Does checks of some parts with this backend, and writes them into the table."""
    apart = of_two_processes(names) if "processes" in checks else {}
    for name in names:
        found = {}
        for check in checks:
            try:
                if check == "processes":
                    assert not apart[name], apart[name]
                found[check] = "yes" if check == "processes" else outcome(check, name)
            except Exception as error:
                found[check] = f"no: {type(error).__name__}"
                print(name, check, repr(error)[:600], flush=True)
        write(name, found)


def write(name: str, found: dict[str, str]) -> None:
    """Writes the outcomes of a part with this backend; the other backends may do it, too."""
    with filelock.FileLock(Path(tempfile.gettempdir()) / "keras_xmr_matrix.lock"):
        known = read()
        for check, result in found.items():
            known.setdefault((name, check), {"part": name, "check": check})[BACKEND] = result
        rows = [
            known[part, check]
            for part in (*LOSSES, *MATCHERS)
            for check in CHECKS
            if (part, check) in known
        ]
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["part", "check", *BACKENDS], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


HEADER = """# Losses and matchers by backend

Each cell is a check with small random embeddings; ✓ where it holds with TensorFlow, PyTorch and
JAX. `KERAS_BACKEND=torch python tests/support/backend_matrix.py` does all checks with PyTorch and
writes this page; tests repeat them.

* **eager**: a call returns finite numbers of float32.
* **one graph**: `torch.compile(fullgraph=True)`, `jax.jit` and `tf.function` give the value of the
  eager call, with `image_ids` as a tensor.
* **gradient of a function**: `torch.func.grad`, `jax.grad` and `tf.GradientTape` have the slope of
  differences.
* **train, eval**: in evaluation nothing is random and no statistic moves; in training noise,
  dropout and statistics are on.
* **float64**: embeddings of float64 give values and gradients of float64, which have the slope of
  differences; with JAX by `jax.enable_x64`.
* **state, copies**: weights are loaded into a new object; pickled and copied objects give the same
  value. With PyTorch by `state_dict`, and `torch.save` keeps the mode and frozen weights.
* **two processes**: after `losses.gather`, value and gradients are as of the whole batch in one
  process. With PyTorch in two processes with gloo, with JAX on two devices by `jax.pmap`, with
  TensorFlow in two replicas of `MirroredStrategy`.
* **score matrix**: `loss.of_scores`, and a function as `matcher`, give the value of the matcher.
  The scores of each matcher serve `InfoNCE.of_scores`.
"""


def text() -> str:
    """The page of the recorded outcomes."""
    rows, notes = read(), {}
    lines = [HEADER]
    for title, names in (("Losses", LOSSES), ("Matchers", MATCHERS)):
        heads = " | ".join(heading for heading, _ in CHECKS.values())
        lines += ["", f"## {title}", "", f"| | {heads} |", "| --- |" + " :---: |" * len(CHECKS)]
        for name in names:
            cells = [_cell(rows.get((name, check), {}), notes) for check in CHECKS]
            shown = name.replace("_learnable", "(learnable=True)")
            lines.append(f"| `{shown}` | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
    lines += ["", "`Captioning` reads the words of captions and trains in a model alone."]
    return "\n".join(lines).strip() + "\n"


def _cell(row: dict[str, str], notes: dict[str, int]) -> str:
    outcomes = {backend: row.get(backend) or NOT_RUN for backend in BACKENDS}
    if set(outcomes.values()) == {"yes"}:
        return "✓"
    if len(set(outcomes.values())) == 1:
        return _mark(outcomes[BACKEND], notes)
    marks = (f"{NAMES[one]} {_mark(outcome, notes)}" for one, outcome in outcomes.items())
    return ", ".join(marks)


def _mark(outcome: str, notes: dict[str, int]) -> str:
    """Returns a tick, or the number of a note."""
    if outcome == "yes":
        return "✓"
    return f"[{notes.setdefault(_note(outcome), len(notes) + 1)}]"


def _note(reason: str) -> str:
    known = {
        READS_EMBEDDINGS: "Compares embeddings, not scores: a score matrix is not enough.",
        NOT_RUN: "Not run yet.",
    }
    return known.get(reason, reason)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*LOSSES, *MATCHERS])
    parser.add_argument("--checks", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    given = parser.parse_args()
    record(given.names, given.checks)
    PAGE.write_text(text(), "utf-8")
