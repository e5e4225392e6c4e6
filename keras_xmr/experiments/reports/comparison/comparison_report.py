"""Writes a comparison: tables for the terminal, CSV, Markdown, and a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, product
from pathlib import Path

import numpy as np

from keras_xmr.experiments.evaluation.evaluation_files import RESULTS
from keras_xmr.experiments.evaluation.split_evaluation import tie_warning
from keras_xmr.experiments.reports.comparison.method_tables import (
    ALPHA,
    HEADLINES,
    is_significant,
    methods_tables,
    most_judged,
    relevance_tables,
)
from keras_xmr.experiments.reports.comparison.plots import comparison_pictures
from keras_xmr.experiments.reports.comparison.run_results import Methods, RunResult
from keras_xmr.experiments.reports.comparison.side_by_side import Win, side_by_side, wins
from keras_xmr.experiments.reports.metric_tables import glossary, judgements_title
from keras_xmr.experiments.reports.pages import render
from keras_xmr.experiments.reports.result_tables import measured_results
from keras_xmr.metrics import METRICS, RSUM
from keras_xmr.metrics.bootstrap import RESAMPLES
from keras_xmr.metrics.comparison import difference_rows, mean_rows
from keras_xmr.metrics.estimates import estimate_means
from keras_xmr.metrics.names import in_percent
from keras_xmr.metrics.results import CHANCE, MODEL, Result, Results
from keras_xmr.parts.registry import summaries
from keras_xmr.utils.directions import DIRECTIONS, SHORT, full_name, split_name
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.spreadsheets import to_csv
from keras_xmr.utils.tables import Table

_SHOWN_WINS = 5


def required_resamples(methods: int) -> int:
    """Returns the number of resamples for significant differences between some methods.

    Holm multiplies the smallest p-value, 2 / (resamples + 1), by the number of pairs.
    """
    return max(RESAMPLES, 100 * methods * (methods - 1) // 2)


def compare_runs(split: str, methods: Methods) -> Results:
    """Estimates the means of methods and tests all their differences, by paired bootstrap.

    Images are resampled, and their captions with them, so both directions and RSUM come from the
    same resamples. (If the images of captions are not known, captions are resampled
    independently.) For a method with several runs, the variance over seeds is included (see
    `Estimate`); for a single run, the estimates are about that run alone. P-values are corrected
    for all pairs of methods in one metric by one kind of judgements.

    Args:
        split: The split.
        methods: The runs of each method.

    Returns:
        The mean of each metric per method, and the differences of all pairs.
    """
    runs = list(chain.from_iterable(methods.values()))
    sizes = [len(of_method) for of_method in methods.values()]
    compared = [metric for metric in METRICS.values() if metric.compared]
    tested = [name for metric in compared for name in metric.mean_of or (metric.name,)]
    queries, resamples = runs[0].queries, required_resamples(len(methods))
    names = list(methods)
    rows: list[Result] = []
    for judgements in common_judgements(methods):
        per_query = {
            direction: {
                name: _per_query(runs, judgements, full_name(direction, name)) for name in tested
            }
            for direction in DIRECTIONS
        }
        owner, images = queries.caption_image, len(queries.image_ids)
        means = estimate_means(per_query, sizes, owner, images, resamples)
        key = {"split": split, "judgements": judgements}
        for number, name in enumerate(names):
            own = {metric: of_methods[number] for metric, of_methods in means.items()}
            matcher = methods[name][0].matcher
            rows += mean_rows(own, method=name, matcher=matcher, **key)
        for metric, of_methods in means.items():
            rows += difference_rows({metric: of_methods}, names, **key)
    return Results(rows)


def _per_query(runs: Sequence[RunResult], judgements: str, metric: str) -> np.ndarray:
    """Returns the values of a metric (queries, runs), float64; NaN where any run has none."""
    first = runs[0].queries
    ids = first.image_ids if split_name(metric)[0] == "image_to_text" else first.caption_ids
    nothing = np.full(len(ids), np.nan)
    columns = [run.queries.values[judgements].get(metric, nothing) for run in runs]
    values = np.stack(columns, axis=1).astype(np.float64)
    values[np.isnan(values).any(axis=1)] = np.nan
    return values


def common_judgements(methods: Methods) -> list[str]:
    """Returns the kinds of judgements that all runs were measured against."""
    runs = [run.queries.values for of_method in methods.values() for run in of_method]
    return [name for name in runs[0] if all(name in values for values in runs)]


class SplitComparison:
    """The comparison of methods on a split.

    Attributes:
        split: The split.
        methods: The runs of each method.
        runs: The results of each run, by method and seed, and of a random ranking.
        compared: The means of the methods, with intervals, and their differences.
        tables: The tables of the methods.
        by_relevance: R-Precision of the methods by the number of relevant items of a query.
        wins: The queries on which each method is most ahead of another, by both.
    """

    def __init__(self, split: str, methods: Methods) -> None:
        self.split, self.methods = split, methods
        self.runs = Results(chain.from_iterable(_rows(methods)))
        self.compared = compare_runs(split, methods)
        own = {name: runs[0].matcher for name, runs in methods.items()}
        titles = {name: runs[0].title for name, runs in methods.items()}
        self.tables = methods_tables(self.runs, own, titles)
        self.by_relevance = relevance_tables(self.runs, own, titles, split)
        self.wins = wins(methods, self.judgements)

    @cached_property
    def judgements(self) -> str:
        """The most complete judgements, which the verdict is by."""
        return most_judged(common_judgements(self.methods))

    @property
    def differences(self) -> Results:
        """The differences of all pairs of methods; empty with one method."""
        return Results(row for row in self.compared if row.minus)

    @property
    def verdict(self) -> str:
        """Sentences on RSUM: the highest one, its difference to the next one, and chance."""
        of_rsum = self.compared.select(metric=RSUM, judgements=self.judgements)
        means = {row.method: row for row in of_rsum.select(minus="")}
        first, *others = sorted(means, key=lambda name: -means[name].value)
        shown = {name: f"{row.value:.1f}" for name, row in means.items()}
        equal = [name for name in means if shown[name] == shown[first]]
        have = "has an" if len(equal) == 1 else "have the same"
        title = judgements_title(self.judgements)
        line = f"{' and '.join(equal)} {have} RSUM of {shown[first]} by the {title}"
        by_chance = self.runs.select(method=CHANCE, metric=RSUM, judgements=self.judgements)
        limit = by_chance[0].value if by_chance else -np.inf
        poor = [name for name, row in means.items() if not row.low > limit]
        if others:
            is_highest = len(equal) < len(means) and len(poor) < len(means)
            line += ", the highest" if is_highest else ""
            line += ". " if len(equal) > 1 else f"; {others[0]} has {shown[others[0]]}. "
            line += self._difference(of_rsum, first, others[0])
        if len(poor) == len(means):
            line = f"{'No method is' if others else f'{first} is not'} better than chance. {line}"
        elif poor:
            verb = "is" if len(poor) == 1 else "are"
            line = f"{' and '.join(poor)} {verb} not better than chance. {line}"
        if by_chance:
            line += f". A random ranking has {limit:.1f}, a perfect one 600"
        return f"{line}."

    @staticmethod
    def _difference(of_rsum: Results, left: str, right: str) -> str:
        both = {left, right}
        row = next(r for r in of_rsum if r.minus and {r.method, r.minus} == both)
        sign = 1 if row.method == left else -1
        low, high = sorted((sign * row.low, sign * row.high))
        verb = "is" if is_significant(row) else "is not"
        return (
            f"The difference of {signed(sign * row.value)} (95 % interval {signed(low)} to "
            f"{signed(high)}) {verb} significant"
        )

    @property
    def notes(self) -> list[str]:
        """Remarks on the figures."""
        seeds = {len(runs) for runs in self.methods.values()}
        lines = ["Metrics are in percent, correlations are not."]
        if max(seeds) > 1:
            few = "" if len(seeds) == 1 else " Not all methods have as many runs."
            lines[0] += f" ± is the sample standard deviation over runs.{few}"
        if len(self.methods) > 1:
            resamples = required_resamples(len(self.methods))
            lines.append(
                f"Differences: paired bootstrap, {resamples:,} resamples of the images with their "
                "captions, and Student's t over the runs of a method that has several. A star "
                f"marks a p-value below {ALPHA} after Holm's correction for all pairs of methods "
                "in one metric, which intervals of differences have, too. Conclusions are over "
                "queries and seeds; for a method with a single run, over queries alone. "
                "Detectable: the smallest difference that a test detects with a power of 0.8, "
                "before the correction."
            )
        lines += [
            f"{method}: {sentence}"
            for method, runs in self.methods.items()
            for sentence in dict.fromkeys(filter(None, (run.fidelity for run in runs)))
        ]
        lines += self._untested()
        # The largest share of tied pairs of any run of a method.
        tied: dict[str, float] = {}
        for row in self.runs.select(metric="tied"):
            name = f"{row.method}: {row.matcher}"
            tied[name] = max(tied.get(name, 0.0), row.value)
        return lines + [warning for each in tied.items() if (warning := tie_warning(*each))]

    def _untested(self) -> Iterator[str]:
        """Yields a remark per metric of the tables that has no interval."""
        shown = {row.metric for row in self.runs if row.method != CHANCE}
        for name in sorted(shown - {row.metric for row in self.compared}):
            if name in METRICS and METRICS[name].compared:
                title = METRICS[name].title.replace("\n", " ")
                yield f"{title} is not tested: its value per query is not known for all runs."


def _rows(methods: Methods) -> Iterator[Results]:
    """Yields the results of the model of each run, and of chance of the first run."""
    for method, runs in methods.items():
        for run in runs:
            key = {"method": method, "seed": run.seed}
            yield run.results.select(method=MODEL, minus="").replace(**key)
    yield next(iter(methods.values()))[0].results.select(method=CHANCE)


def terminal_tables(comparison: SplitComparison) -> list[str]:
    """Returns the output on the terminal: all figures, and the differences in RSUM."""
    tables = [table.table(comparison.split) for table in comparison.tables]
    tables += [*comparison.by_relevance, *matrix_tables(comparison, [RSUM])]
    return [comparison.verdict, *map(str, tables), *comparison.notes]


def write_report(comparison: SplitComparison, folder: Path) -> Path:
    """Writes the results and wins as CSV, `report.md`, `tables.tex`, plots and `report.html`.

    Args:
        comparison: The comparison.
        folder: The folder of the files.

    Returns:
        The page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (comparison.runs + comparison.compared).write(folder / RESULTS)
    if comparison.differences:
        atomic_write(folder / "wins.csv", to_csv(_win_rows(chain(*comparison.wins.values()))))
    tables = [t.wide_table(comparison.split, comparison.compared) for t in comparison.tables]
    plain = sum(table.is_plain for table in comparison.tables)  # They come first.
    tables[plain:plain] = comparison.by_relevance
    plain += len(comparison.by_relevance)
    matrices = matrix_tables(comparison, HEADLINES)
    shown = [*tables, *matrices]
    markdown = [comparison.verdict, *(table.markdown() for table in shown), *comparison.notes]
    latex = "\n\n".join(table.latex() for table in shown)
    atomic_write(folder / "tables.tex", f"{latex}\n".encode())
    atomic_write(folder / "report.md", ("\n\n".join(markdown) + "\n").encode("utf-8"))
    drawn = comparison_pictures(
        comparison.methods, comparison.tables, comparison.compared, comparison.judgements
    )
    page = render(
        "comparison.html",
        title=f"{', '.join(runs[0].title for runs in comparison.methods.values())}: "
        f"{comparison.split}",
        comparison=comparison,
        tables=tables[:plain],
        further=tables[plain:],
        pictures=[picture.write(folder) for picture in drawn],
        matrices=matrices,
        pairs=_pair_tables(comparison),
        duels=side_by_side(comparison.methods, comparison.wins),
        meanings=_meanings(comparison),
    )
    path = folder / "report.html"
    atomic_write(path, page)
    return path


