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
from keras_xmr.search.answer_sets import AnswerSets, calibrate
from keras_xmr.search.calibration import ScoredSplit, SplitQueries, coverage, embed_reference
from keras_xmr.search.run_model import RunModel
from keras_xmr.utils.tables import table


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--records", type=Path, help="other records than those of the run")
    arguments = parser.parse_args()
    model = RunModel(arguments.run)
    records = Records.open(arguments.records or model.config.data.records)
    reference = embed_reference(model, records)
    names = ("val", "test")
    splits = {
        name: SplitQueries.embed(model, records, name).standardised(reference) for name in names
    }
    ways = [("val", "test"), ("test", "val")]
    found = [measure(calibrate(*splits[known]), splits[asked]) for known, asked in ways]
    header = ["", *(f"{asked}, calibrated on {known}" for known, asked in ways)]
    rows = [[name, *(each[name] for each in found)] for name in found[0]]
    print(table(header, rows), flush=True)


def measure(sets: AnswerSets, asked: ScoredSplit) -> dict[str, str]:
    """Coverage and size of prediction sets on the captions of another split, in percent."""
    covered, right = coverage(sets, asked), asked.right.sum(axis=1)
    return {
        "photos": f"{covered.gallery:,}",
        "captions": f"{len(covered.recalls):,}",
        "right photos of a caption, median": f"{np.median(right[right > 0]):.0f}",
        f"at least {sets.share:.0%} of them in the set (promised {100 * sets.confidence:.0f})": (
            interval(covered.kept_by_photo)
        ),
        "photos in the set, median": f"{np.median(covered.sizes):.0f}",
    }


def interval(shares: np.ndarray) -> str:
    """The mean of the shares of photos, with its interval."""
    count = round(float(shares.sum()))
    bounds = scipy.stats.binomtest(count, len(shares)).proportion_ci(0.95)
    return f"{100 * shares.mean():.1f} [{100 * bounds.low:.1f}, {100 * bounds.high:.1f}]"


if __name__ == "__main__":
    main()
