"""Sizes of photos and layers of words by validation, on made-up features."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark

bench = benchmark("photo_choices", "studies")


@pytest.fixture
def made_up(bench, monkeypatch, random):
    """Photos of which larger ones are seen with less noise; returns the sizes that are read."""
    latent, read = random.normal(size=(200, 6)), []
    captions = np.repeat(latent, 2, axis=0)

    def images(files, size, options):
        read.append(size)
        features = latent @ random.normal(size=(6, 20)) + random.normal(size=(200, 20)) * 200 / size
        return bench.unit(np.abs(features))

    words = np.stack([captions + random.normal(size=captions.shape) for _ in range(3)], axis=1)
    monkeypatch.setattr(
        bench, "_entries", lambda options: ([b""] * 200, [["", ""]] * 200, np.arange(200) < 120)
    )
    monkeypatch.setattr(bench, "_images", images)
    monkeypatch.setattr(bench, "_words", lambda texts, options: bench.unit(words))
    return read


@pytest.mark.slow
def test_settings_are_compared_with_the_first_one_and_computed_once(
    bench, made_up, tmp_path, capsys
):
    path = tmp_path / "choices.jsonl"
    arguments = ["--flickr8k=somewhere", f"--results={path}", f"--work={tmp_path}"]
    bench.main(arguments)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert made_up == [352, 224, 288, 448]
    assert len(lines) == 2 + len(bench.SETTINGS)
    assert lines[2].startswith("| 352 pixels, layers 4 and 6 of words | ")
    assert lines[2].endswith(" |  |")
    assert "[" in lines[3]
    path.unlink()
    bench.main(arguments)
    assert made_up == [352, 224, 288, 448], "features are kept"
    assert capsys.readouterr().out.splitlines()[-len(lines) :] == lines


def test_photos_are_named(bench, tmp_path, capsys):
    with pytest.raises(SystemExit):
        bench.main([f"--results={tmp_path}/none.jsonl"])
    assert "--flickr8k" in capsys.readouterr().err
