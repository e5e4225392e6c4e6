"""Tables and lines of an evaluation, all of them filters of its long table of results."""

from __future__ import annotations

from collections.abc import Iterator

from keras_xmr.experiments.evaluation.split_evaluation import tie_warning
from keras_xmr.experiments.evaluation.table import REPORTED
from keras_xmr.experiments.reports.metric_tables import (
    judgements_title,
    measured_tables,
    pivot,
    reranked_title,
    result_cells,
)
from keras_xmr.metrics import RSUM, TOO_FEW, Verdict, metric_title
from keras_xmr.metrics.names import shown_value
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.metrics.results import ALL, ANNOTATED, CHANCE, FOLDS, MODEL, Result, Results
from keras_xmr.utils.directions import DIRECTIONS, full_name
from keras_xmr.utils.tables import Table


def result_tables(results: Results, fidelity: str | None = None) -> list[Table]:
    """Returns tables of all metrics, and the comparison with the paper of the config.

    Args:
        results: The results of a split.
        fidelity: Whether the config is as published, in a word or two.
    """
    return [*all_tables(results), *reported_tables(results, fidelity)]


def all_tables(results: Results) -> list[Table]:
    """Returns tables of all metrics: against the judgements, over folds, and against the truth.

    Each re-ranker has separate tables, since re-ranked figures are not comparable with plain ones.

    Args:
        results: The results of a split.
    """
    split, measured = results[0].split, measured_results(results)
    plain = measured.select(reranker="")
    tables = measured_tables(f"{split}: {_size(results)}", plain)
    by_chance = plain.select(method=CHANCE)
    for reranker in filter(None, measured.distinct("reranker")):
        title = reranked_title(split, reranker)
        tables += measured_tables(title, measured.select(reranker=reranker) + by_chance)
    return [*tables, *_time_tables(results)]


def _time_tables(results: Results) -> list[Table]:
    """Returns the test times, if something is re-ranked (Wei et al. 2023, Table IV)."""
    times = Results(row for row in results if row.unit == "seconds")
    names = ("scoring_seconds", "reranking_seconds")
    rows = [
        [matcher, reranker, *result_cells(cells, names)]
        for reranker in times.distinct("reranker")
        for matcher, cells in pivot(times.select(reranker=reranker)).items()
    ]
    if not rows:
        return []
    title = f"{results[0].split}: test time in seconds, the first call of a matcher with its graph"
    return [Table(title, ["matcher", "re-ranker", "scoring", "re-ranking"], rows)]


def measured_results(results: Results) -> Results:
    """Returns the figures by judgements: no facts, differences and figures of papers."""
    return Results(
        row
        for row in results
        if row.judgements and not row.minus and not row.method.startswith(REPORTED)
    )


def own_results(results: Results) -> Results:
    """Returns the figures of the model by its own matcher, over all queries."""
    own = measured_results(results).select(method=MODEL, reranker="", queries=ALL)
    return own.select(matcher=own[0].matcher)


def _fact(results: Results, name: str) -> float:
    """Returns a figure that no judgements decide, such as the number of images."""
    return results.select(metric=name, judgements="", method=MODEL)[0].value


def summary_tables(results: Results, fidelity: str | None = None) -> list[Table]:
    """Returns the summary of a run, and the comparison with the paper of its config.

    Args:
        results: The results of a split.
        fidelity: Whether the config is as published, in a word or two.
    """
    return [summary_table(results), *reported_tables(results, fidelity)]


def summary_table(results: Results) -> Table:
    """Returns the recalls of the model's matcher and of chance, by all kinds of judgements.

    Args:
        results: The results of a split.
    """
    recalls = (full_name(direction, f"recall_{k}") for direction in DIRECTIONS for k in RECALL_AT)
    names = [*recalls, RSUM]
    own, rows = own_results(results), []
    whole = measured_results(results).select(reranker="", queries=ALL)
    for judgements in own.distinct("judgements"):
        (cells,) = pivot(own.select(judgements=judgements)).values()
        rows.append([judgements_title(judgements), *result_cells(cells, names)])
        others = (row for row in whole.select(judgements=judgements) if row.method != MODEL)
        rows += [[f"  {name}", *result_cells(row, names)] for name, row in pivot(others).items()]
    title = f"{results[0].split}: {_size(results)}, {own[0].matcher}"
    return Table(title, ["in percent", *map(metric_title, names)], rows)


