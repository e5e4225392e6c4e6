"""What the papers claim, held against runs on the scenes and on real photos.

A claim says that one method has more of a metric than another, or not more. Runs on the scenes are
those of `main.py compare` (a folder that holds them, `--scenes`), real photos the results of
benchmarks/real_features.py (`--real`). A difference has a 95 % interval: on the scenes over
queries, and over seeds where a method has several; on real photos over photos. It is certain where
Holm's correction for all claims of its column leaves its p-value below 0.05; and that there is not
more, where the whole interval is below what counts as more.

    python benchmarks/claims.py --scenes saved_models --real data/real_features/results.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from real_tables import Result, read_results

from keras_xmr.comparison.resampling import resample
from keras_xmr.comparison.results import Methods, RunResult, read_runs
from keras_xmr.metrics.bootstrap import Difference, difference, holm, resampled_means

ALPHA = 0.05
COUNTS = {"rsum": 5.0, "recall_1": 1.0, "r_precision": 1.0, "asp": 0.5}
"""What counts as more, in percent: a claim that there is not more holds below it."""

BY = " by "
RERANKED = "fast_reranking"
R_PRECISION = "i2t_r_precision", "t2i_r_precision"
ASP = "i2t_asp", "t2i_asp"
TITLES = {
    "rsum": "RSUM",
    "i2t_r_precision": "i2t R-P",
    "t2i_r_precision": "t2i R-P",
    "i2t_asp": "i2t ASP",
    "t2i_asp": "t2i ASP",
    "i2t_recall_1": "i2t R@1",
    "t2i_recall_1": "t2i R@1",
}


@dataclass(frozen=True)
class Claim:
    """What a paper says of two methods.

    Attributes:
        paper: The paper.
        text: What it says.
        left: A method: its config is `scenes_<left>` and `csv_pretrained_<left>`, but for `_REAL`.
            `<method> by <matcher>` is scored by another matcher, or re-ranked.
        right: Another one.
        metrics: Of what the left one has more.
        more: Whether it has more; otherwise it has not more by anything that counts.
    """

    paper: str
    text: str
    left: str
    right: str
    metrics: tuple[str, ...]
    more: bool = True

    def verdict(self, metric: str, found: Difference, p_holm: float) -> str:
        """Yes, no or cannot tell, for a difference in a metric and its corrected p-value."""
        if not self.more and found.high < COUNTS[metric.partition("_")[2] or metric]:
            return "**yes**"
        if p_holm >= ALPHA:
            return "cannot tell"
        return "**yes**" if (found.value > 0) is self.more else "**no**"


CHUN, LI, WEI = "Chun et al. 2021", "Li et al. 2022", "Wei et al. 2023"
WANG, BLEEKER, KIM = "Wang et al. 2023", "Bleeker and de Rijke 2022", "Kim et al. 2023"
CLAIMS = (
    Claim(CHUN, "PCME is above training the means alone", "pcme", "pcme_mean_only", R_PRECISION),
    Claim(
        CHUN, "its match probability is above its means", "pcme", "pcme by mean_only", R_PRECISION
    ),
    Claim(CHUN, "PCME is above VSE0", "pcme", "vse0", R_PRECISION),
    Claim(CHUN, "PCME is above PVSE", "pcme", "pvse", R_PRECISION),
    Claim(CHUN, "PVSE with K = 1 is below VSE0", "vse0", "pvse_k1", R_PRECISION),
    Claim(CHUN, "more embeddings win R@1", "pvse", "pvse_k1", ("i2t_recall_1", "t2i_recall_1")),
    Claim(CHUN, "more embeddings win no R-Precision", "pvse", "pvse_k1", R_PRECISION, more=False),
    Claim(CHUN, "local attention helps", "pcme", "pcme_no_local_attention", R_PRECISION),
    Claim(CHUN, "the KL term helps", "pcme", "pcme_no_kl", R_PRECISION),
    Claim(CHUN, "uniformity helps", "pcme_uniformity", "pcme", R_PRECISION),
    Claim(CHUN, "J = 7 is above J = 1", "pcme", "pcme_j1", R_PRECISION),
    Claim(LI, "DAA raises ASP", "pcme_daa", "pcme", ASP),
    Claim(LI, "DAA raises recall", "pcme_daa", "pcme", ("rsum",)),
    Claim(LI, "Smooth-AP does not raise ASP", "pcme_smooth_ap", "pcme", ASP, more=False),
    Claim(LI, "DAA raises ASP by more than Smooth-AP", "pcme_daa", "pcme_smooth_ap", ASP),
    Claim(WEI, "six sub-embeddings are above one", "dvse", "dvse_k1", ("rsum",)),
    Claim(WEI, "sub-embeddings alone win nothing", "dvse_alone", "dvse_alone_k1", ("rsum",), False),
    Claim(WEI, "weights by variance help", "dvse", "dvse_no_variance", ("rsum",)),
    Claim(WEI, "the orthogonal loss helps", "dvse", "dvse_no_orthogonality", ("rsum",)),
    Claim(WEI, "its dynamic mask helps", "dvse", "dvse_no_mask", ("rsum",)),
    Claim(WEI, "fast re-ranking raises RSUM", f"dvse{BY}{RERANKED}", "dvse", ("rsum",)),
    Claim(WANG, "MSRM is above PCME", "msrm", "pcme", R_PRECISION),
    Claim(WANG, "L_d helps", "msrm", "msrm_no_distribution", R_PRECISION),
    Claim(WANG, "L_h helps", "msrm", "msrm_no_hypergraph", R_PRECISION),
    Claim(WANG, "distributions are above their means", "msrm", "msrm_mean_only", R_PRECISION),
    Claim(WANG, "alpha = 2 is above alpha = 0", "msrm", "msrm_alpha_0", R_PRECISION),
    Claim(BLEEKER, "the hardest negative is above all", "vsepp", "vse0", ("rsum",)),
    Claim(BLEEKER, "the hardest negative is above NT-Xent", "vsepp", "nt_xent", ("rsum",)),
    Claim(BLEEKER, "the hardest negative is above Smooth-AP", "vsepp", "smooth_ap", ("rsum",)),
    Claim(KIM, "four slots are above one", "dive", "dive_k1", ("rsum",)),
)

_REAL = {
    "pcme": "csv_pretrained",
    "pcme_mean_only": "csv_pretrained_mean_only",
    "pcme_daa": "csv_pretrained_daa",
}

Sides = tuple[np.ndarray, np.ndarray]
"""What every image (N,) and every caption (M,) has."""

Found = dict[tuple[Claim, str], tuple[Difference, str]]
"""Of a claim and a metric the difference, and of how many runs it is."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=Path, help="a folder that holds finished runs")
    parser.add_argument("--real", type=Path, action="append", default=[], help="finished results")
    parser.add_argument("--size", type=int, default=500, help="how many real photos trained")
    options = parser.parse_args(arguments)
    columns = {
        "scenes": of_scenes(options.scenes) if options.scenes else {},
        "real photos": of_real([r for r in read_results(options.real) if r.size == options.size]),
    }
    print("\n".join(table(columns)))


