"""Which annotated metric orders methods as the complete truth does: the runs on scenes.

Six losses train two image towers each with the annotated pairs, as studies/hardest_negative.py has
them, on scenes where every true pair is known. They are measured on other scenes by metrics of the
annotated pairs and by mAP@R of all true pairs, means of both directions. A seed has its own scenes,
captions, weights and batches. In one grade 1.5 % of the unlabelled pairs are true; the other has
captions of all levels of vagueness, as the built-in data set. PMRP takes the kinds of shape in a
scene as its object labels.

With N labels, the first N pairs without an annotation by the mean score of all methods are judged.
Those that are true count as relevant in addition to the annotated ones, in mAP@R.

A line per training is appended to the results; a seed that has lines is not trained again.

    OPENBLAS_NUM_THREADS=1 python studies/metric_ranking_scenes.py
    python studies/result_pages.py metrics_page     # the tables
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hardest_negative import LOSSES, Split, Task, data, false_negatives, fit, scores_of
from methods_table import read_lines
from metrics_reward import LABELS, SCENES

from keras_xmr.experiments.audit.candidates import combine_scores
from keras_xmr.judgements import Judgements
from keras_xmr.judgements.accepted_forms import as_judgements
from keras_xmr.judgements.relation import multi_hot
from keras_xmr.metrics import (
    ScoreMatrices,
    evaluate_scores,
    ndcg,
    plausible_match,
    semantic_precision,
)
from keras_xmr.relevance import cider, tf_idf

GRADES = (1, None)
"""Of hardest_negative.py; None is all levels of vagueness."""
SEEDS = tuple(range(1, 7))
METHODS = tuple(itertools.product(LOSSES, (False, True)))
"""Losses, and whether the image tower takes the largest value over things, not their sum."""
COUNTS = tuple(int(title.split()[0].replace(",", "")) for title in LABELS)
ANNOTATED = {"R@1": "recall_1", "R@10": "recall_10", "R-Precision": "r_precision",
             "mAP@R": "map_at_r"}  # fmt: skip


def measure(scores: np.ndarray, split: Split, relevance: dict[str, np.ndarray]) -> dict[str, float]:
    """Metrics of the annotated pairs, of labels and of captions, and mAP@R by the truth."""
    annotated = evaluate_scores(scores, Judgements.from_pairs(split.image_of, len(scores))).summary
    shapes = multi_hot(split.shapes, 1 + max(map(max, split.shapes)))
    values = {"RSUM": float(annotated["rsum"])}
    values["nDCG@10"] = mean_of_both(ndcg(scores, split.image_of), "ndcg_10")
    plausible = plausible_match(scores, shapes, shapes[split.image_of])
    values["PMRP"] = mean_of_both(plausible.summary, "pmrp")
    for title, of in relevance.items():
        found = semantic_precision(scores, of, ()).summary
        values[f"ASP ({title})"] = mean_of_both(found, "asp")
    values["truth"] = map_at_r(scores, split.truth)
    return values | {title: mean_of_both(annotated, name) for title, name in ANNOTATED.items()}


def map_at_r(scores: np.ndarray, relevant: np.ndarray) -> float:
    """The mean of mAP@R in both directions by relevant pairs, bool (N, M)."""
    return mean_of_both(
        evaluate_scores(scores, as_judgements(relevant, scores.shape)).summary, "map_at_r"
    )


def mean_of_both(summary: dict[str, float], name: str) -> float:
    """The mean of a metric in both directions."""
    return float(summary[f"i2t_{name}"] + summary[f"t2i_{name}"]) / 2


def run(grade: int | None, seed: int) -> list[dict[str, Any]]:
    """Trains and measures all methods on the scenes of a seed: a line each."""
    test = data(grade, seed)["test"]
    tables = [
        scores_of(fit(Task(grade, loss, "annotated", 0.0, seed), largest), test)
        for loss, largest in METHODS
    ]
    relevance = {"CIDEr": cider(test.texts, test.image_of)}
    relevance["TF-IDF"] = tf_idf(test.texts, test.image_of)
    audited = [test.annotated | (test.truth & judged) for judged in first_pairs(tables, test)]
    return [
        {
            **{"grade": grade, "seed": seed, "loss": loss, "largest": largest},
            "share": false_negatives(test),
            "metrics": {name: round(v, 6) for name, v in measure(scores, test, relevance).items()},
            "labels": [round(map_at_r(scores, relevant), 6) for relevant in audited],
        }
        for (loss, largest), scores in zip(METHODS, tables, strict=True)
    ]


def first_pairs(tables: Sequence[np.ndarray], split: Split) -> list[np.ndarray]:
    """The pairs that are judged first, for each number of labels, bool (N, M)."""
    models = ((str(n), ScoreMatrices(scores)) for n, scores in enumerate(tables))
    scores = combine_scores(models, split.truth.shape, "mean")
    order = np.argsort(np.where(split.annotated, np.inf, -scores), axis=None, kind="stable")
    rank = np.empty(order.size, int)
    rank[order] = np.arange(order.size)
    return [(rank < count).reshape(split.truth.shape) for count in COUNTS]


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=SCENES)
    options = parser.parse_args(arguments)
    done = {(line["grade"], line["seed"]) for line in read_lines(options.results)}
    for seed, grade in itertools.product(SEEDS, GRADES):
        if (grade, seed) not in done:
            found = run(grade, seed)
            with options.results.open("a") as file:
                file.write("".join(f"{json.dumps(line)}\n" for line in found))
            print(f"seed {seed}, grade {grade}", flush=True)


if __name__ == "__main__":
    main()
