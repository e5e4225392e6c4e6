"""Tables and lines of an evaluation."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from keras_xmr.experiments.config.schema import ReportedResults
from keras_xmr.experiments.evaluation.files import compare_with_reported
from keras_xmr.experiments.evaluation.results import Evaluation, tie_warning
from keras_xmr.experiments.evaluation.uncertainty.assessment import correlation_interval
from keras_xmr.experiments.reports.metric_tables import (
    CHANCE,
    judgements_title,
    measured_tables,
    metric_cells,
    reranked_title,
)
from keras_xmr.experiments.reports.table import Table
from keras_xmr.metrics import (
    DIRECTIONS,
    RSUM,
    TOO_FEW,
    Measured,
    RetrievalMetrics,
    chance,
    metric_title,
    rsum_difference,
    verdict,
)
from keras_xmr.metrics.names import metric_value
from keras_xmr.metrics.ranking import RECALL_AT


def result_tables(evaluation: Evaluation) -> list[Table]:
    """Returns tables of all metrics, and the comparison with the paper of the config."""
    return [*all_tables(evaluation), *reported_tables(evaluation)]


def all_tables(evaluation: Evaluation) -> list[Table]:
    """Returns tables of all metrics: against the judgements, over folds, and against the truth.

    Each re-ranker has separate tables, since re-ranked figures are not comparable with plain ones.
    """
    measured = evaluation.measured | evaluation.baselines
    tables = measured_tables(f"{evaluation.split}: {_size(evaluation)}", measured)
    for name, measured in evaluation.reranked.items():
        tables += measured_tables(reranked_title(evaluation.split, name), measured)
    return tables


def summary_tables(evaluation: Evaluation) -> list[Table]:
    """The summary of a run, and the comparison with the paper of its config."""
    return [summary_table(evaluation), *reported_tables(evaluation)]


def summary_table(evaluation: Evaluation) -> Table:
    """The recalls of the model's matcher and of chance, by all kinds of judgements."""
    measured = evaluation.matchers[0].measured
    names = [*(f"{side}_recall_{k}" for side in DIRECTIONS for k in RECALL_AT), RSUM]
    rows = []
    for kind in (None, *measured.extra):
        metrics = _against(measured, kind)
        shown = {"annotated pairs" if kind is None else judgements_title(kind): metrics.summary}
        for name, simpler in evaluation.baselines.items():
            shown[f"  {name}"] = _against(simpler, kind).summary
        shown[f"  {CHANCE}"] = chance(metrics)
        rows += [[first, *metric_cells(summary, names)] for first, summary in shown.items()]
    title = f"{evaluation.split}: {_size(evaluation)}, {evaluation.matchers[0].name}"
    return Table(title, ["in percent", *map(metric_title, names)], rows)


def _size(evaluation: Evaluation) -> str:
    return f"{evaluation.images:,} images, {evaluation.captions:,} captions"


def _against(measured: Measured, kind: str | None) -> RetrievalMetrics:
    """Metrics against some judgements; None for those of the data set."""
    return measured.metrics if kind is None else measured.extra[kind]


def plain_lines(evaluation: Evaluation) -> list[str]:
    """Sentences that open a report: photos found, and gain over simpler models."""
    metrics = evaluation.matchers[0].metrics
    by_chance, lines = chance(metrics), []
    # Further judgements call more of them right.
    right = "labelled " if evaluation.matchers[0].measured.extra else "right "
    for side, query, answer, count in (
        ("t2i", "caption", "photo", evaluation.images),
        ("i2t", "photo", "caption", evaluation.captions),
    ):
        first, ten = (
            [_of_hundred(summary[f"{side}_recall_{k}"]) for summary in (metrics.summary, by_chance)]
            for k in (1, 10)
        )
        lines.append(
            f"Given a {query}, the model puts a {right}{answer} first in {first[0]} of 100 cases, "
            f"and among the first ten in {ten[0]}. A random order of the {count:,} {answer}s puts "
            f"one first in {first[1]} of 100 cases, and among the first ten in {ten[1]}."
        )
    return lines + baseline_lines(evaluation)


def _of_hundred(share: float) -> str:
    """A share as a number of 100, such as `59`."""
    number = round(100 * share)
    if share > 0 and number == 0:
        return "fewer than 1"
    return "more than 99" if share < 1 and number == 100 else str(number)


