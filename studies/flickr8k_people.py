"""What a model of Flickr8K knows of what people think: its sigma and its answer sets.

Of the test photos, experts and a crowd judged pairs that nobody annotated. By those are measured:

1. how far people agree with each other, and how well one expert ranks by the other two;
2. whether sigma is larger where people call more right, or disagree, beside the gap of the first
   two scores, the first score, and how few words a caption has;
3. risk and coverage when what people call right counts;
4. whether answer sets hold what people call right (verdict.py measures searches for absent photos).

Intervals are 95 % by bootstrap over queries (of pairs: over photos or captions). Writes
`people.jsonl`, `people.md` and `people.png` to `--output`, which is `<run>/people` by default. What
the model says of val and test is kept there as `answers.npz`; `--answers` takes such a file of any
other model.

    python studies/flickr8k_people.py --run=saved_models/flickr8k_pretrained
    python studies/flickr8k_people.py --answers=answers.npz --data=data/raw/flickr8k
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from intervals import Figure
from judged import Judged, read_judged
from model_answers import ModelAnswers
from people_agreement import agreement, one_against_others
from people_coverage import coverage
from people_picture import draw
from people_uncertainty import against_people, selective

from keras_xmr.judgements import Judgements
from keras_xmr.runs.folder import load_run
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write

FILES = ("CrowdFlowerAnnotations.txt", "ExpertAnnotations.txt")

PARTS = {
    "agreement": "People among themselves",
    "ceiling": "One expert, and the model, by the other two experts",
    "correlation": "Rank correlations with what people said",
    "selective": "AURC gain: 0 is a random order of answers, 1 that of an oracle",
    "coverage": "Answer sets of captions, calibrated on val",
}
"""The parts of the study, and the titles of their tables."""


@dataclass(frozen=True)
class Row:
    """A figure of the study.

    Attributes:
        part: A key of `PARTS`.
        about: What it is about: a side, a truth, a gallery, an N.
        who: What orders, or who judges.
        what: What is measured.
        figure: The figure.
    """

    part: str
    about: str
    who: str
    what: str
    figure: Figure

    def as_json(self) -> str:
        """A line of the file of results."""
        names = {"part": self.part, "about": self.about, "who": self.who, "what": self.what}
        return json.dumps(names | asdict(self.figure))


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes all figures, writes them, and prints the tables."""
    options = _options(arguments)
    answers, data, output = _inputs(options)
    crowd, experts = (read_judged(path, answers.test) for path in data)
    truths = _truths(answers, crowd, experts)
    rows = list(study(answers, crowd, experts, truths))
    output.mkdir(parents=True, exist_ok=True)
    atomic_write(output / "people.jsonl", "".join(f"{r.as_json()}\n" for r in rows).encode())
    page = "\n\n".join(tables(rows)) + "\n"
    atomic_write(output / "people.md", page.encode())
    draw(output / "people.png", answers.test, truths["crowd"], rows)
    print(page)
    print(f"figures: {output / 'people.jsonl'}, {output / 'people.md'}, {output / 'people.png'}")


def study(
    answers: ModelAnswers, crowd: Judged, experts: Judged, truths: dict[str, Judgements]
) -> Iterator[Row]:
    """All figures."""
    test = answers.test
    for who, what, figure in agreement(crowd, experts):
        yield Row("agreement", "pairs", who, what, figure)
    for side, who, what, figure in one_against_others(test, experts):
        yield Row("ceiling", f"{side}s as queries", who, what, figure)
    for side, what, who, figure in against_people(test, crowd, experts):
        yield Row("correlation", f"{side}s", who, what, figure)
    for side, truth, who, figure in selective(test, truths):
        yield Row("selective", f"{side}s as queries", who, f"by {truth}", figure)
    for truth, what, figure in coverage(answers, crowd):
        yield Row("coverage", "captions", truth, what, figure)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A table in Markdown for each part: a row for each who, a column for each what."""
    for part, title in PARTS.items():
        own = [row for row in rows if row.part == part]
        for about in dict.fromkeys(row.about for row in own):
            some = [row for row in own if row.about == about]
            columns = list(dict.fromkeys(row.what for row in some))
            found = {(row.who, row.what): cell(row.figure) for row in some}
            lines = [f"**{title}: {about}**", "", f"| | {' | '.join(columns)} |"]
            lines.append(f"| --- |{' ---: |' * len(columns)}")
            for who in dict.fromkeys(row.who for row in some):
                cells = (found.get((who, what), "") for what in columns)
                lines.append(f"| {who} | {' | '.join(cells)} |")
            yield "\n".join(lines)


def cell(figure: Figure) -> str:
    """A figure with its interval."""
    digits = 1 if abs(figure.value) >= 10 else 3
    return f"{figure.value:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def _truths(answers: ModelAnswers, crowd: Judged, experts: Judged) -> dict[str, Judgements]:
    """Judgements: the annotated pairs, and human judgements with and without those."""
    owner = answers.test.caption_image
    return {
        "the annotated pairs": Judgements.from_pairs(owner, crowd.shape[0]),
        "crowd": crowd.relation().with_annotated(owner),
        "crowd alone": crowd.relation(),
        "experts": experts.relation().with_annotated(owner),
    }


def _inputs(options: argparse.Namespace) -> tuple[ModelAnswers, list[Path], Path]:
    """The answers of the model, the files of the crowd and the experts, and the output folder."""
    if options.answers:
        if options.data is None:
            raise UserError("--answers needs --data, the folder of the files of judgements")
        output = options.output or options.answers.with_suffix("")
        answers, data = ModelAnswers.load(options.answers), [options.data / name for name in FILES]
        return answers, data, output
    config = load_run(options.run)
    files = config.data.source.judgement_files()
    if {"crowd", "experts"} - set(files):
        raise UserError(
            f"{options.run} was trained on {config.data.source.name!r}; this study takes a run on "
            "flickr8k, such as flickr8k_pretrained"
        )
    output = options.output or options.run / "people"
    kept = output / "answers.npz"
    if kept.exists():
        answers = ModelAnswers.load(kept)
    else:
        answers = ModelAnswers.of_run(options.run)
        output.mkdir(parents=True, exist_ok=True)
        answers.save(kept)
    return answers, [files["crowd"], files["experts"]], output


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run", type=Path, help="a finished run on flickr8k")
    source.add_argument("--answers", type=Path, help="a .npz file of what any model says")
    parser.add_argument("--data", type=Path, help="the folder of Flickr8K, for --answers")
    parser.add_argument("--output", type=Path, help="the folder of the figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
