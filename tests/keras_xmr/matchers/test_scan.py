"""Stacked cross attention, against loops over pairs and tokens in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.matchers import SCAN


def _tokens(random, lengths, most, width=6):
    tokens = random.normal(size=(len(lengths), most, width)).astype(np.float32)
    mask = (np.arange(most) < np.array(lengths)[:, None]).astype(np.float32)
    return {"tokens": tokens * mask[..., None], "mask": mask}


def _naive(contexts, queries, aggregation):
    """The score of one image and one caption, of which one side attends to the other."""
    contexts, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (contexts, queries))
    similar = np.array([[c @ q for q in queries] for c in contexts])
    similar = np.where(similar > 0, similar, 0.1 * similar)
    similar /= np.linalg.norm(similar, axis=1, keepdims=True)
    cosines = []
    for number, query in enumerate(queries):
        weights = np.exp(9 * similar[:, number])
        attended = (weights / weights.sum()) @ contexts
        cosines.append(query @ attended / np.linalg.norm(attended))
    if aggregation == "mean":
        return np.mean(cosines)
    return np.log(np.sum(np.exp(6 * np.array(cosines)))) / 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "aggregation", "training"),
    [("text_to_image", "mean", True), ("image_to_text", "log_sum_exp", False)],
)
def test_scores_are_those_of_a_loop(random, direction, aggregation, training):
    regions, words = [4, 4, 3], [5, 2, 1, 3, 4]
    image, caption = _tokens(random, regions, 4), _tokens(random, words, 6)
    matcher = SCAN(direction=direction, aggregation=aggregation, captions_at_once=2)
    scores = np.asarray(matcher(image, caption, training=training))
    expected = np.empty((3, 5))
    for i, r in enumerate(regions):
        for j, w in enumerate(words):
            sides = image["tokens"][i, :r], caption["tokens"][j, :w]
            if direction == "image_to_text":
                sides = sides[::-1]
            expected[i, j] = _naive(*sides, aggregation)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
