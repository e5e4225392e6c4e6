"""Losses, matchers, distances, layers and heads against reference numbers, with any backend.

With TensorFlow all numbers are compared, with others those of one case of each: JAX compiles them.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import sgraf_weights
import torch_layout
from autodiff import built, evaluated, evaluating, gradients
from keras import ops
from torch_layout import Weights

from keras_xmr import heads, losses, matchers
from keras_xmr.embeddings import distances
from keras_xmr.heads import pooling as poolings
from keras_xmr.layers import HypergraphConvolution

SIDES = ("image", "caption")
DIRECTIONS = (("i2t", "image_to_text"), ("t2i", "text_to_image"))
EVERY_NUMBER = keras.backend.backend() == "tensorflow"


def close(found, expected, name="", factor=3e-5):
    atol = factor * max(np.abs(expected).max(), 1e-6)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=atol, err_msg=name)


def cases(*every):
    """All cases of a test, or the first."""
    return every if EVERY_NUMBER else every[:1]


def total(terms):
    return sum(terms.values())


def on_sphere(by_unit, vectors):
    """A gradient by unit vectors as one by vectors that are divided by their length."""
    return by_unit - np.sum(by_unit * vectors, axis=-1, keepdims=True) * vectors


@pytest.mark.parametrize(("tag", "doubled"), cases(("", True), ("paper_", False)))
def test_soft_contrastive(golden, tag, doubled):
    case = golden("pcme_soft_contrastive")
    # The released code takes the sigmoid of twice the logit.
    factor = 2.0 if doubled else 1.0
    scale, shift = float(case["param_negative_scale"]), float(case["param_shift"])
    matcher = evaluating(matchers.MatchProbability(scale=factor * scale, shift=factor * shift))
    known = {"positives": np.eye(8, dtype=bool)}

    def value(image, caption):
        scores = matcher({"samples": image}, {"samples": caption})
        return total(losses.SoftContrastive().terms(scores, {}, {}, known))

    inputs = [case.f32(f"in_{side}_features") for side in SIDES]
    found, slopes = gradients(value, inputs, [matcher.shift, matcher.scale])
    close(found, case[f"out_{tag}softcon_loss"])
    sides = ({"samples": samples} for samples in inputs)
    found = evaluated(lambda *sides: matcher.probability(matcher(*sides)), *sides)
    close(found, case[f"out_{tag}match_prob"])
    names = ("image_features", "caption_features", "shift", "negative_scale")
    for name, times, slope in zip(names, (1, 1, factor, factor), slopes, strict=True):
        close(times * slope, case[f"grad_{tag}softcon_{name}"], name)
    if doubled and EVERY_NUMBER:
        sides = ({"samples": samples} for samples in inputs)
        terms = losses.SoftContrastive().terms(matcher(*sides), {}, {}, known)
        close(terms["positive"] / 2, case["out_i2t_pos_loss"])
        close(terms["negative"] / 2, case["out_i2t_neg_loss"])


def test_kl_divergence_and_uniformity(golden):
    case = golden("pcme_soft_contrastive")
    sides = [(case.f32(f"in_{s}_mu"), 2 * case.f32(f"in_{s}_logsigma")) for s in SIDES]

    def divergence(mean, log_variance):
        return losses.KLDivergence().items_loss({"mean": mean, "log_variance": log_variance})

    for side, inputs in zip(SIDES, sides, strict=True):
        found, slopes = gradients(divergence, inputs)
        close(found, case[f"out_paper_kl_{side}"])
        if side == "image":
            close(slopes[0], case["grad_paper_kl_image_mu"])
            close(2 * slopes[1], case["grad_paper_kl_image_logsigma"])

    def uniformity(image, caption):
        image, caption = {"samples": image}, {"samples": caption}
        return total(losses.Uniformity().terms(None, image, caption, {}))

    found, slopes = gradients(uniformity, [case.f32(f"in_{side}_features") for side in SIDES])
    close(found, case["out_uniform_loss"])
    for side, slope in zip(SIDES, slopes, strict=True):
        close(slope, case[f"grad_uniform_{side}_features"])


@pytest.mark.parametrize(("mining", "tag"), [("sum", "sum"), ("hardest", "max")])
def test_triplet(golden, mining, tag):
    case = golden("vsepp_triplet")
    loss = losses.Triplet(mining=mining, margin=float(case["in_margin"]))

    def value(image, caption):
        scores = ops.matmul(image, ops.transpose(caption))
        return total(loss.terms(scores, {}, {}, {"positives": np.eye(8, dtype=bool)}))

    inputs = [case.f32(f"in_{side}") for side in SIDES]
    close(inputs[0] @ inputs[1].T, case["out_scores"])
    found, slopes = gradients(value, inputs)
    close(found, case[f"out_{tag}_loss"])
    for side, slope in zip(SIDES, slopes, strict=True):
        close(slope, case[f"grad_{tag}_{side}"])


@pytest.mark.parametrize("number", cases(0, 1, 2, 3))
def test_smooth_ap(golden, number):
    case = golden("smooth_ap")
    owner = np.arange(30) // int(case["in_num_captions"])
    loss = losses.SmoothAP(temperature=float(case["in_temperatures"][number]))
    known = {"positives": np.equal.outer(np.arange(6), owner)}

    def value(images, captions):
        scores = ops.matmul(images, ops.transpose(captions))
        return total(loss.terms(scores, {}, {}, known))

    inputs = [case.f32("in_images"), case.f32("in_captions")]
    found, slopes = gradients(value, inputs)
    close(found, case["out_loss"][number])
    for slope, key in zip(slopes, ("images", "captions"), strict=True):
        close(slope, case[f"grad_{key}"][number])
    if EVERY_NUMBER:
        terms = loss.terms(inputs[0] @ inputs[1].T, {}, {}, known)
        for tag, term in DIRECTIONS:
            close(2 * terms[term], case[f"out_{tag}_loss"][number])
        of_single_queries(case, number, loss, owner)


def of_single_queries(case, number, loss, owner):
    # Each query is a free vector, and the gradient is of its average precision, not of the loss.
    sides = {"image": case.f32("in_images"), "caption": case.f32("in_captions")}
    for side, other, tag in (("image", "caption", "i2t"), ("caption", "image", "t2i")):
        for q in (0, 3, 5):
            right = owner == q if side == "image" else np.arange(6) == owner[q]

            def precision(query, other=other, right=right):
                scores = ops.matmul(query, sides[other].T)
                terms = loss.terms(scores, {}, {}, {"positives": right[None]})
                return 1.0 - 2.0 * terms["image_to_text"]

            found, (slope,) = gradients(precision, [sides[side][q : q + 1]])
            close(found, case[f"out_ap_{tag}"][number, q])
            expected = case[f"grad_ap_wrt_{side}_query"][number, q]
            np.testing.assert_allclose(slope[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", cases(0, 1, 2))
def test_daa(golden, number):
    case = golden("daa")
    temperature = float(case["in_temperatures"][number])
    loss = losses.DAA(
        similarity="scores",
        temperature=temperature,
        relevance_temperature=temperature,
        directions="image_to_text",
    )

    def value(scores):
        return total(loss.terms(scores, {}, {}, {"relevance": case.f32("in_C")}))

    found, (slope,) = gradients(value, [case.f32("in_S")])
    close(found, case["out_nodiag_loss"][number])
    close(slope, case["grad_nodiag_loss_S"][number])


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("number", cases(1, 0))
def test_daa_over_samples(golden, similarity, number):
    case = golden("daa_sampled")
    temperature = float(case["in_temperatures"][number])
    loss = losses.DAA(
        similarity=similarity, temperature=temperature, relevance_temperature=temperature
    )

    def value(image, caption):
        image, caption = {"samples": image}, {"samples": caption}
        return total(loss.terms(None, image, caption, {"relevance": case.f32("in_C")}))

    found, slopes = gradients(value, [case.f32(f"in_{side}_features") for side in SIDES])
    close(found, sum(case[f"out_{similarity}_{tag}_loss"][number] for tag, _ in DIRECTIONS))
    for side, slope in zip(SIDES, slopes, strict=True):
        close(slope, case[f"grad_{similarity}_{side}_features"][number])
    if EVERY_NUMBER:
        sides = ({"samples": case.f32(f"in_{side}_features")} for side in SIDES)
        terms = loss.terms(None, *sides, {"relevance": case.f32("in_C")})
        for tag, term in DIRECTIONS:
            close(terms[term], case[f"out_{similarity}_{tag}_loss"][number])


@pytest.mark.parametrize("tag", cases("", "multi_"))
def test_msrm(golden, tag):
    case = golden("msrm")
    classes = case["in_class_multi"] if tag else np.arange(8)
    relations = {"positives": classes[:, None] == classes[None]}
    first = losses.MahalanobisContrastive(temperature=float(case["param_tau"]))
    second = losses.HypergraphContrastive(
        alpha=float(case["param_alpha"]), cosine_scale=float(case["param_lam"]), residual=False
    )
    second.build(None, {"mean": (None, 12)}, {"mean": (None, 12)})
    directions = (("v2t", "image_to_text"), ("t2v", "text_to_image"))
    for key, direction in directions:
        convolutions = getattr(second, direction)
        for layer, theta in zip(convolutions, case[f"param_theta_{key}"], strict=True):
            assert isinstance(layer, HypergraphConvolution)
            layer.theta.assign(theta)

    def both(mean, variance, other, other_variance):
        image = {"mean": mean, "log_variance": ops.log(variance)}
        caption = {"mean": other, "log_variance": ops.log(other_variance)}
        return [loss.terms(None, image, caption, relations) for loss in (first, second)]

    def value(*inputs):
        distribution, relation = map(total, both(*inputs))
        return float(case["in_gamma"]) * distribution + relation

    names = ("mu_v", "sigma_v", "mu_t", "sigma_t")
    variables = [first.temperature, second.alpha, second.cosine_scale]
    variables += [layer.theta for _, d in directions for layer in getattr(second, d)]
    inputs = [case.f32(f"in_{name}") for name in names]
    found, slopes = gradients(value, inputs, variables)
    close(found, case[f"out_{tag}L"])
    for name, slope in zip((*names, "tau", "alpha", "lam"), slopes[:7], strict=True):
        close(slope, case[f"grad_{tag}{name}"], name)
    for (key, _), thetas in zip(directions, (slopes[7:9], slopes[9:]), strict=True):
        close(np.stack(thetas), case[f"grad_{tag}theta_{key}"], "theta")
    if EVERY_NUMBER:
        for name, terms in zip(("Ld", "Lh"), both(*inputs), strict=True):
            for key, direction in directions:
                close(terms[direction], case[f"out_{tag}{name}_{key}"])


@pytest.mark.parametrize("tag", cases("full", "base", "vib", "soft", "wdist"))
def test_pcmepp(golden, tag):
    case = golden("pcmepp_csd")
    matcher = matchers.ClosedFormSampled(
        scale=float(case["param_negative_scale"]), shift=float(case["param_shift"])
    )
    alpha = float(case["in_smoothness_alpha"]) if tag == "full" else 0.0
    # The mean of the reference is also one over the numbers of an embedding.
    beta = float(case["in_vib_beta"]) / 12 if tag in ("vib", "full") else 0.0
    known = {"positives": np.eye(8, dtype=bool)}
    if tag == "soft":
        known["targets"] = case.f32("in_soft_matched")

    def value(*parts):
        image, caption = (
            {"mean": mean, "log_variance": log_variance}
            for mean, log_variance in (parts[:2], parts[2:])
        )
        if tag == "wdist":
            scores = matcher.logits(distances.wasserstein_squared(image, caption))
        else:
            scores = matcher(image, caption)
        loss = losses.ProbabilisticMatching(pseudo_positives=alpha)
        matching = loss.terms(scores, image, caption, known)
        divergence = losses.KLDivergence(reduction="mean").terms(scores, image, caption, known)
        return total(matching) + beta * total(divergence)

    names = ("image_mean", "image_logvar", "caption_mean", "caption_logvar")
    inputs = [case.f32(f"in_{name}") for name in names]
    found, slopes = gradients(value, inputs, [matcher.shift, matcher.scale])
    close(found, case[f"out_{tag}_loss"])
    for name, slope in zip((*names, "shift", "negative_scale"), slopes, strict=True):
        close(slope, case[f"grad_{tag}_{name}"], name)


@pytest.mark.parametrize(("mining", "tag"), cases(("sum", "sumviol"), ("hardest", "maxviol")))
def test_pvse(golden, mining, tag):
    case = golden("pvse_mil_triplet")
    ranking = losses.Triplet(mining=mining, reduction="mean", margin=float(case["in_margin"]))
    known = {"positives": np.eye(6, dtype=bool)}

    def terms(image, caption, image_residual, caption_residual):
        image = {"points": image, "residuals": image_residual}
        caption = {"points": caption, "residuals": caption_residual}
        scores = matchers.MaxCosine()(image, caption)
        by_name = {f"{tag}_ranking": ranking, "mmd": losses.MMD(), "div": losses.Diversity()}
        values = {
            k: total(loss.terms(scores, image, caption, known)) for k, loss in by_name.items()
        }
        return values | {"scores": scores}

    def value(*inputs):
        found = terms(*inputs)
        weighted = [float(case[f"in_{name}_weight"]) * found[name] for name in ("mmd", "div")]
        return found[f"{tag}_ranking"] + sum(weighted)

    inputs = [case.f32(f"in_{side}") for side in ("image", "text")]
    inputs += [case.f32(f"in_{side}_residual") for side in ("image", "text")]
    found, slopes = gradients(value, inputs)
    close(found, case[f"out_{tag}_total"])
    for name, one in terms(*inputs).items() if EVERY_NUMBER else ():
        close(one, case[f"out_{name}"], name)
    for number, side in enumerate(("image", "text")):
        # The reference multiplies unit vectors as they are; here cosines are taken of them.
        by_ranking = case[f"grad_{tag}_ranking_{side}"]
        others = case[f"grad_{tag}_total_{side}"] - by_ranking
        close(slopes[number], on_sphere(by_ranking, inputs[number]) + others, factor=1e-4)
        close(slopes[2 + number], case[f"grad_{tag}_total_{side}_residual"], factor=1e-4)


@pytest.mark.parametrize(
    ("tag", "options"),
    cases(
        ("", {"sigma": "query"}),
        ("stopsigma_", {"sigma": "query", "stop_gradient": True}),
        ("sharedsigma_", {"sigma": "shared"}),
    ),
)
def test_dvse(golden, tag, options):
    case = golden("dvse")
    loss = losses.VarianceAwareWeighting(
        margin=float(case["in_alpha"]), sigma_of="scores", reduction="sum", **options
    )

    def value(image, caption):
        known = {"positives": np.eye(6, dtype=bool)}
        return total(loss.terms(None, {"points": image}, {"mean": caption}, known))

    inputs = [case.f32("out_v_normalized"), case.f32("out_t_normalized")]
    found, slopes = gradients(value, inputs)
    close(found, case["out_Lvar_shared_sigma" if tag == "sharedsigma_" else "out_Lvar"])
    for slope, key, vectors in zip(slopes, "vt", inputs, strict=True):
        close(slope, on_sphere(case[f"grad_{tag}Lvar_{key}_normalized"], vectors), factor=1e-4)


@pytest.mark.parametrize(
    ("similarity", "beta", "key"),
    cases(
        ("normalized", "in_beta", "out_Ldc_normalized_per_image"),
        ("normalized", None, "out_offdiag_sum_normalized"),
        ("normalized", "in_beta_high", "out_Ldc_normalized_beta_high_per_image"),
        ("literal", "in_beta", "out_Ldc_literal_per_image"),
        ("literal", None, "out_offdiag_sum_literal"),
    ),
)
def test_dynamic_orthogonality(golden, similarity, beta, key):
    case = golden("dvse")
    loss = losses.DynamicOrthogonality(
        beta=float(case[beta]) if beta else 0.0,
        normalize=similarity == "normalized",
        reduction="sum",
    )
    masked = case.f32("out_vhat") * case.f32("out_mask")[:, None, :]

    def each(residuals):
        return [loss.items_loss({"residuals": one}) for one in residuals]

    close(evaluated(each, masked[:, None]), case[key])


def test_closed_forms(golden):
    case = golden("distances")
    sides = [
        {
            "mean": case.f32(f"in_mu{number}"),
            "log_variance": 2 * case.f32(f"in_logsigma{number}"),
            "samples": case.f32(f"in_samples{number}"),
        }
        for number in (1, 2)
    ]

    def by_key(left, right):
        return {
            "out_true_kl_12": distances.kl_divergence(left, right),
            "out_true_kl_21": ops.transpose(distances.kl_divergence(right, left)),
            "out_true_sym_kl_half": distances.symmetric_kl(left, right),
            "out_true_w2_squared": distances.wasserstein_squared(left, right),
            "out_true_bhattacharyya": distances.bhattacharyya(left, right),
            "out_true_log_elk": distances.log_expected_likelihood(left, right),
            "out_true_sq_l2": distances.squared_euclidean(left["mean"], right["mean"]),
            "out_true_csd": distances.closed_form_sampled(left, right),
            "out_mahalanobis_sq_query2": distances.mahalanobis_squared(left["mean"], right),
            "out_mahalanobis_sq_query1": ops.transpose(
                distances.mahalanobis_squared(right["mean"], left)
            ),
            "out_sampled_avg_l2": -matchers.AverageL2()(left, right),
        }

    for key, value in evaluated(by_key, *sides).items():
        close(value, case[key], key, factor=1e-4)


def test_image_head_of_pcme(golden):
    case = golden("pcme_head_image")
    features = case.f32("in_feature_map").reshape(5, 49, 24)
    head = built(heads.Gaussian(16, lambda: poolings.Mean(16)), features)
    torch_layout.load_gaussian(head, Weights(case))
    torch_layout.dense(head.mean_pooling.linear, Weights(case), "fc")
    torch_layout.dense(head.log_variance_pooling.linear, Weights(case), "uncertain_net.fc2")
    cotangents = case.f32("in_cotangent_mean"), case.f32("in_cotangent_logsigma")

    def value(features):
        made = head(features)
        scalar = ops.sum(ops.multiply(made["mean"], cotangents[0]))
        return scalar + ops.sum(ops.multiply(made["log_variance"], cotangents[1]))

    made = evaluated(head, features)
    close(made["mean"], case["out_mean"])
    close(made["log_variance"], case["out_logsigma"])
    kernels = {
        "pie_net.fc": head.mean_linear.kernel,
        "uncertain_net.fc2": head.log_variance_pooling.linear.kernel,
    }
    _, (slope, *slopes) = gradients(value, [features], list(kernels.values()))
    close(slope.reshape(5, 7, 7, 24), case["grad_feature_map"], factor=1e-4)
    for name, found in zip(kernels, slopes, strict=True):
        close(found.T, case[f"grad_{name}.weight"], name, factor=1e-4)


@pytest.mark.parametrize("make", cases(matchers.SAF, matchers.SGR))
def test_regions_and_words(golden, make):
    case, tag = golden("sgraf"), make.__name__.lower()
    matcher = evaluating(make(similarity_dimension=8))
    image, caption = sgraf_weights.golden_tokens(case)

    def score(image, caption):
        return sgraf_weights.score(matcher, image, caption)

    built(score, image, caption)
    sgraf_weights.load(matcher, Weights(case, f"param_{tag}."))

    def value(regions, words, mining="sum"):
        scores = score(image | {"tokens": regions}, caption | {"tokens": words})
        known = {"positives": np.eye(5, dtype=bool)}
        return total(losses.Triplet(mining=mining).terms(scores, {}, {}, known))

    weights = {
        f"{name}.{kind}": getattr(layer, part)
        for name, layer in sgraf_weights.linear_layers(matcher).items()
        for part, kind in (("kernel", "weight"), ("bias", "bias"))
    }
    attention = matcher.image_attention
    for norm, part in ((attention.local_norm, "local"), (attention.mean_norm, "global")):
        prefix = f"v_global_w.embedding_{part}.1"
        weights |= {f"{prefix}.weight": norm.gamma, f"{prefix}.bias": norm.beta}
    if make is matchers.SAF:
        bn = "SAF_module.bn"
        weights |= {f"{bn}.weight": matcher.gamma, f"{bn}.bias": matcher.beta}
    weights = weights if EVERY_NUMBER else {}
    inputs = [image["tokens"], caption["tokens"]]
    found, slopes = gradients(value, inputs, list(weights.values()))
    close(found, case[f"out_{tag}_loss_sum"], factor=1e-4)
    for slope, side in zip(slopes[:2], ("img", "cap"), strict=True):
        close(slope, case[f"grad_{tag}_sum_{side}_emb"], side, factor=3e-4)
    for slope, name in zip(slopes[2:], weights, strict=True):
        expected = np.squeeze(case[f"grad_sum_{tag}.{name}"])
        # Inputs that differ in their last bit move the gradient of SGR by up to 2.3e-5.
        atol = max(2e-5, 1e-4 * np.abs(expected).max())
        np.testing.assert_allclose(np.squeeze(slope.T), expected, 1e-4, atol, err_msg=name)
    if EVERY_NUMBER:
        close(score(image, caption), case[f"out_{tag}_sims"], factor=1e-4)
        _, slopes = gradients(lambda *inputs: value(*inputs, mining="hardest"), inputs)
        for slope, side in zip(slopes, ("img", "cap"), strict=True):
            close(slope, case[f"grad_{tag}_max_{side}_emb"], side, factor=3e-4)
