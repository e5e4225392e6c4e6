"""Time and memory of the ranks of cosines: from the whole matrix, and counted tile by tile.

Embeddings are made up: unit vectors, with five captions near each image. Each way runs in a
separate process, so that memory freed by one does not hide the use of the other; seconds are those
of scoring and ranking alone, memory is the largest resident one above that of the embeddings. Both
ways must give the same ranks. A large split is projected from the small one, or measured with
`--run-large`.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --images=200 --dimension=32 --large=2000
    python benchmarks/evaluation.py --run-large
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from measuring import Elsewhere, Peak, Row, compare
from released import released

CAPTIONS_PER_IMAGE = 5
TILE = (256, 1024)
WAYS = ("i2t", "t2i")


def made_up(images: int, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings of images and captions, float32 (N, D) and (M, D), and each caption's image."""
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(images), CAPTIONS_PER_IMAGE)
    image = random.standard_normal((images, dimension), dtype=np.float32)
    caption = random.standard_normal((len(owner), dimension), dtype=np.float32)
    caption *= np.float32(dimension**0.5 / 4)
    caption += image[owner]
    for vectors in (image, caption):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return image, caption, owner


def measure_way(way: str, images: int, dimension: int) -> dict[str, float]:
    """Ranks one way in this process.

    Args:
        way: "dense" or "streamed".
        images: How many images.
        dimension: D.

    Returns:
        Seconds, CPU seconds, gigabytes and the sum of the recalls.
    """
    rank = ranking(images, dimension)[way]
    with Peak() as peak:
        rsum = rank()
    return {
        "seconds": peak.seconds,
        "cpu": peak.cpu_seconds,
        "gigabytes": peak.gigabytes,
        "rsum": 100 * rsum,
    }


def ranking(images: int, dimension: int) -> dict[str, Callable[[], float]]:
    """Both ways to score and rank made-up embeddings; each gives the sum of the recalls."""
    import keras_xmr
    from keras_xmr.evaluation.scoring import score_tiles
    from keras_xmr.judgements import Judgements
    from keras_xmr.metrics import evaluate_scores

    image, caption, owner = made_up(images, dimension)
    judgements = Judgements.from_pairs(owner, images)
    matcher = keras_xmr.matchers.Cosine()
    few = slice(TILE[0])
    matcher({"mean": image[few]}, {"mean": caption[few]})

    def rank(dense: bool) -> float:
        scores = score_tiles(matcher, {"mean": image}, {"mean": caption}, TILE)
        found = evaluate_scores(scores.dense() if dense else scores, judgements)
        return found.summary["rsum"]

    return {"dense": lambda: rank(True), "streamed": lambda: rank(False)}


def rows(smoke: bool = False) -> Iterator[Row]:
    """Ranks counted tile by tile, beside those of the whole matrix."""
    images, dimension = (20, 8) if smoke else (5000, 1024)
    ways = ranking(images, dimension)
    size = f"{images:,} x {CAPTIONS_PER_IMAGE * images:,}, D {dimension}"
    yield compare(
        "scores and ranks, tile by tile",
        size,
        ways["streamed"],
        ways["dense"],
        "from the whole matrix",
    )
    yield from five_folds(images, dimension, smoke)


def five_folds(images: int, dimension: int, smoke: bool) -> Iterator[Row]:
    """Recalls, averaged over five folds, compared with the programs of VSE-infinity and of PCME."""
    from keras_xmr.evaluation.scoring import score_tiles
    from keras_xmr.judgements import Judgements
    from keras_xmr.matchers import Cosine
    from keras_xmr.metrics import evaluate_scores

    image, caption, owner = made_up(images, dimension)
    part = images // 5, len(owner) // 5
    judgements = Judgements.from_pairs(owner[: part[1]], part[0])

    def ours() -> list[float]:
        found = []
        for fold in range(5):
            sides = [
                {"mean": side[fold * count : (fold + 1) * count]}
                for side, count in zip((image, caption), part, strict=True)
            ]
            summary = evaluate_scores(score_tiles(Cosine(), *sides, TILE), judgements).summary
            found.append([summary[f"{way}_recall_{k}"] for way in WAYS for k in (1, 5, 10)])
        return np.mean(found, axis=0).tolist()

    size = f"{part[0]:,} x {part[1]:,}, D {dimension}"
    if smoke:
        yield compare("scores and recalls of five folds", size, ours)
        return
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/arrays.npz", image=image, caption=caption)
        for checkout, name in (("vse_infty", "folds"), ("pcme", "metrics of PCME")):
            with released(checkout, name, arrays=f"{folder}/arrays.npz") as (ask, program):
                if ask is None:
                    continue
                theirs = Elsewhere(lambda ask=ask: ask("folds"))
                row = compare(
                    "scores and recalls of five folds",
                    size,
                    ours,
                    theirs,
                    program,
                    repeats=3,
                    warm_up=False,
                )
                np.testing.assert_allclose(theirs.found, ours(), atol=1e-3)
                yield replace(row, at_least=1.0)


def in_a_process(way: str, images: int, dimension: int) -> dict[str, float]:
    """The result of `measure_way` in a separate process."""
    command = [sys.executable, __file__, f"--way={way}"]
    command += [f"--images={images}", f"--dimension={dimension}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(lines.splitlines()[-1])


def report(title: str, found: dict[str, float]) -> None:
    """Prints a line of the table."""
    print(
        f"{title:<44}{found['seconds']:>11.1f}{found['cpu']:>11.1f}{found['gigabytes']:>11.2f}"
        f"{found['rsum']:>11.3f}",
        flush=True,
    )


def main(images: int, dimension: int, large: int, run_large: bool) -> dict[str, dict[str, float]]:
    """Prints a table, and returns what each way took."""
    captions = CAPTIONS_PER_IMAGE * images
    print(f"cosines of {images:,} x {captions:,}, D = {dimension}, {os.cpu_count()} cores")
    print(f"\n{'':<44}{'seconds':>11}{'CPU s':>11}{'peak GB':>11}{'RSUM':>11}")
    found = {way: in_a_process(way, images, dimension) for way in ("dense", "streamed")}
    for way, figures in found.items():
        report(way, figures)
    if found["dense"]["rsum"] != found["streamed"]["rsum"]:
        raise SystemExit("the ranks differ")
    size = f"{large:,} x {CAPTIONS_PER_IMAGE * large:,}"
    matrix = 4 * CAPTIONS_PER_IMAGE * large**2 / 1e9
    seconds = found["streamed"]["seconds"] * (large / images) ** 2
    print(
        f"\n{size}: {seconds / 60:.0f} min projected, streamed; a matrix would be {matrix:.1f} GB"
    )
    if run_large:
        found["large"] = in_a_process("streamed", large, dimension)
        report(f"{size}, streamed", found["large"])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--large", type=int, default=50_000, help="images of the large split")
    parser.add_argument("--run-large", action="store_true", help="measures it, in place of a guess")
    parser.add_argument("--way", choices=("dense", "streamed"), help="that way alone, as JSON")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure_way(options.way, options.images, options.dimension)))
    else:
        main(options.images, options.dimension, options.large, options.run_large)
