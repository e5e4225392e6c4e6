"""The Laplace approximation of the last matrices, against matrices that are written out."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_xmr.config.schema import CCAOptions
from keras_xmr.heads import HeadError, Laplace
from keras_xmr.heads.pooling import Mean, Projection
from keras_xmr.judgements import Judgements
from keras_xmr.training.cca_start import Averages, begin_at_cca
from keras_xmr.training.posthoc import curvature, last_layer_posterior

TEMPERATURE = 0.3


def scores(embedding, others):
    units = [v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (embedding, others)]
    return units[1] @ units[0] / TEMPERATURE


def gauss_newton(embedding, others, step=1e-5):
    """J^T (diag(p) - p p^T) J of one item, with differences for J."""
    moves = step * np.eye(len(embedding))
    slopes = [scores(embedding + m, others) - scores(embedding - m, others) for m in moves]
    jacobian = np.stack(slopes, axis=1) / (2 * step)
    shares = np.exp(scores(embedding, others))
    shares /= shares.sum()
    return jacobian.T @ (np.diag(shares) - np.outer(shares, shares)) @ jacobian


def test_curvature_is_the_sum_of_gauss_newton_matrices(random):
    embeddings, others = random.normal(size=(6, 4)), random.normal(size=(9, 4))
    expected = sum(gauss_newton(embedding, others) for embedding in embeddings)
    np.testing.assert_allclose(curvature(embeddings, others, TEMPERATURE), expected, rtol=1e-5)


def test_posterior_is_the_inverse_of_the_factors_at_the_likeliest_prior(random):
    inputs, kernel = random.normal(size=(30, 5)), random.normal(size=(5, 3))
    others = random.normal(size=(20, 3))
    covariance, variance, likeliest = last_layer_posterior(inputs, kernel, others, TEMPERATURE)
    of_inputs = inputs.T @ inputs / np.sqrt(30)
    of_outputs = curvature(inputs @ kernel, others, TEMPERATURE) / np.sqrt(30)

    def factors(precision):
        return [f + np.sqrt(precision) * np.eye(len(f)) for f in (of_inputs, of_outputs)]

    def evidence(precision):
        whole = np.kron(*factors(precision))
        fit = 15 * np.log(precision) - precision * np.sum(kernel**2)
        return 0.5 * (fit - np.linalg.slogdet(whole)[1])

    by_input, by_output = map(np.linalg.inv, factors(likeliest))
    np.testing.assert_allclose(covariance, by_input, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(by_output), rtol=1e-6)
    tried = likeliest * np.array([0.6, 1.0, 1.7])
    assert np.argmax([evidence(precision) for precision in tried]) == 1


def averages(random):
    hidden, image_ids = random.normal(size=(40, 3)), np.repeat(np.arange(40), 2)
    images = hidden @ random.normal(size=(3, 8)) + 0.3 * random.normal(size=(40, 8))
    captions = hidden[image_ids] @ random.normal(size=(3, 6)) + 0.3 * random.normal(size=(80, 6))
    sides = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (images, captions)]
    return Averages(*sides, image_ids, Judgements.from_pairs(image_ids, 40))


def heads():
    keras.utils.set_random_seed(0)
    found = [Laplace(3, lambda: Projection(3), temperature=TEMPERATURE) for _ in range(2)]
    for head, width in zip(found, (8, 6), strict=True):
        head.build((None, 1, width))
    return found


@pytest.mark.slow
def test_an_item_unlike_those_of_the_training_is_less_sure(random):
    image, caption = heads()
    train = averages(random)
    begin_at_cca(image, caption, train, None, CCAOptions())
    found = image(train.images[:, None].astype(np.float32))
    kernel = image.pooling.kernel.numpy()
    inputs = (train.images - image.pooling.centre.numpy()) * float(image.pooling.scale)
    expected = np.einsum("nf,fg,ng->n", inputs, image.input_covariance.numpy(), inputs)
    expected = np.outer(expected, image.output_variance.numpy())
    expected /= np.square(inputs @ kernel).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["log_variance"], np.log(expected), rtol=1e-3, atol=1e-3)
    strange = np.linalg.svd(train.images)[2][-1]
    far = image(strange[None, None].astype(np.float32))["log_variance"]
    assert float(far[0].numpy().mean()) > found["log_variance"].numpy().mean(axis=1).max()


def test_another_pooling_is_refused():
    with pytest.raises(HeadError, match="write pooling: projection"):
        Laplace(3, lambda: Mean(3))
