"""A model sees the same pixels of a file in records, in Python, in an index and exported."""

from __future__ import annotations

import re
from pathlib import Path

import models
import numpy as np
import odd_images
import pytest
import tensorflow as tf
from datasets import csv_photos, encoded, picture
from PIL import Image
from tiny_runs import untrained

import keras_xmr
from data_pipelines.pixels import read_pixels, stored_jpeg
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.experiments.export.saved_model import versions
from keras_xmr.search.photo_embedding import embed_folder

ODD = {
    **odd_images.readable(),
    "WebP": encoded(picture(7), "WEBP", quality=40),
    "large": encoded(picture(8, (220, 170)), quality=80),
    "large PNG": encoded(picture(9, (160, 210)), "PNG"),
}


@pytest.mark.slow
def test_odd_files_have_one_embedding_whatever_embeds_them(tmp_path):
    source = csv_photos(tmp_path / "raw", images=len(ODD) + 8)
    photos = tmp_path / "raw" / "images"
    files = {f"photo_{i:03d}.jpg": data for i, data in enumerate(ODD.values())}
    for name, data in files.items():
        (photos / name).write_bytes(data)
    # Two of the files are shrunk, the others are stored as they are or encoded again.
    overrides = f"data.source={source}", "data.image.store_side=40"
    run = Experiment(models.tiny_config(tmp_path, *models.POINTS, *overrides))
    run.prepare()
    untrained(run)
    run.export()
    train = run.records.split("train")
    assert sorted(train.image_keys) == sorted(files)

    embedded = embed_split(run.retriever, train, run.tokenizer, run.config).images
    expected = dict(zip(train.image_keys, np.asarray(embedded["mean"]), strict=True))

    paths = [photos / name for name in files]
    seen = {"Python": keras_xmr.load(run.folder.path).embed_images(paths)["mean"]}
    embed_folder(run_embedder(run.folder.path), photos, tmp_path / "index.npz")
    with np.load(tmp_path / "index.npz") as arrays:
        rows = dict(zip(arrays["paths"], arrays["mean"], strict=True))
        seen["index"] = [rows[name] for name in files]
    served = tf.saved_model.load(str(versions(run.folder.serving)[-1]))
    exported = {n: d for n, d in files.items() if d.startswith((b"\xff\xd8", b"\x89PNG"))}
    means = served.embed_image(tf.constant(list(exported.values())))["mean"].numpy()
    seen["SavedModel"] = list(means)

    for use, means in seen.items():
        names = exported if use == "SavedModel" else files
        for name, mean in zip(names, means, strict=True):
            difference = np.linalg.norm(mean - expected[name])
            odd = list(ODD)[list(files).index(name)]
            assert difference < 0.01 * np.linalg.norm(expected[name]), f"{use}: {odd}"


def test_the_recipe_of_the_docs_makes_the_jpeg_of_the_records(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "how_to" / "inference.md"
    (recipe,) = re.findall(r"```python\n(from PIL .*?)```", page.read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    photo = odd_images.PICTURE.copy()
    photo.putalpha(Image.fromarray(odd_images.noise(38, 53), "L"))
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(photo, "WEBP", lossless=True, exact=True, exif=exif)
    Path("photo.webp").write_bytes(data)
    exec(recipe, {})
    made = read_pixels(Path("photo.jpg").read_bytes(), "photo.jpg")
    np.testing.assert_array_equal(made, read_pixels(stored_jpeg(data, "a"), "a"))
