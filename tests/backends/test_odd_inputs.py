"""Inputs that no loss can use are refused, and odd ones that it can are right, with any backend."""

from __future__ import annotations

import every_part
import keras
import ml_dtypes
import numpy as np
import pytest
from autodiff import evaluated, evaluating, gradients

from keras_xmr import heads, losses, matchers
from keras_xmr.utils.errors import ArgumentError

torch_only = pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch")


@pytest.fixture
def points(random):
    return random.normal(size=(4, 8)).astype(np.float32)


def test_masked_arrays_are_refused(points):
    masked = np.ma.masked_array(points, mask=points > 0)
    for part in (losses.InfoNCE(), matchers.Cosine()):
        with pytest.raises(ArgumentError, match="images: 'mean' is masked in places"):
            part(masked, points)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_beyond_float32_are_refused(points, dtype):
    with pytest.raises(ArgumentError, match="float32 cannot square"):
        losses.InfoNCE()(points.astype(dtype) * dtype(1e20), points)
    assert np.isfinite(evaluated(losses.InfoNCE(), points * np.float32(1e16), points))


@pytest.mark.parametrize("part", [losses.MahalanobisContrastive(), matchers.MatchProbability()])
def test_log_variances_beyond_float32_are_refused(points, part):
    def scored(size):
        log_variance = np.where(points > 0, size, -size).astype(np.float32)
        tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, (points, log_variance))
        gaussian = dict(zip(("mean", "log_variance"), tensors, strict=True))
        return keras.ops.convert_to_numpy(part(gaussian, gaussian))

    with pytest.raises(ArgumentError, match="images: log-variances are as large as 95"):
        scored(95.0)
    assert np.isfinite(scored(40.0)).all()
    assert np.isnan(scored(np.nan)).any()


def test_a_matcher_refuses_tensors_beyond_float32(points):
    ones, large = (keras.ops.convert_to_tensor(points * np.float32(k)) for k in (1, 1e20))
    with pytest.raises(ArgumentError, match="captions: 'mean' has numbers up to"):
        matchers.Cosine()(ones, large)


@pytest.mark.parametrize("part", [losses.InfoNCE(), matchers.MaxCosine(), matchers.JensenShannon()])
def test_empty_embeddings_are_refused(points, part):
    key = {"MaxCosine": "points"}.get(type(part).__name__, "mean")
    keys = (key, "log_variance") if isinstance(part, matchers.JensenShannon) else (key,)
    full = dict.fromkeys(keys, points[:, None] if key == "points" else points)
    empty = [{k: v[:0] for k, v in full.items()}, {k: v[..., :0] for k, v in full.items()}]
    for sides in ((empty[0], full), (full, empty[0]), (empty[1], empty[1])):
        with pytest.raises(ArgumentError, match=r"is empty, .* at least one image and one caption"):
            part(*sides)


def test_numbers_that_are_not_finite_pass(points):
    points[0, 0] = np.inf
    points[1, 1] = 1e20
    assert np.isnan(evaluated(losses.InfoNCE(), points, points))


@pytest.mark.parametrize(
    ("name", "key"),
    {
        "Diversity": "residuals",
        "HypergraphContrastive": "log_variance",
        "KL": "mean",
        "MMD": "points",
        "Mahalanobis": "log_variance",
        "MahalanobisContrastive": "mean",
    }.items(),
)
def test_nan_is_not_hidden_by_what_compiles_a_part(name, key, random):
    """TensorFlow makes 0 of NaN where it computes several operations in one step."""
    case = (every_part.LOSSES | every_part.MATCHERS)[name]
    image, caption = every_part.sides(case, random)
    image[key][(0,) * image[key].ndim] = np.nan
    ids = [every_part.IMAGE_IDS] if name in every_part.LOSSES else []
    assert np.isnan(keras.ops.convert_to_numpy(case.make()(image, caption, *ids))).any()


