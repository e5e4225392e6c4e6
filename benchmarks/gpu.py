"""Losses and matchers in PyTorch, compared with the shortest code and with released programs.

A row is one forward pass and one backward pass to the embeddings, in eager PyTorch, with one thread
unless it says otherwise. Memory is the peak that PyTorch allocates, without the inputs. Other work
ran on the machine. With one caption per image, values and gradients agree to six digits;
`benchmarks/gpu.py` lists where the libraries differ otherwise.

Known differences (see also tests/backends/test_other_libraries.py):

* `pcme` takes the sigmoid of twice the logit, so its scale of 15 is 30 here.
* `coco_DAA` ranks images by images, and leaves out the query in place of the candidate.
* Weights of SAF are drawn again, so its values are not compared.

The shortest code is in `shortest.py`. Where `--released` names a folder of checkouts, others are
losses released with papers: pcme and pcmepp (naver-ai), 2022-NeurIPS-DAA (leolee99), SGRAF
(Paranioar). On a GPU the golden numbers of `tests/backends` run there too, with PyTorch and with
JAX. Values and gradients of each case are compared with gradients of the processor, in float32 and
under autocast to bfloat16.

usage: python benchmarks/gpu.py [--device=cuda] [--released=FOLDER]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from measuring import ROOT, Row, show, size_of
from shortest import AT_LEAST, SHORTEST

from keras_xmr import losses, matchers

SAMPLES, DIMENSION, TEMPERATURE, MARGIN = 7, 512, 0.07, 0.2
LARGEST = float(os.environ.get("GIGABYTES", 8)) * 1e9
"""Bytes that another implementation may take; where it needs more, it is not run."""
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.2}
"""How far values and gradients may be from the processor's float32, by their Euclidean lengths."""

Value = Callable[[], torch.Tensor]
Inputs = SimpleNamespace


@dataclass(frozen=True)
class Case:
    """A loss of this project and another implementation.

    Attributes:
        ours: Makes a function that computes the loss of some inputs.
        theirs: Makes one that computes the loss of the other implementation.
        reads: The inputs by which gradients are taken.
        against: What the other is.
        holds: Bytes that the other needs at least, by B, J and D.
        equal: Whether both define the same value.
        at_least: How many times as fast ours must be.
        why: Why it is not.
    """

    ours: Callable[[Inputs], Value]
    theirs: Callable[[Inputs], Value]
    against: str
    holds: Callable[[int, int, int], float]
    reads: tuple[str, ...] = ("images", "captions")
    equal: bool = True
    at_least: float = 1.0
    why: str = ""


def made_up(batch: int, dimension: int, device: str = "cpu", samples: int = SAMPLES) -> Inputs:
    """Returns unit vectors of images and captions near them, samples, and relevance."""
    random = np.random.default_rng(0)

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device, requires_grad=True)

    def unit(values: np.ndarray) -> np.ndarray:
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    common = random.normal(size=(batch, dimension))
    means = [unit(common + random.normal(size=common.shape)) for _ in range(2)]
    found = {"images": tensor(means[0]), "captions": tensor(means[1])}
    for side, mean in zip(("image", "caption"), means, strict=True):
        noise = random.normal(scale=0.02, size=(batch, samples, dimension))
        found[f"{side}_samples"] = tensor(mean[:, None] + noise)
        found[f"{side}_log_variance"] = tensor(random.normal(-7, 0.1, (batch, dimension)))
    relevance = np.eye(batch) + np.maximum(random.random((batch, batch)) - 0.8, 0)
    found["relevance"] = torch.tensor((relevance + relevance.T) / 2, dtype=torch.float32).to(device)
    found["positives"] = torch.eye(batch, dtype=torch.bool, device=device)
    return Inputs(**found, device=device)


def _shortest(name: str) -> Callable[[Inputs], Value]:
    def make(inputs: Inputs) -> Value:
        loss = SHORTEST["torch"]()[name]
        return lambda: loss(inputs.images, inputs.captions)

    return make


