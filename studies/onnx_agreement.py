"""How far an index in ONNX is from the model in TensorFlow: embeddings, recalls, time and size.

Photos of the test split of Flickr8K are embedded by the model of a finished run and by its
embedders with weights in float32 and in float16, and so are their captions. Recalls of text to
photo are of searches in an index; recalls of photo to text come from the scores of its matcher.
Times are processor seconds of all threads, of the same items after a first batch.

    python studies/onnx_agreement.py --run=saved_models/csv_pretrained --flickr8k=FOLDER
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TABLE = Path(__file__).parents[1] / "docs" / "tables" / "onnx_agreement.csv"
CUTS = (1, 5, 10)


@dataclass(frozen=True)
class Line:
    """A figure.

    Attributes:
        embedder: TensorFlow, or ONNX with the precision of its weights.
        figure: Its name.
        value: Its value.
        unit: Its unit.
    """

    embedder: str
    figure: str
    value: float
    unit: str


def test_split(flickr8k: Path, most: int) -> tuple[list[Path], list[str], np.ndarray]:
    """Returns the first photos of the test split, their captions, and the photo of each."""
    texts = defaultdict(list)
    for line in (flickr8k / "Flickr8k.token.txt").read_text("utf-8").splitlines():
        name, _, text = line.partition("\t")
        texts[name.partition("#")[0]].append(text)
    names = (flickr8k / "Flickr_8k.testImages.txt").read_text("utf-8").split()[:most]
    captions = [text for name in names for text in texts[name]]
    owners = np.repeat(np.arange(len(names)), [len(texts[name]) for name in names])
    return [flickr8k / "Flicker8k_Dataset" / name for name in names], captions, owners


def processor_time(work: Callable[[], Any]) -> tuple[Any, float]:
    """Returns a result, and the processor seconds that it took."""
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def recalls(scores: np.ndarray, owners: np.ndarray) -> dict[str, float]:
    """Returns recalls in percent of scores (photos, captions)."""
    found = {}
    photos = np.argsort(-scores, axis=0, kind="stable")
    captions = np.argsort(-scores, axis=1, kind="stable")
    for cut in CUTS:
        found[f"text to photo, R@{cut}"] = 100 * float((photos[:cut] == owners).any(axis=0).mean())
        hits = owners[captions[:, :cut]] == np.arange(len(scores))[:, None]
        found[f"photo to text, R@{cut}"] = 100 * float(hits.any(axis=1).mean())
    return found


def least_cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the smallest cosine of the rows of two arrays."""
    rows = [each.reshape(len(each), -1).astype(np.float64) for each in (first, second)]
    norms = np.prod([np.linalg.norm(each, axis=1) for each in rows], axis=0)
    return float((np.sum(rows[0] * rows[1], axis=1) / norms).min())


