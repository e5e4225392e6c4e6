"""The embedder of an index: its towers, matcher and tokenizer as files, without TensorFlow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import numpy as np

from keras_xmr.search.embedder.published_towers import PublishedImages, PublishedTexts
from keras_xmr.search.embedder.sessions import EmbedderError, Graph, verified
from keras_xmr.search.embedder.text_tokenizer import TextTokenizer
from keras_xmr.search.embedder.tokenizers import make_tokenizer
from keras_xmr.search.manifests import MANIFEST, read_manifest, write_manifest
from keras_xmr.utils.files import temporary_path
from keras_xmr.utils.processors import in_threads
from keras_xmr.utils.sides import SIDES, Side
from keras_xmr.utils.vectors import Arrays, chunks, concatenate, select, unit_rows

VERSION = 1

IMAGE_TOWER, TEXT_TOWER = "image_tower.onnx", "text_tower.onnx"
HEAD, SCORE, BOUND = "image_head.onnx", "score.onnx", "bound.onnx"
WORDS = "words.txt"
"""Files of an embedder; all but the towers and the score are optional."""

FEATURES = "features"
"""The output of an image tower that its head reads."""

GALLERY, QUERY = "gallery_", "query_"
"""Beginnings of the names of the inputs of scores."""

PREPARE: dict[Side, str] = {"image": "prepare_image.onnx", "text": "prepare_text.onnx"}
"""Files that add what the matcher needs; optional."""


_TEXTS = 32
"""Texts that are embedded at once: fewer and more take longer per text."""


@dataclass(frozen=True)
class PixelSettings:
    """Options that determine the pixels of a photo; see `data_pipelines.pixels.PixelOptions`."""

    size: int
    resize: int
    fit: Literal["center", "stretch"] = "center"
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    store_side: int | None = None


@dataclass(frozen=True)
class Ranking:
    """How an index ranks by inner products.

    Attributes:
        augmentation: The name of an augmentation.
        exact: Whether it ranks as the matcher does.
    """

    augmentation: str
    exact: bool


class Embedder:
    """Embeds photos and texts, and scores them. Thread-safe.

    Every file is compared with its checksum when it is first needed: a text needs no image tower.

    Args:
        folder: The folder of its files.
        content: The content of its manifest.
        sources: Paths of files that are not in the folder, by name.
        few_texts: Whether a few texts will be embedded, of which the start counts most.

    Attributes:
        folder: The folder of its files.
        name: The name of the model.
        fingerprint: Hash of its weights and options.
        matcher_name: The name of its matcher.
        kind: The kind of its embeddings of images.
        search: How an index ranks.
        log_odds: Whether scores are log-odds of a match.
        pixel_options: Options of the pixels of photos.
        batch_size: Number of items that are embedded at once.
        precision: Of the weights of the towers.
        example: A caption of the training; may be empty.
        features: The folder of stored features of the image encoder, and their shape (L, F); None
            for none.
    """

    def __init__(
        self,
        folder: Path,
        content: Mapping[str, Any],
        sources: Mapping[str, Path] | None = None,
        few_texts: bool = False,
    ) -> None:
        self.folder, self._content, self._sources = folder, content, sources or {}
        self._few_texts = few_texts
        self._published: Mapping[str, Any] | None = content.get("published")
        self.name: str = content["name"]
        self.fingerprint: str = content["fingerprint"]
        self.matcher_name: str = content["matcher"]
        self.kind: str = content["kind"]
        self.search = Ranking(content["augmentation"], content["exact"])
        self.log_odds: bool = content["log_odds"]
        self.pixel_options = PixelSettings(**content["image"])
        self.batch_size: int = content["batch_size"]
        self.precision: str = content.get("precision", "float32")
        self.example: str = content["example"]
        stored = content["features"]
        self.features: tuple[Path, tuple[int, ...]] | None = (
            None if stored is None else (Path(stored["folder"]), tuple(stored["shape"]))
        )
        self._lock = RLock()

    @classmethod
    def open(cls, folder: Path, few_texts: bool = False) -> Embedder:
        """Opens an embedder; its files are read later.

        Args:
            folder: The folder of its files.
            few_texts: Whether a few texts will be embedded, of which the start counts most.

        Raises:
            EmbedderError: If it is missing or damaged.
        """
        if not (folder / MANIFEST).is_file():
            raise EmbedderError(
                f"{folder} is missing, or not whole: an index is searched by the files in it; copy "
                "the index again, or run `index` again with its --run or --model"
            )
        try:
            return cls(folder, read_manifest(folder, VERSION, "tokenizer"), few_texts=few_texts)
        except (KeyError, TypeError):
            raise EmbedderError(
                f"{folder / MANIFEST} describes no embedder of this version; run `index` again"
            ) from None

    def install(self, target: Path) -> None:
        """Links its files into a folder, or copies them to another disk.

        Args:
            target: The folder, which appears whole or not at all.

        Raises:
            EmbedderError: If a file is missing or damaged.
        """
        if target.resolve() == self.folder.resolve():
            return
        temporary = temporary_path(target)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            for name, sha256 in self._content["files"].items():
                _link(verified(self._path(name), sha256), temporary / name)
            write_manifest(temporary, VERSION, self._content)
            shutil.rmtree(target, ignore_errors=True)
            os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def check(self) -> None:
        """Checks all files.

        Raises:
            EmbedderError: If one is missing or damaged.
        """
        for name, sha256 in self._content["files"].items():
            verified(self._path(name), sha256)

    def _path(self, name: str) -> Path:
        return self._sources.get(name, self.folder / name)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer."""
        described = self._content["tokenizer"]
        try:
            files = {name: self._file(name).read_bytes() for name in described["files"]}
            tokenizer: TextTokenizer = make_tokenizer(
                described["kind"], files, described["options"]
            )
        except (ImportError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise EmbedderError(
                f"{self.folder} holds a tokenizer that cannot be used ({error}); run `index` again "
                "with its --run or --model"
            ) from None
        return tokenizer

    @cached_property
    def training_words(self) -> frozenset[str] | None:
        """Words of the training captions; None if they are unknown."""
        if WORDS not in self._content["files"]:
            return None
        return frozenset(self._file(WORDS).read_text("utf-8").split())

    @cached_property
    def _text_tower(self) -> Graph | PublishedTexts:
        # Integers are multiplied by operations that ONNX Runtime puts together.
        is_brief = self._few_texts and self.precision == "float32"
        graph = self._graph(TEXT_TOWER, is_brief=is_brief)
        if self._published is None:
            return graph
        return PublishedTexts(graph, **self._published["text"])

    @cached_property
    def _image_tower(self) -> Graph | PublishedImages:
        graph = self._graph(IMAGE_TOWER, threads=1)  # `_run_images` has the threads.
        if self._published is None:
            return graph
        return PublishedImages(graph, **self._published["image"])

    @cached_property
    def _head(self) -> Graph:
        return self._graph(HEAD)

    @cached_property
    def _score(self) -> Graph:
        return self._graph(SCORE)

    @cached_property
    def _bound(self) -> Graph | None:
        return self._graph(BOUND) if BOUND in self._content["files"] else None

    @cached_property
    def _prepare(self) -> dict[Side, Graph]:
        held = [side for side in SIDES if PREPARE[side] in self._content["files"]]
        return {side: self._graph(PREPARE[side]) for side in held}

    def _graph(self, name: str, threads: int = 0, is_brief: bool = False) -> Graph:
        path, weights = self._file(name), self._content.get("weights", {}).get(name, ())
        with ThreadPoolExecutor(1) as pool:
            # A graph is made while its weights, which it maps, are compared with their checksums.
            checks = [pool.submit(self._file, each) for each in weights]
            try:
                return Graph(path, threads, is_brief=is_brief)
            finally:
                for check in checks:
                    check.result()

    def _file(self, name: str) -> Path:
        sha256 = self._content["files"].get(name)
        if sha256 is None:
            raise EmbedderError(f"{self.folder} has no {name}")
        return verified(self._path(name), sha256)

    def embed_texts(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns embeddings of texts, with a row per text.

        Texts of a similar length are embedded together: padding takes as long as words.
        """
        with self._lock:
            ids, mask = self.tokenizer(texts)
            if len(texts) <= _TEXTS:
                return self._text_tower({"input_ids": ids, "attention_mask": mask})
            lengths = mask.sum(axis=1)
            order = np.argsort(lengths, kind="stable")
            embeddings = []
            for rows in chunks(order, _TEXTS):
                length = ids.shape[1] if self.tokenizer.has_one_length else lengths[rows[-1]]
                inputs = {"input_ids": ids[rows, :length], "attention_mask": mask[rows, :length]}
                embeddings.append(self._text_tower(inputs))
            return select(concatenate(embeddings), np.argsort(order))

    def embed_images(self, files: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Returns embeddings of image files, with a row per file.

        Raises:
            UnreadableError: If one is broken, with its number from 1.
        """
        pixels = [self.pixels(f, f"photo {n}") for n, f in enumerate(files, start=1)]
        return self.embed_pixels(np.stack(pixels))

    def warm_up_images(self) -> None:
        """Loads the image tower. Does not lock: texts can be embedded meanwhile."""
        _ = self._image_tower

    def pixels(self, data: bytes, name: str) -> np.ndarray:
        """Decodes an image file as in evaluation: uint8 (size, size, 3).

        Raises:
            UnreadableError: If it is broken.
        """
        from data_pipelines.pixels import evaluation_pixels  # Texts need no Pillow.

        return evaluation_pixels(data, name, self.pixel_options)

    def embed_pixels(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the embeddings of pixels uint8 (N, size, size, 3)."""
        wanted = [name for name in self._image_tower.outputs if name != FEATURES]
        return self._run_images(pixels, wanted)

    def _run_images(self, pixels: np.ndarray, wanted: Sequence[str]) -> dict[str, np.ndarray]:
        """Runs the image tower on one photo per thread.

        The activations of one photo stay in the cache, which takes less processor time than many
        photos at once. Memory is freed after the last one: a server rarely embeds photos.
        """
        with self._lock:
            tower = self._image_tower

            def run(number: int) -> dict[str, np.ndarray]:
                one = {"images": pixels[number : number + 1]}
                return tower(one, wanted, last=number == len(pixels) - 1)

            return concatenate(in_threads(run, len(pixels), 1))

    def encode_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the features float32 (N, L, F) of pixels, which `embed_features` takes."""
        return self._run_images(pixels, [FEATURES])[FEATURES]

    def embed_features(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Returns embeddings of images from features float32 (N, L, F) of the image encoder."""
        with self._lock:
            return self._head({FEATURES: features})

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """Returns the distinct words of a text that the model does not know."""
        return self.tokenizer.unknown_words(text)

    def score(self, gallery: Arrays, query: Arrays) -> np.ndarray:
        """Returns scores float32 (images, queries) by the matcher of the model."""
        if self._published is not None:
            return unit_rows(gallery["mean"]) @ unit_rows(query["mean"]).T
        with self._lock:
            inputs = {f"{GALLERY}{name}": values for name, values in gallery.items()}
            if "tokens" not in query:
                return self._scores(inputs, query)
            # Each has another length.
            count = len(query["tokens"])
            columns = [self._scores(inputs, select(query, slice(n, n + 1))) for n in range(count)]
            return np.concatenate(columns, axis=1)

    def _scores(self, inputs: Arrays, query: Arrays) -> np.ndarray:
        if "mask" in query:
            length = max(1, int(query["mask"].sum(axis=1).max()))
            cut = {name: query[name][:, :length] for name in ("tokens", "mask")}
            query = {**query, **cut}
        more = {f"{QUERY}{name}": values for name, values in query.items()}
        return self._score({**inputs, **more})["scores"]

    def prepare(self, embedding: Arrays, side: Side) -> dict[str, np.ndarray]:
        """Applies `prepare` of the matcher, which may add samples."""
        with self._lock:
            if (graph := self._prepare.get(side)) is None:
                return dict(embedding)
            inputs = {f"{GALLERY}{name}": values for name, values in embedding.items()}
            return {**embedding, **graph(inputs)}

    def search_constants(self) -> dict[str, float]:
        """Returns the constants of the matcher for searches."""
        return dict(self._content["constants"])

    def score_bound(
        self, similarity: np.ndarray, gallery: Arrays, query: Arrays
    ) -> np.ndarray | None:
        """Returns the upper bound on scores of items with at most this similarity (queries,)."""
        if self._bound is None:
            return None
        inputs = {"similarity": np.asarray(similarity, np.float32)}
        inputs |= {f"{GALLERY}{name}": values for name, values in gallery.items()}
        inputs |= {f"{QUERY}{name}": values for name, values in query.items()}
        with self._lock:
            if not self._fits(self._bound, inputs):
                return None
            return self._bound(inputs)["bound"]

    def _fits(self, graph: Graph, inputs: Arrays) -> bool:
        """Returns whether inputs have the shapes of a graph: photos as queries may have others."""
        return all(
            len(each.shape) == inputs[name].ndim
            and all(
                not isinstance(size, int) or size == actual
                for size, actual in zip(each.shape, inputs[name].shape, strict=True)
            )
            for name, each in graph.inputs.items()
        )

    def probability(self, scores: np.ndarray) -> np.ndarray | None:
        """Returns probabilities of a match, if scores are log-odds."""
        if not self.log_odds:
            return None
        with np.errstate(over="ignore"):
            return np.asarray(1.0 / (1.0 + np.exp(-scores.astype(np.float64))))


def _link(source: Path, target: Path) -> None:
    """Links a file, which a link may name, or copies it where links are not possible."""
    with suppress(OSError):
        os.link(source.resolve(), target)
        return
    shutil.copy2(source, target)