def _released(path: str, device: str, *changes: tuple[str, str]) -> ModuleType:
    """Returns a module of the folder RELEASED, with changes for devices and new versions."""
    text = Path(os.environ["RELEASED"], path).read_text("utf-8")
    for old, new in changes:
        text = text.replace(old, new)
    module = ModuleType(Path(path).stem)
    exec(compile(text.replace("'cuda'", repr(device)), path, "exec"), module.__dict__)
    return module


def _pcme(inputs: Inputs) -> Value:
    made = _released("pcme/criterions/probemb.py", inputs.device)
    options = type("Options", (SimpleNamespace,), {"get": lambda self, name, other: other})
    loss = made.MCSoftContrastiveLoss(
        options(init_shift=15, init_negative_scale=15, num_samples=SAMPLES)
    ).to(inputs.device)
    return lambda: loss(inputs.image_samples, inputs.caption_samples, None, None)[0]


def _pcmepp(inputs: Inputs) -> Value:
    made = _released("pcmepp/pcmepp/criterions/pcmepp.py", inputs.device)
    loss = made.ClosedFormSampledDistanceLoss(smoothness_alpha=0.1).to(inputs.device)
    sides = [
        {"mean": mean, "std": log_variance}
        for mean, log_variance in (
            (inputs.images, inputs.image_log_variance),
            (inputs.captions, inputs.caption_log_variance),
        )
    ]
    return lambda: loss(*sides)[0]


def _daa(inputs: Inputs) -> Value:
    loss = _released("2022-NeurIPS-DAA/PCME-DAA/criterions/DAA.py", inputs.device).DAA()
    images, captions = inputs.images[:, None], inputs.captions[:, None]
    # One direction each call.
    return lambda: sum(
        loss.coco_DAA(*sides, inputs.relevance)
        for sides in ((images, captions), (captions, images))
    )


def _tokens(inputs: Inputs, side: str) -> torch.Tensor:
    """Regions or words (B, J, D): the samples."""
    return getattr(inputs, f"{side}_samples")


def _saf(inputs: Inputs) -> Value:
    mask = "if torch.cuda.is_available():\n            I = mask.cuda()", "I = mask"
    made = _released("SGRAF/model.py", inputs.device, ("size(2)/2", "size(2)//2"), mask)
    batch, words, dimension = _tokens(inputs, "caption").shape
    similarity = made.EncoderSimilarity(dimension, 256, "SAF")
    similarity.v_global_w = made.VisualSA(dimension, 0.4, words)
    similarity, loss = similarity.to(inputs.device), made.ContrastiveLoss(MARGIN, True)
    sides, lengths = (_tokens(inputs, side) for side in ("image", "caption")), [words] * batch
    image, caption = sides
    return lambda: loss(similarity(image, caption, lengths))


def _our_saf(inputs: Inputs) -> Value:
    matcher, loss = matchers.SAF(), losses.Triplet(margin=MARGIN)
    sides = [
        {"tokens": tokens, "mask": torch.ones(tokens.shape[:2], device=inputs.device)}
        for tokens in (_tokens(inputs, side) for side in ("image", "caption"))
    ]

    def value() -> torch.Tensor:
        both = zip(sides, ("image", "text"), strict=True)
        made = [matcher.prepare(embedding, side, 0, training=True) for embedding, side in both]
        scores = matcher(*made, training=True)
        return sum(loss.terms(scores, {}, {}, {"positives": inputs.positives}).values())

    return value


def _ours(name: str, **options: Any) -> Callable[[Inputs], Value]:
    def make(inputs: Inputs) -> Value:
        loss = getattr(losses, name)(**options)
        return lambda: loss(inputs.images, inputs.captions, positives=inputs.positives)

    return make


def _our_daa(inputs: Inputs) -> Value:
    loss = losses.DAA(relevance_temperature=0.01)
    return lambda: loss(
        inputs.images, inputs.captions, positives=inputs.positives, relevance=inputs.relevance
    )


