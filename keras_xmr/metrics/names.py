"""The names of all metrics."""

from __future__ import annotations

from keras_xmr.metrics.plausible_match import ZETAS
from keras_xmr.metrics.ranking import FOUND_AT, PRECISION_AT, RECALL_AT
from keras_xmr.metrics.semantic import ASP_TOP, RELEASED_ASP_AT

COUNTS = ("median_rank", "mean_rank", *(f"found_{k}" for k in FOUND_AT))
"""Metrics of a direction that are counts; all others are fractions."""


def metric_names() -> list[str]:
    """What a summary of both directions can hold: `i2t_recall_1` and so on, and `rsum`."""
    names = [
        *(f"recall_{k}" for k in RECALL_AT),
        "r_precision",
        "map_at_r",
        *COUNTS,
        *(f"precision_{k}" for k in PRECISION_AT),
        "pmrp",
        *(f"pmrp_{zeta}" for zeta in ZETAS),
        "asp",
        "asp_tf_idf",
        *(f"asp_top_{n}" for n in ASP_TOP),
        *(f"released_asp_{k}" for k in RELEASED_ASP_AT),
    ]
    return [f"{side}_{name}" for side in ("i2t", "t2i") for name in names] + ["rsum"]
