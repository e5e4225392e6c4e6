"""Sizes of photos and layers of words by validation RSUM, of CCA on frozen features of Flickr8K.

500 photos of the training split train CCA with 128 directions and exponent 0.5, the best of 16
pairs of ridges counts, and the 1,000 photos of the validation split have the RSUM that is reported.
Test photos are not read. Differences from the first setting have 95 % intervals by paired bootstrap
over the validation photos.

A line per setting is appended to `--results`; what has a line is not computed again, and features
are kept in `--work`, so that a study that was stopped goes on.

    python studies/photo_choices.py --flickr8k data/raw/flickr8k
    python studies/photo_choices.py --table
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import real_features
from baselines import Pairs, cca, cca_of_roots, ranks, unit
from real_tables import Result, apart, by_fold, read_results

RESULTS = Path(__file__).parent / "results" / "photo_choices.jsonl"
LAYERS = {"4 and 6": (0, 2), "5 and 6": (1, 2), "6": (2,)}
SETTINGS = (
    *((352, layers, cca_of_roots) for layers in LAYERS),
    (352, "4 and 6", cca),
    *((size, "4 and 6", cca_of_roots) for size in (224, 288, 448)),
)
"""Pixels, layers of words and baseline; differences are from the first."""
PHOTOS = 500
"""Photos that train, drawn by chance."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes what is missing, and prints a table."""
    parser = real_features.parser_of(__doc__, "data/photo_choices", "")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="the table of finished settings alone")
    options = parser.parse_args(arguments)
    if not options.table:
        if options.flickr8k is None:
            parser.error("name the folder of Flickr8K with --flickr8k")
        _compute(options)
    print("\n".join(table(read_results([options.results]))))


def table(results: Sequence[Result]) -> list[str]:
    """A row in Markdown per setting, with the difference from the first one."""
    first = results[0].method
    lines = ["| | validation RSUM | difference |", "| --- | ---: | ---: |"]
    folds = by_fold(results, results[0].size)
    for name, answers in folds.items():
        d = apart(answers, folds[first])
        shown = "" if name == first else f"{d.value:+.1f} [{d.low:+.1f}, {d.high:+.1f}]"
        rsum = sum(side.mean(axis=0).sum() for fold in answers.values() for side in fold)
        lines.append(f"| {name} | {rsum / len(answers):.1f} | {shown} |")
    return lines


def _compute(options: argparse.Namespace) -> None:
    """Appends the settings that have no line yet."""
    done = {result.method for result in read_results([options.results])}
    files, captions, train = _entries(options)
    count = np.array([len(each) for each in captions])
    image_ids = np.repeat(np.arange(len(files)), count)
    texts = [text for each in captions for text in each]
    words = _kept(options.work / "words.npy", lambda: _words(texts, options))
    for size, layers, method in SETTINGS:
        name = f"{size} pixels, layers {layers} of words"
        name += ", no square roots" if method is cca else ""
        if name not in done:
            path = options.work / f"photos_{size}.npy"
            images = _kept(path, lambda size=size: _images(files, size, options))
            _append(name, method, images, words[:, LAYERS[layers]], image_ids, train, options)


def _kept(path: Path, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Features, from a file if there is one, which is written otherwise."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name("draft.npy")
        np.save(draft, compute())
        draft.replace(path)
    return np.load(path)


def _append(
    name: str,
    method: Callable[..., tuple[float, np.ndarray]],
    images: np.ndarray,
    words: np.ndarray,
    image_ids: np.ndarray,
    train: np.ndarray,
    options: argparse.Namespace,
) -> None:
    """Fits and measures a setting, and appends its line."""
    sentences = words.reshape(len(words), -1)
    pairs = [
        Pairs(images[some], sentences[own := some[image_ids]], np.cumsum(some)[image_ids[own]] - 1)
        for some in (train, ~train)
    ]
    dev, scores = method(pairs[0], pairs[1], pairs[1], 0, exponents=(0.5,), dimensions=(128,))
    result = Result(name, PHOTOS, 0, 0, ranks(scores, pairs[1].image_ids))
    with options.results.open("a") as file:
        file.write(json.dumps(result.as_json()) + "\n")
    print(f"{name}: {dev:.1f}", flush=True)


def _entries(options: argparse.Namespace) -> tuple[list[bytes], list[list[str]], np.ndarray]:
    """Files and captions of the chosen photos, and which of them train."""
    from data_pipelines.sources import Flickr8kSource
    from data_pipelines.sources.base import Problems

    source = Flickr8kSource(root=options.flickr8k)
    entries = [entry for entry in source.entries(Problems()) if entry.split != "test"]
    train = [entry for entry in entries if entry.split == "train"]
    chosen = np.random.default_rng(0).permutation(len(train))[:PHOTOS]
    entries = [*(train[i] for i in chosen), *(e for e in entries if e.split == "val")]
    files = [real_features.read_image(source, entry) for entry in entries]
    captions = [[caption.text for caption in entry.captions] for entry in entries]
    return files, captions, np.array([entry.split == "train" for entry in entries])


def _images(files: list[bytes], size: int, options: argparse.Namespace) -> np.ndarray:
    """The mean over the last map of each photo at a size, at unit length, (N, F)."""
    options.set = [f"data.image.size={size}", f"data.image.resize={size}"]
    image, _, crop = real_features.encoders_of(options)
    features = real_features.image_features(files, image, crop)
    return unit(features.astype(np.float64).mean(axis=1))


def _words(texts: list[str], options: argparse.Namespace) -> np.ndarray:
    """The mean over words of layers 4, 5 and 6 of captions, each at unit length, (M, 3, G)."""
    options.set = ["model.text.encoder.layers=[4,5,6]"]
    _, text, _ = real_features.encoders_of(options)
    words = real_features.sentence_features(texts, text)
    return unit(words.reshape(len(texts), 3, -1).astype(np.float64))


if __name__ == "__main__":
    main()
