"""Indexes of small plain photos, and a model of them that knows colours alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import encoded
from PIL import Image

from data_pipelines.pixels import evaluation_pixels
from keras_xmr.search import PhotoIndex
from keras_xmr.search.embedder.embedder import PixelSettings, Ranking
from keras_xmr.search.index_build import build_index

COLOURS = {
    "red": (200, 20, 20),
    "green": (20, 180, 30),
    "blue": (20, 30, 210),
    "yellow": (210, 200, 20),
    "white": (250, 250, 250),
}


class StubEmbedder:
    """A model without TensorFlow: a photo is its mean colour, a text that of its colours.

    Attributes:
        embedded: How many photos it has embedded.
    """

    def __init__(self, fingerprint: str = "stub", matcher: str = "cosine") -> None:
        self.fingerprint = fingerprint
        self.matcher_name = matcher
        self.name, self.kind, self.example, self.features = "stub", "point", "", None
        self.search = Ranking(augmentation="mean_cosine", exact=True)
        self.pixel_options = PixelSettings(
            size=16, resize=16, fit="stretch", interpolation="bicubic"
        )
        self.batch_size = 4
        self.folder = Path("stub")
        self.training_words: frozenset[str] | None = None
        self.embedded = 0

    def install(self, target: Path) -> None:
        """Does nothing: it has no files."""

    def pixels(self, data: bytes, name: str) -> np.ndarray:
        return evaluation_pixels(data, name, self.pixel_options)

    def embed_pixels(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        self.embedded += len(pixels)
        mean = pixels.reshape(len(pixels), -1, 3).mean(axis=1) / 255 - 0.4
        return {"mean": mean.astype(np.float32)}

    def embed_images(self, files: Sequence[bytes]) -> dict[str, np.ndarray]:
        found = [self.pixels(f, f"photo {n}") for n, f in enumerate(files, start=1)]
        return self.embed_pixels(np.stack(found))

    def embed_texts(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        means = [
            np.mean([COLOURS[w] for w in t.split() if w in COLOURS] or [(100, 101, 99)], axis=0)
            for t in texts
        ]
        return {"mean": (np.array(means) / 255 - 0.4).astype(np.float32)}

    def unknown_words(self, text: str) -> tuple[str, ...]:
        return tuple(word for word in text.split() if word not in COLOURS)

    def score(
        self, gallery: Mapping[str, np.ndarray], query: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        left, right = (
            e["mean"] / np.linalg.norm(e["mean"], axis=1, keepdims=True) for e in (gallery, query)
        )
        return left @ right.T

    def prepare(self, embedding: Mapping[str, np.ndarray], side: str) -> dict[str, np.ndarray]:
        return dict(embedding)

    def search_constants(self) -> dict[str, float]:
        return {}

    def score_bound(self, *_: Any) -> None:
        return None

    def probability(self, scores: np.ndarray) -> None:
        return None

    def warm_up_images(self) -> None:
        pass


def photo(colour: str, seed: int = 0, size: tuple[int, int] = (40, 30)) -> bytes:
    """A JPEG file of one colour with some noise."""
    random = np.random.default_rng(seed)
    noise = random.integers(-20, 20, (5, 4, 3))
    pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
    return encoded(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


def write_photos(root: Path, count: int = 3) -> list[str]:
    """A few photos of each colour, in a folder of that name; their paths."""
    paths = []
    for number, colour in enumerate(COLOURS):
        (root / colour).mkdir(parents=True, exist_ok=True)
        for seed in range(count):
            path = root / colour / f"{seed}.jpg"
            path.write_bytes(photo(colour, 100 * number + seed))
            paths.append(path.relative_to(root).as_posix())
    return sorted(paths)


def small_index(folder: Path, backend: str = "exact", **options: Any) -> PhotoIndex:
    """An index of photos of five colours; options are those of `build_index`."""
    write_photos(folder / "photos")
    stub: Any = StubEmbedder()
    build_index(stub, folder / "photos", folder / "index", backend, **options)
    return PhotoIndex.open(folder / "index")
