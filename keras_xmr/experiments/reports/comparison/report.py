"""Writes a comparison: tables for the terminal, CSV, Markdown, and a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from itertools import chain, product
from pathlib import Path

from keras_xmr.experiments.evaluation.results import tie_warning
from keras_xmr.experiments.reports.comparison.figures import (
    ALPHA,
    ANNOTATED,
    HEADLINES,
    Pair,
    Resampled,
    SummaryTable,
    compare_pairs,
    kind_title,
    most_judged,
    required_resamples,
    resample,
    summary_tables,
)
from keras_xmr.experiments.reports.comparison.plots import comparison_pictures
from keras_xmr.experiments.reports.comparison.results import Methods
from keras_xmr.experiments.reports.comparison.side_by_side import Win, side_by_side, wins
from keras_xmr.experiments.reports.metric_tables import glossary
from keras_xmr.experiments.reports.pages import render
from keras_xmr.experiments.reports.table import Table, to_csv
from keras_xmr.metrics import RSUM
from keras_xmr.metrics.bootstrap import Difference
from keras_xmr.metrics.names import in_percent
from keras_xmr.parts.registry import summaries
from keras_xmr.utils.files import atomic_write

_SHOWN_WINS = 5


class Comparison:
    """The comparison of methods on a split.

    Attributes:
        split: The split.
        methods: The runs of each method.
        summary_tables: The figures of the methods.
        resampled: The metrics of the methods over resamples, by the kind of judgements.
        pairs: The differences of the methods; empty with one method.
        wins: The queries on which each method is most ahead of another, by both.
    """

    def __init__(self, split: str, methods: Methods) -> None:
        self.split, self.methods = split, methods
        self.summary_tables = summary_tables(methods)
        self.resampled = resample(methods)
        self.pairs = compare_pairs(self.resampled)
        self.wins = wins(methods)

    @property
    def verdict(self) -> str:
        """A sentence on the method with the highest RSUM, compared with chance and the next one."""
        kind = most_judged(self.methods)
        table = next(t for t in self.summary_tables if (t.judgements, t.matchers) == (kind, "own"))
        means = {name: figures[RSUM].mean for name, figures in table.rows.items()}
        first, *others = sorted(means, key=lambda name: -means[name])
        shown = f"{means[first]:.1f}"
        equal = [name for name in means if f"{means[name]:.1f}" == shown]
        have = "has an" if len(equal) == 1 else "have the same"
        line = f"{' and '.join(equal)} {have} RSUM of {shown} by the {kind_title(kind)}"
        best = self.resampled[kind][RSUM][first].difference()
        at_chance = RSUM in table.chance and not best.low > table.chance[RSUM]
        if others:
            line += "" if at_chance or len(equal) == len(means) else ", the highest"
            line += ". " if len(equal) > 1 else f"; {others[0]} has {means[others[0]]:.1f}. "
            line += self._difference(kind, first, others[0])
        if at_chance:
            line = f"{'No method is' if others else f'{first} is not'} better than chance. {line}"
        if RSUM in table.chance:
            line += f". A random ranking has {table.chance[RSUM]:.1f}, a perfect one 600"
        return f"{line}."

    def _difference(self, kind: str, left: str, right: str) -> str:
        wanted = (kind, RSUM, {left, right})
        pair = next(p for p in self.pairs if (p.judgements, p.metric, {p.left, p.right}) == wanted)
        sign = 100 if pair.left == left else -100
        d = pair.difference
        low, high = sorted((sign * d.low, sign * d.high))
        verb = "is" if pair.is_real else "is not"
        return (
            f"The difference of {signed(sign * d.value)} (95 % interval {signed(low)} to "
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
                "in one metric. Conclusions are over queries and seeds; for a method with a single "
                "run, over queries alone. Detectable: the smallest difference that a test detects "
                "with a power of 0.8, before the correction."
            )
        lines += [
            f"{method}: {sentence}"
            for method, runs in self.methods.items()
            for sentence in dict.fromkeys(run.fidelity["sentence"] for run in runs if run.fidelity)
        ]
        # The largest share of tied pairs of any run of a method.
        tied: dict[str, float] = {}
        for run in chain.from_iterable(self.methods.values()):
            for matcher, measured in run.figures["matchers"].items():
                name = f"{run.method}: {matcher}"
                tied[name] = max(tied.get(name, 0.0), measured.get("tied", 0.0))
        return lines + [warning for each in tied.items() if (warning := tie_warning(*each))]


def terminal_tables(comparison: Comparison) -> list[str]:
    """The output on the terminal: all figures, and the differences in RSUM."""
    tables = [table.table(table.title(comparison.split)) for table in comparison.summary_tables]
    tables += matrix_tables(comparison, [RSUM])
    return [comparison.verdict, *map(str, tables), *comparison.notes]


def write_report(comparison: Comparison, folder: Path) -> Path:
    """Writes the figures, differences and wins as CSV, `report.md`, plots and `report.html`.

    Args:
        comparison: The comparison.
        folder: The folder of the files.

    Returns:
        The page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "figures.csv", to_csv(_figure_rows(comparison.summary_tables), 6))
    if comparison.pairs:
        atomic_write(folder / "differences.csv", to_csv(_pair_rows(comparison.pairs), 6))
        atomic_write(folder / "wins.csv", to_csv(_win_rows(chain(*comparison.wins.values()))))
    tables = [
        table.wide_table(table.title(comparison.split), _intervals(table, comparison.resampled))
        for table in comparison.summary_tables
    ]
    plain = sum(table.is_plain for table in comparison.summary_tables)  # They come first.
    matrices = matrix_tables(comparison, HEADLINES)
    shown = [*tables, *matrices]
    markdown = [comparison.verdict, *(table.markdown() for table in shown), *comparison.notes]
    latex = "\n\n".join(table.latex() for table in shown)
    atomic_write(folder / "tables.tex", f"{latex}\n".encode())
    atomic_write(folder / "report.md", ("\n\n".join(markdown) + "\n").encode("utf-8"))
    drawn = comparison_pictures(comparison.methods, comparison.summary_tables, comparison.resampled)
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
        meanings=_meanings(comparison.methods),
    )
    path = folder / "report.html"
    atomic_write(path, page)
    return path


