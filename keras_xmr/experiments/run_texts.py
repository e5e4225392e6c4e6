"""Texts of an evaluation and of the end of a run: reports on the disk, and paragraphs to print."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from data_pipelines.records import Records, SplitRecords
from data_pipelines.report import split_report
from data_pipelines.text import Tokenizer, WordTokenizer
from keras_xmr.experiments.config.model_facts import is_as_published, why_not_indexed
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.advice import advice, larger_split
from keras_xmr.experiments.evaluation.evaluation_files import save_scores
from keras_xmr.experiments.evaluation.meaning import meaning_lines, what_to_do
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.evaluation_report import PAGE, write_report
from keras_xmr.experiments.reports.result_tables import (
    embedding_lines,
    plain_lines,
    result_tables,
    summary_tables,
    verdict_line,
)
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.outcome import outcome_of_training
from keras_xmr.utils.program import next_commands

_LOGGER = logging.getLogger(__name__)


def report(
    evaluation: Evaluation,
    split: SplitRecords,
    config: Config,
    folder: Path,
    meaning: Sequence[str] = (),
    steps: Sequence[str] = (),
    is_brief: bool = False,
) -> str:
    """Writes the reports of an evaluation, and returns its tables as text.

    Args:
        evaluation: The evaluation.
        split: The split.
        config: The config: `name` is the title, and the config says whether scores are kept.
        folder: Where the files go.
        meaning: What the figures mean for the reader, in sentences.
        steps: What the reader can do now, in sentences.
        is_brief: Whether the text has a summary of `model.matcher` in place of all tables.
    """
    results = results_of(evaluation)
    verdict = verdict_line(results)
    page = write_report(evaluation, results, split, config.name, folder, verdict, meaning, steps)
    if config.evaluation.save_scores:
        _LOGGER.info("scores: %s", save_scores(evaluation, folder))
    _LOGGER.info("report: %s", page)
    fidelity = evaluation.fidelity
    tables = summary_tables if is_brief else result_tables
    shown = tables(results, fidelity and fidelity.label)
    further = [] if is_brief else embedding_lines(results)
    lines = [*plain_lines(results), verdict, *meaning, *steps]
    lines += [fidelity.sentence] if fidelity else []
    return "\n\n".join([*lines, *map(str, shown), *further])


def meaning_of(config: Config, folder: RunFolder, records: Records, images: int) -> list[str]:
    """Returns what the figures of a split mean, in sentences.

    Args:
        config: The config of the run.
        folder: The folder, which says how the training ended.
        records: The records that it was trained on.
        images: Number of evaluated images.
    """
    outcome = outcome_of_training(folder.summary())
    lines = [] if outcome is None else [outcome]
    if _has_own_captions(config) and not is_as_published(config):
        lines += meaning_lines(images, dict(records.word_counts()))
    return lines


def next_steps(
    config: Config, records: Records, tokenizer: Tokenizer, evaluated: SplitRecords
) -> list[str]:
    """Returns what can be done after an evaluation, in sentences.

    Args:
        config: The config of the run.
        records: The records that it was trained on.
        tokenizer: The tokenizer of its model.
        evaluated: The split that was evaluated.
    """
    training = records.split("train")

    def is_unknown_language() -> bool:
        if isinstance(tokenizer, WordTokenizer):  # Its vocabulary is made from the captions.
            return False
        return split_report(training, tokenizer).is_unknown

    advised = (
        larger_split(config, evaluated.split, len(evaluated)),
        advice(config, len(training), is_unknown_language),
    )
    return what_to_do(filter(None, advised), _has_own_captions(config))


def _has_own_captions(config: Config) -> bool:
    """Returns whether the captions are files of a user, not of a data set."""
    return config.data.source.name == "csv"


def print_paragraphs(*paragraphs: str) -> None:
    """Prints paragraphs, with blank lines around them."""
    print("\n" + "\n\n".join(paragraphs) + "\n", flush=True)


def what_next(config: Config, folder: RunFolder) -> str:
    """Returns the results and the next commands, for the end of a run.

    Args:
        config: The config of the run.
        folder: The folder.
    """
    reports = [str(folder.evaluation(s) / PAGE) for s in config.evaluation.splits]
    lines = [f"model     {folder.model}, and for TF Serving {folder.serving}"]
    lines += [f"open      {report}, which has all tables and pictures" for report in reports]
    if reason := why_not_indexed(config):
        return "\n".join([*lines, f"no search: {reason}"])
    source = config.data.source
    run, index = (shlex.quote(str(p)) for p in (folder.path, folder.path / "index"))
    images = "pictures" if source.name == "scenes" else "FOLDER"
    if source.photos_folder is not None:
        images = shlex.quote(str(source.photos_folder))
    steps = [f"images --run={run} --output={images}"] if source.name == "scenes" else []
    steps += [
        f"index --run={run} --images={images}",
        f'search --index={index} "your query"',
        f"serve --index={index}",
    ]
    return "\n".join([*lines, *next_commands(steps)])
