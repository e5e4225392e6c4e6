"""Tables and lines of an evaluation."""

from __future__ import annotations

from keras_xmr.config.schema import ReportedResults
from keras_xmr.evaluation.files import Compared, compare_with_reported
from keras_xmr.evaluation.results import Evaluation, tie_warning
from keras_xmr.metrics import (
    DIRECTIONS,
    RSUM,
    Measured,
    RetrievalMetrics,
    chance,
    metric_title,
    rsum_difference,
    verdict,
)
from keras_xmr.metrics.names import metric_value
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.reporting.metric_tables import (
    CHANCE,
    judgements_title,
    measured_tables,
    reranked_title,
)
from keras_xmr.reporting.table import Table
from keras_xmr.uncertainty.assessment import correlation_interval


def result_tables(evaluation: Evaluation) -> list[Table]:
    """Tables of all metrics: against the judgements, over folds, and against the truth.

    Comparisons with the paper of the config come last. Each re-ranker has separate tables, since
    re-ranked figures are not comparable with plain ones.
    """
    size = f"{evaluation.images:,} images, {evaluation.captions:,} captions"
    measured = evaluation.measured | evaluation.baselines
    tables = measured_tables(f"{evaluation.split}: {size}", measured)
    for name in dict.fromkeys(result.reranker for result in evaluation.reranked):
        measured = {f.matcher: f.measured for f in evaluation.reranked if f.reranker == name}
        tables += measured_tables(reranked_title(evaluation.split, name), measured)
    return tables + reported_tables(evaluation)


def summary_tables(evaluation: Evaluation) -> list[Table]:
    """The summary of a run, and the comparison with the paper of its config."""
    return [summary_table(evaluation), *reported_tables(evaluation)]


def summary_table(evaluation: Evaluation) -> Table:
    """The recalls of the model's matcher and of chance, by all kinds of judgements."""
    measured = evaluation.matchers[0].measured
    names = [f"{side}_recall_{k}" for side in DIRECTIONS for k in RECALL_AT]
    names.append(RSUM)
    rows = []
    for kind in (None, *measured.extra):
        title = "annotated pairs" if kind is None else judgements_title(kind)
        metrics = _against(measured, kind)
        shown = {title: metrics.summary}
        for name, simpler in evaluation.baselines.items():
            shown[f"  {name}"] = _against(simpler, kind).summary
        shown[f"  {CHANCE}"] = chance(metrics)
        for first, summary in shown.items():
            rows.append([first, *(metric_value(name, summary.get(name)) for name in names)])
    size = f"{evaluation.images:,} images, {evaluation.captions:,} captions"
    title = f"{evaluation.split}: {size}, {evaluation.matchers[0].name}"
    return Table(title, ["in percent", *(metric_title(name) for name in names)], rows)


def _against(measured: Measured, kind: str | None) -> RetrievalMetrics:
    """Metrics against some judgements; None for those of the data set."""
    return measured.metrics if kind is None else measured.extra[kind]


def plain_lines(evaluation: Evaluation) -> list[str]:
    """Sentences on the recalls of the model's matcher, compared with chance and simpler models."""
    metrics = evaluation.matchers[0].metrics
    random, known = chance(metrics), metrics.summary
    sides = ("t2i", "A caption", "image", "images"), ("i2t", "An image", "caption", "captions")
    counts = {"images": evaluation.images, "captions": evaluation.captions}
    lines = []
    for side, query, answer, answers in sides:
        (first, by_chance), (ten, ten_by_chance) = (
            [metric_value(name, summary[name]) for summary in (known, random)]
            for name in (f"{side}_recall_1", f"{side}_recall_10")
        )
        lines.append(
            f"{query} as the query: the first {answer} of {counts[answers]:,} is relevant for "
            f"{first} % of the queries, and one of the first ten for {ten} %; in a random order "
            f"for {by_chance} % and {ten_by_chance} %."
        )
    return lines + baseline_lines(evaluation)


