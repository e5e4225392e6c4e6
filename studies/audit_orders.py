"""Precision of the orders of an audit where all that is right is known, as on the scenes.

Of all pairs of the test split that are not annotated, the share of right ones among the first 100,
500 and 2,000 of each order, in percent. `audit` itself also limits the pairs of an image and of a
caption.

    python studies/audit_orders.py --run=saved_models/scenes_pcme
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from people_audit import FIRST, beliefs

from keras_xmr.commands._ensemble import scores_of_runs
from keras_xmr.commands._steps import Run
from keras_xmr.evaluation.evaluate import ground_truth
from keras_xmr.runs.folder import load_run


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="a run whose data knows the truth")
    run = Run(load_run(parser.parse_args(arguments).run))
    config, split = run.config, run.records.split("test")
    truth = ground_truth(run.records, split, config.data.judgements, config.judgements_of("test"))
    if "truth" not in truth.extra:
        parser.error("the data of this run does not say what else is right")
    ((_, scores),) = scores_of_runs(run, [run], split)
    annotated = truth.judgements.grades
    asked = annotated.toarray() == 0
    right = truth.extra["truth"].grades.toarray()[asked] > 0
    print(f"| | {' | '.join(f'first {n:,}' for n in FIRST)} |\n| --- |{' ---: |' * len(FIRST)}")
    orders = beliefs(np.asarray(scores.image_to_text), annotated)
    for name, values in orders.items():
        order = np.argsort(-values[asked], kind="stable")
        print(f"| {name} |", *(f"{100 * right[order[:n]].mean():.0f} |" for n in FIRST))
    print("| random |", *[f"{100 * right.mean():.0f} |"] * len(FIRST))


if __name__ == "__main__":
    main()
