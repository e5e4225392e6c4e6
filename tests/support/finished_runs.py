"""Run folders with figures of random scores, as finished runs leave them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import scipy.sparse

from keras_xmr.experiments.config.loader import dump_config, find_config, load_config
from keras_xmr.experiments.evaluation.files import write_figures_file
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import measure, write_queries

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
) -> RunFolder:
    """Writes the folder of a run with two matchers, of which one was re-ranked."""
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
    truth = ground_truth(prefix)
    measured = {"match_probability": measure(scores(skill, seed), truth)}
    measured["elk"] = measure(scores(skill - 1, seed), truth)
    measured["match_probability + fast_reranking"] = measure(scores(skill + 1, seed), truth)
    figures = {
        "split": split,
        "matchers": {n: m.as_dict() for n, m in measured.items() if "+" not in n},
        "reranked": {n: m.as_dict() for n, m in measured.items() if "+" in n},
        "uncertainty_of_truth": uncertainty,
    }
    write_figures_file(folder.metrics(split), figures)
    write_queries(folder.queries(split), measured, truth)
    return folder