def _size(results: Results) -> str:
    return f"{_fact(results, 'images'):,.0f} images, {_fact(results, 'captions'):,.0f} captions"


def plain_lines(results: Results) -> list[str]:
    """Returns sentences that open a report: photos found, and gain over simpler models.

    Args:
        results: The results of a split.
    """
    own = own_results(results)
    by_chance = measured_results(results).select(method=CHANCE, judgements=ANNOTATED, queries=ALL)
    summaries = own.select(judgements=ANNOTATED).summary(), by_chance.summary()
    # Further judgements call more of them right.
    right = "labelled " if len(own.distinct("judgements")) > 1 else "right "
    lines = []
    for direction, query, answer, items in (
        ("text_to_image", "caption", "photo", "images"),
        ("image_to_text", "photo", "caption", "captions"),
    ):
        first, ten = (
            [_of_hundred(summary[full_name(direction, f"recall_{k}")]) for summary in summaries]
            for k in (1, 10)
        )
        lines.append(
            f"Given a {query}, the model puts a {right}{answer} first in {first[0]} of 100 cases, "
            f"and among the first ten in {ten[0]}. A random order of the "
            f"{_fact(results, items):,.0f} {answer}s puts one first in {first[1]} of 100 cases, "
            f"and among the first ten in {ten[1]}."
        )
    return [*lines, *baseline_lines(results)]


def _of_hundred(share: float) -> str:
    """Returns a share as a number of 100, such as `59`."""
    number = round(100 * share)
    if share > 0 and number == 0:
        return "fewer than 1"
    return "more than 99" if share < 1 and number == 100 else str(number)


def baseline_lines(results: Results) -> list[str]:
    """Returns sentences that compare the model's matcher with simpler models.

    Args:
        results: The results of a split.
    """
    lines = []
    for gap in (row for row in results.select(metric=RSUM) if row.minus):
        simpler = results.select(method=gap.minus, metric=RSUM, judgements=ANNOTATED, queries=ALL)
        rsum = shown_value(gap.unit, simpler[0].value)
        if _fact(results, "images") < TOO_FEW:
            lines.append(
                f"A {gap.minus} on the same features has RSUM {rsum}; the images are too few to "
                "compare the model with it."
            )
            continue
        if gap.low > 0:
            line = f"Better than a {gap.minus} on the same features"
        elif gap.high < 0:
            line = f"Worse than a {gap.minus} on the same features"
        else:
            line = f"No better than a {gap.minus} on the same features"
        line += (
            f": RSUM {gap.value:+.1f} (95 % interval {gap.low:+.1f} to "
            f"{gap.high:+.1f}) compared with {rsum}."
        )
        if _fact(results, "trained") and gap.low <= 0:
            line += " No gain of training over it was found on this split."
        lines.append(line)
    return lines


def bad_news(results: Results, verdict: str) -> list[str]:
    """Returns the sentences that say that a model is no better than simpler ones, or than chance.

    Args:
        results: The results of a split.
        verdict: The sentence on chance.
    """
    gaps = (row for row in results.select(metric=RSUM) if row.minus)
    is_enough = _fact(results, "images") >= TOO_FEW
    lines = [
        line
        for gap, line in zip(gaps, baseline_lines(results), strict=True)
        if is_enough and not gap.low > 0
    ]
    is_better = _verdict(results, ANNOTATED).is_better_than_chance
    return lines if is_better or not is_enough else [*lines, verdict]


def verdict_line(results: Results) -> str:
    """Returns a sentence that compares the model's matcher with chance.

    By the annotated pairs, and by the exhaustive truth if it contradicts them. The matcher is named
    where there are several, and so are those that tie many pairs.

    Args:
        results: The results of a split.
    """
    answer = _verdict(results, ANNOTATED)
    ties = results.select(metric="tied")
    line = str(answer)
    if len(ties) > 1:
        line = f"With the matcher {ties[0].matcher}: {line[0].lower()}{line[1:]}"
    if own_results(results).select(judgements="truth"):
        known = _verdict(results, "truth")
        if known.conclusion != answer.conclusion:
            line += f" By the {judgements_title('truth')}: {known}"
    warnings = (tie_warning(row.matcher, row.value) for row in ties)
    return " ".join([line, *filter(None, warnings)])