@pytest.mark.parametrize(
    "name", ["InfoNCE", "SoftContrastive_mean", "Cosine", "Triplet", "MeanOnly"]
)
def test_embeddings_may_be_variables(name, random):
    case = (every_part.LOSSES | every_part.MATCHERS)[name]
    image, caption = every_part.sides(case, random)
    ids = [every_part.IMAGE_IDS] if name in every_part.LOSSES else []
    more = {"matcher": evaluating(case.matcher())} if case.matcher else {}
    part = evaluating(case.make())
    learned = {key: keras.Variable(array) for key, array in caption.items()}
    expected, found = (
        keras.ops.convert_to_numpy(part(image, side, *ids, **more)) for side in (caption, learned)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_longer_floats_than_any_framework_has(points):
    long = points.astype(np.longdouble)
    np.testing.assert_allclose(losses.InfoNCE()(long, points), losses.InfoNCE()(points, points))


@torch_only
def test_tensors_that_are_not_dense_are_refused(points):
    import torch

    dense = torch.tensor(points)
    odd = {
        "sparse": dense.to_sparse(),
        "nested": torch.nested.nested_tensor([dense, dense]),
        "quantized": torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
        "meta": dense.to("meta"),
    }
    for name, tensor in odd.items():
        with pytest.raises(ArgumentError, match=f"images: 'mean' is a .*{name}"):
            losses.InfoNCE()(tensor, dense)


@pytest.mark.parametrize("name", ["MahalanobisContrastive", "HypergraphContrastive"])
def test_a_query_needs_two_candidates(points, name):
    loss = getattr(losses, name)()
    if not loss.built:
        loss.build(None, *[{"mean": points.shape}] * 2)
    for ids, *sides in (([0], points, points[:1]), ([0] * 4, points[:1], points)):
        with pytest.raises(ArgumentError, match="there is only one: give at least 2 images"):
            evaluated(lambda *given, ids=ids: loss(*given, ids), *sides)


def test_masks_are_of_tokens(random):
    tokens = random.normal(size=(4, 3, 8)).astype(np.float32)
    mask = np.ones((4, 3), np.float32)
    whole = {"tokens": tokens, "mask": mask}
    expected = evaluated(matchers.SCAN(), whole, whole)
    for fine in (mask.astype(bool), mask.astype(np.uint8), mask.astype(">f4")):
        sides = {"tokens": tokens.astype(">f4"), "mask": fine}, whole
        scores = keras.ops.convert_to_numpy(matchers.SCAN()(*sides))
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    additive = np.where(np.arange(3) < 2, 0, -np.inf).astype(np.float32)
    for odd in (additive, -1, 0.5, np.nan, 255):
        wrong = {"tokens": tokens, "mask": mask * odd if np.isscalar(odd) else mask * 0 + odd}
        with pytest.raises(ArgumentError, match="captions: a mask is 1 or True where"):
            matchers.SCAN()(whole, wrong)


def test_arrays_of_jax_and_of_other_machines(points):
    bfloat16 = points.astype(ml_dtypes.bfloat16)
    expected = losses.InfoNCE()(bfloat16.astype(np.float32), points)
    np.testing.assert_allclose(losses.InfoNCE()(bfloat16, points.astype(">f4")), expected)


def test_what_is_not_named_or_seeded_as_it_must_be(points):
    gaussian = {"mean": points, "log_variance": points}
    for wrong, says in (
        ({**gaussian, 3: points}, "images: 3 is no name of a tensor"),
        ({"log_variance": points}, r"images: no kind of embedding has the keys \['log_var"),
    ):
        with pytest.raises(ArgumentError, match=says):
            matchers.ELK()(wrong, gaussian)
    with pytest.raises(ArgumentError, match=r"seed is an int, .* not 'a'"):
        matchers.MatchProbability()(gaussian, gaussian, seed="a")
    matcher = matchers.MatchProbability()
    scores = [
        keras.ops.convert_to_numpy(matcher(gaussian, gaussian, seed=seed, training=True))
        for seed in (3, np.int64(3))
    ]
    np.testing.assert_array_equal(*scores)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="of TensorFlow and JAX")
def test_sparse_tensors_of_other_frameworks_are_refused(points):
    if keras.backend.backend() == "jax":
        from jax.experimental import sparse

        given = sparse.BCOO.fromdense(points)
    else:
        import tensorflow as tf

        given = tf.sparse.from_dense(points)
    with pytest.raises(ArgumentError, match=r"images: 'mean' is a (SparseTensor|BCOO)"):
        losses.InfoNCE()(given, points)


