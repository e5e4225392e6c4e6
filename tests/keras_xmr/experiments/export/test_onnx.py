"""Towers as ONNX give what Keras gives, or are refused."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.experiments.export import onnx_export
from keras_xmr.experiments.export.saved_model import ExportError
from keras_xmr.heads.pooling import BiGRU, Projection
from keras_xmr.layers import BagOfWords
from keras_xmr.utils.errors import UserError

SAMPLES = {
    "image": np.random.default_rng(0).normal(size=(3, 3, 4)).astype(np.float32),
    "text": np.array([[1, 2, 3, 4], [5, 0, 0, 0], [2, 3, 0, 0]], np.int32),
}


@pytest.fixture
def packages():
    """What ONNX needs, or the test is skipped."""
    for name in ("onnx", "tf2onnx", "onnxruntime"):
        pytest.importorskip(name)


def model():
    """Regions, and captions that a recurrent pooling reads as far as they go."""
    ids = keras.Input((None,), dtype="int32", name="caption")
    pooled = BiGRU(6)(keras.layers.Embedding(7, 4, mask_zero=True)(ids))
    text = keras.Model(ids, {"mean": pooled}, name="text_tower")
    regions = keras.Input((3, 4), name="image")
    mean = keras.layers.GlobalAveragePooling1D()(keras.layers.Dense(6)(regions))
    image = keras.Model(regions, {"mean": mean}, name="image_tower")
    return SimpleNamespace(image_tower=image, text_tower=text)


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_towers_are_written_and_give_the_same_numbers(tmp_path):
    import onnxruntime

    own = model()
    folder = tmp_path / "saved_models" / "scenes_pcme" / "onnx"
    files = onnx_export.export_onnx(own, SAMPLES, 0, folder)
    assert [path.name for path in files] == ["image_tower.onnx", "text_tower.onnx"]
    assert sorted(folder.iterdir()) == files
    session = onnxruntime.InferenceSession(str(files[1]), providers=["CPUExecutionProvider"])
    assert [(each.name, each.type) for each in session.get_inputs()] == [
        ("input_ids", "tensor(int64)"),
        ("attention_mask", "tensor(int64)"),
    ]
    longer = np.array([[1, 2, 3, 4, 5, 6], [6, 0, 0, 0, 0, 0]])
    expected = own.text_tower(longer, training=False)["mean"]
    for below in (0, 5):  # The ids of the padding have no effect.
        inputs = {"input_ids": np.where(longer, longer, below), "attention_mask": longer.clip(0, 1)}
        found = session.run(["mean"], inputs)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_other_weights_need_no_conversion(tmp_path, monkeypatch):
    import onnxruntime

    converted, convert = [], onnx_export._write
    monkeypatch.setattr(
        onnx_export, "_write", lambda *given: converted.append(given[0]) or convert(*given)
    )

    def written(activation, units, earlier):
        regions = keras.Input((3, 4), name="image")
        mean = keras.layers.Flatten()(keras.layers.Dense(units, activation)(regions))
        tower, path = keras.Model(regions, {"mean": mean}), tmp_path / "tower.onnx"
        onnx_export.write_image_tower(tower, SAMPLES["image"], path, earlier=earlier)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        found = session.run(["mean"], {"images": SAMPLES["image"]})[0]
        np.testing.assert_allclose(found, tower(SAMPLES["image"])["mean"], rtol=1e-4, atol=1e-5)
        return path

    path = written("relu", 6, None).rename(tmp_path / "earlier.onnx")
    written("relu", 6, path)
    assert len(converted) == 1
    written("tanh", 6, path)
    written("relu", 5, path)
    assert len(converted) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_a_bag_of_words_and_local_scaling_give_the_same_numbers(tmp_path):
    random = np.random.default_rng(0)
    # As negative ids of the encoders do, and words that the bag has not.
    ids = keras.Input((None,), dtype="int32", name="caption")
    bag = BagOfWords(3, 7)
    words = bag(ids)
    pooling = Projection(10, closed_form=2, local_scaling=6)
    tower = keras.Model(ids, {"mean": pooling(words[:, None])}, name="text_tower")
    bag.columns.assign([-1, 0, 1, -1, 2, -1, -1])
    pooling.begin_at(random.normal(size=(3, 2)))
    neighbours = random.normal(size=(4, 6)).astype(np.float32)
    pooling.local_scaling.set_neighbours(neighbours, neighbours)
    pooling.local_scaling.weight.assign(1)
    sample = np.array([[1, 2, -1], [3, 5, 6], [4, 1, 3]], np.int32)
    onnx_export.write_text_tower(tower, -1, sample, tmp_path / "text.onnx")


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_what_differs_or_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def another(name, function, *arguments):
        written(name, lambda x: {k: v + 0.5 for k, v in function(x).items()}, *arguments)

    written = onnx_export._write
    monkeypatch.setattr(onnx_export, "_write", another)
    with pytest.raises(
        ExportError, match=r"the image tower in ONNX is not equal .* differs by 0\.5"
    ):
        onnx_export.export_onnx(model(), SAMPLES, 0, tmp_path)
    assert not list(tmp_path.iterdir())


@keras.saving.register_keras_serializable(package="tests")
class Unknown(keras.layers.Layer):
    """Something that ONNX has no operation for."""

    def call(self, ids):
        return tf.math.lgamma(tf.cast(ids, tf.float32))


@pytest.mark.usefixtures("packages")
def test_operations_that_onnx_lacks_are_named(tmp_path, caplog):
    ids = keras.Input((4,), dtype="int32", name="caption")
    tower = keras.Model(ids, {"mean": Unknown()(ids)}, name="text_tower")
    with pytest.raises(ExportError, match=r"text tower cannot be written as ONNX: .*Lgamma"):
        onnx_export.write_text_tower(tower, 0, SAMPLES["text"], tmp_path / "text.onnx")
    assert "Traceback" not in caplog.text


@pytest.mark.usefixtures("packages")
def test_half_precision_is_refused(tmp_path):
    inputs = keras.Input((3,), dtype="float32", name="image")
    half = keras.Model(inputs, {"mean": keras.layers.Dense(2, dtype="mixed_float16")(inputs)})
    with pytest.raises(ExportError, match="computes in float16, and ONNX is written of float32"):
        onnx_export.write_image_tower(half, SAMPLES["image"][:, 0], tmp_path / "image.onnx")


@pytest.mark.slow
def test_missing_packages_are_named_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "find_spec", lambda name: None if name == "tf2onnx" else name)
    with pytest.raises(UserError, match=r"needs tf2onnx, .* pip install .*\[tensorflow\]"):
        onnx_export.export_onnx(model(), SAMPLES, 0, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
