"""Who matches whom in a batch, by what its items are identified by."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from keras_xmr.losses import Diversity, Triplet
from keras_xmr.model.objective import Objective, relations, targets_read

# Three images of two classes, the second with two captions.
SEVERAL = {
    "image_id": np.array([4, 7, 9]),
    "labels": np.array([[0], [1], [0]]),
    "caption_image_id": np.array([4, 7, 7, 9]),
    "caption_labels": np.array([[0], [1], [1], [0]]),
}
PLAIN = SimpleNamespace(needs_relevance=False)


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        ("pairs", [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]),
        ("classes", [[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1]]),
    ],
)
def test_images_with_all_their_captions(judgements, expected):
    read = targets_read(SEVERAL, judgements, PLAIN)
    found = relations(read, judgements)["positives"]
    np.testing.assert_array_equal(found, np.array(expected, bool))


def test_what_nothing_reads_is_not_gathered():
    image = {name: np.zeros((3, 2, 6)) for name in ("points", "residuals", "features")}
    assert set(Objective([Triplet()], [1.0]).select_gathered(image)) == {"points"}
    objective = Objective([Triplet(), Diversity()], [1.0, 1.0])
    assert set(objective.select_gathered(image)) == {"points", "residuals"}
