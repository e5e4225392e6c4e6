"""Training steps and scores, compared with the programs that were released with the papers.

Both programs get the same sizes, random features and lengths of captions, and take turns. PyTorch
runs on the processor, in a separate process that measures itself. A step is forward, backward,
clipping and the optimizer. Both replace the frozen encoder of photos by its output, and compute in
single precision; PCME takes Adam in both.

Nothing of the programs is in this repository. Public snapshots are checked out into one folder:
SGRAF (Paranioar), vsepp (fartashf), pcme (naver-ai). Modules of a checkout are imported as they
are. What the measured part does not use (CUDA, the network, loggers, readers of data sets) is
replaced while they are imported, and so is what PyTorch or Python 3 no longer has: `CHANGES`.

usage: RELEASED=FOLDER python benchmarks/released.py [METHOD ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from measuring import LEFT_OUT, Elsewhere, Row, answer, compare, other_process, show
from steps import METHODS, Sizes, Step, sizes_of, told

FOLDERS = {"SAF": "SGRAF", "SGR": "SGRAF", "VSE++": "vsepp", "PCME": "pcme"}
"""Where the program of each method is checked out."""
_PAIRS = ("SAF", "SGR", "PCME")
"""Whose scores are counted by pair: all of 1,000 x 5,000 would take the programs minutes."""

Works = dict[str, Callable[[], Any]]


def rows(smoke: bool = False, names: list[str] | None = None) -> Iterator[Row]:
    """A step and the scores of each method, of those programs that are there."""
    folder = os.environ.get("RELEASED")
    if not folder and not smoke:
        print(f"{LEFT_OUT}set RELEASED; benchmarks/released.py says how", flush=True)
        return
    for name in names or (["VSE++"] if smoke else FOLDERS):
        sizes = sizes_of(name, smoke)
        with _program(name, sizes) as (ask, program):
            if ask or smoke:
                yield from _beside(name, sizes, ask, program)
            else:
                print(f"{LEFT_OUT}{name}, {folder}/{FOLDERS[name]} is not there", flush=True)


def _beside(
    name: str, sizes: Sizes, ask: Callable[[str], Any] | None, program: str
) -> Iterator[Row]:
    def theirs(work: str) -> Elsewhere | None:
        return Elsewhere(lambda: ask(work)) if ask else None

    step = Step(name, sizes)
    row = compare(f"{name}, a step", told(sizes), step.train, theirs("step"), program, repeats=5)
    yield replace(row, at_least=1.0 if ask else None, why=METHODS[name].why)
    images, captions = sizes.scored
    pairs = {"items": images * captions} if name in _PAIRS else {}
    row = compare(
        f"{name}, {'scores of a pair' if pairs else 'scores and recalls'}",
        f"{images:,} x {captions:,}, D {sizes.dimension:,}",
        _scores(name, sizes, step.model.matcher),
        theirs("score"),
        program,
        repeats=3,
        **pairs,
    )
    yield replace(row, at_least=1.0 if ask else None)


def _scores(name: str, sizes: Sizes, matcher: Any) -> Callable[[], Any]:
    """Scores of all pairs, and where they are not counted by pair, recalls both ways."""
    from matchers import build, generate

    from keras_xmr.experiments.evaluation.scoring import score_tiles
    from keras_xmr.judgements import Judgements
    from keras_xmr.metrics import evaluate_scores

    (images, captions), random = sizes.scored, np.random.default_rng(0)
    if name in ("SAF", "SGR"):
        lengths = np.array(sizes.scored_lengths), np.full(images, sizes.regions)
        caption, image = (generate(random, length, sizes.dimension) for length in lengths)
        build(matcher, image, caption)
    else:
        image, caption = ({"mean": _unit(count, sizes.dimension)} for count in sizes.scored)
    if name == "PCME":  # Samples are drawn within what is measured.
        for side in (image, caption):
            side["log_variance"] = np.full_like(side["mean"], -8)
    if name in _PAIRS:
        return lambda: score_tiles(matcher, image, caption, (256, 1024)).dense()
    judgements = Judgements.from_pairs(np.arange(captions) // (captions // images), images)
    return lambda: (
        evaluate_scores(score_tiles(matcher, image, caption, (256, 1024)), judgements).summary
    )


def _unit(*shape: int) -> np.ndarray:
    values = np.random.default_rng(1).standard_normal(shape, np.float32)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


@contextmanager
def _program(
    name: str, sizes: Sizes
) -> Iterator[tuple[Callable[[str], SimpleNamespace] | None, str]]:
    """Starts a released program.

    Yields:
        A function that has a work of it done, and its commit with the version of PyTorch; None and
        an empty text where it is not there.
    """
    folder = Path(os.environ.get("RELEASED") or "none", FOLDERS[name])
    if not folder.exists():
        yield None, ""
        return
    arguments = "--program", str(folder), name, json.dumps(asdict(sizes))
    with other_process(sys.executable, "released.py", *arguments) as (ask, about):
        command = ["git", "-C", str(folder), "rev-parse", "--short=7", "HEAD"]
        commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        yield ask, f"{folder.name} {commit}, PyTorch {about.torch.partition('+')[0]}"


# What follows runs in the process of a released program.

ABSENT = (
    *("torchvision", "torchtext", "transformers", "tensorboard_logger", "pycocotools", "apex"),
    *("nltk", "PIL", "wandb", "munch", "ujson", "fire", "h5py", "cv2", "ipdb", "tensorboard"),
    *("imageio", "matplotlib", "lmdb", "tqdm", "adamp", "gulpio", "mpl_toolkits", "sklearn"),
)
"""Libraries that the programs import and the measured parts do not use."""

CHANGES = {
    "SGRAF/model": (
        ("size(2)/2", "size(2)//2"),
        ("if torch.cuda.is_available():\n            I = mask.cuda()", "I = mask"),
    ),
    "vsepp/model": (
        ("import clip_grad_norm\n", "import clip_grad_norm_ as clip_grad_norm\n"),
        (", volatile=volatile)", ")"),
        ("loss.data[0]", "loss.item()"),
    ),
}
"""By module: what Python 3 or PyTorch no longer has, and what it has instead."""


class _Stubs(MetaPathFinder, Loader):
    """Makes modules of libraries that are not used: all that they have does nothing."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """A module, if it is of one of those libraries."""
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module with any name."""
        module = ModuleType(spec.name)
        module.__getattr__ = _anything  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run."""


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()


class _Features(torch.nn.Module):
    """Replaces a network of photos: what it is called on are its features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc: torch.nn.Module = torch.nn.Linear(width, 1)
        self.avgpool: torch.nn.Module = torch.nn.AdaptiveAvgPool2d(1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """The features."""
        return features


class _Options(dict):
    """A dictionary whose values are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class Program:
    """The modules of a checkout, and what is measured on.

    Args:
        folder: The checkout.
        sizes: As `steps.Sizes` has them.
    """

    def __init__(self, folder: Path, sizes: dict[str, Any]) -> None:
        self.folder, self.sizes = folder, SimpleNamespace(**sizes)
        sys.path.insert(0, str(folder))
        s, random = self.sizes, np.random.default_rng(0)
        self.images = torch.from_numpy(random.random((s.batch, s.regions, s.width), np.float32))
        self.lengths = s.lengths
        words = random.integers(1, s.words, (s.batch, max(s.lengths)))
        words[np.arange(words.shape[1]) >= np.array(s.lengths)[:, None]] = 0
        self.captions = torch.from_numpy(words)

    def module(self, name: str) -> Any:
        """Imports a module, with its changes."""
        path, text = self.folder / f"{name}.py", ""
        for old, new in CHANGES.get(f"{self.folder.name}/{name}", ()):
            text = text or path.read_text("utf-8")
            if old not in text:
                raise ValueError(f"{path} has no {old!r}: another commit than the one known here")
            text = text.replace(old, new)
        if not text:
            __import__(name)
            return sys.modules[name]
        module = sys.modules[name] = ModuleType(name)
        exec(compile(text, str(path), "exec"), module.__dict__)
        return module

    def training(self, **more: Any) -> SimpleNamespace:
        """Options of the older programs."""
        s = self.sizes
        options = {"img_dim": s.width, "embed_size": s.dimension, "word_dim": s.word}
        options |= {"vocab_size": s.words, "num_layers": 1, "grad_clip": 2.0, "finetune": False}
        options |= {"learning_rate": 1e-6, "max_violation": True, "margin": 0.2, "cnn_type": ""}
        options |= {"no_imgnorm": False, "no_txtnorm": False, "use_abs": False}
        options |= {"measure": "cosine", "data_name": "coco_precomp"}
        return SimpleNamespace(**options | more)


def _sgraf(program: Program, name: str) -> Works:
    s = program.sizes
    options = program.training(module_name=name, sim_dim=s.similarity, sgr_step=3, bi_gru=True)
    model = program.module("model").SGRAF(options)
    if s.regions != 36:  # Which the program has as a constant.
        model.sim_enc.v_global_w.embedding_local[1] = torch.nn.BatchNorm1d(s.regions)
    model.logger = MagicMock()
    images = torch.from_numpy(_unit(s.scored[0], s.regions, s.dimension))
    captions = torch.from_numpy(_unit(s.scored[1], max(s.scored_lengths), s.dimension))

    def score() -> None:
        model.val_start()
        with torch.no_grad():
            model.forward_sim(images, captions, s.scored_lengths)

    def step() -> None:
        model.train_start()
        model.train_emb(program.images, program.captions, program.lengths)

    return {"step": step, "score": score}


def _vsepp(program: Program) -> Works:
    model = program.module("model").VSE(program.training())
    model.logger = MagicMock()
    images = program.images[:, 0]
    evaluation, (count, captions) = program.module("evaluation"), program.sizes.scored
    # Photos are repeated for each caption.
    of_images = np.repeat(_unit(count, program.sizes.dimension), captions // count, 0)
    of_captions = _unit(captions, program.sizes.dimension)

    def score() -> None:
        for way in (evaluation.i2t, evaluation.t2i):
            way(of_images, of_captions, npts=count)

    step = lambda: model.train_emb(images, program.captions, program.lengths)  # noqa: E731
    return {"step": step, "score": score}


def _pcme(program: Program) -> Works:
    s = program.sizes
    program.module("torchvision.models").resnet152 = lambda pretrained: _Features(s.width)
    options = _Options(
        **{"wemb_type": None, "word_dim": s.word, "embed_dim": s.dimension, "txt_attention": True},
        **{"img_attention": True, "txt_probemb": True, "img_probemb": True, "txt_finetune": True},
        **{"img_finetune": False, "cnn_type": "resnet152", "n_samples_inference": s.samples},
    )
    model = program.module("models.pcme").PCME(range(s.words), options)
    criterion = program.module("criterions.probemb").MCSoftContrastiveLoss(
        _Options(init_shift=15, init_negative_scale=15, num_samples=s.samples, vib_beta=1e-5)
    )
    weights = [*model.parameters(), *criterion.parameters()]
    optimizer = torch.optim.Adam([w for w in weights if w.requires_grad], lr=1e-6)
    side, lengths = round(s.regions**0.5), torch.tensor(program.lengths)
    grid = program.images.transpose(1, 2).reshape(s.batch, -1, side, side).contiguous()
    # The package `engine`, without the loaders of data that it imports.
    engine = sys.modules["engine"] = ModuleType("engine")
    engine.__path__ = [str(program.folder / "engine")]
    evaluator = program.module("engine.eval_coco").MatchingProbModule(criterion.match_prob)
    images, captions = (
        torch.from_numpy(_unit(count, s.samples, s.dimension)) for count in s.scored
    )

    def step() -> None:
        model.train()
        value = criterion(**model(grid, program.captions, lengths))[0]
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        value.item()

    def score() -> None:
        evaluator.set_g_features(captions)
        with torch.no_grad():
            evaluator(images)

    return {"step": step, "score": score}


PROGRAMS: dict[str, Callable[[Program], Works]] = {
    "SAF": lambda program: _sgraf(program, "SAF"),
    "SGR": lambda program: _sgraf(program, "SGR"),
    "VSE++": _vsepp,
    "PCME": _pcme,
}


def _answer(folder: str, name: str, sizes: str) -> None:
    """Builds a program, and does what it is asked, on the processor."""
    sys.meta_path.insert(0, _Stubs())
    # Everything is on the processor: what moves tensors to a GPU leaves them.
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *given, **more: self  # type: ignore
    torch.cuda.synchronize = lambda *given: None  # type: ignore[assignment]
    torch.manual_seed(0)
    program = Program(Path(folder), json.loads(sizes))
    answer(lambda: PROGRAMS[name](program), torch=torch.__version__)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        _answer(*sys.argv[2:])
    else:
        show(rows(names=sys.argv[1:]))
