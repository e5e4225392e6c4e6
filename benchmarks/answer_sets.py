"""Whether the answer sets of a run keep their promise.

Calibrated on the validation split of a finished run, as `index` does it, and measured on its test
split: by the exhaustive truth where the data has one (scenes), else by the annotated pairs. Then
the other way around. Every share is a mean over photos of what it is for their captions, since
captions of one photo are not independent, and its 95 % interval is the binomial one (Clopper and
Pearson) of as many trials as there are photos.

    python benchmarks/answer_sets.py --run=saved_models/scenes_pcme
    python benchmarks/answer_sets.py --run=saved_models/scenes_pcme --records=data/scenes_large
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import scipy.stats

from data_pipelines.records import Records
from data_pipelines.tables import table
from keras_xmr.index.answer_sets import AnswerSets, calibrate, standardise
from keras_xmr.index.calibration import SplitQueries, embed_reference
from keras_xmr.index.model import Arrays, RunModel


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--records", type=Path, help="other records than those of the run")
    arguments = parser.parse_args()
    model = RunModel(arguments.run)
    records = Records.open(arguments.records or model.config.data.records)
    reference = embed_reference(model, records)
    splits = {split: Split(model, records, split, reference) for split in ("val", "test")}
    ways = [("val", "test"), ("test", "val")]
    found = [measure(splits[known].calibrated(), splits[asked]) for known, asked in ways]
    header = ["", *(f"{asked}, calibrated on {known}" for known, asked in ways)]
    rows = [[name, *(each[name] for each in found)] for name in found[0]]
    print(table(header, rows), flush=True)


class Split:
    """The captions and photos of a split, scored.

    Attributes:
        scores: Standardised (captions, photos).
        right: Bool (captions, photos).
        groups: The photo that each caption was written for (captions,).
    """

    def __init__(self, model: RunModel, records: Records, split: str, reference: Arrays) -> None:
        asked = SplitQueries.embed(model, records, split)
        against = model.score(reference, asked.captions).T
        answered = asked.right.any(axis=1)
        self.scores = standardise(asked.scores(model), against)[answered]
        self.right, self.groups = asked.right[answered], asked.groups[answered]

    def calibrated(self) -> AnswerSets:
        """The cut-offs by this split."""
        return calibrate(self.scores, self.right, self.groups)


def measure(sets: AnswerSets, asked: Split) -> dict[str, str]:
    """What the answer sets say of the captions of another split, in percent."""
    inside = asked.scores >= sets.cutoff
    wanted = np.ceil(sets.share * asked.right.sum(axis=1) - 1e-9)
    covered = (inside & asked.right).sum(axis=1) >= wanted
    size = asked.scores.shape[1]
    verdicts = {}
    for name, scores in (
        ("with an answer", asked.scores),
        ("whose answers were taken out", np.where(asked.right, -np.inf, asked.scores)),
    ):
        verdicts[name] = np.array([sets.verdict(b, size) for b in scores.max(axis=1)])
    found = {
        "photos": f"{size:,}",
        "captions": f"{len(covered):,}",
        "right photos of a caption, median": f"{np.median(asked.right.sum(axis=1)):.0f}",
        f"at least {sets.share:.0%} of them in the set (promised {100 * sets.confidence:.0f})": (
            interval(covered, asked.groups)
        ),
        "photos in the set, median": f"{np.median(inside.sum(axis=1)):.0f}",
    }
    for name, verdict in verdicts.items():
        nothing = interval(verdict == "nothing", asked.groups)
        found[f'"nothing here" of captions {name}'] = nothing
        found[f'no "not sure" of captions {name}'] = interval(verdict == "found", asked.groups)
    return found


def interval(happened: np.ndarray, groups: np.ndarray) -> str:
    """The share of photos for whose captions something happened, with its interval."""
    share = np.mean([happened[groups == group].mean() for group in np.unique(groups)])
    count = len(np.unique(groups))
    bounds = scipy.stats.binomtest(round(share * count), count).proportion_ci(0.95)
    return f"{100 * share:.1f} [{100 * bounds.low:.1f}, {100 * bounds.high:.1f}]"


if __name__ == "__main__":
    main()
