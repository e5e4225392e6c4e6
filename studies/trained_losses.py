"""Losses and heads of the papers where both encoders train, on Flickr8K.

Each is `csv_pretrained_trained` with its own loss, head and matcher. All have its rates, crops and
epochs, which were chosen for InfoNCE, and one trial. Cosines of CSLS are half as large, and so are
margins and temperatures; MSRM and DVSE, whose embeddings CSLS does not fit, train without it, and
have it on test alone. What has a line in the results is not run again.

    python studies/trained_losses.py --flickr8k data/raw/flickr8k --seeds 1 --photos 2000
"""

from __future__ import annotations

from collections.abc import Sequence

from flickr8k_methods import append, parser_of, train, with_fewer_photos
from methods_table import read_lines


def _both(key: str, value: str) -> tuple[str, str]:
    return f"model.image.{key}={value}", f"model.text.{key}={value}"


_GAUSSIAN = _both(
    "head",
    "{name: gaussian, rezero: true, local_attention: false, initial_log_variance: -9.7}",
)
_KL = "{name: kl_divergence, reduction: mean, weight: 1.0e-7}"
LOSSES: dict[str, Sequence[str]] = {
    "VSE++": ("objective=[{name: triplet, mining: hardest, margin: 0.1, warmup_steps: 360}]",),
    "Smooth-AP": ("objective=[{name: smooth_ap, temperature: 0.005}]",),
    "PCME++": (
        *_GAUSSIAN,
        "model.matcher={name: closed_form_sampled, scale: 20, shift: 30}",
        f"objective=[{{name: probabilistic_matching, pseudo_positives: 0.1}}, {_KL}]",
    ),
    "PCME": (
        *_GAUSSIAN,
        "model.matcher="
        "{name: match_probability, samples: 7, test_samples: 7, scale: 24.5, shift: 30}",
        f"objective=[{{name: soft_contrastive, reduction: mean}}, {_KL}]",
    ),
    "MSRM": (
        *_both("pooling.local_scaling", "0"),
        *_both(
            "head",
            "{name: gaussian, initial_log_variance: 0, variance: softplus, rezero: true,"
            " local_attention: false}",
        ),
        "model.matcher=mahalanobis_cosine",
        "objective=[{name: mahalanobis_contrastive, temperature: 10, weight: 0.8},"
        " {name: hypergraph_contrastive, layers: 2, alpha: 2, cosine_scale: 5, residual: true}]",
    ),
    "DVSE": (
        *_both("pooling.local_scaling", "0"),
        "model.image.encoder.grid=4",
        "model.image.encoder.mirror=false",
        "model.image.pooling.views=1",
        "model.text.encoder.output=tokens",
        "model.text.encoder.bag_of_words=0",
        "model.image.head="
        "{name: dynamic_sub_embeddings, set_size: 6, activation: tanh, rezero: true}",
        "model.text.head={name: attentive_point, rezero: true}",
        "model.matcher=max_cosine",
        "objective=["
        "{name: variance_aware_weighting, margin: 0.2, weight: 0.6, warmup_steps: 360},"
        " {name: dynamic_orthogonality, beta: 0.4, weight: 0.4}]",
    ),
}
"""Changes of `csv_pretrained_trained`, which has InfoNCE itself."""


def main() -> None:
    """Trains what is missing."""
    options = parser_of(__doc__).parse_args()
    if options.photos:
        with_fewer_photos(options)
    options.results = options.results.with_name(f"trained_losses_{options.photos or 'all'}.jsonl")
    sets = tuple(options.set)
    for seed in range(options.seeds):
        done = {line["method"] for line in read_lines(options.results) if line["seed"] == seed}
        for name, changes in LOSSES.items():
            if name in done:
                continue
            options.set = [*changes, *sets]
            no_scaling = any("local_scaling=0" in change for change in changes)
            for line in train("csv_pretrained_trained", seed, options, with_csls=no_scaling):
                title = name + ", CSLS" * line["method"].endswith("CSLS")
                append(line | {"method": title}, options)


if __name__ == "__main__":
    main()
