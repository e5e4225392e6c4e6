"""Exports load without us: the Keras file with the package alone, the SavedModel without it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import datasets
import models
import numpy as np
import pytest
import tensorflow as tf
from command_line import PLAIN_INSTALL
from interruptions import weights_in
from PIL import Image
from tiny_runs import copy_of, untrained

from data_pipelines.image_decoding import decode_any_for_evaluation
from data_pipelines.pixels import evaluation_pixels
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export import saved_model
from keras_xmr.experiments.export.saved_model import (
    ExportError,
    _Endpoints,
    image_files,
    versions,
)
from keras_xmr.experiments.runs.weight_files import trained_weights

pytestmark = pytest.mark.slow

CAPTIONS = ["a red circle left of a small blue square", "nothing green", "Zwei Hunde 🐕", ""]

LOAD = """
import json, sys
import numpy as np, tensorflow as tf
folder, keras_file, batch, *images = sys.argv[1:]
model = tf.saved_model.load(folder)
images = [open(path, "rb").read() for path in images]
captions = json.loads(sys.stdin.read())
found = {
    "image": model.signatures["embed_image"](image_bytes=tf.constant(images)),
    "text": model.signatures["embed_text"](captions=tf.constant(captions)),
    "match": model.signatures["match"](
        image_bytes=tf.constant(images), captions=tf.constant([captions] * len(images))),
}
found = {n: {k: v.numpy().tolist() for k, v in f.items()} for n, f in found.items()}
assert not {"keras_xmr", "data_pipelines", "tensorflow_probability"} & sys.modules.keys()