def _win_rows(wins: Iterable[Win]) -> Iterable[Sequence[object]]:
    yield ("direction", "method", "other", "query", "caption", "rank", "rank_of_other")
    for win in sorted(wins, key=lambda win: win.direction):
        ranks = [f"{rank:.4g}" for rank in win.ranks]
        yield (win.direction, win.winner, win.loser, win.query, win.text, *ranks)


def _meanings(comparison: SplitComparison) -> dict[str, str]:
    """Returns a sentence per metric, matcher and re-ranker that the page names."""
    names = [*comparison.runs.distinct("matcher"), *comparison.runs.distinct("reranker")]
    return glossary(measured_results(comparison.runs)) | summaries(
        filter(None, names), "matcher", "reranker"
    )


def matrix_tables(comparison: SplitComparison, metrics: Iterable[str]) -> list[Table]:
    """Returns a table per metric and kind of judgements: row minus column; * is significant."""
    names, differences = list(comparison.methods), comparison.differences
    header = ["row minus column", *map(str, range(1, len(names) + 1))]
    tables = []
    for judgements, metric in product(differences.distinct("judgements"), metrics):
        cells = {}
        for row in (r for r in differences.select(judgements=judgements) if r.name == metric):
            star = "*" if is_significant(row) else " "
            value = in_percent(row.unit, row.value)
            cells[row.method, row.minus] = f"{signed(value)}{star}"
            cells[row.minus, row.method] = f"{signed(-value)}{star}"
        body = [
            [f"{number} {name}", *(cells.get((name, other), "") for other in names)]
            for number, name in enumerate(names, 1)
        ]
        of = f"{comparison.split}, {judgements_title(judgements)}"
        title = f"{of}: differences in {HEADLINES[metric]}"
        tables += [Table(title, header, body)] if cells else []
    return tables


