"""The benchmark that makes the tables of docs/results/own_photos.md, on made-up photos."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import numpy as np
import presets
import pytest
from benchmark_modules import benchmark

NAMES = ["chance", "ridge", "dual_encoder", "dual_encoder_csls", "cca_of_last_layer", "cca"]
NAMES += ["cca_csls", "cca_of_roots", "csv_pretrained_nt_xent"]


bench = benchmark("real_features")


@pytest.fixture(scope="module")
def baselines(bench):
    return importlib.import_module("baselines")


@pytest.fixture(scope="module")
def tables(bench):
    return importlib.import_module("real_tables")


def made_up(folder: Path, photos: int = 105) -> None:
    """Photos of one region: six words each, of which a caption has four, and a feature a word."""
    random = np.random.default_rng(0)
    words = sorted(set(presets.WORDS.split()))
    true = np.stack([random.permutation(len(words))[:6] for _ in range(photos)])
    features = np.eye(len(words))[true].sum(axis=1) + 0.1 * random.random((photos, len(words)))
    folder.mkdir()
    for split, rows in (("train", slice(30, None)), ("dev", slice(15, 30)), ("test", slice(15))):
        np.save(folder / f"{split}_ims.npy", features[rows, None].astype(np.float32))
        said = [random.permutation(own)[:4] for own in true[rows] for _ in range(5)]
        lines = [" ".join(words[i] for i in one) for one in said]
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def arguments(bench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    made_up(folder / "given")
    arguments = [f"--features={folder / 'given'}", f"--work={folder / 'work'}", "--folds=1"]
    arguments += [f"--text-preset={presets.bert(folder / 'text')}", f"--methods={NAMES[-1]}"]
    sets = ("train.phases.0.epochs=1", "train.batch_size=32", "model.dimension=16")
    sets += ("model.text.encoder.layers=[1,2]", "model.image.pooling.closed_form=8")
    sets += ("model.text.pooling.closed_form=8",)
    return [*arguments, *(f"--set={key}" for key in sets)]


def rows(printed: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if "[" in line]
    return {cells[0]: cells for cells in lines}


@pytest.mark.slow
def test_table_has_a_row_for_all_and_finished_runs_are_read(bench, arguments, capsys, monkeypatch):
    for name in ("dual_encoder", "dual_encoder_csls"):
        encoder = functools.partial(bench.BASELINES[name], epochs=1 / 36)
        monkeypatch.setitem(bench.BASELINES, name, encoder)
    bench.main(arguments)
    first = capsys.readouterr().out
    table = first[first.index("75 photos train") :]
    found = rows(table)
    assert len(found) == len(NAMES)
    # A column for the difference to CCA, and one for that to the dual encoder.
    assert [found["CCA"].index(""), found["linear dual encoder"].index("")] == [8, 9]
    assert found["`csv_pretrained_nt_xent`"][-1] == "1 x 1"
    assert float(found["`csv_pretrained_nt_xent`"][7].strip("*")) > 300
    monkeypatch.setattr(bench, "train", None)
    bench.main(arguments)
    assert capsys.readouterr().out.strip() == table.strip()


def pairs(bench, seed: int, photos: int):
    random = np.random.default_rng(seed)
    maps = np.random.default_rng(7).standard_normal((2, 6, 40))
    hidden = random.standard_normal((photos, 6))
    own = np.repeat(np.arange(photos), 2)
    images = hidden @ maps[0] + random.standard_normal((photos, 40))
    captions = hidden[own] @ maps[1] + random.standard_normal((len(own), 40))
    return bench.Pairs(bench.unit(images), bench.unit(captions), own)


def test_cca_beats_chance_and_its_interval_holds_the_difference(bench, tables):
    splits = [pairs(bench, seed, photos) for seed, photos in enumerate((60, 30, 30))]
    results = [
        tables.Result(
            name, 60, 0, 0, bench.ranks(bench.BASELINES[name](*splits, 0)[1], splits[2].image_ids)
        )
        for name in ("chance", "ridge", "cca")
    ]
    folds = tables.by_fold(results, 60)
    found = tables.apart(folds["cca"], folds["chance"])
    assert 100 < found.low < found.value < found.high
    rsum = [bench.recalls(result.ranks).sum() for result in results]
    assert found.value == pytest.approx(rsum[2] - rsum[0])


def test_ranks_count_ties_against(baselines):
    scores = np.array([[0.5, 0.5, 0.1, 0.2], [0.5, 0.4, 0.3, 0.3]])
    images, captions = baselines.ranks(scores, np.array([0, 0, 1, 1]))
    assert images.tolist() == [1, 3]
    assert captions.tolist() == [2, 1, 1, 1]


def test_csls_subtracts_half_of_both_mean_cosines(baselines):
    random = np.random.default_rng(0)
    sides = [baselines.unit(random.standard_normal((n, 4))) for n in (3, 5, 12, 14)]
    images, captions, train_images, train_captions = sides
    found = baselines.csls(images, captions, train_images, train_captions)
    image, caption = images[1], captions[4]
    nearest = (
        sorted(image @ train_captions.T)[-10:],
        sorted(caption @ train_images.T)[-10:],
    )
    assert found.shape == (3, 5)
    assert found[1, 4] == pytest.approx(image @ caption - sum(map(np.mean, nearest)) / 2)


@pytest.mark.parametrize("name", ["cca", "dual_encoder"])
def test_baselines_with_csls_rank_by_it(baselines, name):
    random = np.random.default_rng(0)
    own, ids = random.standard_normal((3, 30, 6)), np.repeat(np.arange(30), 2)
    splits = tuple(
        baselines.Pairs(baselines.unit(rows), baselines.unit(np.repeat(rows, 2, axis=0) + 0.5), ids)
        for rows in own
    )

    def scores(local_scaling):
        if name == "cca":
            return baselines.cca(*splits, 0, local_scaling=local_scaling)[1]
        setting = baselines.SETTINGS[0]
        return baselines._train_dual_encoder(splits, setting, 0, 1 / 36, local_scaling)[1]

    shift = scores(False) - scores(True)
    # What an item loses is the same in all of its pairs.
    rows, columns = shift[:, :1], shift[:1]
    np.testing.assert_allclose(shift, rows + columns - shift[0, 0], atol=1e-5)
    assert np.ptp(shift) > 0.01


def test_gradients_of_info_nce_are_those_of_differences(baselines):
    random = np.random.default_rng(0)
    images, captions = random.standard_normal((2, 4, 3))

    def loss(images):
        logits = baselines.unit(images) @ baselines.unit(captions).T / 0.1
        rows, columns = (np.log(np.exp(logits).sum(axis=axis)) for axis in (1, 0))
        return float((rows + columns - 2 * np.diag(logits)).mean() / 2)

    found, _ = baselines.info_nce_gradients(images, captions)
    for place in ((0, 0), (2, 1), (3, 2)):
        step = np.zeros_like(images)
        step[place] = 1e-6
        slope = (loss(images + step) - loss(images - step)) / 2e-6
        assert found[place] == pytest.approx(slope, rel=1e-4)


def test_folds_rotate_and_never_share_photos(bench):
    parts = np.array_split(np.random.default_rng(0).permutation(70), bench.PARTS)
    photos = bench.Photos(np.zeros((70, 1, 2)), np.zeros((70, 1, 2)), [], parts)
    folds = [photos.fold(number) for number in range(bench.PARTS)]
    assert all(sorted(np.concatenate(list(fold.values()))) == list(range(70)) for fold in folds)
    assert sorted(np.concatenate([fold["test"] for fold in folds])) == list(range(70))
    assert len(photos.fold(1, 20)["train"]) == 20
