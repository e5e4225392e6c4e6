"""Photos of the records are embedded by the features that the run has stored."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import models
import numpy as np
import pytest
from datasets import csv_photos, encoded, picture
from PIL import Image

from data_pipelines.prepare import prepare
from keras_xmr.search import photo_embedding
from keras_xmr.search.photo_embedding import PhotoEmbedder
from keras_xmr.search.photos import find_photos
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
    digests = train.index.columns["digest"].tolist()
    places = {digest: (train, number) for number, digest in enumerate(digests)}
    monkeypatch.setattr(photo_embedding, "_stored_features", lambda model: places)

    model = SimpleNamespace(
        config=config,
        decode=lambda jpeg: np.full((8, 8, 3), hashlib.sha256(jpeg).digest()[0], np.uint8),
        embed_pixels=lambda pixels: {"mean": np.full((len(pixels), 1), -1.0)},
        embed_records=lambda split, numbers: {"mean": numbers[:, None].astype(float)},
    )
    files = [(path, state) for path, state in find_photos(root) if path in FILES]
    embedded = PhotoEmbedder(root, model).embed(files, Progress("photos", len(files), "photos"))
    assert [photo.path for photo in embedded.photos] == list(FILES)
    numbers = [train.image_keys.index(name) for name in list(FILES)[:4]]
    np.testing.assert_array_equal(embedded.arrays["mean"][:, 0], [*numbers, -1])