def test_quintuplets_need_three_pairs(points):
    with pytest.raises(ArgumentError, match="2 images and 2 captions has none: give at least 3"):
        losses.AdaptiveOfflineQuintuplet()(points[:2], points[:2])


def test_sets_of_one_have_a_gradient(points):
    def value(residuals):
        sets = {"points": residuals, "residuals": residuals}
        return losses.SetUniformity()(sets, sets)

    found, (slope,) = gradients(value, [points[:, None]])
    assert found == 0
    np.testing.assert_array_equal(slope, np.zeros((4, 1, 8)))


def test_one_number_does_not_deviate(random):
    points = random.normal(size=(2, 3, 8)).astype(np.float32)
    loss, captions = losses.VarianceAwareWeighting(sigma_of="scores"), points[:, 0]
    ones = losses.VarianceAwareWeighting(sigma="one")
    found, expected = evaluated(
        lambda sets, one: [part({"points": sets}, one) for part in (loss, ones)], points, captions
    )
    assert found == expected


def test_a_pooling_is_made_by_a_function():
    with pytest.raises(ArgumentError, match=r"PIENet takes a function .*Mean\(8\), not 'mean'"):
        heads.PIENet(8, "mean")


def test_a_floor_needs_a_variance_that_has_one():
    with pytest.raises(ArgumentError, match=r"variance_floor: .*write variance: softplus or relu"):
        heads.Gaussian(8, lambda: None, variance_floor=0.1)
    assert heads.Gaussian.CONTRACT.only_with["variance_floor"]


@torch_only
def test_the_second_derivative_of_daa(random):
    import torch

    loss = losses.DAA(temperature=0.1, relevance_temperature=0.1)
    images, captions, way = random.normal(size=(3, 5, 8))
    relevance = random.uniform(size=(5, 5))
    captions = torch.tensor(captions, dtype=torch.float32)

    def slope(moved, create_graph=False):
        given = torch.tensor(moved, dtype=torch.float32, requires_grad=True)
        value = loss(given, captions, relevance=relevance)
        return given, torch.autograd.grad(value, given, create_graph=create_graph)[0]

    given, first = slope(images, create_graph=True)
    (found,) = torch.autograd.grad((first * torch.tensor(way, dtype=torch.float32)).sum(), given)
    ends = [slope(images + step * way)[1].numpy() for step in (1e-3, -1e-3)]
    expected = (ends[0] - ends[1]) / 2e-3
    assert np.linalg.norm(found.numpy() - expected) < 0.02 * np.linalg.norm(expected)


def test_masks_may_be_of_bool_and_fit_their_tokens():
    random = np.random.default_rng(5)
    image = {"tokens": random.normal(size=(3, 4, 6)).astype("float32"), "mask": np.ones((3, 4))}
    tokens = random.normal(size=(5, 7, 6)).astype("float32")
    there = np.arange(7) < np.array([[3], [7], [5], [1], [6]])
    scan = matchers.SCAN()
    expected, *others = (
        keras.ops.convert_to_numpy(scan(image, {"tokens": tokens, "mask": mask}))
        for mask in (there.astype("float32"), there, there.astype("int64"))
    )
    for found in others:
        # Each type of a mask is compiled for itself, and may add up in another order.
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    for mask, says in ((there[:, :6], "7 tokens have a mask of 6"), (there[:, :1], "mask of 1")):
        with pytest.raises(ArgumentError, match=says):
            scan(image, {"tokens": tokens, "mask": mask})
    with pytest.raises(ArgumentError, match="captions: tokens need a mask"):
        scan(image, {"tokens": tokens})


