"""Where the training of frozen towers begins: the scores are the cosines of CCA."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import datasets
import models
import numpy as np
import projected_runs
import pytest
from cca_oracle import oracle

from data_pipelines.batches import image_batches
from keras_xmr.experiments.build import build_tokenizer
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training.cca_start import start_from_cca
from keras_xmr.model.towers import features_of
from keras_xmr.utils.errors import ConfigError

pytestmark = pytest.mark.usefixtures("eager")

RIDGES = (
    "train.cca.image_ridges=[100, 0.01]",
    "train.cca.caption_ridges=[0.5]",
    "train.cca.exponents=[0.5]",
)
GAUSSIAN = (
    "model.image.head={name: gaussian, rezero: true}",
    "model.text.head={name: gaussian, rezero: true, local_attention: false}",
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Where the records of photos are: 16 of training and 4 of validation, of 1 to 4 captions."""
    folder = tmp_path_factory.mktemp("photos")
    datasets.csv_photos(folder / "raw")
    rows = [
        [f"photo_{image:03d}.jpg", datasets.sentence(100 * image + number)]
        for image in range(24)
        for number in range(1 + image % 4)
    ]
    datasets.write_csv(folder / "raw" / "captions.csv", ["image", "caption"], rows)
    run(folder).prepare()
    return folder


@pytest.fixture(scope="module")
def start(photos):
    """The model of points before step 0, and the ridge of images that validation has chosen."""
    start = started(run(photos, *RIDGES))
    split, found = start.seen["val"], {}
    for ridge in (100, 0.01):
        found[ridge] = rsum(cosines(start.seen["train"], split, ridge, 0.5), split.image_ids)
    assert len(set(found.values())) == 2
    start.ridge = max(found, key=found.get)
    return start


def run(folder, *overrides) -> Experiment:
    source = f"data.source={{name: csv, root: {folder / 'raw'}, splits: splits.csv}}"
    encoder = "model.image.encoder={name: small_cnn, channels: [8, 8]}"
    config = projected_runs.config(folder, source, encoder, "train.start=cca", *overrides)
    return Experiment(config)


def started(run: Experiment, records=None):
    """The model as it stands before step 0, its tokenizer, and what its poolings see."""
    model, tokenizer = projected_runs.model_of(run), build_tokenizer(run.config, run.records)
    start_from_cca(model, records or run.records, tokenizer, run.config)
    seen = {split: averages(model, run, tokenizer, split) for split in ("train", "val")}
    return SimpleNamespace(model=model, tokenizer=tokenizer, seen=seen)


def averages(model, run, tokenizer, split):
    """Inputs, and their averages on the unit sphere, of images and captions; by numpy."""
    records = run.records.split(split)
    pixels = next(iter(image_batches(records, run.config.data.image, 99)))
    ids = tokenizer([caption.text for caption in records.captions])
    images = features_of(model.image_tower)(pixels).numpy().astype(np.float64).mean(axis=1)
    images = np.sign(images) * np.sqrt(np.abs(images))
    features, mask = (np.asarray(part) for part in features_of(model.text_tower)(ids))
    captions = np.array(
        [row[there].mean(axis=0) for row, there in zip(features, mask, strict=True)], np.float64
    )
    return SimpleNamespace(
        pixels=pixels,
        ids=ids,
        images=unit(images),
        captions=unit(captions),
        image_ids=records.caption_image,
    )


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(train, split, image_ridge, caption_ridge):
    """Those of the projections by CCA of one split, of the items of another."""
    values, left, right = oracle(
        train.images, train.captions, train.image_ids, image_ridge, caption_ridge
    )
    left, right = (maps[:, :5] * values[:5] ** 0.5 for maps in (left, right))
    images = (split.images - train.images[train.image_ids].mean(axis=0)) @ left
    return unit(images) @ unit((split.captions - train.captions.mean(axis=0)) @ right).T


def scores(model, split):
    embedded = model({"image": split.pixels, "caption": split.ids})
    return np.asarray(model.score(embedded["image"], embedded["caption"]))


@pytest.mark.slow
def test_before_step_0_scores_are_cosines_of_cca(start):
    for split in start.seen.values():
        expected = cosines(start.seen["train"], split, start.ridge, 0.5)
        np.testing.assert_allclose(scores(start.model, split), expected, atol=5e-3)
        assert expected.std() > 0.1
    for tower, inputs in (
        (start.model.image_tower, start.seen["train"].pixels),
        (start.model.text_tower, start.seen["train"].ids),
    ):
        features = features_of(tower)(inputs)
        features, mask = features if isinstance(features, list) else (features, None)
        projected = tower.get_layer("head").pooling(features, mask=mask)
        assert np.linalg.norm(projected, axis=1).mean() == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_without_validation_gaussian_heads_begin_at_the_first_ridge(photos, caplog):
    gaussian = run(photos, *RIDGES, *GAUSSIAN)
    manifest = gaussian.records.manifest
    only = {"train": manifest["splits"]["train"]}
    with caplog.at_level("INFO", logger="keras_xmr"):
        records = replace(gaussian.records, manifest=manifest | {"splits": only})
        start = started(gaussian, records)
    (says,) = [message for message in caplog.messages if "closed form: " in message]
    expected = "linear maps of 16 images and 40 captions (CCA; ridges 100 and 0.5, exponent 0.5, 5 "
    assert says == f"closed form: {expected}directions)"
    split = start.seen["val"]
    np.testing.assert_allclose(
        scores(start.model, split), cosines(start.seen["train"], split, 100, 0.5), atol=5e-3
    )
    for tower in (start.model.image_tower, start.model.text_tower):
        head = tower.get_layer("head")
        mean, other = head.mean_pooling, head.log_variance_pooling
        np.testing.assert_array_equal(other.centre, mean.centre)
        assert float(other.scale) == float(mean.scale) != 1
        assert np.abs(other.kernel.numpy() - mean.kernel.numpy()).max() > 0.01


def rsum(values, image_ids) -> float:
    """The sum of R@1, R@5 and R@10 both ways, of a few items."""
    total = 0.0
    match = np.arange(len(values))[:, None] == image_ids
    for rows, right in ((values, match), (values.T, match.T)):
        order = np.argsort(-rows, axis=1)
        ranked = np.take_along_axis(right, order, axis=1)
        total += sum(ranked[:, :k].any(axis=1).mean() for k in (1, 5, 10))
    return total


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["model.image.pooling=projection"],
            r"train\.start: 'cca' sets the pooling `projection`, which model\.text does not have; "
            r"write model\.text\.pooling: projection",
        ),
        (
            [
                "model.image.pooling=projection",
                "model.text.pooling=projection",
                "model.image.head=gaussian",
                "model.text.head={name: gaussian, keep_mean: true}",
            ],
            r"(?s)write model\.image\.head\.rezero: true.*"
            "which `keep_mean` of model.text.head leaves as it is",
        ),
    ],
)
def test_towers_and_heads_that_cannot_begin_at_it_are_refused(tmp_path, overrides, says):
    with pytest.raises(ConfigError, match=says) as error:
        models.tiny_config(tmp_path, "train.start=cca", *overrides)
    assert "model.image does not" not in str(error.value)
