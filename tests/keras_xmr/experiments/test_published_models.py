"""Published models as they are: every command takes them, without data, captions or training."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
import tiny_presets
import two_towers

import keras_xmr
from keras_xmr.commands._cli import main
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.pretrained import pretrained_run
from keras_xmr.metrics.results import Results
from keras_xmr.utils.errors import UserError

PAGE = Path(__file__).parents[3] / "docs" / "how_to" / "encoders.md"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """The folders of the families, and photos with captions, in the folder `my`."""
    root = tmp_path_factory.mktemp("pretrained")
    found = {n: two_towers.Case(n, root / "models" / n) for n in ("clip", "siglip2")}
    images = root / "my" / "images"
    images.mkdir(parents=True)
    for number in range(18):
        datasets.picture(number, (50, 40)).save(images / f"{number}.jpg", quality=95)
    for number in range(2):
        (images / f"known_{number}.jpg").write_bytes(found["clip"].photo(number))
    rows = [f"{path.name},two dogs {path.stem}" for path in sorted(images.iterdir())]
    (root / "my" / "captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    return found


@pytest.fixture
def here(cases, monkeypatch):
    """The folder of `models` and `my`, which is the current one."""
    root = cases["clip"].folder.parent.parent
    monkeypatch.chdir(root)
    return root


def keras_xmr_command(*words: str) -> None:
    main(["keras-xmr", *words])


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_it_embeds_and_scores_as_it_was_published(cases, here):
    case = cases["siglip2"]
    run = keras_xmr.pretrained(case.folder)
    shutil.copy("my/images/known_0.jpg", "photo.jpg")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    exec(block.replace("siglip2_base_patch16_224", str(case.folder)), {})
    texts = run.embed_texts(list(case.array("in_texts")))
    np.testing.assert_allclose(texts["mean"], case.array("out_text"), atol=1e-4)
    photos = run.embed_images([f"my/images/known_{number}.jpg" for number in range(2)])
    # A pixel or two differ by 1 from those of Pillow.
    np.testing.assert_allclose(photos["mean"], case.array("out_image"), atol=2e-2)
    scores = run.score({"mean": unit(case.array("out_image"))}, texts)
    np.testing.assert_allclose(scores, case.array("out_logits"), atol=1e-3)


def test_its_run_is_made_once_and_for_one_model(cases, here, capsys):
    folder = pretrained_run("models/clip")
    weights = folder / "last.weights.h5"
    before = weights.stat().st_mtime_ns
    assert pretrained_run(cases["clip"].folder) == folder
    assert weights.stat().st_mtime_ns == before
    shutil.copytree("models/siglip2", "other/clip")
    with pytest.raises(UserError, match=r"saved_models/clip holds a run of another model"):
        pretrained_run("other/clip")
    assert load_config(folder / "config.yaml") == load_run(folder)
    with pytest.raises(SystemExit):
        keras_xmr_command("update", f"--run={folder}")
    assert "a published model, which is not trained" in capsys.readouterr().err


def test_commands_take_it_as_a_run(cases, here, capsys):
    keras_xmr_command("index", "--model=models/siglip2", "--images=my/images")
    assert "20 photos (20 new)" in capsys.readouterr().out
    index = "saved_models/siglip2/index"
    words = "two dogs", "--html=page.html", "--results=3", "--json"
    keras_xmr_command("search", f"--index={index}", *words)
    (found,) = json.loads(capsys.readouterr().out)
    assert len(found["hits"]) == 3
    assert found["hits"][0]["probability"] is not None, "scores of SigLIP are log-odds"
    assert ".jpg" in Path("page.html").read_text()
    keras_xmr_command("embed", "my/images", "--model=models/siglip2", "--output=all.npz")
    model = run_embedder(Path("saved_models/siglip2"))
    with np.load("all.npz") as arrays:
        assert arrays["mean"].shape == (20, 12)
        assert str(arrays["fingerprint"]) == model.fingerprint
    capsys.readouterr()
    keras_xmr_command("evaluate", "--model=models/siglip2", "--set", "data.source.root=my")
    said = capsys.readouterr().out
    assert "as it was published (zero-shot)" in said
    assert "This model has no sigma" in said
    results = Results.read(Path("saved_models/siglip2/evaluation/test/results.csv"))
    assert 5 < results.select(metric="images")[0].value < 20
    assert run_embedder(Path("saved_models/siglip2")).fingerprint == model.fingerprint


@pytest.mark.heavy
def test_it_is_exported(cases, here):
    keras_xmr_command("export", "--model=models/siglip2")
    loaded = keras_xmr.load("saved_models/siglip2")
    captions = loaded.embed_texts(["Two dogs."])
    np.testing.assert_allclose(captions["mean"], cases["siglip2"].array("out_text")[:1], atol=1e-4)


@pytest.fixture(scope="module")
def preset(cases):
    """A folder as KerasHub writes it; its one layer is sooner written as ONNX than two."""
    return tiny_presets.siglip(cases["clip"].folder.parent / "preset")


@pytest.mark.heavy
def test_it_is_written_as_onnx(preset, here):
    pytest.importorskip("tf2onnx")
    keras_xmr_command("export", "--model=models/preset", "--onnx")
    assert Path("saved_models/preset/onnx/text_tower.onnx").is_file()


def test_without_internet_it_says_what_to_fetch_and_where_to_put_it(monkeypatch, capsys, tmp_path):
    def offline(*_args, **_options):
        pool = "HTTPSConnectionPool(host='api.kaggle.com', port=443)"
        raise ConnectionError(f"{pool}: Max retries exceeded with url: /v1 (and so on)")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keras_xmr.encoders.pretrained.presets.preset_loader", offline)
    with pytest.raises(SystemExit):
        keras_xmr_command("index", "--model=clip_vit_base_patch32", "--images=.")
    said = capsys.readouterr().err
    assert said.startswith(
        "error: --model: the preset 'clip_vit_base_patch32' cannot be fetched (no connection to "
        "api.kaggle.com). Where there is internet, `python -c"
    )
    for part in ("k.models.Backbone", "k.tokenizers.Tokenizer", "k.layers.ImageConverter"):
        assert f"{part}.from_preset(p).save_to_preset('FOLDER')" in said
    assert "name that folder as --model" in said
    assert "and so on" not in said
    monkeypatch.setattr("keras_xmr.encoders.pretrained.transformers.preset_file", offline)
    with pytest.raises(UserError, match="`hf download openai/clip --local-dir FOLDER`"):
        pretrained_run("hf://openai/clip")
    assert not list(tmp_path.iterdir())


def test_what_is_no_model_of_photos_and_texts_is_refused(tmp_path):
    tiny_presets.vit(tmp_path / "vit")
    with pytest.raises(UserError, match="is a ViTBackbone, which does not embed photos and texts"):
        pretrained_run(tmp_path / "vit", tmp_path)
    with pytest.raises(UserError, match=r"--model: .* nor a folder.* clip_vit_base_patch32"):
        pretrained_run("clip_vit_base_patch_32", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no config"):
        pretrained_run(tmp_path / "empty", tmp_path)


def test_an_exported_run_is_whole_without_the_folder_of_its_encoders(preset, here, monkeypatch):
    monkeypatch.setattr("keras_xmr.experiments.run_exports.export_saved_model", lambda *_: None)
    keras_xmr_command("export", "--model=models/preset")
    run = Path("saved_models/preset")
    photo = Path("my/images/1.jpg").read_bytes()

    def embeddings() -> list[np.ndarray]:
        model = run_embedder(run)
        return [model.embed_images([photo])["mean"], model.embed_texts(["two dogs"])["mean"]]

    before = embeddings()
    assert load_run(run).model.dimension == 8
    moved = preset.rename(preset.with_name("moved"))
    try:
        for found, expected in zip(embeddings(), before, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        (run / "model.keras").rename("model.keras")
        with pytest.raises(UserError, match=r"models/preset"):
            embeddings()
    finally:
        moved.rename(preset)
