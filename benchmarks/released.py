"""Training steps and scores, compared with the programs that were released with the papers.

The sizes, made-up features and lengths of captions are the same, and both programs take turns:
PyTorch runs on the processor, in a separate process that measures itself. A step is forward,
backward, clipping and the optimizer. The encoder of photos is frozen on both sides and replaced by
its output, and so is BERT in VSE-infinity, by a table of words 768 wide. All is in single
precision, and PCME and PVSE take Adam on both sides. Parts of DiVE and VSE-infinity that ours do
not have are switched off. PCME++ is the loss alone: its encoders are CLIP's, which the program
loads from the network.

Nothing of the programs is in this repository. Public snapshots are checked out into one folder:
SGRAF (Paranioar), vsepp (fartashf), vse_infty (woodfrog), pvse (yalesong), pcme and pcmepp
(naver-ai), VSRN (KunpengLi1994), DivE (kdwonn). An environment has PyTorch, einops and NumPy.

usage: python benchmarks/released.py --released=FOLDER --torch-python=PATH [METHOD ...]
       RELEASED=FOLDER TORCH_PYTHON=PATH python benchmarks/table.py released
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measuring import LEFT_OUT, Elsewhere, Row, compare, other_process, show
from steps import METHODS, Sizes, Step, sizes_of, told

FOLDERS = {
    "SAF": "SGRAF",
    "SGR": "SGRAF",
    "VSE++": "vsepp",
    "VSE-infinity": "vse_infty",
    "PVSE": "pvse",
    "PCME": "pcme",
    "PCME++": "pcmepp",
    "VSRN": "VSRN",
    "DiVE": "DivE",
}
"""Where the program of each method is checked out."""

AT_LEAST = {"SAF": 2.0, "SGR": 2.0}
"""How many times as fast as the released one a step must be; as fast, for all others."""

_PAIRS = ("SAF", "SGR", "PCME")
"""Whose scores are counted by pair: all of 1,000 x 5,000 would take the programs minutes."""


def rows(smoke: bool = False, names: list[str] | None = None) -> Iterator[Row]:
    """A step and the scores of each method, of those programs that are there."""
    folder, python = os.environ.get("RELEASED"), os.environ.get("TORCH_PYTHON")
    if not (folder and python) and not smoke:
        print(
            f"{LEFT_OUT}set RELEASED and TORCH_PYTHON; benchmarks/released.py says how", flush=True
        )
        return
    for name in names or (["VSE++"] if smoke else FOLDERS):
        sizes = sizes_of(name, smoke)
        with released(FOLDERS[name], name, **asdict(sizes)) as (ask, program):
            if ask or smoke:
                yield from _beside(name, sizes, ask, program)
            else:
                print(f"{LEFT_OUT}{name}, {folder}/{FOLDERS[name]} is not there", flush=True)


def _beside(
    name: str, sizes: Sizes, ask: Callable[[str], Any] | None, program: str
) -> Iterator[Row]:
    def theirs(work: str) -> Elsewhere | None:
        return Elsewhere(lambda: ask(work)) if ask else None

    if name == "PCME++":
        train, matcher, size = *_loss_of_pcmepp(sizes), f"B {sizes.batch}, D {sizes.dimension:,}"
        whole = f"{name}, the loss"
    else:
        step = Step(name, sizes)
        train, matcher, size, whole = step.train, step.model.matcher, told(sizes), f"{name}, a step"
    row = compare(whole, size, train, theirs("step"), program, repeats=5)
    yield replace(
        row,
        at_least=AT_LEAST.get(name, 1.0) if ask else None,
        why=METHODS[name].why if name in METHODS else "",
    )
    images, captions = sizes.scored
    pairs = {"items": images * captions} if name in _PAIRS else {}
    row = compare(
        f"{name}, {'scores of a pair' if pairs else 'scores and recalls'}",
        f"{images:,} x {captions:,}, D {sizes.dimension:,}",
        _scores(name, sizes, matcher),
        theirs("score"),
        program,
        repeats=3,
        **pairs,
    )
    yield replace(row, at_least=1.0 if ask else None)


def _loss_of_pcmepp(sizes: Sizes) -> tuple[Callable[[], Any], Any]:
    """The loss of PCME++, forward and backward, and its matcher."""
    import tensorflow as tf

    from keras_xmr import losses, matchers

    matcher = matchers.ClosedFormSampled(scale=5.0, shift=5.0)
    matching = losses.ProbabilisticMatching(pseudo_positives=0.1)
    divergence = losses.KLDivergence(reduction="mean")
    for loss in (matching, divergence):
        shape = {"mean": (None, sizes.dimension), "log_variance": (None, sizes.dimension)}
        loss.build(None, shape, shape)
    sides = [_embeddings("PCME++", sizes, sizes.batch) for _ in range(2)]
    variables = [{key: tf.Variable(value) for key, value in side.items()} for side in sides]
    related = {"positives": tf.eye(sizes.batch, dtype=tf.bool)}

    def step() -> Any:
        with tf.GradientTape() as tape:
            image, caption = ({k: tf.identity(v) for k, v in side.items()} for side in variables)
            scores = matcher(image, caption)
            terms = matching(scores, image, caption, related)
            terms |= {"kl": 1e-4 * sum(divergence(scores, image, caption, related).values())}
            value = sum(terms.values())
        return value, tape.gradient(value, variables)

    run = tf.function(step, autograph=False)
    return lambda: run()[1][0]["mean"].numpy(), matcher


def _embeddings(name: str, sizes: Sizes, count: int) -> dict[str, Any]:
    """Made-up embeddings of the kind that the matcher of a method reads."""
    import numpy as np

    random = np.random.default_rng(0)

    def unit(*shape: int) -> Any:
        values = random.standard_normal(shape, np.float32)
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    if name in ("PVSE", "DiVE"):
        return {"points": unit(count, sizes.set, sizes.dimension)}
    found = {"mean": unit(count, sizes.dimension)}
    if name in ("PCME", "PCME++"):  # Samples of PCME are drawn within what is measured.
        found["log_variance"] = np.full((count, sizes.dimension), -8, np.float32)
    return found


def _scores(name: str, sizes: Sizes, matcher: Any) -> Callable[[], Any]:
    """Scores of all pairs, and where they are not counted by pair, recalls both ways."""
    import numpy as np
    from sgraf import build, generate

    from keras_xmr.evaluation.scoring import score_tiles
    from keras_xmr.judgements import Judgements
    from keras_xmr.metrics import evaluate_scores

    images, captions = sizes.scored
    if name in ("SAF", "SGR"):
        random = np.random.default_rng(0)
        lengths = np.array(sizes.scored_lengths), np.full(images, sizes.regions)
        caption, image = (generate(random, length, sizes.dimension) for length in lengths)
        build(matcher, image, caption)
    else:
        image, caption = (_embeddings(name, sizes, count) for count in sizes.scored)
    if name in _PAIRS:
        return lambda: score_tiles(matcher, image, caption, (256, 1024)).dense()
    judgements = Judgements.from_pairs(np.arange(captions) // (captions // images), images)
    return lambda: (
        evaluate_scores(score_tiles(matcher, image, caption, (256, 1024)), judgements).summary
    )


@contextmanager
def released(
    checkout: str, program: str, **sizes: Any
) -> Iterator[tuple[Callable[[str], SimpleNamespace] | None, str]]:
    """Starts a released program.

    Args:
        checkout: Its folder among those of RELEASED.
        program: A name in `released_torch.PROGRAMS`.
        **sizes: What it is measured on.

    Yields:
        A function that has a work of it done, and its commit with the version of PyTorch; None and
        an empty text where it is not there.
    """
    python, there = os.environ.get("TORCH_PYTHON"), Path(os.environ.get("RELEASED", "")) / checkout
    if not (python and os.environ.get("RELEASED") and there.exists()):
        yield None, ""
        return
    arguments = str(there), program, json.dumps(sizes)
    with other_process(python, "released_torch.py", *arguments) as (ask, about):
        version = about.torch.partition("+")[0]
        yield ask, f"{checkout} {_commit(there)}, PyTorch {version}"


def _commit(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measures, and prints the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("methods", nargs="*", choices=[*FOLDERS, []])
    parser.add_argument("--released", default=os.environ.get("RELEASED"), help="the checkouts")
    parser.add_argument(
        "--torch-python", default=os.environ.get("TORCH_PYTHON"), help="a Python with PyTorch"
    )
    options = parser.parse_args()
    os.environ |= {"RELEASED": options.released or "", "TORCH_PYTHON": options.torch_python or ""}
    show(rows(names=options.methods))


if __name__ == "__main__":
    main()