def table(columns: dict[str, Found]) -> Iterable[str]:
    """Lines of a table: a row for each claim and metric, of each data set what is found there."""
    cells: dict[str, dict[tuple[Claim, str], str]] = {}
    for name, found in columns.items():
        corrected = holm([apart.p_value for apart, _ in found.values()])
        cells[name] = {
            key: f"{key[0].verdict(key[1], apart, p)} | {_text(apart)} ({runs})"
            for (key, (apart, runs)), p in zip(found.items(), corrected, strict=True)
        }
    yield (
        "| paper | claim | metric | "
        + " | ".join(f"{name} | difference" for name in columns)
        + " |"
    )
    yield "| --- | --- | --- |" + " --- | ---: |" * len(columns)
    for claim in CLAIMS:
        for metric in claim.metrics:
            row = [own.get((claim, metric), "not run | ") for own in cells.values()]
            title = TITLES[metric]
            yield f"| {claim.paper} | {claim.text} | {title} | {' | '.join(row)} |"


def of_scenes(folder: Path) -> Found:
    """What the finished runs of a folder have, by the truth; ASP knows only captions."""
    folders = [path.parent.parent.parent for path in folder.glob("scenes_*/evaluation/test/*.json")]
    methods = read_runs(sorted(set(folders)))["test"]
    found: Found = {}
    for claim in CLAIMS:
        pair = _runs(methods, claim.left), _runs(methods, claim.right)
        if not all(pair):
            continue
        runs = " and ".join(dict.fromkeys(str(len(runs)) for runs in pair))
        for metric in claim.metrics:
            found[claim, metric] = _apart_on_scenes(*pair, metric), f"seeds: {runs}"
    return found


