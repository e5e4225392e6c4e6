"""Writes the report of an evaluation: figures as JSON, plots, and a page with all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.records import SplitRecords
from keras_xmr.experiments.evaluation.baselines import WORDS as BASELINE_WORDS
from keras_xmr.experiments.evaluation.evaluation_files import (
    VERDICTS,
    first_answers,
    write_answers,
    write_results,
)
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.reports.evaluation_plots import (
    curve_pictures,
    rank_pictures,
    shape_pictures,
)
from keras_xmr.experiments.reports.metric_tables import (
    CONDENSED,
    DIRECTION_WORDS,
    column_title,
    glossary,
)
from keras_xmr.experiments.reports.pages import data_url, joined, render
from keras_xmr.experiments.reports.result_tables import (
    all_tables,
    bad_news,
    embedding_lines,
    plain_lines,
    summary_tables,
)
from keras_xmr.experiments.reports.uncertainty_report import (
    WORDS,
    UncertaintyReport,
    uncertainty_pictures,
)
from keras_xmr.metrics import RSUM
from keras_xmr.metrics.results import Result, Results
from keras_xmr.parts.registry import summaries
from keras_xmr.utils.directions import DIRECTIONS
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.notebooks import frame
from keras_xmr.utils.sides import SIDES
from keras_xmr.utils.spreadsheets import to_csv
from keras_xmr.utils.tables import Table

PAGE = "report.html"
"""File name of the page of a report."""

_EXAMPLES = 6


@dataclass(frozen=True)
class ReportPage:
    """The page of a report, which a notebook shows with its pictures.

    Attributes:
        path: The file, which holds everything.
    """

    path: Path

    def _repr_html_(self) -> str:
        """Returns the page in a notebook."""
        return frame(self.path.read_text("utf-8"))


def write_report(
    evaluation: Evaluation,
    results: Results,
    records: SplitRecords,
    name: str,
    folder: Path,
    verdict: str,
    meaning: Sequence[str] = (),
    steps: Sequence[str] = (),
) -> Path:
    """Writes `results.csv`, `queries-<split>.npz`, `answers-<split>.npz`, pictures, `report.html`.

    Args:
        evaluation: The evaluation.
        results: The long table.
        records: The split, for the examples.
        name: Name of the run.
        folder: The folder of the files.
        verdict: Whether it is better than chance, in a sentence or two.
        meaning: What the figures mean for the reader, in sentences.
        steps: What the reader can do now, in sentences.

    Returns:
        The page.
    """
    write_results(evaluation, results, folder)
    write_answers(evaluation, folder)
    drawn = (rank_pictures, curve_pictures, shape_pictures)
    bad = bad_news(results, verdict)
    page = render(
        "evaluation.html",
        title=f"How well the model finds photos and captions: {name}",
        name=name,
        label=evaluation.fidelity.label if evaluation.fidelity else None,
        split=evaluation.split,
        images=len(records),
        captions=records.num_captions,
        first=plain_lines(results)[0],
        bad_news=bad,
        further=[line for line in (*plain_lines(results)[1:], verdict) if line not in bad],
        meaning=meaning,
        steps=steps,
        worst=_worst(evaluation, records),
        summary_words=_words(_summary_rows(results)),
        fidelity=evaluation.fidelity and evaluation.fidelity.sentence,
        truth=evaluation.truth is not None,
        examples=[_examples(evaluation, records, side) for side in reversed(SIDES)],
        pictures=[picture.write(folder) for draw in drawn for picture in draw(evaluation)],
        uncertainty=_uncertainty(evaluation, results, folder),
        summary_tables=summary_tables(results, evaluation.fidelity and evaluation.fidelity.label),
        tables=[(joined(table), _words(_shown(results, table))) for table in all_tables(results)],
        meanings=_meanings(evaluation),
    )
    atomic_write(folder / PAGE, page)
    return folder / PAGE


def _uncertainty(evaluation: Evaluation, results: Results, folder: Path) -> dict[str, Any] | None:
    """Returns the section on uncertainty, closed where it is not informative; None where it is
    empty.
    """
    lines, table, pictures = embedding_lines(results), None, []
    if evaluation.probes is not None:
        report = UncertaintyReport(evaluation)
        if (table := report.table()).rows:
            atomic_write(folder / "report_card.csv", to_csv([table.header, *table.rows]))
            pictures = [picture.write(folder) for picture in uncertainty_pictures(report)]
    if not lines and not pictures:
        return None
    is_informative = any(bins.is_informative for bins in evaluation.uncertainty_bins.values())
    return {
        "title": f"Uncertainty{'' if is_informative else ' (not informative for this model)'}",
        "is_open": is_informative,
        "lines": lines,
        "table": table if pictures else None,
        "pictures": pictures,
        "words": WORDS if "log_variance" in evaluation.embedded.captions else {},
    }


def _summary_rows(results: Results) -> Results:
    """Returns the results that the first sentences and the summary name."""
    return Results(row for row in results if row.metric in (RSUM, "recall_1"))


def _shown(results: Results, table: Table) -> list[Result]:
    """Returns the results whose metrics have a column in a table."""
    titles = set(table.header)
    # Curves have both directions in one column.
    return [r for r in results if {t := column_title(r), t.partition("\n")[2]} & titles]


def _words(results: Sequence[Result]) -> dict[str, str]:
    """Returns the meaning of the words of a table or a sentence."""
    directed = any(row.direction for row in results)
    return (DIRECTION_WORDS if directed else {}) | glossary(results)


def _meanings(evaluation: Evaluation) -> dict[str, str]:
    """Returns a sentence per matcher and re-ranker that the report names."""
    measured = evaluation.matchers[0].measured
    meanings = {}
    if not all(m.fully_judged for m in [measured.metrics, *measured.extra.values()]):
        meanings[CONDENSED] = (
            "rankings of the judged answers alone: those that were not judged are left out, since "
            "they are neither relevant nor wrong"
        )
    matchers = summaries((matcher.name for matcher in evaluation.matchers), "matcher")
    rerankers = summaries(sorted(evaluation.reranked), "reranker")
    baselines = {name: BASELINE_WORDS[name] for name in evaluation.baselines}
    return meanings | matchers | baselines | rerankers


def _examples(evaluation: Evaluation, records: SplitRecords, side: str) -> dict[str, Any]:
    """Returns queries of a side, from low to high sigma if it is informative, and answers."""
    count, sigma = _size(records, side), _informative_sigma(evaluation, side)
    order = np.arange(count) if sigma is None else np.argsort(sigma, kind="stable")
    queries = order[np.linspace(0, count - 1, min(_EXAMPLES, count)).round().astype(int)]
    items, others = ("images", "captions") if side == "image" else ("captions", "images")
    return {
        "title": f"{items.capitalize()} and the {others} retrieved for them",
        "by_sigma": sigma is not None,
        "queries": _answered(evaluation, records, side, queries),
    }


def _size(records: SplitRecords, side: str) -> int:
    return len(records) if side == "image" else records.num_captions


def _worst(evaluation: Evaluation, records: SplitRecords) -> list[dict[str, Any]]:
    """Returns the captions whose image comes last, with its place and the first answers."""
    ranks = evaluation.matchers[0].metrics.text_to_image.values["rank"]
    order = np.argsort(-np.nan_to_num(ranks, nan=1.0), kind="stable")[:_EXAMPLES]
    queries = order[np.nan_to_num(ranks[order], nan=1.0) > 1]
    if not len(queries):
        return []
    answered = _answered(evaluation, records, "text", queries)
    # The right answer of a caption comes first here, as the first answers do not have it.
    right = [{"photo": _photo(records, int(image))} for image in records.caption_image[queries]]
    return [
        each | {"rank": int(rank), "right": own}
        for each, rank, own in zip(answered, ranks[queries], right, strict=True)
    ]


def _answered(
    evaluation: Evaluation, records: SplitRecords, side: str, queries: np.ndarray
) -> list[dict[str, Any]]:
    """Returns queries of a side by number, with their first answers."""
    texts = records.texts
    items: dict[str, Callable[[int], dict[str, Any]]] = {
        "image": lambda number: {"photo": _photo(records, number)},
        "text": lambda number: {"text": texts[number]},
    }
    image_to_text, text_to_image = DIRECTIONS
    other, direction = ("text", image_to_text) if side == "image" else ("image", text_to_image)
    rows = evaluation.matchers[0].scores.select_queries(direction, queries)
    first, verdicts = first_answers(evaluation, direction, queries, rows)
    answers = [
        [
            {"kind": VERDICTS[verdict], **items[other](n)}
            for n, verdict in zip(*of_query, strict=True)
        ]
        for of_query in zip(first.tolist(), verdicts.tolist(), strict=True)
    ]
    return [
        items[side](query) | {"answers": of_query}
        for query, of_query in zip(queries.tolist(), answers, strict=True)
    ]


def _informative_sigma(evaluation: Evaluation, side: str) -> np.ndarray | None:
    """Returns the uncertainty of each item of a side; None where it is not informative."""
    bins = evaluation.uncertainty_bins.get(side)
    if bins is None or not bins.is_informative:
        return None
    return evaluation.embedded.log_sigma()[side]


def _photo(records: SplitRecords, image: int) -> dict[str, str]:
    photo = {"key": records.image_keys[image]}
    if records.holds == "images":
        photo["url"] = data_url(records.encoded(image), "image/jpeg")
    return photo