def _intervals(table: SummaryTable, resampled: Mapping[str, Resampled]) -> dict[str, Difference]:
    """The intervals of RSUM, for models that are scored with the matcher of their training."""
    if not table.is_plain or table.judgements not in resampled:
        return {}
    estimates = resampled[table.judgements][RSUM]
    return {name: estimates[name].difference() for name in table.rows}


def _figure_rows(summary_tables: Sequence[SummaryTable]) -> Iterable[Sequence[object]]:
    yield ("judgements", "reranker", "method", "metric", "runs", "mean", "deviation")
    for table in summary_tables:
        for name, figures in table.rows.items():
            for metric, figure in figures.items():
                numbers = (len(figure.values), figure.mean, figure.deviation)
                yield (_kind_name(table.judgements), table.reranker, name, metric, *numbers)


def _kind_name(judgements: str) -> str:
    return "annotated" if judgements == ANNOTATED else judgements


def _pair_rows(pairs: Sequence[Pair]) -> Iterable[Sequence[object]]:
    header = ("judgements", "metric", "method", "other", "difference", "low", "high", "p")
    yield (*header, "p_holm", "detectable")
    for pair in pairs:
        numbers = (*astuple(pair.difference), pair.p_holm, pair.smallest_effect)
        yield (_kind_name(pair.judgements), pair.metric, pair.left, pair.right, *numbers)