def _apart_on_scenes(left: list[RunResult], right: list[RunResult], metric: str) -> Difference:
    """How far two methods are apart; of the same trainings, over the queries alone."""
    same = [run.folder for run in left] == [run.folder for run in right]
    pairs = [([a], [b]) for a, b in zip(left, right, strict=True)] if same else [(left, right)]
    value, drawn = 0.0, np.zeros(1)
    for a, b in pairs:
        kinds = {kind.judgements: kind for kind in resample({"left": a, "right": b})}
        kind = kinds["metrics" if metric in ASP else "truth"]
        value += 100 * float(np.subtract(*kind.observed[metric])) / len(pairs)
        drawn = drawn + 100 * np.subtract(*kind.resampled[metric].T) / len(pairs)
    return difference(value, drawn)


def _runs(methods: Methods, name: str) -> list[RunResult]:
    """The runs of a method, as they are or by another matcher, which comes first then."""
    method, _, other = name.partition(BY)
    runs = methods.get(f"scenes_{method}", [])
    if not other:
        return runs
    found = []
    for run in runs:
        matcher = f"{run.matcher} + {other}" if other == RERANKED else other
        found.append(replace(run, figures={"matchers": {matcher: {}}}))
    return [run for run in found if "truth" in run.queries.values]


def of_real(results: Sequence[Result]) -> Found:
    """What the results on real photos have, by the annotated pairs."""
    found: Found = {}
    for claim in CLAIMS:
        for metric in claim.metrics:
            left = _queries(results, claim.left, metric)
            right = _queries(results, claim.right, metric)
            if folds := sorted(left.keys() & right.keys()):
                apart = _apart([left[fold] for fold in folds], [right[fold] for fold in folds])
                found[claim, metric] = apart, f"folds: {len(folds)}"
    return found


def _apart(left: list[Sides], right: list[Sides]) -> Difference:
    """The difference over all folds, with 10,000 draws of photos, each with its captions."""
    value, drawn = 0.0, np.zeros(1)
    photos = sum(len(images) for images, _ in left)
    for side in (0, 1):
        values = np.concatenate([a[side] - b[side] for a, b in zip(left, right, strict=True)])
        photo = np.repeat(np.arange(photos), len(values) // photos)
        value += float(np.nanmean(values))
        drawn = drawn + resampled_means(values[:, None], photo, photos)[:, 0]
    return difference(value, drawn)


def _queries(results: Sequence[Result], name: str, metric: str) -> dict[int, Sides]:
    """Of each fold what every image and caption adds to a metric, in percent, mean of seeds."""
    method, _, other = name.partition(BY)
    config = _REAL.get(method, f"csv_pretrained_{method}")
    of_folds: dict[int, list[Sides]] = {}
    for result in results:
        if result.method == config and result.measures and other in ("", RERANKED):
            own = _of_result(result, metric, other == RERANKED)
            of_folds.setdefault(result.fold, []).append(own)
    means = {}
    for fold, own in of_folds.items():
        images, captions = (np.mean(side, axis=0) for side in zip(*own, strict=True))
        means[fold] = images, captions
    return means


def _of_result(result: Result, metric: str, reranked: bool) -> Sides:
    if metric == "rsum":
        each = [_recall(result, k, reranked) for k in (1, 5, 10)]
        images, captions = (100.0 * np.sum(side, axis=0) for side in zip(*each, strict=True))
        return images, captions
    side, _, name = metric.partition("_")
    sides = _recall(result, 1, reranked) if name == "recall_1" else result.measures[name]
    images, captions = (100.0 * np.asarray(values, np.float64) for values in sides)
    if side == "i2t":
        return images, np.zeros_like(captions)
    return np.zeros_like(images), captions


def _recall(result: Result, k: int, reranked: bool) -> Sides:
    if reranked:
        return result.measures[f"reranked_recall_{k}"]
    images, captions = (side <= k for side in result.ranks)
    return images, captions


def _text(apart: Difference) -> str:
    digits = 1 if max(abs(apart.low), abs(apart.high)) >= 1 else 2
    return f"{apart.value:+.{digits}f} [{apart.low:+.{digits}f}, {apart.high:+.{digits}f}]"


if __name__ == "__main__":
    main()