def _of_gaussians(name: str, matcher: str, **options: Any) -> Callable[[Inputs], Value]:
    def make(inputs: Inputs) -> Value:
        loss, score = getattr(losses, name)(), getattr(matchers, matcher)(**options)
        related = {"positives": inputs.positives}

        def value() -> torch.Tensor:
            image, caption = (
                {"mean": mean, "log_variance": log_variance, "samples": samples}
                for mean, log_variance, samples in (
                    (inputs.images, inputs.image_log_variance, inputs.image_samples),
                    (inputs.captions, inputs.caption_log_variance, inputs.caption_samples),
                )
            )
            scores = score(image, caption)
            return sum(loss.terms(scores, image, caption, related).values())

        return value

    return make


_SAMPLES = ("image_samples", "caption_samples")
_GAUSSIAN = ("images", "captions", "image_log_variance", "caption_log_variance")
_SHORTEST = "the shortest code"
CASES = {
    "InfoNCE": Case(
        _ours("InfoNCE", temperature=TEMPERATURE),
        _shortest("InfoNCE"),
        _SHORTEST,
        lambda b, j, d: 16.0 * b**2,
        at_least=AT_LEAST,
    ),
    "Triplet, hardest negative": Case(
        _ours("Triplet", margin=MARGIN),
        _shortest("hardest triplet"),
        _SHORTEST,
        lambda b, j, d: 16.0 * b**2,
        at_least=AT_LEAST,
    ),
    "SmoothAP": Case(
        _ours("SmoothAP"),
        _shortest("Smooth-AP"),
        _SHORTEST,
        lambda b, j, d: 16.0 * b**2,
        at_least=AT_LEAST,
    ),
    "SoftContrastive with MatchProbability": Case(
        _of_gaussians("SoftContrastive", "MatchProbability", scale=30.0, shift=30.0),
        _pcme,
        "pcme, MCSoftContrastiveLoss",
        lambda b, j, d: 16.0 * b**2 * j**2 * d,
        reads=_SAMPLES,
        at_least=100.0,
    ),
    "ProbabilisticMatching with ClosedFormSampled": Case(
        _of_gaussians("ProbabilisticMatching", "ClosedFormSampled"),
        _pcmepp,
        "pcmepp, ClosedFormSampledDistanceLoss",
        lambda b, j, d: 32.0 * b**2 * d,
        reads=_GAUSSIAN,
    ),
    "DAA": Case(
        _our_daa,
        _daa,
        "2022-NeurIPS-DAA, coco_DAA both ways",
        lambda b, j, d: 48.0 * b**3,
        equal=False,
    ),
    "SAF, Triplet": Case(
        _our_saf,
        _saf,
        "SGRAF, EncoderSimilarity",
        lambda b, j, d: 24.0 * b**2 * j * d,
        reads=_SAMPLES,
        equal=False,
        why="Tiles are computed again for their gradients: more time, a tenth of the memory.",
    ),
}


def gradients(value: Value, inputs: Inputs, case: Case) -> tuple[torch.Tensor, ...]:
    """Returns the loss and its gradients by the embeddings."""
    total = value()
    return total.detach(), *torch.autograd.grad(total, [getattr(inputs, n) for n in case.reads])


def measured(works: list[Callable[[], Any]], device: str, repeats: int) -> list[tuple]:
    """Returns seconds, processor seconds and bytes of each work; they take turns."""
    memory, times = [allocated(work, device) for work in works], [[] for _ in works]
    for turn in range(repeats):
        for work, own in zip(works, times, strict=True):
            begin, processor = time.perf_counter(), time.process_time()
            work()
            if device != "cpu":
                torch.cuda.synchronize()
            own.append((time.perf_counter() - begin, time.process_time() - processor))
        if turn >= 2 and sum(wall for own in times for wall, _ in own) > 4.0:
            break
    return [
        (*(median(column) for column in zip(*own, strict=True)), most)
        for own, most in zip(times, memory, strict=True)
    ]


