"""Indexes are updated, searched and served where TensorFlow and Keras cannot be imported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import published_models
import pytest
from small_index import photo

from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.search.index_build import build_index

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
BLOCKED = {"tensorflow", "keras", "scipy", "tf_keras", "keras_hub", "absl", "yaml", "onnx"}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)
sys.meta_path.insert(0, Blocked())
from keras_xmr.__main__ import main
sys.argv = ["keras-xmr", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def copied(trained, tmp_path_factory):
    """A copy of an index of a trained run, and its photos."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "photos").mkdir()
    for number, colour in enumerate(("red", "green", "blue")):
        (folder / "photos" / f"{colour}.jpg").write_bytes(photo(colour, number))
    embedder = run_embedder(trained.folder.path)
    build_index(embedder, (folder / "photos").resolve(), folder / "first")
    shutil.copytree(folder / "first", folder / "index")
    shutil.rmtree(folder / "first")
    return folder


def command(folder: Path, *words: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin:/bin",
        "TQDM_DISABLE": "1",
        "HF_HOME": "cache",
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str, program: str = PROGRAM) -> str:
    with command(folder, *words, program=program) as process:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    return out


@pytest.mark.slow
def test_photos_are_added_searched_and_served(copied):
    (copied / "photos" / "new.jpg").write_bytes(photo("yellow", 9))
    told = run(copied, "index", "--index=index")
    assert told.startswith("4 photos (1 new) in index")
    (found,) = json.loads(run(copied, "search", "--index=index", "a red circle", "--json"))
    assert len(found["hits"]) == 4
    (similar,) = json.loads(
        run(copied, "search", "--index=index", "--image=photos/blue.jpg", "--json")
    )
    assert similar["hits"][0]["path"] == "blue.jpg"
    with command(copied, "serve", "--index=index", "--port=0") as server:
        try:
            address = server.stdout.readline().split(" at ")[1].split()[0]
            request = urllib.request.Request(
                f"{address}search",
                json.dumps({"texts": ["a red circle"], "count": 4}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                served = json.load(answer)
        finally:
            server.terminate()
            _, error = server.communicate(timeout=60)
    assert "Traceback" not in error, error
    assert [hit["score"] for hit in served["hits"]] == pytest.approx(
        [hit["score"] for hit in found["hits"]], abs=1e-5
    )


@pytest.mark.slow
def test_commands_that_train_say_what_is_missing(copied):
    with command(copied, "train", "--config=scenes_pcme") as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.startswith("error: ")
    assert "pip install" in error
    assert "[tensorflow]" in error


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for number, colour in enumerate(("red", "green", "blue")):
        (tmp_path / "photos" / f"{colour}.jpg").write_bytes(photo(colour, number))
    return tmp_path


@pytest.mark.slow
def test_a_published_model_in_a_folder_is_indexed_and_embeds(photos):
    published_models.write(photos / "models" / "tiny-clip", "siglip", "_fp16")
    model = ("--model=models/tiny-clip", "--precision=float16")
    told = run(photos, "index", *model, "--images=photos")
    assert told.startswith("3 photos (3 new) in saved_models/tiny-clip/index")
    (found,) = json.loads(run(photos, "search", "a red dog", "--json"))
    assert len(found["hits"]) == 3
    told = run(photos, "embed", "photos", *model, "--output=photos.npz")
    assert told == "photos.npz: mean (3, 6) of 3 photos\n"


@pytest.mark.slow
def test_a_published_model_of_the_hub_is_taken_from_its_cache(photos):
    repository = photos / "cache" / "hub" / "models--someone--tiny-clip"
    commit = "0123456789abcdef0123456789abcdef01234567"
    published_models.write(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    program = PROGRAM.replace('"yaml", ', "")  # huggingface_hub imports it.
    words = ("index", "--images=photos")
    told = run(photos, *words, "--model=someone/tiny-clip", program=program)
    assert told.startswith("3 photos (3 new) in saved_models/tiny-clip/index")
    with command(photos, *words, "--model=someone/other", program=program) as process:
        _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    assert error.startswith("error: someone/other is not a folder, and cannot be fetched from the")
    assert len(error.splitlines()) == 1
    assert [path.name for path in (photos / "saved_models").iterdir()] == ["tiny-clip"]
