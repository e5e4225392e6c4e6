"""Makes the embedder of a run: its model as files that an index is searched by."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.prepare import check_origin
from data_pipelines.records import Records
from data_pipelines.text import Tokenizer, WordTokenizer
from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer
from keras_xmr.experiments.build import PHOTOS, restore_tokenizer
from keras_xmr.experiments.config.model_facts import why_not_indexed
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.export.matcher_graphs import write_matcher
from keras_xmr.experiments.export.onnx_export import (
    check_packages,
    halve_weights,
    store_weights_apart,
    write_head,
    write_image_tower,
    write_text_tower,
)
from keras_xmr.experiments.export.saved_model import ExportError, some_inputs
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.frozen_encoders import ImageEncoder
from keras_xmr.experiments.runs.frozen_features import stores_image_features
from keras_xmr.experiments.runs.loading import load_retriever
from keras_xmr.experiments.runs.weight_files import verify_tokenizer, weights_checksum
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import tower_on_features
from keras_xmr.search.embedder import embedder as files
from keras_xmr.search.embedder.embedder import Embedder
from keras_xmr.search.embedder.tokenizers import make_tokenizer
from keras_xmr.search.manifests import write_manifest
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import checksum, temporary_path
from keras_xmr.utils.vectors import unit_rows
from keras_xmr.utils.waiting import waiting

_ITEMS = 3
"""Number of items by which files are compared with the model."""

_TEXTS = (
    "a dog runs on the grass",
    "Two men don't wear 3 hats; it's 12.5 o'clock!",
    "雪 ❄ snow ÉCOLE straße",
    "",
)
_FOLDERS = {"float32": "onnx", "float16": "onnx_float16"}
"""Folders of embedders in a run, by the precision of their weights."""

_LEAST_SIMILAR = 0.999
"""Minimum cosine of embeddings by weights in half precision to those in float32."""

_TRIED = 20
"""Number of captions among which the example is chosen."""

_WORD = re.compile(r"[^\W\d_]{3}")


def run_embedder(
    run: Path,
    precision: str = "float32",
    earlier: Path | None = None,
    model: Retriever | None = None,
) -> Embedder:
    """Returns the embedder of a finished run, in its folder `onnx`; makes it if need be.

    Args:
        run: The folder of the run.
        precision: Of the weights in the files: float32, or float16 in the folder `onnx_float16`,
            of half the size. Both compute in float32.
        earlier: The folder of the run before it was trained again; None for `run`. Of its towers in
            ONNX those that differ only in their weights are taken.
        model: The model of the run, if it is loaded already.

    Raises:
        UserError: If the run is not finished, or its model does not take photos or cannot be
            written as ONNX.
    """
    if precision not in _FOLDERS:
        raise ConfigError(
            f"--precision={precision}: models of runs have the weights {' or '.join(_FOLDERS)}"
        )
    config = load_run(run)
    folder = RunFolder(config)
    if not folder.done.exists():
        raise UserError(f"{run} has no finished training; train it first")
    if reason := why_not_indexed(config):
        raise UserError(f"{run}: {reason}")
    target = folder.path / _FOLDERS[precision]
    fingerprint = _fingerprint(config, folder, precision)
    if (embedder := _current(target, fingerprint)) is not None:
        return embedder
    check_packages()
    temporary = temporary_path(target)
    try:
        temporary.mkdir(parents=True)
        with waiting("writing the model as ONNX"):
            towers = _whole_towers(earlier or folder.path)
            content = _write(config, folder, fingerprint, temporary, towers, model)
            if precision == "float16":
                _halve(temporary, content)
            _store_apart(temporary, content)
        # An update of the run would have replaced the weights meanwhile.
        if _fingerprint(config, folder, precision) != fingerprint:
            raise UserError(f"{folder.path} was replaced by another model; start again")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Embedder.open(target)


def _current(folder: Path, fingerprint: str) -> Embedder | None:
    """Returns the embedder in a folder if it is whole and of this model."""
    try:
        embedder = Embedder.open(folder)
        if embedder.fingerprint != fingerprint:
            return None
        embedder.check()
    except UserError:
        return None
    return embedder


def _whole_towers(run: Path) -> Path | None:
    """Returns the folder with the towers of a run; None if they are missing or damaged."""
    folder = run / _FOLDERS["float32"]
    try:
        Embedder.open(folder).check()
    except UserError:
        return None
    return folder


def _fingerprint(config: Config, folder: RunFolder, precision: str) -> str:
    """Returns a hash of the weights and of the options of pixels, words and matcher."""
    verify_tokenizer(folder)
    weights, options = weights_checksum(folder, config), config.model_dump(mode="json")
    kept = [options["model"]["matcher"], options["model"]["dimension"], config.data.image.seen]
    halves = [] if precision == "float32" else [precision]
    content = json.dumps([weights, *kept, options["data"]["text"], *halves], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _write(
    config: Config,
    folder: RunFolder,
    fingerprint: str,
    target: Path,
    earlier: Path | None,
    model: Retriever | None,
) -> dict[str, Any]:
    """Writes the files of an embedder, the manifest last; returns its content."""
    tokenizer = restore_tokenizer(config, folder.path)
    if model is None or config.train.precision != "float32":
        # Weights are in single precision, whatever a training computes in.
        train = config.train.model_copy(update={"precision": "float32"})
        model = load_retriever(config.model_copy(update={"train": train}), PHOTOS, tokenizer)
    described = _write_tokenizer(tokenizer, target)
    features = _write_towers(model, tokenizer, config, target, earlier)
    constants = write_matcher(model, target)
    example, words = _training_captions(config)
    if words:
        (target / files.WORDS).write_text("".join(f"{word}\n" for word in words), "utf-8")
    matcher: Any = config.model.matcher
    content = {
        "name": config.name,
        "fingerprint": fingerprint,
        "matcher": matcher.name,
        "kind": config.model.image.head.contract.kind,
        "augmentation": matcher.part.SEARCH.augmentation,
        "exact": matcher.part.SEARCH.exact,
        "log_odds": matcher.part.CONTRACT.log_odds,
        "constants": constants,
        "image": {**config.data.image.seen, "store_side": config.data.image.store_side},
        "batch_size": config.evaluation.batch_size,
        "tokenizer": described,
        "features": features,
        "example": example,
        "files": {path.name: checksum(path) for path in sorted(target.iterdir())},
    }
    write_manifest(target, files.VERSION, content)
    return content


def _halve(target: Path, content: dict[str, Any]) -> None:
    """Stores the weights of an embedder in half precision.

    Raises:
        ExportError: If embeddings of some texts and pixels change by more than rounding.
    """
    before = _some_embeddings(Embedder(target, content))
    for name in (files.IMAGE_TOWER, files.TEXT_TOWER, files.HEAD):
        if (target / name).exists():
            halve_weights(target / name)
            content["files"][name] = checksum(target / name)
    content["precision"] = "float16"
    write_manifest(target, files.VERSION, content)
    for name, values in _some_embeddings(Embedder(target, content)).items():
        similarity = np.sum(unit_rows(values) * unit_rows(before[name]), axis=-1)
        if not similarity.min(initial=1.0) >= _LEAST_SIMILAR:
            raise ExportError(
                f"weights in half precision change {name} to a cosine of {similarity.min():.4f}; "
                "take --precision=float32"
            )


def _store_apart(target: Path, content: dict[str, Any]) -> None:
    """Stores the weights of both towers in files of their own."""
    content["weights"] = {}
    for name in (files.IMAGE_TOWER, files.TEXT_TOWER):
        path = target / name
        weights = store_weights_apart(path)
        content["weights"][name] = [each.name for each in weights]
        content["files"] |= {each.name: checksum(each) for each in (path, *weights)}
    write_manifest(target, files.VERSION, content)


def _some_embeddings(embedder: Embedder) -> dict[str, np.ndarray]:
    """Returns embeddings of some texts and pixels, flat, by their names."""
    size = embedder.pixel_options.size
    pixels = np.random.default_rng(0).integers(0, 256, (_ITEMS, size, size, 3)).astype(np.uint8)
    sides = {
        "embeddings of photos": embedder.embed_pixels(pixels),
        "embeddings of texts": embedder.embed_texts(_TEXTS[:2]),
    }
    return {
        f"{side} ({name})": values.reshape(len(values), -1)
        for side, embedding in sides.items()
        for name, values in embedding.items()
    }


def describe_tokenizer(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Returns the kind and the options of a tokenizer without TensorFlow, and its files.

    Raises:
        ExportError: If there is none for it.
    """
    options = {
        "max_tokens": tokenizer.max_words,
        "start": tokenizer.start,
        "end": tokenizer.end,
        "unknown": tokenizer.unknown,
    }
    files = {Path(name).name: content for name, content in tokenizer.files().items()}
    files.pop("tokenizer.json", None)
    if isinstance(tokenizer, WordTokenizer):
        return {"kind": "words", "options": options, "files": sorted(files)}, files
    inner: Any = getattr(tokenizer, "tokenizer", None)
    name = type(inner).__name__
    kind, more = "", {}
    if isinstance(tokenizer, SubwordTokenizer) and hasattr(inner, "suffix_indicator"):
        has_plain_words = inner.split and not getattr(inner, "special_tokens_in_strings", False)
        kind = "wordpiece" if has_plain_words else ""
        more = {
            "lowercase": inner.lowercase,
            "strip_accents": inner.strip_accents,
            "split_on_cjk": inner.split_on_cjk,
            "suffix": inner.suffix_indicator,
        }
    elif isinstance(tokenizer, SubwordTokenizer) and name == "CLIPTokenizer":
        kind = "clip" if not inner.add_prefix_space else ""
    elif isinstance(tokenizer, SubwordTokenizer) and name in ("SigLIPTokenizer", "GemmaTokenizer"):
        kind = "sentencepiece"
        more = {
            "lowercase": tokenizer.siglip2 or name == "SigLIPTokenizer",
            "strip_punctuation": name == "SigLIPTokenizer",
        }
    if not kind:
        raise ExportError(
            f"the tokenizer {name or type(tokenizer).__name__} works with TensorFlow alone, so the "
            "model cannot search; take word_embedding, or keras_hub_text with a BERT, a CLIP or a "
            "SigLIP"
        )
    return {"kind": kind, "options": options | more, "files": sorted(files)}, files


