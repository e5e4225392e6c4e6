"""Images of records as files."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
from PIL import Image

from data_pipelines.image_files import write_images
from data_pipelines.options import DataOptions
from data_pipelines.prepare import prepare
from keras_xmr.utils.errors import UserError


@pytest.fixture
def records(tmp_path):
    source = datasets.csv_photos(tmp_path / "photos")
    options = {"source": source, "records": str(tmp_path / "records"), "text": {"min_count": 1}}
    return prepare(DataOptions.model_validate(options))


@pytest.mark.slow
def test_files_have_the_pixels_of_the_records(records, tmp_path):
    part = records.split("train")
    assert write_images(part, tmp_path / "out") == len(part)
    files = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files == sorted(part.image_keys)
    with Image.open(tmp_path / "out" / part.image_keys[0]) as image:
        assert np.asarray(image).std() > 0


@pytest.mark.parametrize("key", ["../out.jpg", "/tmp/out.jpg", "a/../../b.jpg"])
def test_names_stay_inside_the_folder(records, tmp_path, key):
    part = records.split("train")
    part.image_keys = [key]
    with pytest.raises(UserError, match="leads out of the folder"):
        write_images(part, tmp_path / "out")