import keras_xmr
import keras
model = keras_xmr.load_model(keras_file)
batch = np.load(batch)
embedded = model({"image": batch["image"], "caption": batch["caption"]})
found["scores"] = np.asarray(model.score(embedded["image"], embedded["caption"])).tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained):
    """A trained run that was exported by another process than its own."""
    run = copy_of(trained, tmp_path_factory.mktemp("run"))
    run.export()
    return run


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The same picture as JPEG, PNG and grey JPEG."""
    folder = tmp_path_factory.mktemp("pictures")
    picture = datasets.picture(3, (70, 50))
    for name, image, kind in (
        ("a.jpg", picture, "JPEG"),
        ("b.png", picture, "PNG"),
        ("c.jpg", picture.convert("L"), "JPEG"),
    ):
        (folder / name).write_bytes(datasets.encoded(image, kind))
    return sorted(folder.iterdir())


def live(run, pictures):
    """What the live model makes of pictures and captions."""
    pixels = tf.stack(
        [
            decode_any_for_evaluation(tf.constant(path.read_bytes()), run.config.data.image)
            for path in pictures
        ]
    )
    return run.retriever.image_tower(pixels), run.retriever.text_tower(run.tokenizer(CAPTIONS))


@pytest.fixture(scope="module")
def batch(run):
    """Pixels and word ids, as the model eats them."""
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (3, 32, 32, 3), np.uint8),
        "caption": run.tokenizer(CAPTIONS).numpy(),
    }


@pytest.fixture(scope="module")
def found(run, pictures, batch, tmp_path_factory):
    """What another process makes of the SavedModel without us, and then of the Keras file."""
    folder = tmp_path_factory.mktemp("elsewhere")
    np.savez(folder / "batch.npz", **batch)
    files = (run.folder.serving / "1", run.folder.model, folder / "batch.npz", *pictures)
    command = [
        sys.executable,
        "-I",
        "-c",
        PLAIN_INSTALL.read_text("utf-8") + LOAD,
        *map(str, files),
    ]
    options: dict = {"input": json.dumps(CAPTIONS), "cwd": folder, "text": True}
    done = subprocess.run(command, capture_output=True, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_saved_model_needs_no_project_code_and_the_keras_file_the_package(
    run, pictures, batch, found
):
    image, caption = live(run, pictures)
    scores = run.retriever.score(image, caption)
    for key in ("mean", "log_variance"):
        np.testing.assert_allclose(found["image"][key], image[key], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["text"][key], caption[key], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        found["text"]["log_sigma"], 0.5 * np.mean(caption["log_variance"], axis=1), rtol=1e-4
    )
    np.testing.assert_allclose(found["match"]["scores"], scores, rtol=1e-3, atol=1e-4)
    probabilities = np.array(found["match"]["probabilities"])
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-scores)), rtol=1e-3)
    assert probabilities.shape == (3, 4)
    embedded = run.retriever(batch)
    expected = run.retriever.score(embedded["image"], embedded["caption"])
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-4, atol=1e-4)


def test_the_snippets_of_the_docs_run(run, pictures, batch, tmp_path, monkeypatch):
    page = Path(__file__).parents[4] / "docs" / "how_to" / "inference.md"
    keras_file, saved, upright, _, client = re.findall(
        r"```python\n(.*?)```", page.read_text("utf-8"), re.S
    )
    (tmp_path / "saved_models").mkdir()
    (tmp_path / "saved_models" / "scenes_pcme").symlink_to(run.folder.path)
    monkeypatch.chdir(tmp_path)
    Image.open(pictures[0]).save("photo.webp")
    names = {"pixels": batch["image"]}
    for block in (upright, keras_file, saved):
        exec(compile(block, str(page), "exec"), names)

    def post(url, json, timeout):
        """Answers as TF Serving does."""
        assert url.endswith("/v1/models/scenes_pcme:predict")
        content = [base64.b64decode(item["b64"]) for item in json["inputs"]["image_bytes"]]
        signature = names["model"].signatures[json["signature_name"]]
        outputs = signature(image_bytes=tf.constant(content))
        return SimpleNamespace(
            raise_for_status=lambda: None,
            json=lambda: {"outputs": {key: value.numpy() for key, value in outputs.items()}},
        )

    monkeypatch.setattr("requests.post", post)
    exec(compile(client, str(page), "exec"), names)
    pixels = tf.constant(Path("photo.jpg").read_bytes())
    mean = names["model"].embed_image(pixels[None])["mean"]
    np.testing.assert_allclose(names["mean"], mean, rtol=1e-4, atol=1e-5)


def save_nothing(served, path, signatures):
    """Writes a version without a model in it."""
    (Path(path) / "variables").mkdir(parents=True)


@pytest.fixture
def quick(run, monkeypatch):
    """Exports that take no time; all that they leave is removed."""
    monkeypatch.setattr(tf.saved_model, "save", save_nothing)
    monkeypatch.setattr(_Endpoints, "compare", lambda self, folder: None)
    yield run
    for path in run.folder.serving.iterdir():
        if path.name != "1":
            shutil.rmtree(path)


def test_the_keras_file_has_the_step_of_the_weights_whoever_exports(
    trained, quick, tmp_path, monkeypatch
):
    """Whether the model was trained or loaded here."""
    # Within the archive each step backwards is read again from the beginning.
    monkeypatch.setattr(zipfile.ZipExtFile, "seek", lambda *_: pytest.fail("slow"))
    quick.__dict__.pop("retriever", None)
    assert trained_weights(quick.folder, quick.config) == quick.folder.model
    expected = json.loads(quick.folder.done.read_text())["best_step"]
    assert expected > 0
    for model in (trained.retriever, quick.retriever):
        path = tmp_path / "model.keras"
        saved_model.export_keras(model, path)
        with zipfile.ZipFile(path) as archive:
            weights = Path(archive.extract("model.weights.h5", tmp_path))
        assert weights_in(weights)["vars/0"] == expected


def test_an_export_is_the_next_version_and_removes_what_a_killed_one_left(quick):
    before = (quick.folder.serving / "1" / "saved_model.pb").stat().st_ino
    dead = f".2.{os.getpid()}.1"  # Of an earlier process of the same number, as in a container.
    for left in (dead, ".1.old", ".2.old"):
        (quick.folder.serving / left / "variables").mkdir(parents=True)
    quick.export()
    assert [path.name for path in versions(quick.folder.serving)] == ["1", "2"]
    assert (quick.folder.serving / "1" / "saved_model.pb").stat().st_ino == before
    assert not (quick.folder.serving / dead).exists()
    assert not list(quick.folder.path.glob(".*"))


@pytest.mark.parametrize("fails", [KeyboardInterrupt, ExportError])
def test_an_export_that_ends_early_leaves_what_was_there(quick, monkeypatch, fails):
    def ends(self, folder):
        raise fails

    before = sorted(quick.folder.serving.rglob("*"))
    monkeypatch.setattr(_Endpoints, "compare", ends)
    with pytest.raises(fails):
        quick.export()
    assert sorted(quick.folder.serving.rglob("*")) == before


@pytest.fixture(scope="module")
def served(run):
    """The exported model, without what else the project knows."""
    return tf.saved_model.load(str(versions(run.folder.serving)[-1]))


def test_an_export_that_sees_other_pixels_than_records_is_refused(run, monkeypatch):
    endpoints = _Endpoints(run.retriever, run.tokenizer, run.config.data.image)
    for wrong in ("rotated JPEG", "CMYK JPEG", "palette PNG", "transparent PNG"):

        def others(data, name, options, wrong=wrong):
            pixels = evaluation_pixels(data, name, options)
            return 255 - pixels if name == wrong else pixels

        monkeypatch.setattr(saved_model, "evaluation_pixels", others)
        with pytest.raises(ExportError, match=f"decodes a {wrong} file"):
            endpoints._some_images()


@pytest.fixture(scope="module")
def regions_run(tmp_path_factory):
    """A run that was not trained, on features of regions: soon exported, without decoding."""
    folder = tmp_path_factory.mktemp("regions")
    datasets.regions(folder / "features")
    losses = (
        "[{name: variance_aware_weighting, weight: 0.6}, {name: triplet, warmup_steps: 2},"
        " {name: dynamic_orthogonality, weight: 0.4}]"
    )
    run = Experiment(
        models.tiny_config(
            folder,
            f"data.source={{name: regions, root: {folder / 'features'}}}",
            "model.image.encoder={name: regions, dimension: 8}",
            "model.image.pooling=attention",
            "model.image.head={name: dynamic_sub_embeddings, set_size: 2}",
            "model.text.head=attentive_point",
            "model.matcher=max_cosine",
            f"objective={losses}",
            "evaluation.matchers=[]",
        )
    )
    run.prepare()
    return untrained(run)


def test_an_export_that_is_not_equal_is_refused(regions_run, tmp_path, monkeypatch):
    run = regions_run
    endpoints = _Endpoints(run.retriever, run.tokenizer, run.config.data.image)

    def drifting(captions):
        return {name: value + 0.5 for name, value in endpoints.embed_text(captions).items()}

    loaded = SimpleNamespace(embed_image=endpoints.embed_image, embed_text=drifting)
    monkeypatch.setattr(tf.saved_model, "load", lambda folder: loaded)
    with pytest.raises(ExportError, match="embed_text is not equal to the model"):
        endpoints.compare(tmp_path)


def test_sets_of_regions_are_exported_without_what_only_losses_need(regions_run):
    run = regions_run
    run.export()
    regions = np.load(run.config.data.source.root / "test_ims.npy")[:2]
    loaded = tf.saved_model.load(str(run.folder.serving / "1"))
    assert "embed_pixels" not in loaded.signatures
    image, caption = loaded.embed_image(regions), loaded.embed_text(tf.constant(CAPTIONS))
    assert image.keys() == {"points"}
    expected = run.retriever.image_tower(regions)["points"]
    np.testing.assert_allclose(image["points"], expected, rtol=1e-4, atol=1e-5)
    assert caption.keys() == {"mean"}
    match = loaded.match(regions, tf.constant([CAPTIONS, CAPTIONS]))
    assert match.keys() == {"scores"}
    cosines = np.einsum("nkd,md->nkm", image["points"], caption["mean"])
    np.testing.assert_allclose(match["scores"], cosines.max(axis=1), rtol=1e-4, atol=1e-5)


def test_an_earlier_saved_model_takes_the_weights_of_now(regions_run, tmp_path, monkeypatch):
    run = regions_run
    export = (run.retriever, run.tokenizer, run.config.data.image)
    saved_model.export_saved_model(*export, tmp_path / "1")
    weights = run.retriever.text_tower.trainable_variables
    before = [weight.numpy() for weight in weights]
    regions = np.load(run.config.data.source.root / "test_ims.npy")[:2]
    with monkeypatch.context() as patch:
        patch.setattr(tf.saved_model, "save", lambda *_, **__: pytest.fail("traced"))
        for weight in weights:
            weight.assign(weight + 0.1)
        saved_model.export_saved_model(*export, tmp_path / "2", tmp_path / "1")
    embedded = [
        tf.saved_model.load(str(tmp_path / version)).embed_text(tf.constant(CAPTIONS))["mean"]
        for version in "12"
    ]
    expected = run.retriever.text_tower(run.tokenizer(CAPTIONS))["mean"]
    np.testing.assert_allclose(embedded[1], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(embedded[1] - embedded[0]).max() > 1e-2
    # One whose functions compute something else, or that is damaged, is not taken.
    saved, save = [], tf.saved_model.save
    monkeypatch.setattr(tf.saved_model, "save", lambda *a, **k: (saved.append(1), save(*a, **k)))
    with monkeypatch.context() as patch:
        score = run.retriever.score
        patch.setattr(run.retriever, "score", lambda *a: score(*a) + 1)
        saved_model.export_saved_model(*export, tmp_path / "3", tmp_path / "2")
    lists = tf.constant([CAPTIONS, CAPTIONS])
    plain, more = (
        tf.saved_model.load(str(tmp_path / version)).match(regions, lists)["scores"]
        for version in "23"
    )
    np.testing.assert_allclose(more, plain + 1, rtol=1e-4, atol=1e-5)
    (tmp_path / "2" / "variables" / "variables.index").write_bytes(b"")
    saved_model.export_saved_model(*export, tmp_path / "4", tmp_path / "2")
    assert len(saved) == 2
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value)


def test_keras_file_holds_no_code(run):
    with zipfile.ZipFile(run.folder.model) as archive:
        config = archive.read("config.json").decode()
        assert sorted(archive.namelist()) == ["config.json", "metadata.json", "model.weights.h5"]
    assert "Lambda" not in config


def test_the_saved_model_sees_odd_files_as_records_hold_them(run, served):
    options = run.config.data.image
    files = image_files()
    found = served.embed_image(tf.constant(list(files.values())))["mean"].numpy()
    expected = np.stack([evaluation_pixels(data, name, options) for name, data in files.items()])
    np.testing.assert_allclose(
        found, run.retriever.image_tower(expected)["mean"], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(found, served.embed_pixels(expected)["mean"], rtol=1e-4, atol=1e-4)
    # They do not all look the same to a model.
    assert np.ptp(found, axis=0).max() > 1e-2


def test_no_captions_and_no_images_have_no_embeddings(run, served):
    none = tf.constant([], tf.string)
    assert served.embed_text(none)["mean"].shape == (0, 8)
    assert served.embed_text(none)["log_sigma"].shape == (0,)
    assert served.embed_image(none)["mean"].shape == (0, 8)
    photo = tf.constant([image_files()["plain JPEG"]])
    assert served.match(photo, tf.reshape(none, [1, 0]))["scores"].shape == (1, 0)
    assert served.match(none, tf.reshape(none, [0, 2]))["scores"].shape == (0, 2)


def test_each_image_is_matched_with_its_own_captions(run, served):
    files = image_files()
    photos = tf.constant([files["plain JPEG"], files["palette PNG"]])
    lists = tf.constant([["two", "a red circle", "two"], ["", "two", "nothing green"]])
    found = served.match(photos, lists)["scores"].numpy()
    for row in range(2):
        alone = served.match(photos[row : row + 1], lists[row : row + 1])["scores"]
        np.testing.assert_allclose(found[row], alone[0], rtol=1e-4, atol=1e-5)
    embedded = served.embed_image(photos), served.embed_text(tf.constant(["two"]))
    np.testing.assert_allclose(found[:, [0]][:1], run.retriever.score(*embedded)[:1], rtol=1e-4)
    assert found[0, 0] == found[0, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="a list of captions per image"):
        served.match(photos, lists[:1])


def test_a_file_that_is_no_image_is_named(served):
    photo = image_files()["plain JPEG"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image 2 .*is not a JPEG or a PNG"):
        served.embed_image(tf.constant([photo, photo, b"text", photo]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image 0 .*is not a JPEG or a PNG"):
        served.match(tf.constant([b"text"]), tf.constant([CAPTIONS]))