def _write_tokenizer(tokenizer: Tokenizer, target: Path) -> dict[str, Any]:
    """Writes the files of a tokenizer; returns its entry of the manifest."""
    described, files = describe_tokenizer(tokenizer)
    for name, content in files.items():
        (target / name).write_bytes(content)
    light = make_tokenizer(described["kind"], files, described["options"])
    for text, expected in zip(_TEXTS, tokenizer.pieces(tf.constant(_TEXTS)).to_list(), strict=True):
        if light.pieces(text) != expected:
            raise ExportError(
                f"the tokenizer of searches splits {text!r} in another way than the model's"
            )
    return described


def _write_towers(
    model: Retriever, tokenizer: Tokenizer, config: Config, target: Path, earlier: Path | None
) -> dict[str, Any] | None:
    """Writes both towers; returns the entry of stored features of the manifest."""

    def earlier_file(name: str) -> Path | None:
        path = None if earlier is None else earlier / name
        return path if path is not None and path.exists() else None

    ids = tokenizer(tf.constant(_TEXTS)).numpy()
    text, head, image = files.TEXT_TOWER, files.HEAD, files.IMAGE_TOWER
    write_text_tower(model.text_tower, tokenizer.pad, ids, target / text, earlier_file(text))
    tower, sample = model.image_tower, some_inputs(model.image_tower)
    features = None
    if stores_image_features(config):
        encoder = ImageEncoder(tower, config.data.records, config)
        features = {"folder": str(encoder.folder.resolve()), "shape": encoder.shape}
        random = np.random.default_rng(0).normal(size=(_ITEMS, *encoder.shape)).astype(np.float32)
        write_head(tower_on_features(tower), random, target / head, earlier_file(head))
    write_image_tower(tower, sample, target / image, features is not None, earlier_file(image))
    return features


def open_records(config: Config) -> Records:
    """Opens the records of a run, without stored features.

    Raises:
        RecordsError: If there are none, or they were made from other data.
    """
    check_origin(config.data)
    return Records.open(config.data.records)


def _training_captions(config: Config) -> tuple[str, list[str]]:
    """Returns a short caption of the training split, and the words of all; empty if unknown."""
    if not config.data.is_prepared:
        return "", []
    try:
        records = open_records(config)
        texts = records.split("train").texts[:_TRIED]
        words = sorted(dict(records.word_counts()))
    except UserError:
        return "", []
    return choose_example(texts), words


def choose_example(texts: Sequence[str]) -> str:
    """Returns a short text, if possible with a word of three letters; empty without texts."""
    return min(texts, key=lambda text: (not _WORD.search(text), len(text)), default="")
