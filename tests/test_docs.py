"""The documents quote the code as it is."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

import datasets
import numpy as np
import pytest
import signatures
import tensorflow as tf
from imported_names import missing_names
from tiny_runs import copy_of

import keras_xmr
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.export.saved_model import export_keras
from keras_xmr.experiments.training.dry_run import try_parts
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.plugins import remove_plugins

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how_to" / "add_a_method.md"
PYTHON = ROOT / "docs" / "how_to" / "python.md"
MEASURE = ROOT / "docs" / "how_to" / "measure.md"


def unindented(text: str) -> str:
    """The lines that are not empty, whatever they are indented by: a formatter knows better."""
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.S)


def test_the_quoted_config_is_the_config():
    (quoted,) = blocks("yaml")
    assert unindented(quoted) in unindented(
        (ROOT / "configs/scenes_pcmepp.yaml").read_text("utf-8")
    )


def test_named_files_are_there():
    names = re.findall(
        r"`((?:keras_xmr|tests|configs|data_pipelines)/[\w/]+\.\w+)`", PAGE.read_text()
    )
    assert len(names) > 8
    for name in names:
        assert (ROOT / name).is_file(), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory, trained) -> Path:
    """Where the snippets run: with two photos, and a run that was exported."""
    folder = tmp_path_factory.mktemp("python")
    for number, name in enumerate(("one.png", "two.png")):
        picture = datasets.picture(number, (70, 50))
        (folder / name).write_bytes(datasets.encoded(picture, "PNG"))
    run = copy_of(trained, folder)
    export_keras(run.retriever, run.folder.model)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    """The run, as the snippets load it."""
    return keras_xmr.load(f"{folder}/saved_models/scenes_pcme/")


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_snippets_run_one_after_another(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = {}
    for block in blocks("python", PYTHON):
        exec(compile(block, str(PYTHON), "exec"), names)
    assert re.search(r"^\d+\.\d \d+\.\d$", capsys.readouterr().out, re.M)
    assert 0 < float(names["value"]) < 1
    assert isinstance(names["model"], keras_xmr.Retriever)
    assert names["photos"].keys() == {"mean", "log_variance"}


@pytest.mark.slow
def test_the_loss_of_the_tutorial_runs(tmp_path, monkeypatch):
    """What the page calls `my_losses.py`, on arrays and in a config."""
    page = ROOT / "docs" / "tutorials" / "first_loss.md"
    module, arrays = blocks("python", page)
    ours = [line for line in module.splitlines() if re.match(r"(from|import) keras_xmr", line)]
    assert ours == ["from keras_xmr.losses import Loss, LossContract"]
    (tmp_path / "my_losses.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    names = {}
    exec(compile(arrays, str(page), "exec"), names)
    assert 0 < float(names["value"]) < 10
    overrides = re.findall(r"'(plugins=\S+)' .*?'(objective=.*?)'", page.read_text(), re.S)[0]
    (settings,) = blocks("yaml", page)
    info_nce = find_config("scenes_info_nce")
    (tmp_path / "mine.yaml").write_text(settings.replace("scenes_info_nce.yaml", str(info_nce)))
    try:
        config = load_config(info_nce, overrides)
        assert (config.objective[0].name, config.objective[0].scale) == ("soft_margin", 10)
        assert load_config(tmp_path / "mine.yaml").objective == config.objective
        try_parts(config)
    finally:
        remove_plugins(["my_losses"])


def test_the_loop_over_the_truth_of_the_tutorial_runs(trained, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "scenes").symlink_to(trained.records.folder)
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tutorials" / "first_experiment.md"
    exec(compile(blocks("python", page)[0], str(page), "exec"), {})
    captions = [caption.key for caption in trained.records.split("train").captions]
    pairs = [row.split(",") for row in (tmp_path / "truth.csv").read_text().splitlines()[1:]]
    assert {caption for _, caption, _ in pairs} == set(captions)


def test_a_bank_corrects_scores_as_the_page_has_it():
    random = np.random.default_rng(0)
    names = {
        "train_images_test_captions": random.normal(size=(20, 15)),
        "train_captions_test_images": random.normal(size=(30, 10)),
        "scores": random.normal(size=(10, 15)),
        "weights": random.random(15),
    }
    exec(compile(blocks("python", MEASURE)[0], str(MEASURE), "exec"), names)
    assert names["reranked"].image_to_text.shape == (10, 15)


@pytest.mark.parametrize(
    ("page", "base"),
    [
        ("how_to/measure.md", "flickr8k_pretrained"),
        ("how_to/encoders.md", "coco_pcme"),
    ],
)
def test_sections_of_configs_are_accepted(page, base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("image,caption,grade\n")
    for number, block in enumerate(blocks("yaml", ROOT / "docs" / page)):
        path = tmp_path / f"other_{number}.yaml"
        path.write_text(f"include: {find_config(base)}\nname: other_{number}\n{block}")
        load_config(path)


# Blocks of Python on each page that a test runs: here, or in the test file that is named.
TESTED = {
    "README.md": 2,  # and keras_xmr/test_light_install.py
    "first_experiment.md": 1,
    "first_loss.md": 2,
    "notebook.md": 1,  # test_experiment_of_docs.py
    "pytorch.md": 1,  # backends/test_tutorials.py
    "jax.md": 2,  # backends/test_tutorials.py
    "add_a_method.md": 1,  # keras_xmr/experiments/config/test_plugins.py
    "plugins.md": 3,  # keras_xmr/experiments/config/test_plugins.py
    "compare.md": 1,  # keras_xmr/metrics/test_compare.py
    "metrics_from_arrays.md": 1,  # keras_xmr/metrics/test_compare.py
    "encoders.md": 1,  # keras_xmr/experiments/test_published_models.py
    "inference.md": 5,  # keras_xmr/experiments/export/test_saved_model.py, test_onnx.py
    "measure.md": 2,  # and keras_xmr/experiments/reports/comparison/test_comparison.py
    "exchange.md": 1,  # test_integrations.py
    "coco.md": 1,  # test_integrations.py
    "sentence_transformers.md": 1,  # test_integrations.py
    "training_loop.md": 1,  # backends/test_tutorials.py
    "embeddings.md": 1,  # backends/test_own_similarity.py
    "open_clip.md": 1,  # test_integrations.py
    "lightning.md": 1,  # test_integrations.py
    "keras.md": 1,  # backends/test_tutorials.py
    "flax.md": 1,  # test_integrations.py
    "search.md": 1,  # keras_xmr/experiments/export/test_run_embedder.py
    "python.md": len(blocks("python", PYTHON)),
}


def test_every_block_of_python_has_a_test():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    counts = {page.name: len(blocks("python", page)) for page in pages}
    assert {page: count for page, count in counts.items() if count} == TESTED
    for page in pages:
        fences = re.findall(r"^```(.*)$", page.read_text("utf-8"), re.M)
        assert set(fences[::2]) <= {"python", "sh", "yaml", "toml", "text", ""}, page


def test_every_block_of_python_imports_names_that_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for block in blocks("python", page):
            assert not missing_names(textwrap.dedent(block)), page


def test_the_reference_has_every_public_module():
    pages = "".join(p.read_text("utf-8") for p in (ROOT / "docs" / "reference").glob("*.md"))
    documented = tuple(re.findall(r"^::: ([\w.]+)", pages, re.M))
    for name in keras_xmr.__all__:
        public = getattr(keras_xmr, name)
        module = getattr(public, "__module__", None) or public.__name__
        assert module.startswith(documented), name


@pytest.mark.slow
def test_the_table_of_signatures_is_that_of_the_code():
    """If it is not, `python tests/support/signatures.py` writes it."""
    assert signatures.PAGE.read_text("utf-8") == signatures.text()


def test_the_readme_prints_what_its_snippet_prints(capsys):
    page = ROOT / "README.md"
    # The first one has its test in keras_xmr/test_light_install.py.
    snippet = blocks("python", page)[1]
    exec(compile(snippet, str(page), "exec"), {})
    assert f"# {capsys.readouterr().out}" == snippet.splitlines(keepends=True)[-1]


def test_the_readme_is_short_and_names_methods_that_are_there():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 90
    assert text.index("\nmake demo ") < text.index("\nmake test ")
    table = text.partition("## Methods")[2].partition("##")[0]
    configs = re.findall(r"`(\w+)` \|$", table, re.M)
    assert len(configs) == 5
    for name in configs:
        assert find_config(name).is_file()


def test_a_loaded_run_is_the_model_of_the_run(loaded, folder, trained, monkeypatch):
    monkeypatch.chdir(folder)
    texts = ["a small red circle", "nothing green"]
    captions = loaded.embed_texts(texts)
    expected = trained.retriever.text_tower(trained.tokenizer(texts))
    for key, value in expected.items():
        np.testing.assert_allclose(captions[key], value, rtol=1e-4, atol=1e-5)
    images = loaded.embed_images([Path("one.png"), "two.png"])
    scores = trained.retriever.score(images, captions)
    np.testing.assert_allclose(loaded.score(images, captions), scores, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_a_loaded_run_says_what_it_takes(loaded, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    (tmp_path / "no.png").write_bytes(b"no picture")
    for wrong, says in (("one.png", "a list of paths"), ([np.ones((2, 2))], "a list of paths")):
        with pytest.raises(keras_xmr.ArgumentError, match=says):
            loaded.embed_images(wrong)
    with pytest.raises(UserError, match=r"no\.png is not an image of a known format"):
        loaded.embed_images(["one.png", tmp_path / "no.png"])
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        loaded.embed_images(["gone.png"])
    with pytest.raises(keras_xmr.ArgumentError, match=r"text 1, ' !', has no words"):
        loaded.embed_texts(["a red circle", " !"])
    with pytest.raises(keras_xmr.ArgumentError, match="a list of texts"):
        loaded.embed_texts("a small red circle")


@pytest.mark.slow
def test_a_missing_photo_is_no_error_of_tensorflow(loaded, folder, monkeypatch):
    """TensorFlow prints two tracebacks of what a generator of its data raises."""
    monkeypatch.chdir(folder)
    made, raised = tf.data.Dataset.from_generator, []

    def watched(generator, **options):
        def pixels():
            try:
                yield from generator()
            except Exception as error:
                raised.append(error)
                raise

        return made(pixels, **options)

    monkeypatch.setattr(tf.data.Dataset, "from_generator", watched)
    for images in (["gone.png"], ["one.png", "gone.png"]):
        with pytest.raises(FileNotFoundError, match=r"gone\.png"):
            loaded.embed_images(images)
    assert raised == []


def test_a_folder_without_an_exported_model_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        keras_xmr.load(tmp_path)
    path = tmp_path / "scenes_pcme"
    shutil.copytree(folder / "saved_models" / "scenes_pcme", path)
    (path / "model.keras").write_bytes(b"cut off")
    with pytest.raises(UserError, match=r"cannot be loaded .*export it again"):
        keras_xmr.load(path)
    (path / "model.keras").unlink()
    with pytest.raises(UserError, match=r"no exported model \(model\.keras\)"):
        keras_xmr.load(path)
