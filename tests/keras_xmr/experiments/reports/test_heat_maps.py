"""Heat maps of regions against a loop over pixels and boxes (Wei et al. 2023, section IV-E1)."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.experiments.reports.figures import FigureOptions, draw_figure
from keras_xmr.experiments.reports.figures.heat_maps import heat_map
from keras_xmr.utils.errors import UserError


def test_a_pixel_has_the_scores_of_all_boxes_around_it(random):
    regions, size = 7, (5, 8)
    corners = np.sort(random.random((regions, 2, 2)), axis=1)
    boxes = np.concatenate([corners[:, 0], corners[:, 1]], axis=1)
    similarity = random.normal(size=regions)
    places = {region: place for place, region in enumerate(np.argsort(-similarity), start=1)}
    expected = np.zeros(size)
    for row in range(size[0]):
        for column in range(size[1]):
            x, y = (column + 0.5) / size[1], (row + 0.5) / size[0]
            for region, (left, top, right, bottom) in enumerate(boxes):
                if left <= x < right and top <= y < bottom:
                    expected[row, column] += (regions - places[region]) ** 2 / regions**2
    np.testing.assert_allclose(heat_map(similarity, boxes, size), expected)
    assert expected.any()


def test_cells_of_a_grid_are_regions_that_do_not_overlap():
    row, column = np.divmod(np.arange(4), 2)
    boxes = np.stack([column, row, column + 1, row + 1], axis=1) / 2
    heat = heat_map(np.array([0.1, 0.9, 0.2, 0.5]), boxes, (4, 4))
    np.testing.assert_allclose(heat[::2, ::2], [[0, 9 / 16], [1 / 16, 4 / 16]])


@pytest.mark.slow
def test_photos_without_places_and_regions_without_boxes_are_refused(trained, tmp_path):
    with pytest.raises(UserError, match="the split has the images 0 to"):
        draw_figure("wei2023:10", [trained], FigureOptions(item=999), tmp_path / "x.png")
