"""Writes what an evaluation found: figures as JSON, plots, and a page that shows it all."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_pipelines.files import atomic_write
from data_pipelines.records import SplitRecords
from keras_xmr.config.registry import summaries
from keras_xmr.evaluation.answers import write_answers
from keras_xmr.evaluation.files import write_figures
from keras_xmr.evaluation.report_card import WORDS, report_card
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.evaluation.uncertainty import log_sigma
from keras_xmr.metrics import RSUM, metric_title
from keras_xmr.reporting.curve_plots import curve_pictures
from keras_xmr.reporting.glossary import DIRECTION_WORDS, glossary
from keras_xmr.reporting.metric_tables import CONDENSED
from keras_xmr.reporting.pages import (
    ANSWERS,
    LEGEND,
    LEGEND_TRUE,
    data_url,
    definitions,
    folded,
    gallery,
    html_table,
    joined,
    page,
)
from keras_xmr.reporting.rank_plots import plot_pictures
from keras_xmr.reporting.result_tables import embedding_lines, plain_lines
from keras_xmr.reporting.shape_plots import shape_pictures
from keras_xmr.reporting.spreadsheets import csv_of
from keras_xmr.reporting.table import Table
from keras_xmr.reporting.uncertainty_plots import card_pictures

PAGE = "report.html"
"""The page of a report."""

LINEAR_WORDS = (
    "regularised canonical correlation analysis of the averaged features of the frozen encoders, "
    "in closed form; its options are the best on the validation split"
)

_RECALLS = ["i2t_recall_1", "t2i_recall_1"]

_EXAMPLES = 6
_SHOWN = 6

_STYLE = """
.answers { display: flex; flex-wrap: wrap; gap: 8px; margin: 0.3em 0 1.5em; }
.answers img { height: 120px; max-width: 100%; border: 4px solid var(--line); }
.answers ol { flex: 1 1 240px; margin: 0; }
"""


def write_report(
    evaluation: Evaluation,
    records: SplitRecords,
    title: str,
    folder: Path,
    verdict: str,
    tables: Sequence[Table],
) -> Path:
    """Writes `metrics.json`, `queries-<split>.npz`, `answers-<split>.npz`, pictures, `report.html`.

    Args:
        evaluation: What was found.
        records: The split, for the examples.
        title: Name of the run.
        folder: Where the files go.
        verdict: Whether it is better than chance, in a sentence or two.
        tables: Those of `result_tables`.

    Returns:
        The page.
    """
    write_figures(evaluation, folder)
    write_answers(evaluation, folder)
    parts = [f"<h1>{html.escape(title)}: {evaluation.split}</h1>"]
    parts += [f'<p class="verdict">{html.escape(line)}</p>' for line in plain_lines(evaluation)]
    parts.append(f"<p>{html.escape(verdict)}</p>")
    parts.append(_words([RSUM, *_RECALLS]))
    parts += _examples(evaluation, records)
    drawn = (plot_pictures, curve_pictures, shape_pictures)
    shown = [picture.write(folder) for draw in drawn for picture in draw(evaluation)]
    uncertainty = _uncertainty(evaluation, folder)
    for table in tables:
        parts += [html_table(joined(table)), _words(_names(evaluation, table))]
    parts += [*uncertainty, "<h2>Pictures</h2>", gallery(shown)]
    parts += ["<h2>What other words mean</h2>", definitions(_meanings(evaluation))]
    path = folder / PAGE
    atomic_write(path, page(title, parts, ANSWERS + _STYLE).encode("utf-8"))
    return path


def _uncertainty(evaluation: Evaluation, folder: Path) -> list[str]:
    """What is known of uncertainty; folded away where it tells nothing."""
    parts = [f"<p>{html.escape(line)}</p>" for line in embedding_lines(evaluation)]
    parts += _card(evaluation, folder)
    if not parts:
        return []
    tells = any(found.is_informative for found in evaluation.uncertainty_bins.values())
    summary = "Uncertainty" if tells else "Uncertainty (not informative for this model)"
    words = WORDS if "log_variance" in evaluation.embedded.captions else {}
    return [folded(summary, "".join([*parts, definitions(words)]), is_open=tells)]


def _card(evaluation: Evaluation, folder: Path) -> list[str]:
    """The uncertainty report card, as a table and as pictures."""
    if evaluation.probes is None:
        return []
    card = report_card(evaluation, evaluation.probes)
    table = card.table()
    if not table.rows:
        return []
    atomic_write(folder / "report_card.csv", csv_of([table.header, *table.rows]))
    return [html_table(table), gallery(picture.write(folder) for picture in card_pictures(card))]


def _names(evaluation: Evaluation, table: Table) -> list[str]:
    """The metrics of a table."""
    measured = evaluation.matchers[0].measured
    known = {n for m in (measured.metrics, *measured.extra.values()) for n in m.summary}
    titles = set(table.header)
    # Curves have both directions in one column.
    return [n for n in sorted(known) if {t := metric_title(n), t.partition("\n")[2]} & titles]


def _words(names: Sequence[str]) -> str:
    """What the words of a table or a sentence mean, folded below it."""
    meanings = glossary(names)
    if any(name.startswith("i2t") for name in names):
        meanings = DIRECTION_WORDS | meanings
    return folded("What the words mean", definitions(meanings)) if meanings else ""


def _meanings(evaluation: Evaluation) -> dict[str, str]:
    """A sentence for each matcher and re-ranker that the report names."""
    measured = evaluation.matchers[0].measured
    found = {}
    if not all(m.fully_judged for m in [measured.metrics, *measured.extra.values()]):
        found[CONDENSED] = (
            "rankings of the judged answers alone: those that nobody judged are left out, since "
            "they are neither right nor wrong"
        )
    matchers = summaries((own.name for own in evaluation.matchers), "matcher")
    rerankers = summaries(sorted({r.reranker for r in evaluation.reranked}), "reranker")
    baselines = dict.fromkeys(evaluation.baselines, LINEAR_WORDS)
    return found | matchers | baselines | rerankers


def _examples(evaluation: Evaluation, records: SplitRecords) -> list[str]:
    """A few queries, from sure to unsure, and what the model answers."""
    scores = evaluation.matchers[0].scores
    captions = [caption.text for caption in records.captions]
    parts = ["<h2>Captions and the images found for them</h2>", _legend(evaluation, "caption")]
    queries = _spread(_informative_sigma(evaluation, "caption"), len(captions))
    _, rows = scores.select(np.arange(len(records)), queries).by_query
    for query, row in zip(queries, rows, strict=True):
        parts.append(f"<p><b>{html.escape(captions[query])}</b></p>")
        found = np.argsort(-row, kind="stable")[:_SHOWN]
        answers = "".join(
            f'<div class="{_kind(evaluation, image, query)}">{_picture(records, image)}</div>'
            for image in found
        )
        parts.append(f'<div class="answers">{answers}</div>')
    parts += ["<h2>Images and the captions found for them</h2>", _legend(evaluation, "image")]
    queries = _spread(_informative_sigma(evaluation, "image"), len(records))
    rows, _ = scores.select(queries, np.arange(len(captions))).by_query
    for query, row in zip(queries, rows, strict=True):
        found = np.argsort(-row, kind="stable")[:_SHOWN]
        answers = "".join(
            f'<li class="{_kind(evaluation, query, c)}">{html.escape(captions[c])}</li>'
            for c in found
        )
        parts.append(f'<div class="answers">{_picture(records, query)}<ol>{answers}</ol></div>')
    return parts


def _informative_sigma(evaluation: Evaluation, side: str) -> np.ndarray | None:
    """How unsure the model is of each item of a side; None where that tells nothing."""
    found = evaluation.uncertainty_bins.get(side)
    if found is None or not found.is_informative:
        return None
    return log_sigma(getattr(evaluation.embedded, f"{side}s"))


def _legend(evaluation: Evaluation, side: str) -> str:
    text = LEGEND
    if evaluation.truth is not None:
        text += f" {LEGEND_TRUE}"
    if _informative_sigma(evaluation, side) is not None:
        text += " The first query is the one that the model is most sure of, the last the least."
    return f'<p class="note">{text}</p>'


def _spread(uncertainty: np.ndarray | None, count: int) -> np.ndarray:
    """Evenly spread queries, from sure to unsure."""
    order = np.arange(count) if uncertainty is None else np.argsort(uncertainty, kind="stable")
    places = np.linspace(0, count - 1, min(_EXAMPLES, count)).round().astype(int)
    return order[places]


def _kind(evaluation: Evaluation, image: int, caption: int) -> str:
    if evaluation.judgements.grades[image, caption] > 0:
        return "right"
    if evaluation.truth is not None and evaluation.truth.grades[image, caption] > 0:
        return "true"
    return "wrong"


def _picture(records: SplitRecords, image: int) -> str:
    key = html.escape(records.image_keys[image])
    if records.holds != "images":
        return f"<span>{key}</span>"
    jpeg = records.encoded(image)
    return f'<img src="{data_url(jpeg, "image/jpeg")}" alt="{key}" title="{key}">'