@pytest.mark.parametrize("name", ["SCAN", "SAF", "SGR", "IMRAM", "NAAF"])
def test_padding_may_stand_before_tokens(name):
    random = np.random.default_rng(6)
    image = {"tokens": random.normal(size=(2, 3, 8)).astype("float32"), "mask": np.ones((2, 3))}
    tokens = random.normal(size=(3, 5, 8)).astype("float32")
    there = np.array([[0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    ended = np.argsort(1 - there, axis=1, kind="stable")
    captions = {
        "tokens": np.concatenate([tokens, np.take_along_axis(tokens, ended[..., None], 1)]),
        "mask": np.concatenate([there, np.take_along_axis(there, ended, 1)]),
    }
    matcher = getattr(matchers, name)()
    shapes = ({key: array.shape for key, array in side.items()} for side in (image, captions))
    matcher.build(*shapes)
    scores = evaluated(lambda *sides: matcher(*sides, training=False), image, captions)
    np.testing.assert_allclose(scores[:, :3], scores[:, 3:], rtol=1e-4, atol=1e-6)
    assert np.ptp(scores) > 1e-3


def test_a_matcher_of_ones_own_that_returns_no_scores_is_named():
    images, captions = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    loss = losses.InfoNCE()
    for matcher, says in (
        (lambda a, b: (a @ b.T,), "the matcher returned a tuple; it returns scores"),
        (lambda a, b: None, "scores"),
        (lambda a, b: b @ a.T, r"shape \(4, 2\), and images are rows: \(2, 4\)"),
    ):
        with pytest.raises(ArgumentError, match=says):
            loss(images, captions, [0, 0, 1, 1], matcher=matcher)


@pytest.mark.parametrize("aggregation", ["mean", "log_sum_exp"])
@pytest.mark.parametrize("direction", ["text_to_image", "image_to_text"])
def test_where_nothing_attends_the_score_is_0(random, direction, aggregation):
    matcher = matchers.SCAN(direction=direction, aggregation=aggregation)
    whole = {"tokens": random.normal(size=(2, 3, 8)).astype("float32"), "mask": np.ones((2, 3))}
    none = {**whole, "mask": np.array([[0, 0, 0], [1, 0, 1]])}
    sides = (whole, none) if direction == "text_to_image" else (none, whole)
    scores = keras.ops.convert_to_numpy(matcher(*sides))
    scores = scores if direction == "text_to_image" else scores.T
    np.testing.assert_array_equal(scores[:, 0], 0)
    assert (scores[:, 1] != 0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: heads.pooling.Mean(6),
        lambda: heads.pooling.Attention(6),
        lambda: heads.pooling.VSRNPooling(6),
        lambda: heads.PIENet(6, lambda: heads.pooling.Mean(6), set_size=2),
    ],
)
def test_masks_of_heads_may_be_of_numbers_and_0_everywhere(make, random):
    features = random.normal(size=(3, 4, 5)).astype("float32")
    mask = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    head = evaluating(make())

    def embedded(dtype):
        given = keras.tree.map_structure(
            keras.ops.convert_to_tensor, (features, mask.astype(dtype))
        )
        return keras.tree.map_structure(
            keras.ops.convert_to_numpy, keras.tree.flatten(head(given[0], mask=given[1]))
        )

    expected = embedded(bool)
    for dtype in ("int32", "float32"):
        for found, value in zip(embedded(dtype), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
            assert np.isfinite(found).all()


def test_a_mask_of_a_recurrent_pooling_fits_its_sequence(random):
    features, mask = random.normal(size=(3, 5, 4)).astype("float32"), np.ones((3, 4), bool)
    head = evaluating(heads.pooling.BiGRU(6))
    with pytest.raises(ArgumentError, match="5 positions have a mask of 4"):
        head(keras.ops.convert_to_tensor(features), mask=keras.ops.convert_to_tensor(mask))


def test_messages_name_what_is_nearest(points):
    for module, name, near in (
        (losses, "TripletLoss", "Triplet"),
        (losses, "infonce", "InfoNCE"),
        (matchers, "cosine", "Cosine"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'. Did you mean '{near}'"):
            getattr(module, name)
    with pytest.raises(AttributeError, match=r"no attribute 'NTXent'. There are: .* InfoNCE, "):
        losses.NTXent  # noqa: B018
    with pytest.raises(ArgumentError, match=r"np.unique\(ids, return_inverse=True\) numbers"):
        losses.Triplet()(points, points, [f"photo {n}" for n in range(4)])


def test_a_batch_without_matches_is_noticed(points):
    with pytest.warns(UserWarning, match="no pair of the batch matches") as warned:
        losses.Triplet()(points, points, positives=np.zeros((4, 4), bool))
    assert warned[0].filename == __file__
