"""A released program in PyTorch, built on made-up features: the process that `released.py` asks.

It imports the modules of a checkout as they are. What the measured part does not use (CUDA, the
network, loggers, readers of data sets) is replaced while they are imported, and so is what PyTorch
or Python 3 no longer has; `CHANGES` has the words that are replaced. An encoder of photos, or BERT,
is replaced by its output: the features go in.

Reads the names of works, one a line, and answers each with seconds, processor seconds and bytes.

    TORCH_PYTHON benchmarks/released_torch.py FOLDER METHOD SIZES_AS_JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from measuring import answer
from torch import nn

Works = dict[str, Callable[[], Any]]

ABSENT = (
    *("torchvision", "torchtext", "transformers", "tensorboard_logger", "pycocotools", "apex"),
    *("nltk", "PIL", "wandb", "munch", "ujson", "fire", "h5py", "cv2", "ipdb", "pyciderevalcap"),
    *("eccv_caption", "imageio", "matplotlib", "lmdb", "tqdm", "adamp", "gulpio", "tensorboard"),
    *("mpl_toolkits", "sklearn"),
)
"""Libraries that the programs import and the measured parts do not use, if not installed."""

CHANGES = {
    "MTFN-RR-PyTorch-Code/rerank": (("np.load('flickr1_stage1_d.npy')", "np.eye(15, 75)"),),
    "SGRAF/model": (
        ("size(2)/2", "size(2)//2"),
        ("if torch.cuda.is_available():\n            I = mask.cuda()", "I = mask"),
    ),
    "vsepp/model": (
        ("import clip_grad_norm\n", "import clip_grad_norm_ as clip_grad_norm\n"),
        (", volatile=volatile)", ")"),
        ("loss.data[0]", "loss.item()"),
    ),
    "VSRN/model": (
        ("import clip_grad_norm\n", "import clip_grad_norm_ as clip_grad_norm\n"),
        ("loss.data[0]", "loss.item()"),
        ("GCN_img_emd = l2norm(GCN_img_emd)", "GCN_img_emd = l2norm(GCN_img_emd).contiguous()"),
    ),
}
"""By module: what Python 3 or PyTorch no longer has, and what it has instead."""


class _Stubs(MetaPathFinder, Loader):
    """Makes modules of libraries that are not installed: all that they have does nothing."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """A module, if it is of one of those libraries."""
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module with any name."""
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: _anything(name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run."""


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()


class _Features(nn.Module):
    """Replaces a network of photos: what it is called on are its features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc: nn.Module = nn.Linear(width, 1)
        self.avgpool: nn.Module = nn.AdaptiveAvgPool2d(1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """The features."""
        return features


class _Options(dict):
    """A dictionary whose values are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class _Words(nn.Module):
    """Replaces BERT: the states of its last layer come from a table."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.states = nn.Embedding(words, 768)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor]:
        """States (B, L, 768)."""
        return (self.states(words),)


class Program:
    """The modules of a checkout, and what is measured on.

    Args:
        folder: The checkout.
        sizes: As `steps.Sizes` has them, or `arrays`, a file of NumPy.
    """

    def __init__(self, folder: Path, sizes: dict[str, Any]) -> None:
        self.folder, self.sizes = folder, SimpleNamespace(**sizes)
        sys.path.insert(0, str(folder))
        if "arrays" in sizes:  # Of metrics and re-rankers, which have no batch.
            self.arrays = np.load(sizes["arrays"])
            return
        s, random = self.sizes, np.random.default_rng(0)
        self.images = torch.from_numpy(random.random((s.batch, s.regions, s.width), np.float32))
        self.lengths = s.lengths
        words = random.integers(1, s.words, (s.batch, max(s.lengths)))
        words[np.arange(words.shape[1]) >= np.array(s.lengths)[:, None]] = 0
        self.captions = torch.from_numpy(words)

    def module(self, name: str) -> Any:
        """Imports a module, with its changes."""
        if (key := f"{self.folder.name}/{name}") not in CHANGES:
            __import__(name)
            return sys.modules[name]
        path = self.folder / f"{name}.py"
        text = path.read_text("utf-8")
        for old, new in CHANGES[key]:
            if old not in text:
                raise ValueError(f"{path} has no {old!r}: another commit than the one known here")
            text = text.replace(old, new)
        module = sys.modules[name] = ModuleType(name)
        exec(compile(text, str(path), "exec"), module.__dict__)
        return module

    def unit(self, *shape: int) -> np.ndarray:
        """Random unit vectors."""
        values = np.random.default_rng(1).standard_normal(shape, np.float32)
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    def training(self, **more: Any) -> SimpleNamespace:
        """Options of the older programs."""
        s = self.sizes
        return SimpleNamespace(
            **{
                **{
                    "img_dim": s.width,
                    "embed_size": s.dimension,
                    "word_dim": s.word,
                    "margin": 0.2,
                },
                **{"vocab_size": s.words, "num_layers": 1, "grad_clip": 2.0, "finetune": False},
                **{"learning_rate": 1e-6, "max_violation": True, "no_imgnorm": False},
                **{"no_txtnorm": False, "use_abs": False, "measure": "cosine", "cnn_type": ""},
                **{"data_name": "coco_precomp", **more},
            }
        )


def _sgraf(program: Program, name: str) -> Works:
    options = program.training(module_name=name, sim_dim=program.sizes.similarity, sgr_step=3)
    options.bi_gru = True
    model = program.module("model").SGRAF(options)
    if (regions := program.sizes.regions) != 36:  # Which the program has as a constant.
        model.sim_enc.v_global_w.embedding_local[1] = nn.BatchNorm1d(regions)
    model.logger = MagicMock()
    s = program.sizes
    images = torch.from_numpy(program.unit(s.scored[0], s.regions, s.dimension))
    captions = torch.from_numpy(program.unit(s.scored[1], max(s.scored_lengths), s.dimension))

    def score() -> None:
        model.val_start()
        with torch.no_grad():
            model.forward_sim(images, captions, s.scored_lengths)

    def step() -> None:
        model.train_start()
        model.train_emb(program.images, program.captions, program.lengths)

    return {"step": step, "score": score}


def _recalls(program: Program, module: str, **more: Any) -> Works:
    """Scores and ranks both ways, of the older programs: photos are repeated for each caption."""
    evaluation = program.module(module)
    images, captions = program.sizes.scored
    of_images = np.repeat(program.unit(images, program.sizes.dimension), captions // images, 0)
    of_captions = program.unit(captions, program.sizes.dimension)

    def score() -> None:
        for way in (evaluation.i2t, evaluation.t2i):
            way(of_images, of_captions, npts=images, **more)

    return {"score": score}


def _vsepp(program: Program) -> Works:
    model = program.module("model").VSE(program.training())
    model.logger = MagicMock()
    images = program.images[:, 0]
    step = lambda: model.train_emb(images, program.captions, program.lengths)  # noqa: E731
    return {"step": step, **_recalls(program, "evaluation")}


def _vsrn(program: Program) -> Works:
    for name in ("xavier_normal", "constant"):
        if not hasattr(nn.init, name):
            setattr(nn.init, name, getattr(nn.init, f"{name}_"))
    s = program.sizes
    longest = max(s.lengths) + 1
    model = program.module("model").VSRN(
        program.training(
            **{"dim_vid": s.dimension, "dim_hidden": s.units, "bidirectional": False},
            **{"input_dropout_p": 0.2, "rnn_type": "gru", "rnn_dropout_p": 0.5},
            **{"max_len": longest, "dim_word": s.word},
        )
    )
    model.logger = MagicMock()
    labels = torch.nn.functional.pad(program.captions, (0, 1))
    masks = torch.ones(labels.shape)

    def step() -> None:
        model.train_start()
        words = (program.captions, program.lengths, None, labels, masks)
        model.train_emb(program.images, *words)

    return {"step": step, **_recalls(program, "evaluation")}


def _vse_infinity(program: Program) -> Works:
    encoders = program.module("lib.encoders")
    encoders.BertModel = SimpleNamespace(from_pretrained=lambda name: _Words(program.sizes.words))
    made = program.module("lib.vse")
    s = program.sizes
    # Without the MLP that its regions pass, as its grids do: ours has none.
    made.get_image_encoder = lambda *given, **more: encoders.EncoderImageAggr(
        s.width, s.dimension, "backbone"
    )
    options = program.training(
        **{
            "precomp_enc_type": "basic",
            "backbone_source": None,
            "backbone_path": "",
            "optim": "adam",
        }
    )
    model = made.VSEModel(options)
    model.logger = MagicMock()
    regions = torch.full((s.batch,), s.regions)
    step = lambda: model.train_emb(  # noqa: E731
        program.images, program.captions, program.lengths, image_lengths=regions
    )
    evaluation = program.module("lib.evaluation")
    images, captions = (
        program.unit(s.scored[0], s.dimension),
        program.unit(s.scored[1], s.dimension),
    )

    def score() -> None:
        scores = evaluation.compute_sim(images, captions)
        for way in (evaluation.i2t, evaluation.t2i):
            way(len(images), scores)

    return {"step": step, "score": score}


def _grid(program: Program) -> torch.Tensor:
    """Features as a network of photos has them: (B, width, 7, 7)."""
    side = round(program.sizes.regions**0.5)
    return program.images.transpose(1, 2).reshape(len(program.images), -1, side, side).contiguous()


def _backbone(program: Program) -> None:
    """Makes the features the output of the network of torchvision."""
    models = program.module("torchvision.models")
    models.resnet152 = lambda pretrained: _Features(program.sizes.width)


def _trained(
    program: Program,
    model: nn.Module,
    optimizer: Any,
    loss: Callable[[], torch.Tensor],
    clip: float,
) -> Callable[[], None]:
    """A step as all of the programs have it that do not have it in a function."""

    def step() -> None:
        model.train()
        value = loss()
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        value.item()

    return step


def _pvse(program: Program) -> Works:
    _backbone(program)
    s = program.sizes
    options = SimpleNamespace(
        **{"num_embeds": s.set, "embed_size": s.dimension, "word_dim": s.word, "wemb_type": None},
        **{"max_video_length": 1, "img_attention": True, "txt_attention": True, "dropout": 0.0},
        **{"cnn_type": "resnet152", "img_finetune": False, "txt_finetune": True, "legacy": False},
        **{"margin": 0.1, "mmd_weight": 0.01, "div_weight": 0.1, "max_violation": True},
    )
    model = program.module("model").PVSE(range(s.words), options)
    criterion = program.module("loss").PVSELoss(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, amsgrad=True)
    grid, lengths = _grid(program), torch.tensor(program.lengths)

    def loss() -> torch.Tensor:
        image, text, *_, image_residual, text_residual = model(grid, program.captions, lengths)
        return criterion(image, text, image_residual, text_residual)[0]

    evaluation = program.module("eval")
    each = s.scored[1] // s.scored[0]
    images = np.repeat(program.unit(s.scored[0], s.set, s.dimension), each, 0)
    captions = program.unit(s.scored[1], s.set, s.dimension)

    def score() -> None:
        for way in (evaluation.i2t, evaluation.t2i):
            way(images, captions, nreps=each)

    return {"step": _trained(program, model, optimizer, loss, 2.0), "score": score}


def _pcme(program: Program) -> Works:
    _backbone(program)
    s = program.sizes
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
    grid, lengths = _grid(program), torch.tensor(program.lengths)
    loss = lambda: criterion(**model(grid, program.captions, lengths))[0]  # noqa: E731
    _engine(program)
    evaluator = program.module("engine.eval_coco").MatchingProbModule(criterion.match_prob)
    images = torch.from_numpy(program.unit(s.scored[0], s.samples, s.dimension))
    captions = torch.from_numpy(program.unit(s.scored[1], s.samples, s.dimension))

    def score() -> None:
        evaluator.set_g_features(captions)
        with torch.no_grad():
            evaluator(images)

    return {"step": _trained(program, model, optimizer, loss, 2.0), "score": score}


def _pcmepp(program: Program) -> Works:
    s = program.sizes
    criterion = program.module("pcmepp.criterions.pcmepp").ClosedFormSampledDistanceLoss(
        vib_beta=1e-4, smoothness_alpha=0.1
    )
    sides = [
        {
            "mean": torch.from_numpy(program.unit(s.batch, s.dimension)).requires_grad_(),
            "std": torch.full((s.batch, s.dimension), -4.0, requires_grad=True),
        }
        for _ in range(2)
    ]

    def step() -> None:
        loss, _ = criterion(*sides)
        loss.backward()
        loss.item()

    evaluation = program.module("pcmepp.evaluation")
    counts = s.scored
    means = [torch.from_numpy(program.unit(count, s.dimension)) for count in counts]
    sigmas = [torch.full((count, s.dimension), -4.0) for count in counts]

    def score() -> None:
        scores = evaluation.compute_csd_sims(*means, *sigmas)
        for way in (evaluation.eval_i2t_val, evaluation.eval_t2i_val):
            way(counts[0], scores)

    return {"step": step, "score": score}


_DIVE = """
    --data_name coco_butd --wemb_type none --margin 0.2 --max_violation --img_attention
    --txt_attention --img_finetune --txt_finetune --mmd_weight 0.01 --unif_weight 0.01
    --loss smooth_chamfer --temperature 16 --txt_pooling rnn --arch slot --txt_attention_input wemb
    --spm_txt_pos_enc_type sine --spm_1x1 --spm_residual --spm_residual_norm --spm_activation gelu
    --spm_ff_mult 4 --spm_last_ln --img_res_pool avg --img_res_first_fc --spm_depth 4
    --spm_weight_sharing --res_only_norm --spm_pre_norm --gpo_rnn --unif_residual
"""
"""The released job, without the MLP, dropout and maximum that ours does not have."""


def _dive(program: Program) -> Works:
    s = program.sizes
    set_sizes = {"img_num_embeds": s.set, "txt_num_embeds": s.set, "embed_size": s.dimension}
    set_sizes |= {"spm_input_dim": s.dimension, "spm_query_dim": s.dimension, "word_dim": s.word}
    more = [part for key, value in set_sizes.items() for part in (f"--{key}", str(value))]
    options = program.module("option").parser.parse_args([*_DIVE.split(), *more])
    similarity = program.module("similarity").SetwiseSimilarity(s.set, s.set, 2.0, 16.0)
    similar = similarity.smooth_chamfer_similarity
    criterion = program.module("loss").TripletLoss(s.set, s.set, similar, options, txt_per_img=1)
    model = program.module("model_spm").VSE(range(s.words), options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=1e-4)
    lengths = torch.tensor(program.lengths)
    regions = torch.full((s.batch,), s.regions)

    def loss() -> torch.Tensor:
        image, text, _, _, of_image, of_text = model(
            program.images, program.captions, regions, lengths
        )
        return criterion(image, text, of_image, of_text)[0]

    evaluation = program.module("eval")
    each = s.scored[1] // s.scored[0]
    images = torch.from_numpy(np.repeat(program.unit(s.scored[0], s.set, s.dimension), each, 0))
    captions = torch.from_numpy(program.unit(s.scored[1], s.set, s.dimension))

    def score() -> None:
        for way in (evaluation.i2t, evaluation.t2i):
            way(images, captions, similar, nreps=each, use_gpu=True)

    return {"step": _trained(program, model, optimizer, loss, 1.0), "score": score}


def _folds(program: Program) -> Works:
    """The recalls of five folds, as `evalrank` of the program has them: VSE-infinity."""
    evaluation = program.module("lib.evaluation")
    image, caption = program.arrays["image"], program.arrays["caption"]

    def folds() -> list[float]:
        found = []
        for images, captions in zip(np.split(image, 5), np.split(caption, 5), strict=True):
            scores = evaluation.compute_sim(images, captions)
            sides = [way(len(images), scores)[:3] for way in (evaluation.i2t, evaluation.t2i)]
            found.append([recall / 100 for side in sides for recall in side])
        return np.mean(found, axis=0).tolist()

    def whole() -> None:
        scores = evaluation.compute_sim(image, caption)
        for way in (evaluation.i2t, evaluation.t2i):
            way(len(image), scores)

    return {"folds": folds, "whole": whole}


def _engine(program: Program) -> None:
    """The package `engine` of PCME, without the loaders of data that it imports."""
    engine = sys.modules["engine"] = ModuleType("engine")
    engine.__path__ = [str(program.folder / "engine")]


def _pcme_metrics(program: Program) -> Works:
    """The recalls of five folds, and plausible match R-precision, of PCME."""
    datasets = sys.modules["datasets"] = ModuleType("datasets")
    datasets.__path__ = []
    sys.modules["datasets.coco"] = ModuleType("datasets.coco")
    sys.modules["datasets.coco"].CocoCaptionsCap = None  # type: ignore[attr-defined]
    arrays, pmrp = program.arrays, program.module("evaluate_pmrp_coco")
    if "image" in arrays:
        return {"folds": _pcme_folds(program)}
    scores, codes, owner = arrays["scores"], arrays["labels"], arrays["owner"]
    known = np.flatnonzero(codes.any(axis=1)).tolist()
    apart = np.abs(codes[known, None] - codes[None, known]).sum(axis=2)
    places = {image: number for number, image in enumerate(known)}
    order = lambda values: np.argsort(-values, kind="stable").tolist()  # noqa: E731
    images = {
        image: {"retrieved": [{"image_id": int(owner[c])} for c in order(scores[image])]}
        for image in arrays["images"].tolist()
    }
    captions = {
        caption: {
            "query": {"image_id": int(owner[caption])},
            "retrieved": [{"id": image} for image in order(scores[:, caption])],
        }
        for caption in arrays["captions"].tolist()
    }

    def match() -> list[float]:
        found = []
        for modal, data in (("image", images), ("text", captions)):
            precisions, _ = pmrp.evaluate_plausible_metrics(
                data, modal, apart, places, set(known), max_thres=3
            )
            found += [float(np.mean(values)) for values in precisions.values()]
        return found

    return {"pmrp": match}


def _pcme_folds(program: Program) -> Callable[[], list[float]]:
    _engine(program)
    evaluator = program.module("engine.eval_coco").COCOEvaluator(
        "matmul", extract_device="cpu", eval_device="cpu"
    )
    evaluator.n_embeddings = 1
    image, caption = (torch.from_numpy(program.arrays[side]) for side in ("image", "caption"))
    features = {
        "image_features": image[:, None],
        "caption_features": caption[:, None],
        "image_classes": torch.arange(len(image)),
        "caption_classes": torch.arange(len(image)).repeat_interleave(len(caption) // len(image)),
    }

    def folds() -> list[float]:
        sizes = len(image) // 5, len(caption) // 5
        found = evaluator.evaluate_n_fold(features, 5, *sizes, 1024)
        return [found[way][f"recall_{k}"] / 100 for way in ("i2t", "t2i") for k in (1, 5, 10)]

    return folds


def _reranking(program: Program) -> Works:
    """Reciprocal neighbours of MTFN-RR, and multi-factor re-ranking of GaLR."""
    scores, first = program.arrays["scores"], int(program.arrays["first"])
    if program.folder.name == "GaLR":
        rerank = program.module("postprocessing.rerank")

        def factors() -> list[int]:
            found = rerank.i2t_rerank_optim(scores, first, 0.3, 1.1)
            rerank.t2i_rerank_optim(scores, first, 0.3, 1.1)
            return np.argsort(-found, axis=1, kind="stable")[:, :first].ravel().tolist()

        return {"rerank": factors}
    rerank = program.module("rerank")

    def neighbours() -> list[int]:
        found = rerank.i2t_rerank(scores, first, 1)[:, :first]
        rerank.t2i_rerank(scores, first, 1)
        return found.ravel().tolist()

    return {"rerank": neighbours}


PROGRAMS: dict[str, Callable[[Program], Works]] = {
    "SAF": lambda program: _sgraf(program, "SAF"),
    "SGR": lambda program: _sgraf(program, "SGR"),
    "VSE++": _vsepp,
    "VSE-infinity": _vse_infinity,
    "PVSE": _pvse,
    "PCME": _pcme,
    "PCME++": _pcmepp,
    "VSRN": _vsrn,
    "DiVE": _dive,
    "folds": _folds,
    "metrics of PCME": _pcme_metrics,
    "re-ranking": _reranking,
}


def main(folder: Path, method: str, sizes: dict[str, Any]) -> None:
    """Builds a program, and does what it is asked."""
    sys.meta_path.append(_Stubs())
    # Everything is on the processor: what moves tensors to a GPU leaves them.
    torch.Tensor.cuda = nn.Module.cuda = lambda self, *given, **more: self  # type: ignore
    torch.cuda.synchronize = lambda *given: None  # type: ignore[assignment]
    torch.manual_seed(0)
    answer(lambda: PROGRAMS[method](Program(folder, sizes)), torch=torch.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
