"""An annotation page of pairs that may lack a label, and judgements amended by its labels."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from data_pipelines.pixels import thumbnail
from data_pipelines.records import Records, SplitRecords
from keras_xmr.experiments.audit.candidates import combine_scores, find_candidates, judged_pairs
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.evaluate import ground_truth
from keras_xmr.experiments.reports.pages import data_url, percent, render
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.judgements import Judgements
from keras_xmr.judgements.judgement_files import read_graded_pairs
from keras_xmr.judgements.reading import write_rows
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.program import program
from keras_xmr.utils.spreadsheets import to_csv

_LOGGER = logging.getLogger(__name__)


def audit(
    config: Config,
    records: Records,
    score: Callable[[SplitRecords], Iterable[tuple[str, ScoreMatrices]]],
) -> None:
    """Writes unlabelled pairs with high scores, as an annotation page and as a table.

    Writes `sheet.html` and `candidates.csv` to `<run>/audit/<split>/`, and prints how many of the
    pairs are right if the data set knows it. Judged and labelled pairs are not candidates.

    Args:
        config: The config of the audited run; its section `audit` applies.
        records: The records of that run.
        score: Scores a split by each model, by its name.

    Raises:
        UserError: If the scores exceed the memory, or there is no unlabelled pair.
    """
    options = config.audit
    split, folder = records.split(options.split), RunFolder(config).audit(options.split)
    further = config.judgements_of(options.split)
    truth = ground_truth(records, split, config.data.judgements, further)
    _check_memory(truth.shape, options.split)
    # The exhaustive truth measures the list and has no influence on it.
    exhaustive = truth.extra.pop("truth", None)
    judgements = [truth.judgements, *truth.extra.values()]
    if (labels := folder / f"judgements-{options.split}.csv").exists():
        judgements.append(read_graded_pairs(labels, truth.image_ids, truth.caption_ids))
    judged = judged_pairs(judgements)
    scores = combine_scores(score(split), truth.shape, options.combine)
    pairs = find_candidates(scores, judged, options)
    if not len(pairs):
        raise UserError(
            f"every pair of the split {options.split!r} is judged: no pair is left to label"
        )
    entries = [
        {
            "image": truth.image_ids[image],
            "caption": truth.caption_ids[caption],
            "text": truth.texts[caption],
            "score": float(scores[image, caption]),
            "annotated": np.array(truth.texts, object)[truth.caption_image == image].tolist(),
            "picture": _picture(split, image, options.thumbnail),
        }
        for image, caption in pairs.tolist()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    columns = ("image", "caption", "text", "score")
    rows = [columns, *([entry[column] for column in columns] for entry in entries)]
    atomic_write(folder / "candidates.csv", to_csv(rows, digits=5))
    command = f"{program()} audit --run={shlex.quote(str(config.folder))} --labels=labels.csv"
    command += f" --set audit.split={options.split}"
    title = f"{config.name}: {options.split}"
    page = render("annotation.html", title=title, entries=entries, command=command)
    atomic_write(folder / "sheet.html", page)
    _LOGGER.info("annotation page: %s\ntable: %s", folder / "sheet.html", folder / "candidates.csv")
    print(f"\n{len(pairs):,} unlabelled pairs with the highest scores", flush=True)
    if exhaustive is not None:
        true = exhaustive.grades.toarray() > 0
        right, chance = true[tuple(pairs.T)].mean(), true[~judged].mean()
        print(f"{percent(right)} of them are right, of all unlabelled pairs {percent(chance)}\n")


def merge_labels(config: Config, records: Records, path: Path) -> None:
    """Adds labels to former ones and to the annotated pairs; where they differ, the new one counts.

    Writes `judgements-<split>.csv` to `<run>/audit/<split>/`.

    Args:
        config: The config of the audited run.
        records: The records of that run.
        path: The labels, as the annotation page saves them: `image,caption,grade`; 0 is wrong.

    Raises:
        JudgementsError: If the labels cannot be read; nothing is written then.
        UserError: If there are none.
    """
    split = config.audit.split
    truth = ground_truth(records, records.split(split), config.data.judgements)
    output = RunFolder(config).audit(split) / f"judgements-{split}.csv"
    before = truth.judgements
    if output.exists():
        before = _amended(before, read_graded_pairs(output, truth.image_ids, truth.caption_ids))
    labels = read_graded_pairs(path, truth.image_ids, truth.caption_ids)
    if not judged_pairs([labels]).any():
        raise UserError(
            f"{path} has no labels: label pairs on the page, press `save labels`, and use that file"
        )
    after = _amended(before, labels)
    grades = after.grades.toarray()
    number = partial(np.format_float_positional, trim="-")
    rows = (
        (truth.image_ids[i], truth.caption_ids[c], number(grades[i, c]))
        for i, c in np.argwhere(judged_pairs([after])).tolist()
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    write_rows(output, ("image", "caption", "grade"), rows)
    print(
        f"\n{judged_pairs([labels]).sum():,} labels read, {labels.grades.nnz:,} of them right\n"
        f"{before.grades.nnz:,} right pairs before, {after.grades.nnz:,} now\n",
        flush=True,
    )
    _LOGGER.info("judgements; to measure: --set evaluation.judgements=[%s]", output)


def _amended(judgements: Judgements, labels: Judgements) -> Judgements:
    """Returns judgements with the grades of labels in their place; all other pairs are not
    judged.
    """
    kept = judgements.grades - judgements.grades.multiply(labels.judged)
    judged = [one.judged for one in (judgements, labels) if one.judged is not None]
    return Judgements(kept + labels.grades, judged=sum(judged[1:], start=judged[0]))


def _check_memory(shape: tuple[int, int], split: str) -> None:
    """Refuses a split with scores that exceed the memory of this machine."""
    needed = 28 * shape[0] * shape[1]  # Both directions, two combined matrices, one of float64.
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise UserError(
            f"the split {split!r} has {shape[0]:,} images and {shape[1]:,} captions; their scores "
            f"take {needed / 1e9:,.1f} GB of {available / 1e9:,.1f}. Audit another split "
            "(audit.split)"
        )


def _picture(split: SplitRecords, image: int, side: int) -> str:
    """Returns a small picture of an image as a data URL; empty where there are features alone."""
    if split.holds != "images":
        return ""
    small = thumbnail(split.encoded(image), split.image_keys[image], side)
    return data_url(small, "image/jpeg")
