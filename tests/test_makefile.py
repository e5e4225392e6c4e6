"""What `make clean` takes away."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

MAKEFILE = Path(__file__).parent.parent / "Makefile"


def test_the_demo_is_the_command_of_that_name():
    # A make that another make starts, as `make test` does, would name the folder that it leaves.
    command = ["make", "--no-print-directory", "--dry-run", "demo"]
    done = subprocess.run(command, cwd=MAKEFILE.parent, check=True, capture_output=True)
    assert done.stdout.decode().splitlines()[-1].endswith("python main.py demo")


def test_clean_removes_what_was_made_and_no_raw_data(tmp_path):
    shutil.copy(MAKEFILE, tmp_path)
    made = [
        ".venv/bin/python",
        "build/lib.py",
        "data/scenes/train-00000.npz",
        "data/my set/train-00000.npz",
    ]
    made += ["data/scenes/train-00000.tfrecord", "data/scenes/features/manifest.json"]
    kept = [
        "data/raw/coco/1.jpg",
        "data/raw/train-00000.npz",
        "data/photos/1.jpg",
        "data/captions.csv",
    ]
    kept += ["saved_models/scenes_pcme/model.keras", "Makefile"]
    for name in (*made, *kept[:-1]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    for _ in range(2):  # Nothing is there the second time.
        subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
        left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        assert left == set(kept)