def _verdict(results: Results, judgements: str) -> Verdict:
    own = own_results(results).select(judgements=judgements, metric=RSUM)[0]
    by_chance = results.select(method=CHANCE, judgements=judgements, metric=RSUM)[0].value
    return Verdict(own.value, own.low, own.high, by_chance, own.n)


def embedding_lines(results: Results) -> list[str]:
    """Returns sentences on the uncertainty of embeddings and the similarity within sets.

    Args:
        results: The results of a split.
    """

    def line(what: str, row: Result) -> str:
        return (
            f"rank correlation of {what}: {row.value:+.3f} (95 % interval {row.low:+.3f} to "
            f"{row.high:+.3f})"
        )

    lines = []
    correlations = results.select(metric="uncertainty_correlation")
    for row in correlations:
        item = _QUERIES[row.direction]
        lines.append(line(f"{item} uncertainty and {item} R@1", row))
        if not row.high < 0:
            lines[-1] += f". This model's uncertainty of {item}s is not informative."
    for row in results.select(metric="uncertainty_of_truth"):
        what = "caption uncertainty and the number of images that a caption is true of"
        lines.append(line(what, row))
    if "caption" not in {_QUERIES[row.direction] for row in correlations}:
        lines.append("This model has no sigma, so it has no measure of uncertainty.")
    for row in results.select(metric="set_cosine"):
        item = _QUERIES[row.direction]
        lines.append(f"mean cosine between the embeddings of one {item}: {row.value:+.3f}")
    return lines


_QUERIES = {"image_to_text": "image", "text_to_image": "caption"}

_IMAGES = 1_000
"""Images of the smallest test split of the papers, Flickr30K; COCO's folds have as many."""


def reported_tables(results: Results, fidelity: str | None = None) -> list[Table]:
    """Returns tables of our figures and the reported ones, of the split and of its folds.

    Args:
        results: The results of a split.
        fidelity: Whether the config is as published, in a word or two.
    """
    reported = Results(row for row in results if row.method.startswith(REPORTED))
    printed = Results(row for row in reported if row.judgements)
    if not printed:
        return []
    (size,) = reported.select(judgements="")
    tables = []
    for reranker, queries in dict.fromkeys((row.reranker, row.queries) for row in printed):
        group = printed.select(reranker=reranker, queries=queries)
        title = f"{results[0].split}{f', {FOLDS}' if queries == FOLDS else ''}"
        title = reranked_title(title, reranker) if reranker else title
        rows = ", ".join(name.removeprefix(f"{size.method}: ") for name in group.distinct("method"))
        adapted = f" ({fidelity})" if fidelity else ""
        title = f"{title}, compared with {size.method.removeprefix(REPORTED)}: {rows}{adapted}"
        images = _fact(results, "images")
        if not _is_of_papers_size(results[0].split, images, size.value):
            known = f"{size.value:,.0f}" if size.value else f"at least {_IMAGES:,}"
            title += f" (not comparable: measured on {images:,.0f} images, and a paper on {known})"
        names = list(dict.fromkeys(row.name for row in group))
        body = list(_reported_rows(group, results, names))
        tables.append(Table(title, ["matcher", *map(metric_title, names)], body))
    return tables


def _is_of_papers_size(split: str, images: float, known: float) -> bool:
    """Returns whether a split has as many images as the paper's; for validation splits, 1,000
    or more.
    """
    return images == known if known and split == "test" else images >= _IMAGES


def _reported_rows(group: Results, results: Results, names: list[str]) -> Iterator[list[str]]:
    """Yields per row of a paper the printed figures, ours, and their differences."""
    key = {"reranker": group[0].reranker, "queries": group[0].queries, "minus": ""}
    ours = results.select(method=MODEL, judgements=ANNOTATED, **key)
    for method, matcher in dict.fromkeys((row.method, row.matcher) for row in group):
        printed = group.select(method=method, matcher=matcher)
        known = ours.select(matcher=matcher).summary()
        for column in ("paper", "ours", "difference"):
            cells = {row.name: _cell(column, row, known.get(row.name)) for row in printed}
            yield [f"{matcher}: {column}", *(cells.get(name, "-") for name in names)]


def _cell(column: str, printed: Result, ours: float | None) -> str:
    if column == "paper":
        return shown_value(printed.unit, printed.value)
    if column == "ours" or ours is None:
        return shown_value(printed.unit, ours)
    difference = ours - printed.value
    text = shown_value(printed.unit, difference)
    return f"+{text}" if difference > 0 else text