def signed(value: float, digits: int = 1) -> str:
    """Returns a difference with its sign; one that is rounded to 0 has none."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def _pair_tables(comparison: SplitComparison) -> list[list[Table]]:
    """Returns the tables of each pair of methods: its intervals, and the queries that each wins."""
    chosen = [
        row
        for row in comparison.differences.select(judgements=comparison.judgements)
        if row.name in HEADLINES
    ]
    title = judgements_title(comparison.judgements)
    header = ["", "difference", "95 % interval (Holm)", "p", "p (Holm)", "detectable", ""]
    pairs = []
    for first, second in itertools.combinations(comparison.methods, 2):
        rows = [row for row in chosen if (row.method, row.minus) == (second, first)]
        tables = [Table(f"{second} minus {first}, {title}", header, list(map(_cells, rows)))]
        for winner, loser in ((second, first), (first, second)):
            table = _win_table(comparison.wins[winner, loser], winner, loser)
            tables += [table] if table.rows else []
        pairs += [tables] if rows else []
    return pairs


def _cells(row: Result) -> list[str]:
    numbers = (row.value, row.low, row.high, row.detectable)
    value, low, high, detectable = (in_percent(row.unit, number) for number in numbers)
    return [
        HEADLINES[row.name],
        signed(value, 2),
        f"{signed(low, 2)} to {signed(high, 2)}",
        f"{row.p:.4f}",
        f"{row.p_holm:.4f}",
        f"{detectable:.2f}",
        "significant" if is_significant(row) else "not significant",
    ]


def _win_table(wins: Sequence[Win], winner: str, loser: str) -> Table:
    rows = []
    for direction in DIRECTIONS:
        chosen = [win for win in wins if win.direction == direction]
        for win in chosen[:_SHOWN_WINS]:
            query = f"{win.query}: {win.text}" if win.text else win.query
            rows.append([query, SHORT[direction], *(f"{rank:.1f}" for rank in win.ranks)])
    title = f"queries on which {winner} is most ahead of {loser}"
    return Table(title, ["query", "", f"rank,\n{winner}", f"rank,\n{loser}"], rows)
