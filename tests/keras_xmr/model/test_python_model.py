"""A model of towers, a matcher and a loss, built, trained and evaluated in Python."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest

import keras_xmr
from keras_xmr import losses, matchers
from keras_xmr.metrics import Recall, retrieval
from keras_xmr.utils.errors import ArgumentError, UserError

PAIRS = 24
IMAGE_IDS = np.arange(PAIRS) // 2
_RANDOM = np.random.default_rng(0)
CAPTIONS = _RANDOM.normal(size=(PAIRS, 3)).astype(np.float32)
IMAGES = _RANDOM.normal(size=(PAIRS // 2, 4)).astype(np.float32)
X = {"image": IMAGES[IMAGE_IDS], "caption": CAPTIONS}


def tower(shape: int | tuple[int, ...], dimension: int = 5) -> keras.Model:
    inputs = keras.Input(shape if isinstance(shape, tuple) else (shape,))
    return keras.Model(inputs, keras.layers.Dense(dimension)(inputs))


def model(loss=None, **options) -> keras_xmr.Retriever:
    keras.utils.set_random_seed(0)
    loss = loss or losses.InfoNCE()
    return keras_xmr.Retriever(tower(4), tower(3), matchers.Cosine(), loss, **options)


@pytest.fixture(scope="module")
def fitted() -> tuple[keras_xmr.Retriever, dict]:
    made = model()
    metrics = [Recall(k=2), Recall(k=2, direction="text_to_image")]
    made.compile(keras.optimizers.Adam(0.05), metrics=metrics, run_eagerly=True)
    history = made.fit(X, IMAGE_IDS, batch_size=12, epochs=12, verbose=0, shuffle=False)
    return made, history.history


@pytest.mark.slow
def test_towers_of_bare_tensors_train(fitted):
    made, history = fitted
    assert made.image_tower.output.keys() == {"mean"}
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["recall_2"][-1] > history["recall_2"][0]


@pytest.mark.slow
def test_the_metric_is_recall_within_the_batch(fitted):
    made, _ = fitted
    found = made.evaluate(X, IMAGE_IDS, batch_size=PAIRS, verbose=0, return_dict=True)
    embedded = made(X)
    scores = np.array(made.score(embedded["image"], embedded["caption"]))
    right = IMAGE_IDS[:, None] == IMAGE_IDS
    expected = keras_xmr.metrics.recall(scores, right, k=[2])
    both = (expected["i2t_recall_2"] + expected["t2i_recall_2"]) / 2
    np.testing.assert_allclose(found["recall_2"], both, rtol=1e-6)
    np.testing.assert_allclose(found["recall_2_text_to_image"], expected["t2i_recall_2"], rtol=1e-6)


def test_recall_asks_a_directed_matcher_both_ways():
    recall = Recall(k=1, direction="text_to_image")
    scores = np.eye(3, dtype=np.float32)
    recall.update_state(scores > 0, scores, scores[::-1])
    np.testing.assert_allclose(recall.result(), 1 / 3)
    recall.reset_state()
    recall.update_state(scores > 0, np.ones((3, 3), np.float32))
    assert float(recall.result()) == 0.0  # ties count against the model


@pytest.mark.slow
def test_pairs_of_one_image_are_all_right():
    made = model()
    made.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    together = made.evaluate(X, IMAGE_IDS, batch_size=PAIRS, verbose=0, return_dict=True)
    embedded = made(X)
    towers = [embedded[side]["mean"] for side in ("image", "caption")]
    expected = losses.InfoNCE()(*towers, positives=IMAGE_IDS[:, None] == IMAGE_IDS)
    np.testing.assert_allclose(together["loss"], expected, rtol=1e-5)


@pytest.mark.slow
def test_daa_is_trained_with_the_relevance_of_own_captions():
    relevance = np.random.default_rng(1).random((len(IMAGES), PAIRS)).astype(np.float32)
    made = model(losses.DAA())
    made.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    options = {"batch_size": PAIRS, "verbose": 0, "shuffle": False}
    towers = [made(X)[side]["mean"] for side in ("image", "caption")]
    whole = relevance[IMAGE_IDS]
    positives = IMAGE_IDS[:, None] == IMAGE_IDS
    expected = losses.DAA()(*towers, positives=positives, relevance=whole)
    for given in (relevance, lambda images, captions: relevance[np.ix_(images, captions)]):
        history = made.fit(X, IMAGE_IDS, relevance=given, **options).history
        np.testing.assert_allclose(history["loss"], [expected], rtol=1e-5)
    options |= {"batch_size": 10, "shuffle": True}
    shuffled = made.fit(X, IMAGE_IDS, relevance=relevance, epochs=2, **options).history["loss"]
    assert shuffled[0] != shuffled[1]
    with pytest.raises(ArgumentError, match=r"relevance is of shape \(12, 3\); .*\(12, 24\) here"):
        made.fit(X, IMAGE_IDS, relevance=relevance[:, :3], **options)
    with pytest.raises(ValueError, match=r"fit\(\.\.\., relevance=keras_xmr\.relevance\.tf_idf"):
        made.fit(X, IMAGE_IDS, **options)
    other = model()
    other.compile("sgd")
    with pytest.raises(ArgumentError, match=r"such as DAA.*remove the argument"):
        other.fit(X, IMAGE_IDS, relevance=relevance, **options)


def test_a_model_with_a_class_of_another_version_is_refused():
    former = json.dumps(model().get_config()).replace("InfoNCE", "NTXent")
    with pytest.raises(UserError, match=r"is no keras_xmr\..*\.NTXent here\. Train it again"):
        keras_xmr.Retriever.from_config(json.loads(former))


@pytest.mark.slow
def test_a_compiled_model_loads_with_its_metrics(fitted, tmp_path):
    made, _ = fitted
    made.save(tmp_path / "model.keras")
    loaded = keras_xmr.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, keras_xmr.Retriever)
    with pytest.raises(UserError, match="does not exist; a run has its model in"):
        keras_xmr.load_model(tmp_path / "other.keras")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "other.keras")
    with pytest.raises(UserError, match="holds a Sequential, not a retrieval model"):
        keras_xmr.load_model(str(tmp_path / "other.keras"))
    assert [metric.get_config()["k"] for metric in loaded.recalls] == [2, 2]
    for one in (made, loaded):
        one.reset_metrics()
    ours, theirs = (
        one.evaluate(X, IMAGE_IDS, batch_size=PAIRS, verbose=0, return_dict=True)
        for one in (made, loaded)
    )
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.slow
def test_evaluate_ranks_everything(fitted):
    made, _ = fitted
    found = keras_xmr.evaluate(made, IMAGES, CAPTIONS, IMAGE_IDS, batch_size=7)
    images = made.image_tower(IMAGES)
    scores = np.array(made.score(images, made.text_tower(CAPTIONS)))
    assert found == retrieval(scores, IMAGE_IDS)
    assert found["rsum"] > 300
    right = keras_xmr.Judgements.from_pairs(IMAGE_IDS, len(IMAGES))
    assert keras_xmr.evaluate(made, IMAGES, CAPTIONS, judgements=right) == found
    assert keras_xmr.evaluate(made, IMAGES, CAPTIONS, IMAGE_IDS, memory_budget=1) == found


def test_evaluate_is_silent_if_asked(fitted, capfd):
    shown = []
    for verbose in (0, 1, "auto"):
        found = keras_xmr.evaluate(fitted[0], IMAGES, CAPTIONS, IMAGE_IDS, verbose=verbose)
        assert found["rsum"] > 300
        shown.append("embedding images" in capfd.readouterr().err)
    assert shown == [False, True, True]
    with pytest.raises(keras_xmr.ArgumentError, match=r'verbose is "auto", 0, 1 or 2, not 3'):
        keras_xmr.evaluate(fitted[0], IMAGES, CAPTIONS, IMAGE_IDS, verbose=3)


@pytest.mark.slow
def test_several_losses_sequential_towers_and_a_pair_of_arrays():
    image_tower = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
    objective = [losses.InfoNCE(), losses.Uniformity()]
    made = keras_xmr.Retriever(
        image_tower, tower(3), matchers.Cosine(), objective, judgements="classes"
    )
    made.compile("adam", run_eagerly=True)
    history = made.fit((X["image"], CAPTIONS), IMAGE_IDS % 3, batch_size=12, verbose=0).history
    assert history["loss"][0] == pytest.approx(
        history["info_nce"][0] + history["uniformity"][0], rel=1e-5
    )


@pytest.mark.parametrize(
    ("own", "weights", "says"),
    [
        ([losses.InfoNCE()], [1.0, 2.0], "1 losses, but 2 weights"),
        ([losses.InfoNCE()], [float("nan")], "a number from 0 on, not nan"),
        ([losses.InfoNCE()], None, "a list with one per loss, not None"),
        (["info_nce"], [1.0], "a list of some of keras_xmr.losses"),
        ([], [], "a list of some of keras_xmr.losses"),
    ],
)
def test_an_objective_is_losses_with_weights(own, weights, says):
    with pytest.raises(ArgumentError, match=says):
        keras_xmr.Objective(own, weights)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ((tower(4), tower(3), matchers.Cosine(), "mse"), "a list of some of keras_xmr.losses"),
        ((tower(4), tower(3), matchers.Cosine(), losses.InfoNCE), "the class InfoNCE itself"),
        ((tower(4), tower(3), matchers.Cosine, losses.InfoNCE()), "the class Cosine itself"),
        ((tower(4), tower(3), "cosine", losses.InfoNCE()), "not 'cosine'"),
        (
            (tower(4), tower(3), matchers.MatchProbability(), losses.InfoNCE()),
            "MatchProbability scores gaussian embeddings, not point and point",
        ),
        (
            (tower(4), tower(3), matchers.Cosine(), losses.KLDivergence()),
            "KLDivergence works on gaussian embeddings",
        ),
        ((tower(4), tower(3), matchers.Cosine(), losses.SoftContrastive()), "log-odds of a match"),
        ((tower(4), tower(3, 7), matchers.Cosine(), losses.InfoNCE()), "5 dimensions and captions"),
        (
            (tower((3, 2)), tower(3), matchers.Cosine(), losses.InfoNCE()),
            r"the image tower: 'mean' has the shape \(None, 3, 5\)",
        ),
        (
            (tower(4), keras.Sequential(), matchers.Cosine(), losses.InfoNCE()),
            "the text tower is a functional model",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, says):
    with pytest.raises(ArgumentError, match=says):
        keras_xmr.Retriever(*parts)


def fit(x, y):
    return lambda made: made.fit(x, y, verbose=0)


def evaluate(*arguments):
    return lambda made: keras_xmr.evaluate(made, *arguments)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (fit(X, None), r"learns from \(x, image_ids\)"),
        (fit(X, IMAGE_IDS.astype(np.float32)), "y is float32"),
        (fit(X, IMAGE_IDS.astype(str)), "it has to be the numbers of the images"),
        (fit(X["image"], IMAGE_IDS), r"not on one tensor, float32 of shape \(24, 4\)"),
        (fit({"image": X["image"]}, IMAGE_IDS), r"a dict with the keys \['image'\]"),
        (fit((IMAGES, CAPTIONS), IMAGE_IDS), "Repeat an image for each of its captions"),
        (
            fit((X["image"], ["a dog"] * PAIRS), IMAGE_IDS),
            "captions are texts, but the tower takes",
        ),
        (evaluate(IMAGES, CAPTIONS), "12 images and 24 captions: give image_ids"),
        (evaluate(IMAGES, ["a dog"] * 3), "captions are texts"),
        (evaluate(IMAGES, CAPTIONS, IMAGE_IDS + 1), "there are 12 images"),
        (lambda made: made.compile("adam", loss="mse"), "pass the loss to Retriever"),
        (lambda made: made.compile("adam", metrics=["accuracy"]), "not 'accuracy'"),
    ],
)
def test_what_a_model_does_not_take_is_refused(fitted, call, says):
    with pytest.raises(ArgumentError, match=says):
        call(fitted[0])


def test_functions_of_scores_say_what_they_take():
    scores = np.eye(3)
    for wrong, says in (
        ([0, 1], r"shape \(3,\)"),
        (np.ones((2, 3)), r"judgements of shape \(2, 3\)"),
        (-scores, "below 0"),
        (np.array([["a"]]), "not <U1"),
    ):
        with pytest.raises(ArgumentError, match=says):
            keras_xmr.metrics.recall(scores, wrong)
    with pytest.raises(ArgumentError, match="a matrix"):
        keras_xmr.metrics.recall(np.ones(3))
    with pytest.raises(ArgumentError, match="from 1 on"):
        keras_xmr.metrics.recall(scores, k=[0])
    with pytest.raises(ArgumentError, match="from 1 on"):
        Recall(k=0)
    with pytest.raises(ArgumentError, match="a list of texts"):
        keras_xmr.relevance.cider("a dog", [0])
    with pytest.raises(ArgumentError, match="of each of the 2 captions"):
        keras_xmr.relevance.cider(["a dog", "a cat"], [0])


def test_functions_are_what_the_rooms_compute(random):
    scores = random.normal(size=(3, 6)).astype(np.float32)
    image_ids = np.array([0, 0, 1, 1, 2, 2])
    right = keras_xmr.Judgements.from_pairs(image_ids, 3)
    expected = retrieval(scores, right)
    for given in (right, image_ids, image_ids.tolist(), right.grades, right.grades.toarray() > 0):
        found = keras_xmr.metrics.recall(scores, given)
        assert found == {name: expected[name] for name in found}
        assert len(found) == 6
    texts = ["a dog runs", "the dog runs", "two men", "men walk", "a cat", "the small cat"]
    relevance = keras_xmr.relevance.cider(texts, image_ids)
    assert relevance.shape == (3, 6)
    assert (relevance.argmax(axis=0) == image_ids).all()
