"""A variance that predicts the ranks of held-out items."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
import pytest
import scipy.stats

from data_pipelines.text import shortened
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.train_section import CCAOptions
from keras_xmr.experiments.training import cca_start
from keras_xmr.experiments.training.cca_start import ClosedForm, begin_at_cca
from keras_xmr.experiments.training.feature_averages import Averages
from keras_xmr.experiments.training.held_out_ranks import (
    STRENGTHS,
    Prediction,
    held_out_log_ranks,
    predict,
)
from keras_xmr.heads import HeadError, HeldOutRank
from keras_xmr.heads.pooling import Mean, Projection
from keras_xmr.judgements import Judgements
from keras_xmr.linear.cca import CanonicalCorrelations
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.vectors import unit_rows

HIDDEN, WIDTH = 6, 12


def averages(random, photos: int = 240, captions: int = 2):
    """Captions whose last number says how vague they are, and how vague each is."""
    maps = np.random.default_rng(5).normal(size=(2, HIDDEN, WIDTH - 1))
    hidden = random.normal(size=(photos, HIDDEN))
    owner = np.repeat(np.arange(photos), captions)
    vague = random.random(len(owner))
    images = np.c_[hidden @ maps[0], np.zeros(photos)]
    said = (1 - vague)[:, None] * hidden[owner] + vague[:, None] * random.normal(
        size=(len(owner), HIDDEN)
    )
    texts = np.c_[said @ maps[1], 5 * vague]
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (images, texts)]
    pairs = np.stack([owner, np.arange(len(owner))], axis=1)
    judgements = Judgements.from_grades(pairs, np.ones(len(owner), int), (photos, len(owner)))
    return Averages(*units, owner, judgements), vague


def heads():
    made = [HeldOutRank(4, lambda: Projection(4), folds=3, name=n) for n in ("image", "caption")]
    for head in made:
        head.build((None, 1, WIDTH))
    return made


def test_vague_captions_of_new_photos_have_a_larger_variance(random):
    (train, _), (new, vague) = averages(random), averages(random)
    image, caption = heads()
    options = ClosedForm(CCAOptions(image_ridges=(1,), caption_ridges=(1,)))
    chosen = begin_at_cca(image, caption, train, None, options)
    output = caption(new.captions[:, None].astype(np.float32))
    log_variance = np.asarray(output["log_variance"])
    assert np.ptp(log_variance, axis=1).max() == 0
    assert scipy.stats.spearmanr(log_variance[:, 0], vague).statistic > 0.6
    expected = np.array(caption.pooling(new.captions[:, None].astype(np.float32)))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(output["mean"], expected, atol=1e-5)
    assert chosen.rank_strengths.keys() == {"images", "captions"}
    assert begin_at_cca(image, caption, train, None, chosen) == chosen
    np.testing.assert_allclose(
        caption(new.captions[:, None].astype(np.float32))["log_variance"], log_variance, rtol=1e-5
    )
    strengths = {"images": 1e3, "captions": 1e-3}
    other = begin_at_cca(image, caption, train, None, replace(chosen, rank_strengths=strengths))
    assert other.rank_strengths == strengths


@pytest.mark.parametrize(
    ("explained", "says"), [(0.237, "explain 24 %"), (-0.04, "do not tell"), (0.0, "do not tell")]
)
def test_no_negative_share_of_the_variance_is_reported(
    random, monkeypatch, caplog, explained, says
):
    monkeypatch.setattr(
        cca_start, "predict", lambda x, *_: Prediction(np.zeros(x.shape[1]), 0.0, explained, 1.0)
    )
    options = ClosedForm(CCAOptions(image_ridges=(1,), caption_ridges=(1,)))
    with caplog.at_level("INFO", logger="keras_xmr"):
        begin_at_cca(*heads(), averages(random)[0], None, options)
    assert f"uncertainty of images: their features {says}" in caplog.text


def test_ranks_are_those_of_maps_of_the_other_folds(random):
    train, _ = averages(random, photos=30)
    arrays = train.images, train.captions, train.image_ids
    options = next(CanonicalCorrelations(*arrays).projections(4, [1], [1], [0.5]))
    fold_of = np.arange(30) % 2
    of_images, of_captions = held_out_log_ranks(*arrays, fold_of, options)
    others = random.normal(size=train.captions.shape)
    again, of_all = held_out_log_ranks(*arrays, fold_of, options, (others, train.image_ids))
    np.testing.assert_array_equal(again, of_images)
    np.testing.assert_array_equal(of_all[: len(of_captions)], of_captions)
    _, of_same = held_out_log_ranks(*arrays, fold_of, options, arrays[1:])
    np.testing.assert_array_equal(of_same[len(of_captions) :], of_captions)
    assert of_all[len(of_captions) :].mean() > of_captions.mean() + 0.3
    held = np.flatnonzero(fold_of == 1)
    kept = np.flatnonzero(fold_of[train.image_ids] == 0)
    cca = CanonicalCorrelations(
        train.images[fold_of == 0], train.captions[kept], train.image_ids[kept] // 2
    )
    maps = next(cca.projections(4, [1], [1], [0.5]))
    for caption in np.flatnonzero(fold_of[train.image_ids] == 1)[:10]:
        query = (train.captions[caption] - cca.caption_mean) @ maps.caption
        gallery = (train.images[held] - cca.image_mean) @ maps.image
        cosines = gallery @ query / np.linalg.norm(gallery, axis=1)
        own = cosines[held == train.image_ids[caption]]
        assert np.exp(of_captions[caption]) == pytest.approx((cosines >= own).sum())
    assert (of_images >= 0).all()


def test_shortened_captions_have_a_larger_variance(random):
    """They differ from whole ones in a direction in which those do not differ from each other."""
    (train, _), (new, _) = averages(random), averages(random)
    direction = np.linalg.svd(train.captions - train.captions.mean(axis=0))[2][-1]
    image, caption = heads()
    options = ClosedForm(CCAOptions(image_ridges=(1,), caption_ridges=(1,)))
    shorter = [
        unit_rows(part.captions + 3 * direction + 0.3 * random.normal(size=part.captions.shape))
        for part in (train, new)
    ]
    grown = []
    for fitted in (None, (shorter[0], train.image_ids)):
        begin_at_cca(image, caption, replace(train, shortened=fitted), None, options)
        before, after = (
            np.asarray(caption(vectors[:, None].astype(np.float32))["log_variance"])[:, 0]
            for vectors in (new.captions, shorter[1])
        )
        grown.append(after.mean() - before.mean())
    assert grown[1] > 0.2 > 0 > grown[0]


def test_shortened_captions_keep_words_in_order():
    texts = ["one two three four five six seven eight nine ten"] * 50 + ["word", ""]
    *several, one, none = shortened(texts)
    places = [[texts[0].split().index(word) for word in text.split()] for text in several]
    assert all(kept == sorted(kept) for kept in places)
    assert {len(kept) for kept in places} == {1, 2, 3, 4, 5, 6, 7}
    assert (one, none) == ("word", "")


def test_the_strength_is_the_best_on_held_out_folds(random):
    inputs, folds = random.normal(size=(60, 40)), np.arange(60) % 3
    noise = predict(inputs, random.normal(size=60), folds)
    assert noise.explained < 0.2  # Noise cannot be predicted, whatever the 40 numbers fit.
    values = inputs[:, 0] + 0.1 * random.normal(size=60)
    values[3] = np.nan
    best = predict(inputs, values, folds)
    assert best.explained > 0.8
    assert best.slope[0] == pytest.approx(1, abs=0.2)
    assert best.intercept == pytest.approx(0, abs=0.2)
    assert best.explained == max(predict(inputs, values, folds, s).explained for s in STRENGTHS)
    kept = predict(inputs, values, folds, best.strength)
    np.testing.assert_array_equal(kept.slope, best.slope)


@pytest.mark.slow
def test_it_is_saved_and_trains_its_point(random, tmp_path):
    inputs = keras.Input((3, 5))
    head = HeldOutRank(4, lambda: Projection(4))
    model = keras.Model(inputs, head(inputs))
    head.set_prediction(random.normal(size=5), 0.5)
    assert [weight.name for weight in model.trainable_weights] == ["kernel"]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    features = random.normal(size=(2, 3, 5)).astype(np.float32)
    for name, value in model(features).items():
        np.testing.assert_array_equal(again(features)[name], value)


def test_what_it_needs_is_said():
    with pytest.raises(HeadError, match="write pooling: projection"):
        HeldOutRank(4, lambda: Mean(4))
    with pytest.raises(HeadError, match="write 2 or more"):
        HeldOutRank(4, lambda: Projection(4), folds=1)


def test_its_start_is_that_of_cca_or_of_a_finished_run(tmp_path):
    random_start = [f"data.source.root={tmp_path}", "train.start=random"]
    with pytest.raises(ConfigError, match="'held_out_rank' is computed where training starts"):
        load_config(find_config("csv_pretrained"), random_start)
    continued = [*random_start, "train.initial_weights=saved_models/csv_pretrained"]
    assert load_config(find_config("csv_pretrained"), continued).train.start == "random"
