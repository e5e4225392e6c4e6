"""Photos in their proportions, against the same photos squashed to a square of 224 pixels.

The photos of Flickr8K that the other studies read were squashed before they came here. The 700 of a
small sample are also there in their proportions, with a short side of 256 pixels. CCA of frozen
features, as in studies/flickr8k_methods.py, is fitted to both, with the same captions, in five
folds: 460 photos train, 100 choose ridges and directions, and 140 are ranked. The photo in its
proportions is cut to its central square, as `csv_pretrained` does. The ranks are in `--results`.

    python studies/proportions.py --photos data/raw/flickr8k_mini     # features and folds
    python studies/result_pages.py methods_page                              # the table
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).parent))

from birds_tables import add_paths
from comparisons import Difference
from methods_table import read_lines

RESULTS = Path(__file__).parent / "results/proportions.jsonl"
SQUASHED = "squashed"
KINDS = {
    SQUASHED: "squashed to 224 x 224",
    "centre": "central square",
}
CORRECTIONS = ("", "_csls")
FOLDS, DEV = 5, 100


def change(photo: Image.Image, kind: str) -> Image.Image:
    """A photo as its kind has it."""
    return photo.resize((224, 224), Image.Resampling.LANCZOS) if kind == SQUASHED else photo


def write_folder(photos: Path, kind: str, folder: Path) -> Path:
    """Writes a folder of photos of a kind, with their captions."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(photos / "captions.csv", folder / "captions.csv")
    for path in sorted((photos / "images").iterdir()):
        data = BytesIO(path.read_bytes())
        quality = {"quality": 78} if kind == SQUASHED else {"quality": 95, "subsampling": 0}
        change(Image.open(data).convert("RGB"), kind).save(folder / "images" / path.name, **quality)
    return folder


def read_features(options: argparse.Namespace, kind: str) -> Any:
    """The features of all photos of a kind and of their captions, by the names of photos."""
    from flickr8k_methods import Pairs, _pairs

    from keras_xmr.experiments.config.loader import load_config
    from keras_xmr.experiments.config.packaged_configs import find_config
    from keras_xmr.experiments.experiment import Experiment

    folder = write_folder(options.photos, kind, options.work / kind)
    sets = [
        f"data.source.root={folder}",
        f"data.records={options.work / kind / 'records'}",
        f"output={options.work / 'runs'}",
        f"name=proportions-{kind}",
        f"model.image.encoder.preset={options.image_preset}",
        f"model.text.encoder.preset={options.text_preset}",
        "train.phases=[]",
    ]
    run = Experiment(load_config(find_config("csv_pretrained_info_nce"), sets))
    if not run.config.data.is_prepared:
        run.prepare()
    run.train()
    splits = [run.embedded_records.split(name) for name in ("train", "val", "test")]
    parts = [_pairs(run, split) for split in splits]
    names = [str(key) for split in splits for key in split.image_keys]
    first = np.cumsum([0, *(len(part.images) for part in parts)])
    images = np.concatenate([part.images for part in parts])
    captions = np.concatenate([part.captions for part in parts])
    owner = np.concatenate(
        [part.image_ids + begin for part, begin in zip(parts, first, strict=False)]
    )
    order = np.argsort(names)
    place = np.argsort(order)
    by_photo = np.argsort(place[owner], kind="stable")
    return Pairs(images[order], captions[by_photo], place[owner][by_photo])


def part_of(pairs: Any, photos: np.ndarray) -> Any:
    """Some photos with their captions."""
    kept = np.flatnonzero(np.isin(pairs.image_ids, photos))
    place = np.searchsorted(photos, pairs.image_ids[kept])
    return type(pairs)(pairs.images[photos], pairs.captions[kept], place)


def run_folds(pairs: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Yields a line per fold and correction, with the ranks of images and of captions."""
    from flickr8k_methods import cca, measure_baseline, ranks

    order = np.random.default_rng(0).permutation(len(pairs.images))
    for fold, tested in enumerate(np.array_split(order, FOLDS)):
        rest = order[~np.isin(order, tested)]
        test, dev, train = (
            part_of(pairs, np.sort(photos)) for photos in (tested, rest[:DEV], rest[DEV:])
        )
        embedded = cca(train, dev, test, 0)
        for correction in CORRECTIONS:
            _, scores = measure_baseline([embedded], correction, dev)
            found = [side.tolist() for side in ranks(scores, test.image_ids)]
            yield {"kind": kind, "fold": fold, "correction": correction, "ranks": found}


def by_photo(lines: Sequence[dict[str, Any]], kind: str, correction: str) -> np.ndarray:
    """What each photo adds to the mean RSUM of the folds, in percent, (N,)."""
    values = []
    for line in lines:
        if (line["kind"], line["correction"]) == (kind, correction):
            i2t, t2i = (sum(np.array(side) <= k for k in (1, 5, 10)) for side in line["ranks"])
            values.append(100 * (i2t + t2i.reshape(len(i2t), -1).mean(axis=1)))
    return np.concatenate(values)


def gain(lines: Sequence[dict[str, Any]], correction: str) -> Difference:
    """RSUM of photos in their proportions, minus the same photos squashed."""
    kinds = (by_photo(lines, kind, correction) for kind in ("centre", SQUASHED))
    centre, squashed = kinds
    return Difference.of(centre - squashed)


def rows_of(lines: Sequence[dict[str, Any]]) -> list[Sequence[str]]:
    """RSUM by kind, with a heading."""
    rows: list[Sequence[str]] = [["photos", "RSUM", "RSUM with CSLS"]]
    for kind, title in KINDS.items():
        rows.append([title, *(f"{by_photo(lines, kind, c).mean():.1f}" for c in CORRECTIONS)])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--photos", type=Path, required=True, help="folder with images/ and captions.csv"
    )
    options = add_paths(parser, RESULTS).parse_args(arguments)
    done = {line["kind"] for line in read_lines(options.results)}
    for kind in KINDS:
        if kind not in done:
            lines = list(run_folds(read_features(options, kind), kind))
            with options.results.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
