"""Losses of a similarity of one's own, and the page of the forms of embeddings."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from backend_matrix import array, tensors

from keras_xmr import losses, matchers
from keras_xmr.utils.errors import ArgumentError

ROWS = np.array([0, 0, 1, 2, 3])
PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations" / "embeddings.md"
torch_only = pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch")


def info_nce(scores, temperature):
    """Of several captions per image, each against the captions of other images."""
    logits = scores.astype(float) / temperature
    matches = np.arange(len(scores))[:, None] == ROWS
    total = 0.0
    for rows, right in ((logits, matches), (logits.T, matches.T)):
        queries = []
        for row, positives in zip(rows, right, strict=True):
            others = np.exp(row[~positives]).sum()
            own = np.exp(row[positives])
            queries.append(np.mean(-np.log(own / (own + others))))
        total += 0.5 * np.mean(queries)
    return total


def test_a_score_matrix_is_enough(random):
    scores = random.normal(size=(4, 5)).astype(np.float32)
    found = losses.InfoNCE(temperature=0.5).of_scores(tensors(scores), ROWS)
    assert float(array(found)) == pytest.approx(info_nce(scores, 0.5), rel=1e-5)


def test_a_function_is_a_matcher(random):
    image, caption = random.normal(size=(4, 6)), random.normal(size=(5, 6))
    image, caption = image.astype(np.float32), caption.astype(np.float32)
    found = losses.InfoNCE(temperature=0.5)(
        *tensors((image, caption)),
        ROWS,
        matcher=lambda a, b: keras.ops.matmul(a, keras.ops.transpose(b)) / 4.0,
    )
    assert float(array(found)) == pytest.approx(info_nce(image @ caption.T / 4, 0.5), rel=1e-5)


@torch_only
def test_a_module_is_a_matcher_and_learns(random):
    import torch

    class Bilinear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(6))

        def forward(self, images, captions):
            return images @ self.weight @ captions.T

    matcher, loss = Bilinear(), losses.SmoothAP(temperature=0.1)
    sides = torch.randn(4, 6), torch.randn(5, 6)
    loss(*sides, torch.tensor(ROWS), matcher=matcher).backward()
    assert matcher.weight.grad.abs().sum() > 0


def test_wrong_calls_name_the_remedy(random):
    points = tensors(random.normal(size=(5, 6)).astype(np.float32))
    with pytest.raises(ArgumentError, match=r"third argument is image_ids.* matcher=\.\.\."):
        losses.InfoNCE()(points, points, matchers.Cosine())
    with pytest.raises(ArgumentError, match="the class Cosine itself; make one"):
        losses.InfoNCE()(points, points, matcher=matchers.Cosine)
    with pytest.raises(ArgumentError, match="reads embeddings, not scores"):
        losses.MMD().of_scores(tensors(np.zeros((4, 5), np.float32)))
    with pytest.raises(ArgumentError, match="the sides look transposed"):
        losses.InfoNCE().of_scores(np.ones((4, 2), "f"), [0, 0, 1, 1])
    with pytest.raises(ArgumentError, match="scores are of the shape"):
        losses.InfoNCE().of_scores(points[0])


@torch_only
def test_the_page_of_forms(capsys):
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S))
    exec(compile(code, PAGE.name, "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [
        *("points", "Gaussians", "sets", "tokens", "scores", "tiles")
    ]
    assert all(float(line.split()[1]) > 0 for line in printed[:4])
    assert printed[4] == "scores (4, 5)"
    difference, rsum = map(float, printed[5].split()[1:])
    assert difference < 1e-6
    assert 0 < rsum <= 600
