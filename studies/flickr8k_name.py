"""Whether clicks teach a model a name that it does not know, on Flickr8K.

Where a caption says dog, dogs, puppy or puppies, it is made to say "rex", which no caption of
training does. Photos are right where three or more of their five captions say so. Clicks are for
such queries on one half of the test photos, of the first ten photos each; measured on the other
half are the part of right photos among the first ten of such queries, and the sum of recalls
(caption to photo, at 1, 5 and 10) of captions that have nothing to do with it. Halves and clicks
are those of `flickr8k_clicks.py`; figures have standard errors over draws, and no intervals.

    python studies/flickr8k_name.py --run=saved_models/flickr8k_pretrained
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flickr8k_clicks import DRAWS, Query, Test, embedded, learned

CLICKS = (10, 30, 100)
WORD = re.compile(r"\b(dogs?|puppy|puppies)\b", re.IGNORECASE)
NAME = "rex"
_FIRST = 10


@dataclass(frozen=True, eq=False)
class Named:
    """A split in which a name takes the place of a word.

    Attributes:
        test: The split; the judged photos of its captions are right where they show what is named.
        says: Whether each caption has the name, bool (M,).
        is_right: Whether each photo shows it, bool (N,).
    """

    test: Test
    says: np.ndarray
    is_right: np.ndarray

    @classmethod
    def of(cls, test: Test, says: np.ndarray, named: np.ndarray) -> Named:
        """A split by its captions, of which some say the word.

        Args:
            test: The split.
            says: Which captions say the word, bool (M,).
            named: Unit vectors of these with the name in place of the word.
        """
        is_right = np.bincount(test.owner, says, minlength=len(test.photos)) >= 3
        says = says & is_right[test.owner]
        captions = test.captions.copy()
        captions[says] = named
        judged = np.full(test.judged.shape, np.nan, np.float32)
        judged[says] = is_right
        return cls(replace(test, captions=captions, judged=judged), says, is_right)

    def measure(self, query: Query) -> tuple[float, float]:
        """Percent right of the first ten for the name, and the sum of recalls of other captions."""
        photos, captions = self.test.half(second=True)
        scores = query(self.test.captions[captions]) @ self.test.photos[photos].T
        says = self.says[captions]
        first = np.argsort(-scores[says], axis=1)[:, :_FIRST]
        own = scores[np.arange(len(captions)), np.searchsorted(photos, self.test.owner[captions])]
        above = (np.sum(scores >= own[:, None], axis=1) - 1)[~says]
        recalls = sum(100 * np.mean(above < k) for k in (1, 5, 10))
        return 100 * float(self.is_right[photos][first].mean()), float(recalls)


def study(named: Named) -> Iterator[dict[str, Any]]:
    """Both measures for each number of clicks and draw; no clicks first."""
    right, others = named.measure(lambda queries: queries)
    yield {"clicks": 0, "draw": 0, "is_changed": False, "right": right, "others": others}
    for clicks in CLICKS:
        for draw in range(DRAWS):
            query = learned(named.test.clicks(clicks, draw)[0])
            after = (right, others) if query is None else named.measure(query)
            found = dict(zip(("right", "others"), after, strict=True))
            yield {"clicks": clicks, "draw": draw, "is_changed": query is not None, **found}


def lines(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table in Markdown: means over the draws, with standard errors."""
    yield "| clicks | right of the first ten, % | recalls of other captions | changed |"
    yield "| ---: | ---: | ---: | ---: |"
    for clicks in (0, *CLICKS):
        own = [r for r in results if r["clicks"] == clicks]
        cells = []
        for name in ("right", "others"):
            values = np.array([r[name] for r in own])
            error = values.std(ddof=1) / len(values) ** 0.5 if clicks else 0.0
            cells.append(f"{values.mean():.1f}" + (f" ± {error:.1f}" if clicks else ""))
        cells.append(f"{100 * np.mean([r['is_changed'] for r in own]):.0f} %")
        yield f"| {clicks} | {' | '.join(cells)} |"


def main() -> None:
    """Computes and prints the table."""
    from keras_xmr.search.calibration import embed_texts
    from keras_xmr.search.run_model import RunModel
    from keras_xmr.utils.vectors import unit_rows

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="a finished run on flickr8k")
    parser.add_argument("--output", type=Path, default=Path("flickr8k_name.jsonl"))
    options = parser.parse_args()
    model = RunModel(options.run)
    captions = model.records.split("test").captions
    texts = [caption.text for caption in captions]
    says = np.array([bool(WORD.search(text)) for text in texts])
    test = embedded(options.run)
    kept = says & (np.bincount(test.owner, says, minlength=len(test.photos)) >= 3)[test.owner]
    changed = [WORD.sub(NAME, text) for text, is_kept in zip(texts, kept, strict=True) if is_kept]
    named = Named.of(test, says, unit_rows(embed_texts(model, changed)["mean"].astype(np.float64)))
    results = [{"model": options.run.name, **result} for result in study(named)]
    options.output.write_text("".join(f"{json.dumps(each)}\n" for each in results), "utf-8")
    print("\n".join(lines(results)))
    by_word, _ = Named.of(test, says, test.captions[kept]).measure(lambda queries: queries)
    print(f"\nby the word itself: {by_word:.1f} %")


if __name__ == "__main__":
    main()
