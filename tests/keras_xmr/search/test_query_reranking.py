"""Re-ranking of one query, tuned on captions whose right photos are known."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from keras_xmr.search.query_reranking import Reranking, mean_recall, tune


def test_a_photo_that_fits_every_query_comes_later():
    right = np.eye(20, 40, dtype=bool)
    scores = np.where(right, 1.0, 0.0)
    scores[:, 30:] = 2.0  # These are near to all captions.
    of_sample = np.where(np.arange(40)[:, None] >= 30, 2.0, np.zeros((1, 50)))
    found = tune(scores, of_sample, right)
    assert (found.before, found.after) == (0.0, 1.0)
    assert found.order(scores[3], of_sample)[0] == 3
    assert Reranking(**asdict(found)) == found
    assert found.sentence.endswith("from 0.0 to 100.0 %.")
    assert "to 57.4 %: the order without it is better" in Reranking(1.0, 0.584, 0.574).sentence


def test_recall_is_the_mean_of_that_at_1_5_and_10():
    scores = -np.tile(np.arange(20.0), (4, 1))
    right = np.zeros((4, 20), bool)
    right[[0, 1, 2], [0, 3, 12]] = True  # The last caption has no right photo.
    assert mean_recall(scores, right) == (3 + 2 + 0) / 9
