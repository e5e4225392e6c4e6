"""Run folders with figures of random scores, as finished runs leave them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import scipy.sparse

from keras_xmr.experiments.config.fidelity import Fidelity
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.evaluation_files import write_results
from keras_xmr.experiments.evaluation.split_evaluation import evaluate_split_scores
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import ScoreMatrices, measure

IMAGES, CAPTIONS = 60, 120
OWNER = np.repeat(np.arange(IMAGES), 2)


def ground_truth(prefix: str = "") -> GroundTruth:
    """Two captions an image; by the truth also those of its neighbour are right."""
    right = np.eye(IMAGES)[:, OWNER]
    truth = GroundTruth(
        [f"{prefix}image {i}" for i in range(IMAGES)],
        [f"{prefix}caption {c}" for c in range(CAPTIONS)],
        OWNER,
        Judgements(scipy.sparse.csr_array(right)),
        texts=[f"text of {c}" for c in range(CAPTIONS)],
        relevance=np.random.default_rng(1).random((IMAGES, CAPTIONS)) + right,
    )
    truth.extra["truth"] = Judgements(scipy.sparse.csr_array(right + np.roll(right, 1, axis=0)))
    return truth


def scores(skill: float, seed: int) -> np.ndarray:
    """The better, the larger `skill` is; every method has the same hard queries."""
    hard = np.random.default_rng(99).normal(size=(IMAGES, CAPTIONS))
    return skill * np.eye(IMAGES)[:, OWNER] + hard + 0.3 * noise(seed)


def noise(seed: int) -> np.ndarray:
    """What another seed changes."""
    return np.random.default_rng(seed).normal(size=(IMAGES, CAPTIONS))


def finished_run(
    output: Path,
    name: str,
    seed: int,
    skill: float,
    overrides: tuple[str, ...] = (),
    split: str = "test",
    prefix: str = "",
    uncertainty: float | None = None,
    fidelity: Fidelity | None = None,
    noise_seed: int | None = None,
    is_alone: bool = False,
) -> RunFolder:
    """Writes the folder of a run with two matchers, of which one was re-ranked, or with one."""
    own = (f"output={output}", f"name={name}", f"seed={seed}", *overrides)
    config = load_config(find_config("scenes_pcme"), own)
    folder = RunFolder(config)
    folder.evaluation(split).mkdir(parents=True)
    folder.logs.mkdir(parents=True)
    folder.config.write_text(dump_config(config))
    folder.done.write_text(json.dumps({"steps": 0}))
    log = "epoch,step,loss,val_rsum\n" + "".join(
        f"{e},{10 * e},1.0,{'' if e % 2 else 25 * e + 10 * seed}\n" for e in range(1, 7)
    )
    folder.training_log.write_text(log)
    truth, draw = ground_truth(prefix), seed if noise_seed is None else noise_seed
    own, other, again = (scores(skill + more, draw) for more in (0, -1, 1))
    matchers = [("match_probability", own), *([] if is_alone else [("elk", other)])]
    named = [(name, ScoreMatrices(values)) for name, values in matchers]
    evaluation = evaluate_split_scores(split, named, truth)
    if not is_alone:
        evaluation.reranked = {"fast_reranking": {"match_probability": measure(again, truth)}}
    evaluation.uncertainty_of_truth = uncertainty
    evaluation.fidelity = fidelity
    write_results(evaluation, results_of(evaluation), folder.evaluation(split))
    return folder
