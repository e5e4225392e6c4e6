"""Definitions of the metrics, one sentence per metric."""

from __future__ import annotations

import re
from collections.abc import Iterable

from keras_xmr.metrics.names import CHOSEN, METRICS, RSUM, find_metric, metric_title

# By the names of metrics without a direction; K is a number, as in their titles.
_MEANINGS = {
    "recall_K": "the share of queries with a relevant item among the first K",
    "r_precision": "R-Precision: the share of relevant items among the first R, where R is their "
    "number",
    "map_at_r": "mean average precision at R, which rewards early ranks within the first R",
    "median_rank": "the median rank of the first relevant item",
    "mean_rank": "the mean rank of the first relevant item; 1 is best",
    "found_K": "the mean number of distinct relevant items among the first K",
    "precision_K": "the share of relevant items among the first K",
    "ndcg_K": "the grades of the first K, discounted by log2(1 + rank), as a share of the largest "
    "possible value",
    "bpref": "binary preference: the rarity of judged wrong answers before relevant items; pairs "
    "that were not judged do not count",
    "pmrp_K": "R-Precision if labels may differ in up to zeta entries",
    "pmrp": "the mean of PMRP over zeta = 0, 1, 2: plausible matches count as relevant",
    "asp": "agreement of the order by score with the order by relevance of captions; 100 is best",
    "asp_chance": "ASP of a random order",
    "asp_tf_idf": "ASP with the TF-IDF of captions as relevance",
    "asp_top_K": "ASP of the K most relevant answers alone",
    "released_asp_K": "relevance of the first K by score, as a share of the largest possible value",
    RSUM: "the sum of R@1, R@5 and R@10 of both directions; 600 is best",
}

DIRECTION_WORDS = {
    "i2t": "image to text: images are queries, and captions are ranked",
    "t2i": "text to image: captions are queries, and images are ranked",
}
"""The directions of a table."""


def glossary(summary: Iterable[str]) -> dict[str, str]:
    """The definitions of the metrics of a summary, by their titles in tables.

    Args:
        summary: Names such as `i2t_recall_1`.

    Returns:
        A sentence per metric; those of one family, such as R@1 and R@5, share one.
    """
    shorts = [name if name == RSUM else name.partition("_")[2] for name in summary]
    return dict(_entry(short) for short in (*METRICS, *CHOSEN, RSUM) if short in shorts)


def _entry(short: str) -> tuple[str, str]:
    """Title and definition of a metric, including those that a config adds."""
    metric = find_metric(short)
    title = metric.title.replace("\n", " ") if metric else metric_title(short)
    family = re.sub(r"_\d+$", "_K", short)
    if short in _MEANINGS or family not in _MEANINGS:
        return title, _MEANINGS.get(short, "a metric that the config adds")
    return re.sub(r"\d+$", "K", title), _MEANINGS[family]