def allocated(work: Callable[[], Any], device: str) -> float:
    """Returns the most bytes that PyTorch holds during a pass, which also warms it up."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        work()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def rows(
    smoke: bool = False,
    names: list[str] | None = None,
    device: str = "cpu",
    batches: tuple[int, ...] = (128, 512, 2048),
) -> Iterator[Row]:
    """Yields a row for each case and batch, with a released program where it is there."""
    batches, dimension = ((16,), 8) if smoke else (batches, DIMENSION)
    for name in names or CASES:
        case = CASES[name]
        for batch in batches:
            yield _row(name, case, made_up(batch, dimension, device), 1 if smoke else 7)


def _row(name: str, case: Case, inputs: Inputs, repeats: int) -> Row:
    (batch, samples, dimension), against = inputs.image_samples.shape, case.against
    checkout = Path(os.environ.get("RELEASED") or "none", against.split(",")[0])
    holds = case.holds(batch, samples, dimension)
    works, device = [case.ours(inputs)], inputs.device
    if against != _SHORTEST and not checkout.exists():
        against += ": not there"
    elif holds > LARGEST:
        against += f": not run, needs {size_of(holds)}"
    else:
        works.append(case.theirs(inputs))
    with _placed(device):
        found = measured(
            [partial(gradients, work, inputs, case) for work in works], device, repeats
        )
    size = f"B {batch}, D {dimension}" + f", J {samples}" * (case.reads == _SAMPLES)
    (seconds, processor, memory), theirs = found[0], found[1] if len(found) > 1 else (None,) * 3
    return Row(
        *(name, size, seconds, theirs[0], against, memory, theirs[2]),
        processor=processor,
        baseline_processor=theirs[1],
        at_least=case.at_least if theirs[0] else None,
        why=case.why,
    )


def _placed(device: str) -> Any:
    return keras.device("cpu:0" if device == "cpu" else "gpu:0")


def deviations(
    device: str, batch: int = 16, dimension: int = 32
) -> Iterator[tuple[str, str, float]]:
    """Yields how far values and gradients on a device are from the processor's in float32.

    Yields:
        The name of a case, a dtype, and the length of the difference over the expected length.
    """
    norm = np.linalg.norm
    for name, case in CASES.items():
        found = {}
        for place, dtype in (("cpu", "float32"), (device, "float32"), (device, "bfloat16")):
            keras.utils.set_random_seed(0)
            inputs = made_up(batch, dimension, place)
            half = torch.autocast(place, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
            with _placed(place), half:
                tensors = gradients(case.ours(inputs), inputs, case)
            found[place, dtype, len(found)] = [t.float().cpu().numpy() for t in tensors]
        expected, *others = found.items()
        for (_, dtype, _), tensors in others:
            pairs = zip(tensors, expected[1], strict=True)
            yield name, dtype, max(norm(a - b) / norm(b) for a, b in pairs)


def golden(backend: str) -> None:
    """Runs the golden numbers of `tests/backends` where Keras puts its tensors: on a GPU.

    Raises:
        SystemExit: If some are wrong.
    """
    command = [sys.executable, "-m", "pytest", "-c", "tests/backends/pytest.ini", "tests/backends"]
    environment = os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise SystemExit(f"golden numbers with {backend} differ")


def main() -> None:
    """Checks and measures, and prints what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    there = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cuda", "cpu"], default=there)
    parser.add_argument("--released", default=os.environ.get("RELEASED", ""), help="the checkouts")
    options = parser.parse_args()
    os.environ["RELEASED"] = options.released
    card = torch.cuda.get_device_name() if options.device == "cuda" else "processor"
    print(f"{card}, PyTorch {torch.__version__}", flush=True)
    for name, dtype, apart in deviations(options.device):
        print(f"{name}, {dtype}: {apart:.1e} of the processor's float32", flush=True)
        if not apart < TOLERANCE[dtype]:
            raise SystemExit(f"{name} differs in {dtype}")
    if options.device == "cuda":
        golden("torch")
        golden("jax")
    show(rows(device=options.device))


if __name__ == "__main__":
    main()
