"""An annotation page of pairs that may lack a label, and judgements amended by its labels."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import get_args

import numpy as np

from data_pipelines.pixels import thumbnail
from data_pipelines.records import Records, SplitRecords
from keras_xmr.audit.candidates import (
    Candidates,
    Precision,
    Vote,
    find_candidates,
    measure_precision,
    precision_table,
    vote,
)
from keras_xmr.audit.labels import (
    Kind,
    Label,
    Pair,
    judged_pairs,
    merge,
    read_labels,
    write_judgements,
    write_labels,
)
from keras_xmr.config.program import program
from keras_xmr.config.schema import AuditOptions, Config
from keras_xmr.evaluation.evaluate import ground_truth
from keras_xmr.evaluation.reporting.pages import data_url, render
from keras_xmr.evaluation.reporting.table import to_csv
from keras_xmr.judgements import GroundTruth
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.runs.folder import RunFolder
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write

_LOGGER = logging.getLogger(__name__)
_TOGETHER = "all together"


def audit(
    config: Config,
    records: Records,
    models: int,
    score: Callable[[SplitRecords], Mapping[str, ScoreMatrices]],
) -> None:
    """Writes the pairs that may lack a label, as an annotation page and as a table.

    Writes `sheet.html`, `candidates.csv` and `audit.json` to `<run>/audit/<split>/`, and prints
    the precision of the list if the data set knows all that is right. Pairs of
    `data.judgements` and `evaluation.judgements`, and labelled pairs, are not candidates.

    Args:
        config: The config of the audited run; its section `audit` applies.
        records: The records of that run.
        models: Number of models.
        score: Scores a split by each model, by its name.

    Raises:
        UserError: If a model is not trained, a run has other images or captions, or there is
            no unlabelled pair.
    """
    options = config.audit
    split = records.split(options.split)
    truth = ground_truth(
        records, split, config.data.judgements, config.judgements_of(options.split)
    )
    # The exhaustive truth measures the list and has no influence on it.
    exhaustive = truth.extra.pop("truth", None)
    folder = RunFolder(config).audit(options.split)
    judged = judged_pairs([truth.judgements, *truth.extra.values()], _old_labels(folder, truth))

    _check_memory(judged.shape, models, options.split)
    scores = score(split)
    candidates = find_candidates(scores, judged, options)
    if not len(candidates):
        raise UserError(
            f"every pair of the split {options.split!r} is judged: no pair is left to label"
        )
    votes = {
        name: vote(matrices, judged, candidates.images, candidates.captions)
        for name, matrices in scores.items()
    }
    precision = None
    if exhaustive is not None:
        lists = {name: find_candidates({name: m}, judged, options) for name, m in scores.items()}
        lists = lists if len(lists) == 1 else {_TOGETHER: candidates, **lists}
        precision = measure_precision(lists, exhaustive, judged)

    folder.mkdir(parents=True, exist_ok=True)
    entries = _entries(candidates, votes, truth, split, options.thumbnail)
    _write_figures(folder / "audit.json", options, entries, precision)
    _write_candidates(folder / "candidates.csv", entries)
    command = (
        f"{program()} audit --run={shlex.quote(str(config.folder))} "
        f"--labels=labels.csv --set audit.split={options.split}"
    )
    write_annotation_page(
        folder / "sheet.html", f"{config.name}: {options.split}", entries, command
    )
    print(f"\n{_summary(entries)}\n", flush=True)
    if precision:
        print(f"{precision_table(options.split, precision)}\n", flush=True)
    _LOGGER.info("annotation page: %s\ntable: %s", folder / "sheet.html", folder / "candidates.csv")


def merge_labels(config: Config, records: Records, path: Path) -> None:
    """Adds labels to those that have been made before, and writes amended judgements.

    Writes all labels as `labels-<split>.csv`, and the annotated judgements with them as
    `judgements-<split>.csv`, to `<run>/audit/<split>/`.

    Args:
        config: The config of the audited run.
        records: The records of that run.
        path: The labels, as the annotation page saves them.

    Raises:
        UserError: If the labels cannot be read; nothing is written then.
    """
    name = config.audit.split
    truth = ground_truth(records, records.split(name), config.data.judgements)
    folder = RunFolder(config).audit(name)
    old = _old_labels(folder, truth)
    new = read_labels(path, truth)
    labels, changed = merge(old, new)
    for (image, caption), before in changed.items():
        print(
            f"changed: image {truth.image_ids[image]}, caption {truth.caption_ids[caption]}: "
            f"{before} before, {new[image, caption]} now"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_labels(_labels_file(folder), labels, truth)
    judgements = folder / f"judgements-{name}.csv"
    write_judgements(judgements, labels, truth)
    amended = judged_pairs([truth.judgements], labels)
    print(
        f"\n{len(new):,} labels read ({_kinds(new)}), {len(new.keys() - old.keys()):,} of them "
        f"new, {len(changed):,} changed\n{len(labels):,} labels in all ({_kinds(labels)})\n"
        f"{truth.judgements.grades.nnz:,} right pairs before, "
        f"{np.count_nonzero(amended.data):,} now\n",
        flush=True,
    )
    _LOGGER.info("judgements: %s", judgements)
    _LOGGER.info("to measure against them: --set evaluation.judgements=[%s]", judgements)


def _labels_file(folder: Path) -> Path:
    return folder / f"labels-{folder.name}.csv"


def _old_labels(folder: Path, truth: GroundTruth) -> dict[Pair, Label]:
    path = _labels_file(folder)
    return read_labels(path, truth) if path.exists() else {}


def _kinds(labels: Mapping[Pair, Label]) -> str:
    kinds = [label.kind for label in labels.values()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("right", "wrong", "unsure"))


def _check_memory(shape: tuple[int, int], models: int, split: str) -> None:
    """Refuses a split with score matrices that exceed the memory of this machine."""
    images, captions = shape
    needed = 4 * images * captions * (models + min(models, 2))
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise UserError(
            f"the split {split!r} has {images:,} images and {captions:,} captions; the scores of "
            f"{models} models take {needed / 1e9:,.1f} GB of {available / 1e9:,.1f}. Audit "
            "another split (audit.split), or fewer models"
        )


def _agreement(entries: Sequence[Entry]) -> list[int]:
    """The number of pairs with which none, one, and so on, up to all of the models agree."""
    agree = [entry.models_that_agree for entry in entries]
    return np.bincount(agree, minlength=len(entries[0].votes) + 1).tolist()


def _summary(entries: Sequence[Entry]) -> str:
    models = entries[0].votes
    believe = "believes" if len(models) == 1 else "believe"
    lines = [f"{len(entries):,} unlabelled pairs that {', '.join(models)} {believe} in most"]
    for count, pairs in reversed([*enumerate(_agreement(entries))]):
        lines.append(f"  ranked ahead of annotated pairs by {count} of {len(models)}: {pairs:,}")
    return "\n".join(lines)


def _write_figures(
    path: Path, options: AuditOptions, entries: Sequence[Entry], precision: Precision | None
) -> None:
    figures = {
        "options": options.model_dump(mode="json"),
        "models": list(entries[0].votes),
        "pairs": len(entries),
        "pairs_by_models_that_agree": _agreement(entries),
    }
    if precision is not None:
        figures["chance"] = precision.chance
        figures["precision"] = precision.shares
    atomic_write(path, json.dumps(figures, indent=1).encode())


def _write_candidates(path: Path, entries: Sequence[Entry]) -> None:
    names = [field.replace("_", " ") for field in Vote._fields]
    parts = [f"{model}: {name}" for model in entries[0].votes for name in names]
    rows: list[list[object]] = [["image", "caption", "text", "belief", "models that agree", *parts]]
    for each in entries:
        agree = each.models_that_agree
        votes = chain.from_iterable(each.votes.values())
        rows.append([each.image, each.caption, each.text, f"{each.belief:.4f}", agree, *votes])
    atomic_write(path, to_csv(rows))


def _entries(
    candidates: Candidates,
    votes: Mapping[str, Sequence[Vote]],
    truth: GroundTruth,
    split: SplitRecords,
    side: int,
) -> list[Entry]:
    pairs = zip(candidates.images.tolist(), candidates.captions.tolist(), strict=True)
    written = {image: np.flatnonzero(truth.caption_image == image) for image in candidates.images}
    return [
        Entry(
            image=truth.image_ids[image],
            caption=truth.caption_ids[caption],
            text=truth.texts[caption],
            annotated=[truth.texts[c] for c in written[image].tolist()],
            belief=float(candidates.belief[n]),
            votes={name: of_model[n] for name, of_model in votes.items()},
            picture=_picture(split, image, truth.image_ids[image], side),
        )
        for n, (image, caption) in enumerate(pairs)
    ]


def _picture(split: SplitRecords, image: int, name: str, side: int) -> str:
    """A small picture of an image as a data URL; empty where there are features alone."""
    if split.holds != "images":
        return ""
    return data_url(thumbnail(split.encoded(image), name, side), "image/jpeg")


@dataclass(frozen=True)
class Entry:
    """A pair on the annotation page.

    Attributes:
        image: The id of the image.
        caption: The id of the caption.
        text: The caption.
        annotated: The captions that are annotated as right for the image.
        belief: The belief of the models in the pair.
        votes: The vote of each model, by its name.
        picture: The image as a data URL; empty without pixels.
    """

    image: str
    caption: str
    text: str
    annotated: Sequence[str]
    belief: float
    votes: Mapping[str, Vote]
    picture: str = ""

    @property
    def models_that_agree(self) -> int:
        """The number of models that rank the pair ahead of annotated ones."""
        return sum(vote.agrees for vote in self.votes.values())


def write_annotation_page(path: Path, title: str, entries: Sequence[Entry], command: str) -> None:
    """Writes the page: pairs to label, and a button that saves the labels as CSV.

    Args:
        path: The page.
        title: Its title.
        entries: The pairs.
        command: The command that reads the labels.
    """
    page = render(
        "annotation.html", title=title, entries=entries, command=command, kinds=get_args(Kind)
    )
    atomic_write(path, page)
