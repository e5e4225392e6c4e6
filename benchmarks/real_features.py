"""Every method on real photos with frozen pretrained towers, compared with plain baselines.

Photos stand in images/ of a folder, their captions in captions.csv (see the README). They are cut
into seven parts; in a fold one tests, the next one validates, and the others train. Features are
computed once, by the encoders of the presets, or read (`--features`). Each fold is written in the
layout of SCAN, a config is trained on it (`--methods`), and the ranks of what is asked for are
kept, a JSON line a run, in results.jsonl of the work folder. What is there already is not computed
again, so a run that was stopped goes on. Baselines (benchmarks/baselines.py) see the same features,
averaged.

Intervals are 95 % by paired bootstrap over photos, each with its captions, of all folds.

    python benchmarks/real_features.py --photos my_photos --work data/real_features
    python benchmarks/real_features.py --photos my_photos --work data/real_features \\
        --methods csv_pretrained --train-sizes 50,100,200,500 --figure docs/results/own_photos.png
    python benchmarks/real_features.py --results data/real_features/results.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from baselines import BASELINES, Pairs, Ranks, ranks, recalls, unit
from paper_claims import MATCHERS, RERANKERS
from real_tables import LABELS, Measures, Result, draw_learning_curve, read_results, result_lines

PARTS = 7
CLOSED_FORM = ("ridge", "cca_of_last_layer", "cca", "cca_csls", "cca_of_roots")
METHODS = (
    "csv_pretrained,csv_pretrained_mean_only,csv_pretrained_daa,csv_pretrained_pcmepp,"
    "csv_pretrained_nt_xent,csv_pretrained_vse0,csv_pretrained_vsepp,csv_pretrained_smooth_ap,"
    "csv_pretrained_pvse,csv_pretrained_msrm,csv_pretrained_dvse,csv_pretrained_dive"
)


@dataclass(frozen=True)
class Photos:
    """The photos with features, computed once.

    Attributes:
        features: Features of places (N, R, F), float16.
        sentences: Averages of the features of words, (N, C, G), float32.
        captions: C captions of each photo.
        parts: The rows of the seven parts.
        layers: Of how many layers the features of words are, side by side.
    """

    features: np.ndarray
    sentences: np.ndarray
    captions: list[list[str]]
    parts: list[np.ndarray]
    layers: int = 1

    def fold(self, number: int, size: int | None = None) -> dict[str, np.ndarray]:
        """Rows that train (the first `size`), validate and test."""
        following = (number + 1) % PARTS
        others = [part for i, part in enumerate(self.parts) if i not in (number, following)]
        return {
            "train": np.concatenate(others)[:size],
            "dev": self.parts[following],
            "test": self.parts[number],
        }

    def pairs(self, rows: np.ndarray) -> Pairs:
        """The inputs of baselines for some photos."""
        sentences = self.sentences[rows].astype(np.float64)
        return Pairs(
            unit(self.features[rows].astype(np.float64).mean(axis=1)),
            unit(sentences.reshape(-1, sentences.shape[2])),
            np.repeat(np.arange(len(rows)), sentences.shape[1]),
            self.layers,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes what is missing, and prints tables."""
    options = _options(arguments)
    results = options.results or [options.work / "results.jsonl"]
    if not options.results:
        compute(read_photos(options), options, results[0])
    found = read_results(results)
    for size in sorted({result.size for result in found}):
        print(
            "\n".join(["", f"{size} photos train", "", *result_lines(found, size, options.against)])
        )
    if options.figure:
        shown = [name for name in LABELS if name != "chance"] + options.methods[:1]
        draw_learning_curve(found, shown, options.figure)


