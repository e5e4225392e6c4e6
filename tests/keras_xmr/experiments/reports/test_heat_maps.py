"""Heat maps of regions against a loop over pixels and boxes (Wei et al. 2023, section IV-E1)."""

from __future__ import annotations

import datasets
import models
import numpy as np
import pytest
from tiny_runs import in_memory

from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.reports.figures import FigureOptions, draw_figure
from keras_xmr.experiments.reports.figures.heat_maps import draw_heat_maps, heat_map
from keras_xmr.utils.errors import UserError

REGIONS = (
    "model.image={encoder: regions, pooling: mean, "
    "head: {name: dynamic_sub_embeddings, set_size: 3, dynamic_mask: none}}",
    "model.text.head=attentive_point",
    "model.matcher=max_cosine",
    "objective=[variance_aware_weighting]",
    "evaluation.matchers=[]",
)


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


@pytest.mark.slow
def test_heat_is_over_the_boxes_of_a_file_and_on_its_photo(tmp_path):
    source = datasets.bottom_up(tmp_path / "data") | {"boxes": True}
    run = Experiment(models.tiny_config(tmp_path, f"data.source={source}", *REGIONS))
    run.prepare()
    run = in_memory(run)
    part = run.records.split("test")
    (tmp_path / "photos").mkdir()
    photo = tmp_path / "photos" / f"{part.image_keys[0]}.jpg"
    photo.write_bytes(datasets.encoded(datasets.picture(0)))
    options = FigureOptions(photos=tmp_path / "photos")
    axes = draw_heat_maps([run], options).axes
    assert [len(axis.images) for axis in axes] == [1, 2, 2, 2]
    raw = part.regions(np.array([0]))[0]
    head = run.retriever.image_tower.get_layer("head")
    (points,) = np.asarray(head(raw[None])["points"])
    alone = [np.asarray(head.pooling(region[None, None]))[0] for region in raw]
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    size = axes[0].images[0].get_array().shape[:2]
    for axis, point in zip(axes[1:], points, strict=True):
        similarity = np.array([cosine(region, point) for region in alone])
        expected = heat_map(similarity, raw[:, 7:11], size)
        np.testing.assert_allclose(axis.images[1].get_array(), expected)
        assert axis.get_title().partition(": ")[2].replace("\n", " ") in part.texts
    photo.unlink()
    with pytest.raises(UserError, match="has no photo called"):
        draw_heat_maps([run], options)
    run.config.data.source.__dict__["boxes"] = False  # It is frozen.
    with pytest.raises(UserError, match=r"data[.]source[.]boxes=true"):
        draw_heat_maps([run], options)