def baseline_lines(evaluation: Evaluation) -> list[str]:
    """Sentences that compare the model's matcher with simpler models."""
    metrics, image_of = evaluation.matchers[0].metrics, evaluation.ground_truth.caption_image
    lines = []
    for name, simpler in evaluation.baselines.items():
        rsum = metric_value(RSUM, simpler.metrics.summary[RSUM])
        if evaluation.images < TOO_FEW:
            lines.append(
                f"A {name} on the same features has RSUM {rsum}; the images are too few to compare "
                "the model with it."
            )
            continue
        gap = rsum_difference(metrics, simpler.metrics, image_of)
        if gap.low > 0:
            line = f"Better than a {name} on the same features"
        elif gap.high < 0:
            line = f"Worse than a {name} on the same features"
        else:
            line = f"No better than a {name} on the same features"
        line += (
            f": RSUM {gap.value:+.1f} (95 % interval {gap.low:+.1f} to "
            f"{gap.high:+.1f}) compared with {rsum}."
        )
        if evaluation.is_trained and gap.low <= 0:
            line += " No gain of training over it was found."
        lines.append(line)
    return lines


def verdict_line(evaluation: Evaluation) -> str:
    """A sentence that compares the model's matcher with chance.

    By the annotated pairs, and by the exhaustive truth if it contradicts them. The matcher is named
    where there are several, and so are those that tie many pairs.
    """
    matcher, images = evaluation.matchers[0], evaluation.ground_truth.caption_image
    answer = verdict(matcher.metrics, images)
    line = str(answer)
    if len(evaluation.matchers) > 1:
        line = f"With the matcher {matcher.name}: {line[0].lower()}{line[1:]}"
    if (truth := matcher.measured.extra.get("truth")) is not None:
        known = verdict(truth, images)
        if known.conclusion != answer.conclusion:
            line += f" By the {judgements_title('truth')}: {known}"
    warnings = (tie_warning(matcher.name, matcher.tied) for matcher in evaluation.matchers)
    return " ".join([line, *filter(None, warnings)])


def embedding_lines(evaluation: Evaluation) -> list[str]:
    """Sentences on the uncertainty of embeddings and the similarity within sets."""

    def line(what: str, correlation: float, interval: tuple[float, float]) -> str:
        ends = "{:+.3f} to {:+.3f}".format(*interval)
        return f"rank correlation of {what}: {correlation:+.3f} (95 % interval {ends})"

    lines = []
    for side, bins in evaluation.uncertainty_bins.items():
        lines.append(line(f"{side} uncertainty and {side} R@1", bins.correlation, bins.interval))
        if not bins.is_informative:
            lines[-1] += f". This model's uncertainty of {side}s is not informative."
    if (correlation := evaluation.uncertainty_of_truth) is not None:
        what = "caption uncertainty and the number of images that a caption is true of"
        lines.append(line(what, correlation, correlation_interval(correlation, evaluation.images)))
    if "log_variance" not in evaluation.embedded.captions:
        lines.append("This model has no sigma, so it has no measure of uncertainty.")
    for side, similarity in evaluation.set_similarity.items():
        lines.append(f"mean cosine between the embeddings of one {side}: {similarity:+.3f}")
    return lines


_IMAGES = 1_000
"""Images of the smallest test split of the papers, that of Flickr30K; COCO's folds have as many."""


def reported_tables(evaluation: Evaluation) -> list[Table]:
    """Tables of our figures and the reported ones, per re-ranker, of the split and of its folds."""
    paper = evaluation.paper
    if paper is None:
        return []
    groups: dict[tuple[str | None, bool], list[dict[str, Any]]] = defaultdict(list)
    for compared in compare_with_reported(evaluation, paper):
        groups[compared["reranker"], compared["folds"]].append(compared)
    tables = []
    for (reranker, folds), group in groups.items():
        title = f"{evaluation.split}{', mean over folds' if folds else ''}"
        title = title if reranker is None else reranked_title(title, reranker)
        rows = ", ".join(dict.fromkeys(compared["row"] for compared in group))
        fidelity = f" ({evaluation.fidelity.label})" if evaluation.fidelity else ""
        title = f"{title}, compared with {paper.source}: {rows}{fidelity}"
        if not _is_of_papers_size(evaluation, paper):
            known = f"at least {_IMAGES:,}" if paper.images is None else f"{paper.images:,}"
            ours = f"measured on {evaluation.images:,} images"
            title += f" (not comparable: {ours}, and a paper on {known})"
        tables.append(_table(title, group))
    return tables


def _is_of_papers_size(evaluation: Evaluation, paper: ReportedResults) -> bool:
    """True if a split has as many images as the paper's; for validation splits, 1,000 or more."""
    if paper.images is None or evaluation.split != "test":
        return evaluation.images >= _IMAGES
    return evaluation.images == paper.images


def _table(title: str, group: list[dict[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for compared in group for name in compared["metrics"]))
    rows = []
    for compared in group:
        for kind in ("paper", "ours", "difference"):
            metrics = compared["metrics"]
            cells = [_cell(kind, name, metrics.get(name, {}).get(kind)) for name in names]
            rows.append([f"{compared['matcher']}: {kind}", *cells])
    return Table(title, ["matcher", *map(metric_title, names)], rows)


def _cell(kind: str, name: str, value: float | None) -> str:
    text = metric_value(name, value)
    return f"+{text}" if kind == "difference" and value is not None and value > 0 else text