def compute(photos: Photos, options: argparse.Namespace, path: Path) -> None:
    """Runs what has no line in the file of results yet, and appends it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {(r.method, r.size, r.fold, r.seed) for r in read_results([path])}
    no_measures: Measures = {}
    for method, size, fold, seed in _plan(photos, options):
        if (method, size, fold, seed) in done:
            continue
        rows = photos.fold(fold, size)
        if method in BASELINES:
            splits = [photos.pairs(rows[split]) for split in ("train", "dev", "test")]
            dev, scores = BASELINES[method](*splits, seed)
            found, measures = ranks(scores, splits[2].image_ids), no_measures
        else:
            features, made_of = features_of(method, photos, options)
            folder = options.work / "folds" / f"{fold}_{size}_{made_of}"
            write_fold(features, photos.captions, rows, folder)
            dev, found, measures = train(method, folder, seed, options)
        result = Result(method, size, fold, seed, found, measures)
        with path.open("a") as file:
            file.write(json.dumps(result.as_json() | {"dev": dev}) + "\n")
        print(f"{result.name}: dev {dev:.1f}, test {recalls(found).sum():.1f}", flush=True)


def _plan(photos: Photos, options: argparse.Namespace) -> Iterator[tuple[str, int, int, int]]:
    """The planned runs: method, size, fold and seed. Deterministic methods have one seed.

    Seeds come last, so that what was stopped has the same of all methods, or nearly.
    """
    places = itertools.product(
        range(options.seeds),
        options.train_sizes or [None],
        range(options.folds),
        [*BASELINES, *options.methods],
    )
    for seed, size, fold, method in places:
        if seed == 0 or method not in CLOSED_FORM:
            yield method, len(photos.fold(fold, size)["train"]), fold, seed


def features_of(method: str, photos: Photos, options: argparse.Namespace) -> tuple[np.ndarray, str]:
    """The features of all photos by the image encoder of a config, computed once, and its name."""
    image, _, crop = encoders_of(options, method)
    if options.features or vars(image) == vars(encoders_of(options)[0]):
        return photos.features, "places"
    made_of = hashlib.sha256(json.dumps([vars(image), crop.model_dump_json()]).encode())
    name = made_of.hexdigest()[:8]
    path = options.work / f"features_{name}.npy"
    if not path.exists():
        read = [file for file, _ in _read_all(options)]
        draft = path.with_name("draft.npy")
        np.save(draft, image_features(read, image, crop))
        draft.replace(path)
    return np.load(path, mmap_mode="r"), name


def write_fold(
    features: np.ndarray, captions: list[list[str]], rows: dict[str, np.ndarray], folder: Path
) -> None:
    """Writes the splits of a fold as `{train,dev,test}_ims.npy` and `_caps.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, some in rows.items():
        np.save(folder / f"{split}_ims.npy", features[some])
        texts = [" ".join(text.split()) for i in some for text in captions[i]]
        (folder / f"{split}_caps.txt").write_text("\n".join(texts) + "\n", "utf-8")


def train(
    method: str, folder: Path, seed: int, options: argparse.Namespace
) -> tuple[float, Ranks, Measures]:
    """Trains a config on a fold: its best RSUM on dev, and its ranks and more on test."""
    import keras

    from keras_xmr.commands._steps import Run
    from keras_xmr.config.loader import find_config, load_config
    from keras_xmr.evaluation.evaluate import evaluate_split

    per_image = len((folder / "dev_caps.txt").read_text("utf-8").splitlines())
    per_image //= len(np.load(folder / "dev_ims.npy", mmap_mode="r"))
    source = f"{{name: regions, root: {folder}, captions_per_image: {per_image}}}"
    pooling = load_config(find_config(method), options.set).model.image.pooling
    views = pooling is not None and "views" in pooling.options()
    sets = [
        f"name={method}-{folder.name}-{seed}",
        f"output={options.work / 'runs'}",
        f"seed={seed}",
        f"data.source={source}",
        f"data.records={options.work / 'records' / folder.name}",
        "model.image.encoder=regions",
        "train.precompute_features=false",
        f"model.text.encoder.preset={options.text_preset}",
        f"evaluation.rerankers=[{','.join(RERANKERS)}]",
        # The places of features that are given are not those of two views.
        *(["model.image.pooling.views=1"] if options.features and views else []),
        *options.set,
    ]
    config = load_config(find_config(method), sets)
    also = ",".join(MATCHERS) if config.model.matcher.name == "match_probability" else ""
    config = load_config(find_config(method), [*sets, f"evaluation.matchers=[{also}]"])
    run = Run(config)
    if not config.data.is_prepared:
        run.prepare()
    run.train()
    dev = 100 * json.loads(run.folder.done.read_text("utf-8"))["best"]
    evaluation = evaluate_split(run.model, run.embedded_records, "test", run.tokenizer, config)
    keras.backend.clear_session()
    shutil.rmtree(config.folder)
    own = evaluation.matchers[0].metrics
    measures = {name: _of_queries(own, name) for name in ("r_precision", "asp")}
    for reranked in evaluation.reranked:
        for name in ("recall_1", "recall_5", "recall_10"):
            measures[f"{reranked.reranker}_{name}"] = _of_queries(reranked.measured.metrics, name)
    for other in evaluation.matchers[1:]:
        measures[f"{other.name}_r_precision"] = _of_queries(other.metrics, "r_precision")
    images, captions = _of_queries(own, "rank")
    return dev, (images.astype(int), captions.astype(int)), measures


def _of_queries(metrics: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    return metrics.image_to_text.values[name], metrics.text_to_image.values[name]


def read_photos(options: argparse.Namespace) -> Photos:
    """Features of the work folder, which are computed if it has none."""
    path = options.work / "features.npz"
    photos = options.features or options.flickr8k or options.photos
    image, text, crop = encoders_of(options)
    encoders = [vars(image), crop.model_dump(mode="json"), vars(text)]
    made_of = json.dumps([str(photos), options.splits, *encoders], default=str)
    if not path.exists():
        options.work.mkdir(parents=True, exist_ok=True)
        draft = path.with_name("draft.npz")
        np.savez(draft, made_of=made_of, **_features(options, image, text, crop))
        draft.replace(path)
    kept = np.load(path)
    if str(kept["made_of"]) != made_of:
        raise SystemExit(f"{path} was made of other photos or encoders; name another --work")
    captions = [list(each) for each in kept["captions"]]
    given = options.splits or options.features or options.flickr8k
    parts = _parts(kept["split"] if given else None, len(captions))
    layers = len(text.layers or (1,))
    return Photos(kept["features"], kept["sentences"], captions, parts, layers)


def _parts(split: np.ndarray | None, count: int) -> list[np.ndarray]:
    """Seven parts by chance; of a given split, its test and val come first."""
    random = np.random.default_rng(0)
    if split is None:
        return np.array_split(random.permutation(count), PARTS)
    rows = {name: np.flatnonzero(split == name) for name in ("train", "val", "test")}
    others = np.array_split(random.permutation(rows["train"]), PARTS - 2)
    return [rows["test"], rows["val"], *others]


def _features(
    options: argparse.Namespace, image: Any, text: Any, crop: Any
) -> dict[str, np.ndarray]:
    """Features, sentences, captions and splits of the photos that can be read."""
    read, entries = zip(*_read_all(options), strict=True)
    captions = [[caption.text for caption in entry.captions] for entry in entries]
    splits = [entry.split for entry in entries]
    least = min(map(len, captions))
    captions = [each[:least] for each in captions]
    sentences = sentence_features([caption for each in captions for caption in each], text)
    return {
        "features": np.stack(read) if options.features else image_features(read, image, crop),
        "sentences": sentences.reshape(len(read), least, -1),
        "captions": np.array(captions),
        "split": np.array(splits),
    }


def _read_all(options: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    """The photos that can be read, as JPEG files or features, each with its entry."""
    from data_pipelines.sources import CsvSource, Flickr8kSource, RegionsSource
    from data_pipelines.sources.base import Problems, UnreadableError

    if options.features:
        source: Any = RegionsSource(root=options.features)
    elif options.flickr8k:
        source = Flickr8kSource(root=options.flickr8k)
    else:
        source = CsvSource(root=options.photos, splits=options.splits)
    for entry in source.entries(Problems()):
        try:
            yield read_image(source, entry), entry
        except UnreadableError as error:
            print(f"left out: {error}")


def read_image(source: Any, entry: Any) -> Any:
    """A JPEG file, or features (R, F) where a source has such."""
    from data_pipelines.images import to_jpeg

    if source.holds == "regions":
        return source.read(entry).features.astype(np.float16)
    return to_jpeg(source.read(entry).data, entry.key)


def encoders_of(options: argparse.Namespace, method: str | None = None) -> tuple[Any, Any, Any]:
    """Both encoders of a config with other presets, and what they see of a photo.

    Without a config they are those of the baselines: the last map of photos, and words.
    """
    from keras_xmr.config.loader import find_config, load_config
    from keras_xmr.config.registry import build

    sets = [
        f"model.image.encoder.preset={options.image_preset}",
        f"model.text.encoder.preset={options.text_preset}",
        *([] if method else ["model.image.encoder.levels=null"]),
        *options.set,
    ]
    config = load_config(find_config(method or "csv_pretrained_nt_xent_local"), sets)
    towers = config.model.image, config.model.text
    image, text = (build("encoder", tower.encoder) for tower in towers)
    return image, text, config.data.image


def image_features(
    files: Sequence[bytes], image: Any, crop: Any, decode: Callable[[bytes, Any], Any] | None = None
) -> np.ndarray:
    """Features (N, R, F) of JPEG files, as `csv_pretrained` has them, or decoded another way."""
    import keras

    from data_pipelines.images import decode_for_evaluation
    from keras_xmr.encoders import InputSpec
    from keras_xmr.utils.progress import Progress

    pixels = keras.Input((crop.size, crop.size, 3), dtype="uint8")
    features, _ = image.features(pixels, InputSpec(image_size=crop.size))
    encoder, decode = keras.Model(pixels, features), decode or decode_for_evaluation
    made = []
    with Progress("computing features", len(files), "photos") as bar:
        for first in range(0, len(files), 32):
            batch = np.stack([decode(file, crop) for file in files[first : first + 32]])
            made.append(encoder.predict_on_batch(batch).astype(np.float16))
            bar.update(len(batch))
    return np.concatenate(made)


def sentence_features(texts: list[str], text: Any) -> np.ndarray:
    """Averages (N, G) of the features of the words of captions."""
    import keras

    from data_pipelines.batches import caption_batches
    from data_pipelines.options import TextOptions
    from keras_xmr.encoders import InputSpec
    from keras_xmr.utils.progress import Progress

    tokenizer = text.tokenizer(TextOptions().max_words)
    ids = keras.Input((None,), dtype="int32")
    outputs = text.features(ids, InputSpec(vocabulary=tokenizer.vocabulary))
    model = keras.Model(ids, list(outputs))
    averages = []
    with Progress("computing features", len(texts), "captions") as bar:
        for batch in caption_batches(texts, tokenizer, 100):
            words, mask = model.predict_on_batch(batch)
            weights = mask.astype(np.float32)[:, :, None]
            averages.append((words * weights).sum(axis=1) / weights.sum(axis=1))
            bar.update(len(words))
    return np.concatenate(averages)


def parser_of(description: str | None, work: str, methods: str) -> argparse.ArgumentParser:
    """Takes the photos, the encoders, the methods and the folds.

    Args:
        description: What the program does.
        work: Its work folder, if none is named.
        methods: Its methods, if none are named.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("--photos", type=Path, help="folder with images/ and captions.csv")
    parser.add_argument(
        "--features", type=Path, help="folder with {train,dev,test}_ims.npy and _caps.txt instead"
    )
    parser.add_argument(
        "--flickr8k",
        type=Path,
        help="folder of Flickr8K as released instead; test and val are parts",
    )
    parser.add_argument("--splits", help="its file of splits, if test and val are to be parts")
    parser.add_argument("--work", type=Path, default=Path(work))
    parser.add_argument("--image-preset", default="efficientnet_lite0_ra_imagenet")
    parser.add_argument("--text-preset", default="hf://sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--methods", type=as_list, default=methods, help="configs, or '' for none")
    parser.add_argument("--folds", default=5, choices=range(1, PARTS + 1), **whole)
    parser.add_argument("--seeds", default=1, **whole)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__, "data/real_features", METHODS)
    parser.add_argument("--train-sizes", type=lambda text: [int(n) for n in as_list(text)])
    parser.add_argument(
        "--against", type=as_list, default="cca,dual_encoder", help="what differences are taken to"
    )
    parser.add_argument("--results", type=Path, action="append", help="tables of finished runs")
    parser.add_argument(
        "--figure",
        type=Path,
        help="PNG for a learning curve of baselines and the first of the methods",
    )
    options = parser.parse_args(arguments)
    if not (options.photos or options.features or options.flickr8k or options.results):
        parser.error(
            "name a folder with --photos, --flickr8k or --features, or finished runs with --results"
        )
    return options


def as_list(text: str) -> list[str]:
    """The parts of a text between commas."""
    return [part for part in text.split(",") if part]


if __name__ == "__main__":
    main()
