"""How the rows of the papers are trained, against what papers, released code and jobs say."""

from __future__ import annotations

import pytest

from keras_xmr.config.loader import find_config, load_config, packaged_configs


def rows(*patterns):
    """The configs of the rows whose names have all of some parts."""
    starts = ("coco_", "f30k_", "cub_")
    names = [n for n in packaged_configs() if n.startswith(starts) and "pretrained" not in n]
    found = [name for name in names if all(pattern in name for pattern in patterns)]
    assert found
    return found


def losses(config):
    return {loss.name: loss for loss in config.objective}


@pytest.mark.parametrize(
    ("name", "falls"),
    [
        ("coco_vsepp_smooth_ap", (75,)),
        ("f30k_vsepp_smooth_ap", (75,)),
        ("coco_vsrn_smooth_ap", (75,)),
        ("f30k_vsrn_smooth_ap", (50, 100)),
    ],
)
def test_smooth_ap_trains_as_the_released_jobs_do(name, falls):
    config = load_config(find_config(name))
    assert (config.train.sampler, config.train.batch_size) == ("images_with_all_captions", 128)
    (phase,) = config.train.phases
    assert (phase.epochs, phase.decay_epochs, phase.decay_factor) == (150, falls, 0.1)
    assert phase.freeze == (("image.encoder",) if "vsepp" in name else ())
    assert losses(config)["smooth_ap"].temperature == 0.01


@pytest.mark.parametrize("name", rows("vsrn"))
def test_vsrn_normalises_batches_as_the_released_codes_do(name):
    """Bleeker and de Rijke on both data sets, Li et al. on Flickr30K alone."""
    config = load_config(find_config(name))
    assert config.model.image.pooling.batch_norm == (name not in ("coco_vsrn", "coco_vsrn_aoq"))
    assert config.model.image.encoder.normalize_first == name.startswith("coco")


@pytest.mark.parametrize("name", rows("vsepp"))
def test_vsepp_has_averages_at_unit_length_before_its_layer(name):
    assert load_config(find_config(name)).model.image.pooling.normalize


@pytest.mark.parametrize("name", rows("f30k_vsrn"))
def test_rate_of_vsrn_falls_again_and_again_on_flickr30k(name):
    (phase,) = load_config(find_config(name)).train.phases
    every = int(phase.decay_epochs[0])
    assert phase.decay_epochs == tuple(range(every, phase.epochs, every))


@pytest.mark.parametrize("name", rows("cub_"))
def test_cub_is_cropped_in_the_centre_and_not_mirrored(name):
    config = load_config(find_config(name))
    image = config.data.image
    assert (image.resize, image.size, image.crop, image.flip) == (256, 224, "center", False)
    assert config.train.sampler == "one_per_class"


def test_cub_pcme_warms_up_on_the_cosine_of_fifty_epochs():
    warm_up, whole = load_config(find_config("cub_pcme")).train.phases
    assert (warm_up.epochs, warm_up.cosine_epochs) == (10, 50)
    assert (whole.epochs, whole.cosine_epochs) == (50, None)


def test_means_alone_are_as_uniform_as_distributions_on_cub():
    both = [load_config(find_config(name)) for name in ("cub_pcme", "cub_pcme_mean_only")]
    assert losses(both[0])["uniformity"] == losses(both[1])["uniformity"]


@pytest.mark.parametrize("name", rows("pcme_bert"))
def test_bert_is_pooled_as_the_released_code_does(name):
    text = load_config(find_config(name)).model.text
    assert text.pooling.name == "rectified_mean"
    assert (text.head.name, text.head.variance_pooling) == ("gaussian", "bi_gru")


@pytest.mark.parametrize("name", ["csv_dive_regions", *rows("dive")])
def test_dive_has_the_numbers_of_its_released_code(name):
    config = load_config(find_config(name))
    for tower, positions in ((config.model.image, "none"), (config.model.text, "sine")):
        head = tower.head
        assert (head.heads, head.head_dimension, head.expansion) == (4, 512, 4)
        assert (head.iterations, head.positions) == (4, positions)
    assert losses(config)["triplet"].margin == 0.2
    assert losses(config)["set_uniformity"].weight == losses(config)["mmd"].weight == 0.01
    if not name.startswith("csv"):
        train = config.train
        assert (train.sampler, train.batch_size) == ("images_with_all_captions", 200)


def test_dive_on_the_scenes_has_the_proportions_of_its_released_code():
    config, row = (load_config(find_config(name)) for name in ("scenes_dive", "coco_dive"))
    for side, positions in (("image", "none"), ("text", "sine")):
        head, of_row = getattr(config.model, side).head, getattr(row.model, side).head
        assert (head.heads, head.expansion) == (of_row.heads, of_row.expansion)
        assert (head.iterations, head.positions) == (of_row.iterations, positions)
        widths = head.head_dimension / config.model.dimension
        assert widths == of_row.head_dimension / row.model.dimension == 0.5
    # What validation chooses of margins (docs/results/scenes.md), not that of the released code.
    assert losses(config)["triplet"].margin == 0.025
    assert losses(config)["set_uniformity"].weight == losses(config)["mmd"].weight == 0.01


@pytest.mark.parametrize("name", rows("dvse"))
def test_dvse_has_no_augmentation_and_no_clipping_that_its_paper_has_not(name):
    config = load_config(find_config(name))
    assert config.data.image.cutout == config.data.text.drop_words == 0
    assert config.train.clip_norm is None


@pytest.mark.parametrize(
    ("name", "folds", "printed"),
    [
        ("coco_pcme", False, {"i2t_asp": 54.5, "t2i_asp": 55.0, "rsum": 370.1}),
        ("coco_pcme", True, {"i2t_asp": 54.7, "t2i_asp": 55.3, "rsum": 491.8}),
        ("coco_pvse_k2", False, {"i2t_recall_10": 84.5, "t2i_recall_5": 63.0, "rsum": 374.4}),
        ("coco_pvse_k2", True, {"i2t_recall_5": 91.6, "t2i_recall_10": 93.7, "rsum": 492.8}),
        ("cub_pcme", False, {"i2t_asp": 53.1, "t2i_asp": 56.8}),
    ],
)
def test_figures_that_other_papers_print_are_there(name, folds, printed):
    figures = load_config(find_config(name)).paper.figures
    values = next(f.values for f in figures if f.folds == folds and f.matcher is None)
    assert printed.items() <= values.items()
    recalls = [values.get(f"{way}_recall_{k}") for way in ("i2t", "t2i") for k in (1, 5, 10)]
    if "rsum" in values:
        assert sum(recalls) == pytest.approx(values["rsum"], abs=0.15)
