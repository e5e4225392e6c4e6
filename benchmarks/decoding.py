"""What it costs in RSUM to decode photos at a fraction, which libjpeg does in less time.

Linear maps (CCA, benchmarks/baselines.py) are fitted to features of photos that were decoded
whole, and chosen on others. Photos that test them are decoded whole, and at the fraction. The
interval is 95 %, by paired bootstrap over photos, each with its captions. Options are those of
`real_features.py`.

    python benchmarks/decoding.py --photos my_photos --folds 7 [--ratio 2]
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from baselines import cca, ranks
from real_features import (
    Photos,
    _read_all,
    encoders_of,
    image_features,
    parser_of,
    read_photos,
)

from data_pipelines.images import DCT, crop_for_evaluation, decode_for_evaluation
from keras_xmr.metrics import paired_bootstrap


def at_fraction(jpeg: bytes, options: Any, ratio: int) -> Any:
    """The pixels that an evaluation has, of a photo that is decoded at 1 / ratio of its sides."""
    import tensorflow as tf

    pixels = tf.io.decode_jpeg(jpeg, channels=3, ratio=ratio, dct_method=DCT)
    return crop_for_evaluation(pixels, options)


def by_photo(scores: np.ndarray, captions: int) -> np.ndarray:
    """The share of each photo in RSUM, in percent: (N,), of scores (N, N * captions)."""
    found = ranks(scores, np.repeat(np.arange(len(scores)), captions))
    own, of_captions = (sum(100.0 * (side <= k) for k in (1, 5, 10)) for side in found)
    return own + of_captions.reshape(len(scores), captions).mean(axis=1)


def compare(whole: Photos, part: Photos, folds: int) -> tuple[np.ndarray, np.ndarray]:
    """The shares of all photos that test in RSUM, decoded whole and at the fraction."""
    found = []
    for fold in range(folds):
        rows = whole.fold(fold)
        train, dev, test = (whole.pairs(rows[split]) for split in ("train", "dev", "test"))
        both = np.concatenate([test.images, part.pairs(rows["test"]).images])
        scores = cca(train, dev, replace(test, images=both), 0)[1]
        captions = len(test.captions) // len(test.images)
        found.append([by_photo(half, captions) for half in np.split(scores, 2)])
    left, right = (np.concatenate(side) for side in zip(*found, strict=True))
    return left, right


def main() -> None:
    """Prints both sums, their difference, and what a photo takes to decode."""
    parser = parser_of(__doc__, "data/real_features", "")
    parser.add_argument("--ratio", type=int, default=2, choices=(2, 4, 8), help="of the sides")
    options = parser.parse_args()
    photos, (image, _, crop) = read_photos(options), encoders_of(options)
    files = [file for file, _ in _read_all(options)]
    fraction = partial(at_fraction, ratio=options.ratio)
    part = replace(photos, features=image_features(files, image, crop, fraction))
    whole, half = compare(photos, part, options.folds)
    apart = paired_bootstrap(half, whole)
    print(f"{len(whole):,} photos: RSUM {whole.mean():.1f} whole, {half.mean():.1f} at ", end="")
    print(f"1 / {options.ratio}: {apart.value:+.1f} ({apart.low:+.1f} to {apart.high:+.1f})")
    seconds = []
    for decode in (decode_for_evaluation, fraction) * 2:
        begin = time.process_time()
        for file in files[:200]:
            decode(file, crop)
        seconds.append((time.process_time() - begin) / len(files[:200]))
    print(f"processor time of a photo: {1e3 * seconds[2]:.2f} ms, {1e3 * seconds[3]:.2f} ms")


if __name__ == "__main__":
    main()