def _win_rows(wins: Iterable[Win]) -> Iterable[Sequence[object]]:
    yield ("direction", "method", "other", "query", "caption", "rank", "rank_of_other")
    for win in sorted(wins, key=lambda win: win.direction):
        ranks = [f"{rank:.4g}" for rank in win.ranks]
        yield (win.direction, win.winner, win.loser, win.query, win.text, *ranks)


def _meanings(methods: Methods) -> dict[str, str]:
    """A sentence per metric, matcher and re-ranker that the page names."""
    runs = [run.figures for of_method in methods.values() for run in of_method]
    measured = [result for run in runs for result in run["matchers"].values()]
    metrics = glossary({name for result in measured for name in result["metrics"]})
    names = [name for run in runs for name in run["matchers"]]
    names += [name.rpartition(" + ")[2] for run in runs for name in run["reranked"]]
    return metrics | summaries(names, "matcher", "reranker")


def matrix_tables(comparison: Comparison, metrics: Iterable[str]) -> list[Table]:
    """A table per metric and kind of judgements: row minus column; * is significant."""
    names = list(comparison.methods)
    header = ["row minus column", *map(str, range(1, len(names) + 1))]
    tables = []
    for judgements, metric in product(
        dict.fromkeys(p.judgements for p in comparison.pairs), metrics
    ):
        cells = {}
        for pair in comparison.pairs:
            if (pair.judgements, pair.metric) == (judgements, metric):
                star = "*" if pair.is_real else " "
                value = in_percent(metric, pair.difference.value)
                cells[pair.left, pair.right] = f"{signed(value)}{star}"
                cells[pair.right, pair.left] = f"{signed(-value)}{star}"
        rows = [
            [f"{number} {name}", *(cells.get((name, other), "") for other in names)]
            for number, name in enumerate(names, 1)
        ]
        title = f"{comparison.split}, {kind_title(judgements)}: differences in {HEADLINES[metric]}"
        tables += [Table(title, header, rows)] if cells else []
    return tables


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; one that is rounded to 0 has none."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def _pair_tables(comparison: Comparison) -> list[list[Table]]:
    """The tables of each pair of methods: its intervals, and the queries that each wins."""
    kind = most_judged(comparison.methods)
    pairs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in comparison.pairs:
        if pair.judgements == kind and pair.metric in HEADLINES:
            pairs[pair.left, pair.right].append(pair)
    header = ["", "difference", "95 % interval", "p", "p (Holm)", "detectable", ""]
    return [
        [
            Table(f"{left} minus {right}, {kind_title(kind)}", header, [*map(_pair_cells, chosen)]),
            *(
                table
                for winner, loser in ((left, right), (right, left))
                if (table := _win_table(comparison.wins[winner, loser], winner, loser)).rows
            ),
        ]
        for (left, right), chosen in pairs.items()
    ]


def _pair_cells(pair: Pair) -> list[str]:
    d = pair.difference
    numbers = (d.value, d.low, d.high, pair.smallest_effect)
    value, low, high, detectable = (in_percent(pair.metric, number) for number in numbers)
    return [
        HEADLINES[pair.metric],
        signed(value, 2),
        f"{signed(low, 2)} to {signed(high, 2)}",
        f"{d.p_value:.4f}",
        f"{pair.p_holm:.4f}",
        f"{detectable:.2f}",
        "significant" if pair.is_real else "not significant",
    ]


def _win_table(wins: Sequence[Win], winner: str, loser: str) -> Table:
    rows = []
    for direction in ("i2t", "t2i"):
        chosen = [win for win in wins if win.direction == direction]
        for win in chosen[:_SHOWN_WINS]:
            query = f"{win.query}: {win.text}" if win.text else win.query
            rows.append([query, direction, *(f"{rank:.1f}" for rank in win.ranks)])
    title = f"queries on which {winner} is most ahead of {loser}"
    return Table(title, ["query", "", f"rank,\n{winner}", f"rank,\n{loser}"], rows)
