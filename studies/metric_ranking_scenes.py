"""Which annotated metric ranks methods as the complete truth does, on scenes.

Six losses with two image towers each, small dual encoders of studies/hardest_negative.py trained
with the annotated pairs, are ordered by metrics of the annotation and by mAP@R of all true pairs,
on other scenes; all metrics are the means of both directions. A seed has its own scenes, captions,
weights and batches, and one Kendall's tau-b per metric. So the taus of seeds are independent, and
their mean has an interval by Student's t (its coverage: tests/test_interval_coverage.py).

Two data sets: captions of which 1.4 % are true of another scene, and captions of all levels of
vagueness, as the built-in synthetic data set has them. PMRP takes the kinds of shape in a scene as
its object labels.

With N labels, the first N pairs that an audit of all methods lists are judged, and those that are
true count as relevant in addition to the annotated ones, in mAP@R. The tracked results are from
commit 2a553104, in which an audit ordered pairs by score and by rank ahead of annotated pairs.

    OPENBLAS_NUM_THREADS=1 python studies/metric_ranking_scenes.py
    python studies/metric_ranking_scenes.py --table
    python studies/metric_ranking_scenes.py --figure docs/results/metric_ranking.png
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
from intervals import half_width
from methods_table import NO_MODEL, methods_of, read_lines
from metric_ranking import RESULTS as PEOPLE
from metric_ranking import tau, taus_of_labels

from keras_xmr.audit.candidates import combine_scores
from keras_xmr.judgements import Judgements
from keras_xmr.judgements.relation import as_judgements, multi_hot
from keras_xmr.metrics import (
    ScoreMatrices,
    evaluate_scores,
    ndcg,
    plausible_match,
    semantic_precision,
)
from keras_xmr.relevance import cider, tf_idf

RESULTS = Path(__file__).parent / "results" / "metric_ranking_scenes.jsonl"
GRADES = (1, None)
SEEDS = tuple(range(1, 7))
METHODS = tuple(itertools.product(LOSSES, (False, True)))
"""Losses, and whether the image tower takes the largest value over things, not their sum."""
LABELS = (0, 100, 1_000, 10_000)
METRICS = ("R@1", "R@10", "RSUM", "R-Precision", "mAP@R", "nDCG@10")
METRICS += ("PMRP", "ASP (CIDEr)", "ASP (TF-IDF)")
TRUTH = "truth"


def measure(scores: np.ndarray, split: Split, relevance: dict[str, np.ndarray]) -> dict[str, float]:
    """Metrics of the annotated pairs, of labels and of captions, and mAP@R of the truth."""
    annotated = evaluate_scores(scores, Judgements.from_pairs(split.image_of, len(scores))).summary
    shapes = multi_hot(split.shapes, 1 + max(map(max, split.shapes)))
    summaries = {
        "nDCG@10": (ndcg(scores, split.image_of), "ndcg_10"),
        "PMRP": (plausible_match(scores, shapes, shapes[split.image_of]).summary, "pmrp"),
        **{
            f"ASP ({title})": (semantic_precision(scores, of, ()).summary, "asp")
            for title, of in relevance.items()
        },
        TRUTH: (_evaluated(scores, split.truth), "map_at_r"),
        **{
            title: (annotated, name)
            for title, name in (
                ("R@1", "recall_1"),
                ("R@10", "recall_10"),
                ("R-Precision", "r_precision"),
                ("mAP@R", "map_at_r"),
            )
        },
    }
    values = {title: _both(summary, name) for title, (summary, name) in summaries.items()}
    return {"RSUM": annotated["rsum"]} | values


def _evaluated(scores: np.ndarray, relevant: np.ndarray) -> dict[str, float]:
    return evaluate_scores(scores, as_judgements(relevant, scores.shape)).summary


def _both(summary: dict[str, float], name: str) -> float:
    return (summary[f"i2t_{name}"] + summary[f"t2i_{name}"]) / 2


def run(grade: int | None, seed: int) -> list[dict[str, Any]]:
    """Trains and measures all methods on the scenes of a seed: a line each."""
    test = data(grade, seed)["test"]
    tables = [
        scores_of(fit(Task(grade, loss, "annotated", 0.0, seed), largest), test)
        for loss, largest in METHODS
    ]
    relevance = {"CIDEr": cider(test.texts, test.image_of)}
    relevance["TF-IDF"] = tf_idf(test.texts, test.image_of)
    audited = [test.annotated | (test.truth & first) for first in first_pairs(tables, test)]
    return [
        {
            **{"grade": grade, "seed": seed, "loss": loss, "largest": largest},
            "share": false_negatives(test),
            "metrics": {name: round(v, 6) for name, v in measure(scores, test, relevance).items()},
            "labels": [round(_both(_evaluated(scores, r), "map_at_r"), 6) for r in audited],
        }
        for (loss, largest), scores in zip(METHODS, tables, strict=True)
    ]


def first_pairs(tables: Sequence[np.ndarray], split: Split) -> list[np.ndarray]:
    """The first pairs of an audit by all methods, for each number of labels, bool (N, M)."""
    models = ((str(n), ScoreMatrices(scores)) for n, scores in enumerate(tables))
    scores = combine_scores(models, split.truth.shape, "mean")
    order = np.argsort(np.where(split.annotated, np.inf, -scores), axis=None, kind="stable")
    rank = np.empty(order.size, int)
    rank[order] = np.arange(order.size)
    return [(rank < count).reshape(split.truth.shape) for count in LABELS]


def taus(lines: Sequence[dict[str, Any]], grade: int | None) -> dict[str, np.ndarray]:
    """Kendall's tau of each metric and number of labels with the truth, of each seed."""
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        own = [line for line in lines if (line["grade"], line["seed"]) == (grade, seed)]
        if len(own) != len(METHODS):
            continue
        columns = {name: [line["metrics"][name] for line in own] for name in (*METRICS, TRUTH)}
        for n, count in enumerate(LABELS):
            columns[f"{count:,} labels"] = [line["labels"][n] for line in own]
        truth = columns.pop(TRUTH)
        for name, values in columns.items():
            found.setdefault(name, []).append(tau(np.array(values), np.array(truth)))
    return {name: np.array(values) for name, values in found.items()}


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Means of tau over seeds with half of their intervals, and minus that of RSUM, in Markdown."""
    found = {grade: taus(lines, grade) for grade in GRADES}
    titles = [f"{share(lines, grade):.1f} % true" for grade in GRADES]
    header = [cell for title in titles for cell in (f"tau, {title}", "minus RSUM")]
    rows = [f"| | {' | '.join(header)} |", "| --- |" + " ---: |" * len(header)]
    for name in found[GRADES[0]]:
        cells = []
        for of in found.values():
            gap = of[name] - of["RSUM"]
            cells += [cell(of[name]), "" if name == "RSUM" else cell(gap, "+")]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return [*rows, "", f"{len(METHODS)} methods, {len(found[GRADES[0]]['RSUM'])} seeds"]


def cell(values: np.ndarray, sign: str = "") -> str:
    """A mean over seeds and half of its interval."""
    return f"{values.mean():{sign}.2f} ± {half_width(values):.2f}"


def share(lines: Sequence[dict[str, Any]], grade: int | None) -> float:
    """The percentage of true pairs among those that are not annotated."""
    return 100 * float(np.mean([line["share"] for line in lines if line["grade"] == grade]))


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Tau by metric, and by the number of labels; one panel above the other, for small screens."""
    import matplotlib.pyplot as plt

    from keras_xmr.evaluation.reporting.pictures import save_plot

    plt.rcParams["font.size"] = 13
    drawing, (above, below) = plt.subplots(2, figsize=(6.2, 9), height_ratios=(3, 2))
    for number, grade in enumerate(GRADES):
        found, title = taus(lines, grade), f"scenes, {share(lines, grade):.1f} % true"
        style = {"marker": "os"[number], "capsize": 3, "color": f"C{number}"}
        values, errors = zip(
            *((found[m].mean(), half_width(found[m])) for m in METRICS), strict=True
        )
        places = np.arange(len(METRICS)) + 0.22 * (number - 0.5)
        above.errorbar(values, places, xerr=errors, linestyle="", label=title, **style)
        labels = [found[f"{count:,} labels"] for count in LABELS]
        below.errorbar(
            np.arange(len(LABELS)) + 0.05 * (number - 0.5),
            [of.mean() for of in labels],
            [half_width(of) for of in labels],
            label=title,
            **style,
        )
    methods = [m for m in methods_of(read_lines(PEOPLE)) if m.name not in NO_MODEL]
    people = [of.mean() for count, _, of in taus_of_labels(methods, 200) if count in LABELS]
    below.plot(people, marker="^", color="0.4", linestyle="--", label="Flickr8K, people alone")
    above.set_yticks(np.arange(len(METRICS)), METRICS)
    above.invert_yaxis()
    above.set(xlabel="Kendall's tau with mAP@R by the truth", title="by the annotation")
    below.set_xticks(np.arange(len(LABELS)), [f"{count:,}" for count in LABELS])
    below.set(xlabel="judged pairs", ylabel="Kendall's tau", title="with labels")
    below.legend(loc="upper center", bbox_to_anchor=(0.4, -0.25), frameon=False)
    for axis in (above, below):
        axis.grid(alpha=0.3)
    save_plot(drawing, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="prints what is there, as Markdown")
    parser.add_argument("--figure", type=Path, help="draws what is there to a PNG file")
    options = parser.parse_args(arguments)
    lines = read_lines(options.results)
    if options.table:
        print("\n".join(table(lines)))
    if options.figure:
        draw(lines, options.figure)
    if options.table or options.figure:
        return
    done = {(line["grade"], line["seed"]) for line in lines}
    for seed, grade in itertools.product(SEEDS, GRADES):
        if (grade, seed) not in done:
            with options.results.open("a") as file:
                file.write("".join(f"{json.dumps(line)}\n" for line in run(grade, seed)))
            print(f"seed {seed}, grade {grade}", flush=True)


if __name__ == "__main__":
    main()
