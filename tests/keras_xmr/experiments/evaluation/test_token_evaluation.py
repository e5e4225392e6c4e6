"""Tokens in evaluation, config and export."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import tensorflow as tf
import token_models

from data_pipelines.options import ImageOptions
from data_pipelines.text import SPECIAL, WordTokenizer
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.scoring import MatcherScores
from keras_xmr.experiments.evaluation.split_embeddings import (
    _GRAPHS,
    Ragged,
    embed_batches,
    embed_captions,
)
from keras_xmr.experiments.export.saved_model import export_saved_model
from keras_xmr.matchers import SAF
from keras_xmr.utils.errors import ConfigError

TINY = {"similarity_dimension": 4, "captions_at_once": 2}
TOKENS = (
    "model.image.pooling=null",
    "model.text.pooling=null",
    "model.image.head=tokens",
    "model.text.head={name: tokens, context: bi_gru}",
    "objective=[{name: soft_contrastive}]",
    "evaluation.matchers=[]",
)


def tokenizer():
    words = [*SPECIAL, "red", "dog", "runs", "two", "grass"]
    return WordTokenizer(words[: token_models.WORDS], 12)


@pytest.mark.slow
def test_captions_of_any_length_are_embedded_by_one_graph_and_scored_in_any_tiles(random):
    model = token_models.retriever(SAF(**TINY))
    texts = ["red dog", "two", "a dog runs on the red grass", "", "dog", "two red dog runs"]
    captions = embed_captions(model, texts, tokenizer(), batch=2)
    (graph,) = _GRAPHS[model.text_tower].values()
    assert graph.experimental_get_tracing_count() == 1
    assert isinstance(captions["tokens"], Ragged)
    assert captions["tokens"].lengths.tolist() == [4, 3, 9, 2, 3, 6]
    regions = random.normal(size=(5, token_models.REGIONS, token_models.WIDTH))
    dataset = tf.data.Dataset.from_tensor_slices(regions.astype(np.float32)).batch(3)
    with graphs.eager():
        images = embed_batches(model.image_tower, dataset, 5, 3, "images")
        expected = model.score(
            model.image_tower(regions.astype(np.float32)), model.text_tower(tokenizer()(texts))
        )
        found = np.asarray(MatcherScores(model.matcher, images, captions, (3, 4)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_models_of_tokens_are_exported(tmp_path):
    model = token_models.retriever(SAF(**TINY))
    words = tokenizer()
    export_saved_model(model, words, ImageOptions(), tmp_path / "1")
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    x, _ = token_models.batch(2)
    texts = tf.constant(["red dog runs", "two"])
    image, text = loaded.embed_image(x["image"]), loaded.embed_text(texts)
    assert image["tokens"].shape == (2, 3, 6)
    np.testing.assert_array_equal(text["mask"], [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = model.score(model.image_tower(x["image"][:1]), model.text_tower(words(texts)))
    found = loaded.match(x["image"][:1], texts[None])["scores"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.matcher=saf"], r"'saf' scores tokens embeddings, .* single words"),
        (
            [*TOKENS, "model.matcher=cosine"],
            r"works on one vector per item; .* saf, scan, sgr, sgraf",
        ),
        ([*TOKENS, "model.matcher=saf"], r"'soft_contrastive' reads scores as log-odds"),
        (["model.image.head=tokens"], r"model\.image\.pooling: has no effect: the head 'tokens'"),
        (["model.image.pooling=null"], r"model\.image\.pooling: the head 'gaussian' needs a pool"),
        (["model.image.pooling=gpi"], r"gpo"),
        (
            [*TOKENS, "model.matcher=saf", "train.phases.0.freeze=[text.pooling]"],
            r"freeze: the tower of 'text\.pooling' has no pooling",
        ),
    ],
)
def test_what_does_not_fit_tokens_is_refused(overrides, says):
    with pytest.raises(ConfigError, match=says):
        load_config(find_config("scenes_pcme"), overrides)