def compare(
    run: Path, photos: Sequence[Path], captions: Sequence[str], owners: np.ndarray
) -> Iterator[Line]:
    """Yields all figures of a run."""
    import tensorflow as tf

    from keras_xmr.experiments.build import PHOTOS, restore_tokenizer
    from keras_xmr.experiments.evaluation.split_embeddings import tower_graph
    from keras_xmr.experiments.export.run_embedder import run_embedder
    from keras_xmr.experiments.runs.configs import load_run
    from keras_xmr.experiments.runs.loading import load_retriever
    from keras_xmr.experiments.trained_model import TrainedModel
    from keras_xmr.utils.vectors import concatenate, split_items

    config = load_run(run)
    tokenizer = restore_tokenizer(config, run)
    model = TrainedModel(config, load_retriever(config, PHOTOS, tokenizer), tokenizer)
    files = [path.read_bytes() for path in photos]
    embedders = {
        f"ONNX, {precision}": run_embedder(run, precision) for precision in ("float32", "float16")
    }
    first = next(iter(embedders.values()))
    pixels = np.stack(
        [first.pixels(data, path.name) for data, path in zip(files, photos, strict=True)]
    )
    size = first.batch_size

    def in_batches(embed: Callable[[Any], Any], items: Any) -> tuple[dict[str, np.ndarray], float]:
        parts = [items[begin : begin + size] for begin in range(0, len(items), size)]
        embed(parts[0])
        found, seconds = processor_time(lambda: concatenate([embed(part) for part in parts]))
        return found, seconds / len(items)

    def at_once(embed: Callable[[Any], Any]) -> tuple[dict[str, np.ndarray], float]:
        embed(captions[:size])
        found, seconds = processor_time(lambda: embed(list(captions)))
        return found, seconds / len(captions)

    name = "TensorFlow"
    tower = model.retriever.image_tower
    graph = tower_graph(tower, tf.TensorSpec(tower.input.shape, tower.input.dtype))

    def embed_pixels(part: np.ndarray) -> dict[str, np.ndarray]:
        return {key: np.asarray(value) for key, value in graph(tf.constant(part)).items()}

    images, photo_time = in_batches(embed_pixels, pixels)
    texts, text_time = at_once(model.embed_texts)
    yield Line(name, "processor time of a photo", 1e3 * photo_time, "ms")
    yield Line(name, "processor time of a caption", 1e3 * text_time, "ms")
    scores = model.score(images, texts)
    expected = recalls(scores, owners)
    yield from (Line(name, figure, value, "%") for figure, value in expected.items())
    for name, embedder in embedders.items():
        light, photo_time = in_batches(embedder.embed_pixels, pixels)
        words, text_time = at_once(embedder.embed_texts)
        yield Line(name, "processor time of a photo", 1e3 * photo_time, "ms")
        yield Line(name, "processor time of a caption", 1e3 * text_time, "ms")
        bytes_ = sum(path.stat().st_size for path in embedder.folder.glob("*.onnx*"))
        yield Line(name, "files", bytes_ / 1e6, "MB")
        for side, own, other in (("photos", light, images), ("captions", words, texts)):
            for tensor in own:
                cosine = least_cosine(own[tensor], other[tensor])
                yield Line(name, f"1 - least cosine of {side}, {tensor}", 1 - cosine, "")
        own = (
            embedder.score(light, words)
            if len(captions) <= size
            else np.concatenate(
                [embedder.score(light, part) for part in split_items(words, size)], axis=1
            )
        )
        gap = float(np.abs(own - scores).max() / np.abs(scores).max())
        yield Line(name, "largest difference of scores", gap, "of the largest score")
        found = recalls(own, owners)
        found |= searched(embedder, photos, captions, owners)
        yield from (Line(name, figure, value, "%") for figure, value in found.items())


def searched(
    embedder: Any, photos: Sequence[Path], captions: Sequence[str], owners: np.ndarray
) -> dict[str, float]:
    """Returns recalls of text to photo by searches in an index of the photos, in percent."""
    from keras_xmr.search import PhotoIndex, Query, Searcher
    from keras_xmr.search.index_build import build_index

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "photos").mkdir()
        for number, path in enumerate(photos):
            (folder / "photos" / f"{number:06d}.jpg").write_bytes(path.read_bytes())
        build_index(embedder, folder / "photos", folder / "index")
        searcher, ranks = Searcher(PhotoIndex.open(folder / "index")), []
        for text, owner in zip(captions, owners, strict=True):
            hits = searcher.search(Query(texts=(text,)), count=max(CUTS)).hits
            places = [hit.path for hit in hits]
            wanted = f"{owner:06d}.jpg"
            ranks.append(places.index(wanted) if wanted in places else len(photos))
    return {f"text to photo, R@{cut}": 100 * float((np.array(ranks) < cut).mean()) for cut in CUTS}


def main(arguments: argparse.Namespace) -> None:
    """Prints the figures as they come, and writes the table."""
    lines = []
    for line in compare(arguments.run, *test_split(arguments.flickr8k, arguments.photos)):
        print(f"{line.embedder}: {line.figure} {line.value:.6g} {line.unit}", flush=True)
        lines.append(line)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(line) | {"value": f"{line.value:.6g}"} for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--flickr8k", type=Path, required=True)
    parser.add_argument("--photos", type=int, default=500)
    main(parser.parse_args())
