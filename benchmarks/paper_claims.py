"""The claims of the papers, as benchmarks/claims.py puts them to the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sigma_claims

from keras_xmr.metrics import metric_title
from keras_xmr.metrics.bootstrap import Difference

ALPHA = 0.05
COUNTS = {"rsum": 5.0, "r_precision": 1.0, "map_at_r": 1.0, "asp": 0.5} | {
    f"recall_{k}": 1.0 for k in (1, 5, 10)
}
"""How much of a metric counts, in percent."""

BY = " by "
FAST = "fast_reranking"
RERANKERS = FAST, "reciprocal_neighbours", "multi_factor"
MATCHERS = "mean_only", "wasserstein", "elk", "average_l2", "symmetric_kl"
"""What PCME is scored by beside its match probability (Chun et al. 2021, Table 1).

Its "JS" is the symmetric KL in the released code.
"""

RSUM = "truth_rsum", "rsum"
R_PRECISION = "i2t_r_precision", "t2i_r_precision"
RECALL = "i2t_recall_1", "t2i_recall_1"
ASP = "i2t_asp", "t2i_asp"
TITLES = {
    "truth_rsum": "RSUM by the truth",
    "rsum": "annotated RSUM",
    "i2t_r_precision": "i2t R-P",
    "t2i_r_precision": "t2i R-P",
    "i2t_asp": "i2t ASP",
    "t2i_asp": "t2i ASP",
    "i2t_recall_1": "i2t annotated R@1",
    "t2i_recall_1": "t2i annotated R@1",
}


def _sides(metrics: tuple[str, ...], *effects: float) -> dict[str, float]:
    """The differences that a paper reports; one alone is that of RSUM, whatever it is held by."""
    return dict(zip(metrics, effects * (2 if len(effects) == 1 else 1), strict=True))


@dataclass(frozen=True)
class Claim:
    """A claim of a paper about two methods.

    Attributes:
        paper: The paper.
        text: What it says.
        left: A method, whose configs `config_on_scenes` and `config_on_photos` name. `<method> by
            <matcher>` is scored by another matcher, or re-ranked.
        right: Another one; none where the claim is of one method alone.
        metrics: Of what the left one has more.
        kind: "more": it has more. "no_more": it has not more by anything that counts. "alike": they
            differ by nothing that counts, in either direction.
        effects: By metric, the difference that the paper itself reports, in percent. Only where
            that could have been seen, a difference is said not to have been observed.
        same_mining: Whether the claim is about something else than which negatives count, so that
            it cannot be tested by configs whose losses differ in that.
    """

    paper: str
    text: str
    left: str
    right: str
    metrics: tuple[str, ...]
    kind: str = "more"
    effects: Mapping[str, float] = field(default_factory=dict, hash=False)
    same_mining: bool = False

    def bounds(self, metric: str) -> tuple[float, ...]:
        """The bounds of the test: 0, the smallest relevant difference, or that on both sides."""
        size = counts(metric)
        return {"more": (0.0,), "no_more": (size,), "alike": (-size, size)}[self.kind]

    def verdict(
        self, metric: str, found: Difference, p_values: tuple[float, ...], smallest: float
    ) -> str:
        """The verdict of a difference on the claim.

        Args:
            metric: The metric.
            found: The difference.
            p_values: Those of each of the bounds, corrected.
            smallest: The smallest difference that could have been seen.
        """
        if not self.testable(found):
            return "same model"
        sure = [p < ALPHA for p in p_values]
        above = [found.value > bound for bound in self.bounds(metric)]
        if self.kind == "alike":
            if all(sure) and above == [True, False]:
                return "**yes**"
            apart = any(
                s and a == out for s, a, out in zip(sure, above, (False, True), strict=True)
            )
            return "**no**" if apart else "cannot tell"
        if sure[0]:
            holds = above[0] is (self.kind == "more")
            little = self.kind == "more" and max(abs(found.low), abs(found.high)) < counts(metric)
            return f"**{'yes' if holds else 'no'}**{', by little' if little else ''}"
        seen = self.kind == "more" and smallest <= self.effects.get(metric, 0.0)
        return "not observed" if seen else "cannot tell"

    @staticmethod
    def testable(found: Difference) -> bool:
        """True if the two sides answer differently; otherwise the claim is not tested."""
        return found.low != found.high


def title_of(metric: str) -> str:
    """The title of a metric in a table."""
    if metric in sigma_claims.PROPERTIES:
        return sigma_claims.PROPERTIES[metric].title
    side, _, name = metric.partition("_")
    return TITLES.get(metric) or f"{side} annotated {metric_title(name)}"


def counts(metric: str) -> float:
    """The smallest relevant difference of a metric."""
    if metric in sigma_claims.PROPERTIES:
        return sigma_claims.PROPERTIES[metric].counts
    return COUNTS[metric.removeprefix("i2t_").removeprefix("t2i_").removeprefix("truth_")]


CHUN, LI, WEI = "Chun et al. 2021", "Li et al. 2022", "Wei et al. 2023"
WANG, BLEEKER, FAGHRI = "Wang et al. 2023", "Bleeker and de Rijke 2022", "Faghri et al. 2018"
KIM = "Kim et al. 2023"
CLAIMS = (
    Claim(
        CHUN,
        "PCME is above training the means alone",
        "pcme",
        "pcme_mean_only",
        R_PRECISION,
        effects=_sides(R_PRECISION, 1.58, 1.13),
    ),
    Claim(
        CHUN,
        "means of PCME are above means trained alone",
        "pcme by mean_only",
        "pcme_mean_only",
        R_PRECISION,
        effects=_sides(R_PRECISION, 1.44, 1.03),
    ),
    Claim(
        CHUN,
        "match probability is above the means",
        "pcme",
        "pcme by mean_only",
        R_PRECISION,
        effects=_sides(R_PRECISION, 0.14, 0.1),
    ),
    Claim(
        CHUN,
        "match probability is above ELK",
        "pcme",
        "pcme by elk",
        R_PRECISION,
        effects=_sides(R_PRECISION, 0.95, 0.9),
    ),
    Claim(
        CHUN,
        "match probability is above JS (released code: symmetric KL)",
        "pcme",
        "pcme by symmetric_kl",
        R_PRECISION,
        effects=_sides(R_PRECISION, 1.22, 1.22),
    ),
    Claim(
        CHUN,
        "match probability is above 2-Wasserstein",
        "pcme",
        "pcme by wasserstein",
        R_PRECISION,
        effects=_sides(R_PRECISION, 0.12, 0.08),
    ),
    Claim(
        CHUN,
        "match probability is above average L2",
        "pcme",
        "pcme by average_l2",
        R_PRECISION,
        effects=_sides(R_PRECISION, 0.17, 0.13),
    ),
    Claim(
        CHUN,
        "PCME is above VSE0",
        "pcme",
        "vse0",
        R_PRECISION,
        effects=_sides(R_PRECISION, 3.9, 4.2),
    ),
    Claim(
        CHUN,
        "PCME is above PVSE",
        "pcme",
        "pvse",
        R_PRECISION,
        effects=_sides(R_PRECISION, 4.0, 6.3),
    ),
    Claim(
        CHUN,
        "PVSE with K = 1 is below VSE0",
        "vse0",
        "pvse_k1",
        R_PRECISION,
        effects=_sides(R_PRECISION, 0.1, 2.1),
    ),
    Claim(
        CHUN,
        "several embeddings win R@1",
        "pvse",
        "pvse_k1",
        RECALL,
        effects=_sides(RECALL, 6.9, 2.7),
    ),
    Claim(
        CHUN,
        "several embeddings win less than 1 of R-Precision",
        "pvse",
        "pvse_k1",
        R_PRECISION,
        "no_more",
    ),
    Claim(
        CHUN,
        "local attention helps",
        "pcme_local_attention",
        "pcme_no_local_attention",
        R_PRECISION,
    ),
    Claim(CHUN, "the KL term helps (appendix D)", "pcme", "pcme_no_kl", R_PRECISION),
    Claim(CHUN, "uniformity helps (appendix D)", "pcme_uniformity", "pcme", R_PRECISION),
    Claim(CHUN, "J = 7 is above J = 1 (appendix D)", "pcme", "pcme_j1", R_PRECISION),
    Claim(LI, "DAA raises ASP", "pcme_daa", "pcme_j5", ASP, effects=_sides(ASP, 4.1, 2.8)),
    Claim(LI, "DAA by TF-IDF raises ASP (released code)", "pcme_daa_tf_idf", "pcme_j5", ASP),
    Claim(LI, "DAA raises recall", "pcme_daa", "pcme_j5", RSUM),
    Claim(LI, "DAA raises R-Precision", "pcme_daa", "pcme_j5", R_PRECISION),
    Claim(LI, "Smooth-AP raises ASP by less than 0.5", "pcme_smooth_ap", "pcme_j5", ASP, "no_more"),
    Claim(LI, "DAA raises ASP by more than Smooth-AP", "pcme_daa", "pcme_smooth_ap", ASP),
    Claim(LI, "DAA raises ASP (SAF)", "saf_daa", "saf", ASP, effects=_sides(ASP, 16.0, 8.4)),
    Claim(
        LI, "DAA raises recall (SAF)", "saf_daa", "saf", RECALL, effects=_sides(RECALL, 0.1, 0.2)
    ),
    Claim(LI, "DAA raises R-Precision (SAF; the paper: PMRP)", "saf_daa", "saf", R_PRECISION),
    Claim(LI, "DAA raises ASP (SGR)", "sgr_daa", "sgr", ASP, effects=_sides(ASP, 10.9, 3.9)),
    Claim(
        LI, "DAA raises recall (SGR)", "sgr_daa", "sgr", RECALL, effects=_sides(RECALL, 0.1, 0.8)
    ),
    Claim(LI, "DAA raises R-Precision (SGR; the paper: PMRP)", "sgr_daa", "sgr", R_PRECISION),
    Claim(WEI, "DVSE is above PVSE", "dvse", "pvse", RSUM, same_mining=True),
    Claim(
        WEI,
        "six sub-embeddings are above one",
        "dvse",
        "dvse_k1",
        RSUM,
        effects=_sides(RSUM, 104.8),
    ),
    Claim(
        WEI, "six sub-embeddings are above two", "dvse", "dvse_k2", RSUM, effects=_sides(RSUM, 15.5)
    ),
    Claim(
        WEI,
        "six sub-embeddings are above twelve",
        "dvse",
        "dvse_k12",
        RSUM,
        effects=_sides(RSUM, 3.0),
    ),
    Claim(
        WEI, "sub-embeddings alone win less than 5", "dvse_alone", "dvse_alone_k1", RSUM, "no_more"
    ),
    Claim(
        WEI, "six sub-embeddings are above ten", "dvse", "dvse_k10", RSUM, effects=_sides(RSUM, 1.2)
    ),
    Claim(WEI, "eta = 0.6 is above 0.4 (Fig. 9, Flickr30K)", "dvse", "dvse_eta_04", RECALL[:1]),
    Claim(WEI, "eta = 0.6 is above 0.8 (Fig. 9, Flickr30K)", "dvse", "dvse_eta_08", RECALL[:1]),
    Claim(WEI, "weights by variance help", "dvse", "dvse_no_variance", RSUM),
    Claim(WEI, "the orthogonal loss helps", "dvse", "dvse_no_orthogonality", RSUM),
    Claim(WEI, "its dynamic mask helps", "dvse", "dvse_no_mask", RSUM, effects=_sides(RSUM, 1.1)),
    Claim(WEI, "all of it is above none of it", "dvse", "dvse_alone_k1", RSUM),
    Claim(
        WEI,
        "fast re-ranking raises RSUM",
        f"dvse{BY}{FAST}",
        "dvse",
        RSUM,
        effects=_sides(RSUM, 20.6),
    ),
    Claim(
        WEI,
        "fast re-ranking is above reciprocal neighbours",
        f"dvse{BY}{FAST}",
        f"dvse{BY}reciprocal_neighbours",
        RSUM,
    ),
    Claim(
        WEI,
        "fast re-ranking is above multi-factor",
        f"dvse{BY}{FAST}",
        f"dvse{BY}multi_factor",
        RSUM,
        effects=_sides(RSUM, 11.1),
    ),
    Claim(
        WANG,
        "MSRM is above PCME",
        "msrm",
        "pcme",
        R_PRECISION,
        effects=_sides(R_PRECISION, 1.6, 2.0),
    ),
    Claim(
        WANG,
        "L_d helps",
        "msrm",
        "msrm_no_distribution",
        R_PRECISION,
        effects=_sides(R_PRECISION, 0.7, 1.0),
    ),
    Claim(
        WANG,
        "L_h matters more than L_d: without L_d there is more than without L_h",
        "msrm_no_distribution",
        "msrm_no_hypergraph",
        R_PRECISION,
        effects=_sides(R_PRECISION, 1.4, 1.6),
    ),
    Claim(
        WANG,
        "L_h, with a residual, helps",
        "msrm",
        "msrm_no_hypergraph",
        R_PRECISION,
        effects=_sides(R_PRECISION, 2.1, 2.6),
    ),
    Claim(
        WANG,
        "L_h as printed helps",
        "msrm_literal",
        "msrm_no_hypergraph",
        R_PRECISION,
        effects=_sides(R_PRECISION, 2.1, 2.6),
    ),
    Claim(
        WANG,
        "distributions are above their means",
        "msrm",
        "msrm_mean_only",
        R_PRECISION,
        effects=_sides(R_PRECISION, 1.1, 1.2),
    ),
    Claim(WANG, "a learned alpha is above alpha = 0", "msrm", "msrm_alpha_0", R_PRECISION),
    Claim(WANG, "a learned alpha is above alpha = 1", "msrm", "msrm_alpha_1", R_PRECISION),
    Claim(WANG, "a learned alpha is above alpha = 4", "msrm", "msrm_alpha_4", R_PRECISION),
    Claim(WANG, "gamma = 0.8 is above 0.5 (Fig. 4)", "msrm", "msrm_gamma_05", R_PRECISION),
    Claim(WANG, "gamma = 0.8 is above 2 (Fig. 4)", "msrm", "msrm_gamma_20", R_PRECISION),
    Claim(WANG, "two layers are above one (Fig. 5)", "msrm", "msrm_layers_1", R_PRECISION),
    Claim(WANG, "two layers are above three (Fig. 5)", "msrm", "msrm_layers_3", R_PRECISION),
    Claim(
        WANG,
        "batches of 128 and 32 differ by less than 1 (Fig. 6)",
        "msrm_batch_128",
        "msrm_batch_32",
        R_PRECISION,
        "alike",
    ),
    Claim(BLEEKER, "the hardest negative is above NT-Xent", "vsepp", "nt_xent", RSUM),
    Claim(BLEEKER, "the hardest negative is above Smooth-AP", "vsepp", "smooth_ap", RSUM),
    Claim(
        BLEEKER,
        "the hardest negative is above NT-Xent (VSRN)",
        "vsrn_hardest",
        "vsrn_nt_xent",
        RSUM,
    ),
    Claim(
        BLEEKER,
        "the hardest negative is above Smooth-AP (VSRN)",
        "vsrn_hardest",
        "vsrn_smooth_ap",
        RSUM,
    ),
    Claim(
        BLEEKER,
        "the hardest negative is above all negatives (VSRN)",
        "vsrn_hardest",
        "vsrn_triplet",
        RSUM,
    ),
    Claim(FAGHRI, "the hardest negative is above all negatives", "vsepp", "vse0", RSUM),
    Claim(KIM, "several slots are above one", "dive", "dive_k1", RSUM),
)

OF_SIGMA = (
    Claim(
        CHUN,
        "the half with the smaller sigma has the higher R@1 (Fig. 6)",
        "pcme",
        "",
        ("image_surer_recall_1", "caption_surer_recall_1"),
    ),
    Claim(CHUN, "erasing 70 % of the pixels raises sigma (Fig. 7)", "pcme", "", ("image_damage",)),
    Claim(
        CHUN, "dropping 70 % of the words raises sigma (Fig. 7)", "pcme", "", ("caption_damage",)
    ),
)
"""What is said of one method: its metrics are those of sigma_claims.py."""

_ON_SCENES = {"pcme_local_attention": "scenes_pcme"}
_ON_PHOTOS = {
    "pcme": "csv_pretrained_pcme",
    "pcme_no_local_attention": "csv_pretrained_pcme",
    "pcme_local_attention": "csv_pretrained_pcme_local_attention",
    "pcme_j1": "csv_pretrained_pcme_j1",
    "pcme_no_kl": "csv_pretrained_pcme_no_kl",
    "pcme_uniformity": "csv_pretrained_pcme_uniformity",
    "pcme_j5": "csv_pretrained_pcme",
    "pcme_mean_only": "csv_pretrained_mean_only",
    "pcme_daa": "csv_pretrained_daa",
    "pcme_daa_tf_idf": "csv_pretrained_daa_tf_idf",
    "msrm_batch_128": "csv_pretrained_msrm",
}


def config_on_scenes(method: str) -> str:
    """The config of a method on the scenes."""
    return _ON_SCENES.get(method, f"scenes_{method}")


def config_on_photos(method: str) -> str:
    """The config of a method on pretrained towers."""
    return _ON_PHOTOS.get(method, f"csv_pretrained_{method}")


FROM_SCRATCH = (
    "saf",
    "saf_daa",
    "sgr",
    "sgr_daa",
    "vsrn_hardest",
    "vsrn_nt_xent",
    "vsrn_smooth_ap",
    "vsrn_triplet",
)
"""The methods whose training on pretrained towers does not begin at CCA."""
