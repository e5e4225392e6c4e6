"""What each metric says, in a sentence: the table that glossaries are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from keras_xmr.metrics.names import CHOSEN, METRICS, RSUM

_MEANINGS = {
    "recall_K": ("R@K", "the share of queries with a right answer among the first K"),
    "r_precision": (
        "R-P",
        "R-Precision: of a query with R right answers, the share of right ones among the first R",
    ),
    "map_at_r": ("mAP@R", "like R-P, and the sooner the right ones come the better"),
    "median_rank": ("med r", "half of the queries have their first right answer at this place"),
    "mean_rank": ("mean r", "the mean place of the first right answer; 1 is best"),
    "found_K": ("found@K", "how many different right answers are among the first K, on average"),
    "precision_K": ("P@K", "the share of right answers among the first K"),
    "ndcg_K": (
        "nDCG@K",
        "the grades of the first K, discounted by log2(1 + rank), as a part of the most that K "
        "answers can have",
    ),
    "bpref": (
        "bpref",
        "how rarely a judged wrong answer comes before a right one; pairs that were not judged do "
        "not count",
    ),
    "pmrp_K": ("PMRP, zeta", "R-Precision if labels may differ in up to zeta entries"),
    "pmrp": ("PMRP", "the mean of PMRP over zeta = 0, 1, 2: plausible matches count as right"),
    "asp": (
        "ASP",
        "how well the order by score follows the order by what captions say; 100 is best",
    ),
    "asp_chance": ("ASP at chance", "ASP of a random order, by how many are equally relevant"),
    "asp_tf_idf": ("ASP (TF-IDF)", "ASP where captions are compared by TF-IDF"),
    "asp_top_K": ("N = K", "ASP of the K most relevant answers alone"),
    "released_asp_K": (
        "released ASP@K",
        "relevance of the first K by score, as a part of the most that K answers can have",
    ),
    RSUM: ("RSUM", "the sum of R@1, R@5 and R@10 of both directions; 600 is best"),
}


DIRECTION_WORDS = {
    "i2t": "image to text: images are queries, and captions are ranked",
    "t2i": "text to image: captions are queries, and images are ranked",
}
"""The directions of a table."""


def glossary(summary: Iterable[str]) -> dict[str, str]:
    """What the metrics of a summary say, by what they are called in tables.

    Args:
        summary: Names such as `i2t_recall_1`.

    Returns:
        A sentence each; those of one family, such as R@1 and R@5, share one.
    """
    shorts = [name if name == RSUM else name.partition("_")[2] for name in summary]
    found = {}
    for short in [*(name for name in METRICS | CHOSEN if name in shorts), RSUM]:
        title, meaning = _entry(short)
        if short in shorts:
            found[title] = meaning
    return found


def _entry(short: str) -> tuple[str, str]:
    """Title and meaning of a metric; of one that a config adds, what it calls itself."""
    family = re.sub(r"_\d+$", "_K", short)
    if (known := _MEANINGS.get(short) or _MEANINGS.get(family)) is not None:
        return known
    return CHOSEN[short].title.replace("\n", " "), "a metric that the config adds"
