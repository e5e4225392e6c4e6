"""Photos of the records are embedded by the features that the run has stored."""

from __future__ import annotations

from types import SimpleNamespace

import models
import numpy as np
import pytest
from datasets import csv_photos, encoded, picture
from PIL import Image

from data_pipelines.features import FeatureStore
from data_pipelines.prepare import prepare
from keras_xmr.search import photo_embedding
from keras_xmr.search.photo_embedding import PhotoEmbedder, Store
from keras_xmr.search.photo_table import find_photos
from keras_xmr.utils.files import locked
from keras_xmr.utils.progress import Progress

# A PNG file, a photo that is turned, and one that `store_side` shrinks; then one of no record.
TURNED = Image.Exif()
TURNED[0x0112] = 6
FILES = {
    "photo_000.jpg": encoded(picture(0), "PNG"),
    "photo_001.jpg": encoded(picture(1), exif=TURNED),
    "photo_002.jpg": encoded(picture(2, (120, 90))),
    "photo_003.jpg": encoded(picture(3)),
    "unknown.jpg": encoded(picture(99)),
}


@pytest.mark.parametrize("store_side", [None, 44])
def test_photos_of_the_records_are_recognised_whatever_their_files_are(
    tmp_path, monkeypatch, store_side
):
    source = csv_photos(tmp_path / "raw", images=12)
    root = tmp_path / "raw" / "images"
    for name, content in FILES.items():
        (root / name).write_bytes(content)
    side = f"data.image.store_side={'null' if store_side is None else store_side}"
    config = models.tiny_config(tmp_path, f"data.source={source}", side)
    train = prepare(config.data).split("train")
    store = FeatureStore(tmp_path / "features")
    with store.writing("an image", "train.precompute_features") as writer:
        numbers = np.arange(len(train), dtype=float)
        writer.add(train.index.columns["digest"], numbers[:, None, None])
    computed = []
    features = Store(tmp_path / "features", (1, 1))
    model = SimpleNamespace(
        batch_size=config.evaluation.batch_size,
        pixel_options=config.data.image,
        encode_pixels=lambda pixels: (
            computed.append(len(pixels)) or np.full((len(pixels), 1, 1), -1.0)
        ),
        embed_features=lambda features: {"mean": features[:, 0]},
    )
    files = [(path, state) for path, state in find_photos(root) if path in FILES]
    expected = [*(train.image_keys.index(name) for name in list(FILES)[:4]), -1]
    with locked(tmp_path / "features"):
        # Another process computes features: they are read, and those of others are not stored.
        embedded = PhotoEmbedder(root, model, features).embed(
            files, Progress("photos", 5, "photos")
        )
    assert [photo.path for photo in embedded.photos] == list(FILES)
    np.testing.assert_array_equal(embedded.arrays["mean"][:, 0], expected)
    for most in (0, 1, 1):
        monkeypatch.setattr(photo_embedding, "_MOST_STORED", most)
        PhotoEmbedder(root, model, features).embed(files, Progress("photos", 5, "photos"))
    # The photo of no record was embedded again twice, and stored by the second time.
    assert computed == [1, 1, 1]