def baseline_lines(evaluation: Evaluation) -> list[str]:
    """Sentences that compare the model's matcher with simpler models."""
    metrics, image_of = evaluation.matchers[0].metrics, evaluation.ground_truth.caption_image
    lines = []
    for name, simpler in evaluation.baselines.items():
        gap = rsum_difference(metrics, simpler.metrics, image_of)
        place = "above" if gap.low > 0 else "below" if gap.high < 0 else "level with"
        rsum = metric_value(RSUM, simpler.metrics.summary[RSUM])
        lines.append(
            f"The model is {place} a {name} on the same features, whose RSUM is {rsum} (difference "
            f"{100 * gap.value:+.1f}, 95 % interval {100 * gap.low:+.1f} to {100 * gap.high:+.1f})."
        )
    return lines


def verdict_line(evaluation: Evaluation) -> str:
    """A sentence that compares the model's matcher with chance.

    By the annotated pairs, and by the exhaustive truth if it contradicts them. Matchers that tie
    many pairs are named.
    """
    matcher, images = evaluation.matchers[0], evaluation.ground_truth.caption_image
    answer = verdict(matcher.metrics, images)
    line = f"{matcher.name}: {answer}"
    if (truth := matcher.measured.extra.get("truth")) is not None:
        known = verdict(truth, images)
        if known.is_better_than_chance != answer.is_better_than_chance:
            line += f" By the {judgements_title('truth')}: {known}"
    warnings = (tie_warning(matcher.name, matcher.tied) for matcher in evaluation.matchers)
    return " ".join([line, *filter(None, warnings)])


def embedding_lines(evaluation: Evaluation) -> list[str]:
    """Sentences on the uncertainty of embeddings and the similarity within sets."""
    lines = []
    for side, bins in evaluation.uncertainty_bins.items():
        low, high = bins.interval
        line = (
            f"rank correlation of {side} uncertainty and {side} R@1: {bins.correlation:+.3f} "
            f"(95 % interval {low:+.3f} to {high:+.3f})"
        )
        if not bins.is_informative:
            line += f". This model's uncertainty of {side}s is not informative."
        lines.append(line)
    if evaluation.uncertainty_of_truth is not None:
        low, high = correlation_interval(evaluation.uncertainty_of_truth, evaluation.images)
        line = (
            "rank correlation of caption uncertainty and the number of images that a caption is "
            f"true of: {evaluation.uncertainty_of_truth:+.3f} (95 % interval {low:+.3f} to "
            f"{high:+.3f})"
        )
        if evaluation.fewness_of_truth is not None:
            fewness = f"{evaluation.fewness_of_truth:+.3f}"
            line += f". Of minus its number of words, which needs no model: {fewness}"
        lines.append(line)
    if evaluation.embedded is not None and "log_variance" not in evaluation.embedded.captions:
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
    groups: dict[tuple[str | None, bool], list[Compared]] = {}
    for compared in compare_with_reported(evaluation, paper):
        groups.setdefault((compared.reranker, compared.folds), []).append(compared)
    tables = []
    for (reranker, folds), group in groups.items():
        title = f"{evaluation.split}{', mean over folds' if folds else ''}"
        title = title if reranker is None else reranked_title(title, reranker)
        rows = ", ".join(dict.fromkeys(compared.row for compared in group))
        title = f"{title}, compared with {paper.source}: {rows}"
        if not _is_of_papers_size(evaluation, paper):
            known = f"at least {_IMAGES:,}" if paper.images is None else f"{paper.images:,}"
            title += (
                f" (not comparable: measured on {evaluation.images:,} images, and a paper on "
                f"{known})"
            )
        tables.append(_table(title, group))
    return tables


def _is_of_papers_size(evaluation: Evaluation, paper: ReportedResults) -> bool:
    """True if a split has as many images as the paper's; for validation splits, 1,000 or more."""
    if paper.images is None or evaluation.split != "test":
        return evaluation.images >= _IMAGES
    return evaluation.images == paper.images


def _table(title: str, group: list[Compared]) -> Table:
    names = list(dict.fromkeys(name for compared in group for name in compared.metrics))
    rows = []
    for compared in group:
        for kind in ("paper", "ours", "difference"):
            cells = [_cell(kind, name, compared.metrics.get(name, {}).get(kind)) for name in names]
            rows.append([f"{compared.matcher}: {kind}", *cells])
    return Table(title, ["matcher", *(metric_title(name) for name in names)], rows)


def _cell(kind: str, name: str, value: float | None) -> str:
    text = metric_value(name, value)
    return f"+{text}" if kind == "difference" and value is not None and value > 0 else text
