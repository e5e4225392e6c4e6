"""Makes the embedder of a run: its model as files that an index is searched by."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.prepare import check_origin
from data_pipelines.records import Records
from data_pipelines.text import Tokenizer, WordTokenizer
from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import tensors
from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer
from keras_xmr.experiments.build import PHOTOS, restore_tokenizer
from keras_xmr.experiments.config.model_facts import why_not_indexed
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.export.onnx_export import (
    check_packages,
    write_graph,
    write_head,
    write_image_tower,
    write_text_tower,
)
from keras_xmr.experiments.export.saved_model import ExportError, some_inputs
from keras_xmr.experiments.runs.folder import RunFolder, load_run
from keras_xmr.experiments.runs.frozen_features import ImageEncoder, stores_image_features
from keras_xmr.experiments.runs.loading import load_retriever
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import tower_on_features
from keras_xmr.search.embedder import embedder as parts
from keras_xmr.search.embedder.embedder import Embedder
from keras_xmr.search.embedder.tokenizers import make_tokenizer
from keras_xmr.search.manifests import write_manifest
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import checksum, temporary_path
from keras_xmr.utils.progress import waiting

_ITEMS = 3
"""Number of items by which files are compared with the model."""

_TEXTS = (
    "a dog runs on the grass",
    "Two men don't wear 3 hats; it's 12.5 o'clock!",
    "雪 ❄ snow ÉCOLE straße",
    "",
)
_TRIED = 20
"""Number of captions among which the example is chosen."""

_WORD = re.compile(r"[^\W\d_]{3}")


def run_embedder(run: Path) -> Embedder:
    """Returns the embedder of a finished run, in its folder `onnx`; makes it if need be.

    Args:
        run: The folder of the run.

    Raises:
        UserError: If the run is not finished, or its model does not take photos or cannot be
            written as ONNX.
    """
    config = load_run(run)
    folder = RunFolder(config)
    if not folder.done.exists():
        raise UserError(f"{run} has no finished training; train it first")
    if reason := why_not_indexed(config):
        raise UserError(f"{run}: {reason}")
    target, fingerprint = folder.path / "onnx", _fingerprint(config, folder)
    if (embedder := _current(target, fingerprint)) is not None:
        return embedder
    check_packages()
    temporary = temporary_path(target)
    try:
        temporary.mkdir(parents=True)
        with waiting("writing the model as ONNX"):
            _write(config, folder, fingerprint, temporary)
        # An update of the run would have replaced the weights meanwhile.
        if _fingerprint(config, folder) != fingerprint:
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


def _fingerprint(config: Config, folder: RunFolder) -> str:
    """Returns a hash of the weights and of the options of pixels, words and matcher."""
    folder.verify_tokenizer()
    weights, options = folder.weights_checksum(config), config.model_dump(mode="json")
    kept = [options["model"]["matcher"], options["model"]["dimension"], config.data.image.seen]
    content = json.dumps([weights, *kept, options["data"]["text"]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _write(config: Config, folder: RunFolder, fingerprint: str, target: Path) -> None:
    """Writes the files of an embedder, the manifest last."""
    # Weights are in single precision, whatever a training computes in.
    train = config.train.model_copy(update={"precision": "float32"})
    tokenizer = restore_tokenizer(config, folder.path)
    model = load_retriever(config.model_copy(update={"train": train}), PHOTOS, tokenizer)
    described = _write_tokenizer(tokenizer, target)
    features = _write_towers(model, tokenizer, config, target)
    constants = _write_matcher(model, target)
    example, words = _training_captions(config)
    if words:
        (target / parts.WORDS).write_text("".join(f"{word}\n" for word in words), "utf-8")
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
    write_manifest(target, parts.VERSION, content)


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
    model: Retriever, tokenizer: Tokenizer, config: Config, target: Path
) -> dict[str, Any] | None:
    """Writes both towers; returns the entry of stored features of the manifest."""
    ids = tokenizer(tf.constant(_TEXTS)).numpy()
    write_text_tower(model.text_tower, tokenizer.pad, ids, target / parts.TEXT_TOWER)
    tower, sample = model.image_tower, some_inputs(model.image_tower)
    features = None
    if stores_image_features(config):
        encoder = ImageEncoder(tower, config.data.records, config)
        features = {"folder": str(encoder.folder.resolve()), "shape": encoder.shape}
        random = np.random.default_rng(0).normal(size=(_ITEMS, *encoder.shape))
        write_head(tower_on_features(tower), random.astype(np.float32), target / parts.HEAD)
    write_image_tower(tower, sample, target / parts.IMAGE_TOWER, features is not None)
    return features


def _write_matcher(model: Retriever, target: Path) -> dict[str, float]:
    """Writes the scores of a matcher, and what they need; returns its constants."""
    matcher = model.matcher
    outputs = {
        "image": embeddings.for_matching(dict(model.image_tower.output)),
        "text": embeddings.for_matching(dict(model.text_tower.output)),
    }
    specs = {side: _specs(output) for side, output in outputs.items()}
    samples = {side: _sample(spec, number) for number, (side, spec) in enumerate(specs.items())}
    sides = {"image": parts.GALLERY, "text": parts.QUERY}
    side: parts.Side
    for side, path in parts.PREPARE.items():
        prepared = matcher.prepare(_tensors(samples[side]), side)
        if prepared.keys() - samples[side].keys():
            names = list(specs[side])

            def prepare(*values: tf.Tensor, names: Any = names, side: Any = side) -> Any:
                added = matcher.prepare(dict(zip(names, values, strict=True)), side)
                return {name: value for name, value in added.items() if name not in names}

            write_graph(
                "the matcher",
                prepare,
                _named(specs[side], parts.GALLERY),
                target / path,
                (),
                {f"{parts.GALLERY}{name}": value for name, value in samples[side].items()},
                is_exact=True,
            )
    directed: Any = "text" if matcher.contract.directed else None

    def score(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": matcher(*_split(values, specs), query=directed)}

    query = specs["text"]
    if "tokens" in query:  # One text at a time, so that no tile has another length.
        query = {name: tf.TensorSpec([1, *s.shape[1:]], s.dtype) for name, s in query.items()}
        samples["text"] = {name: value[:1] for name, value in samples["text"].items()}
    inputs = [*_named(specs["image"], sides["image"]), *_named(query, sides["text"])]
    sample = {
        f"{sides[side]}{name}": value
        for side, values in samples.items()
        for name, value in values.items()
    }
    write_graph("the matcher", score, inputs, target / parts.SCORE, (), sample, is_exact=True)
    _write_bound(model, target)
    return {name: float(value) for name, value in matcher.search_constants().items()}


def _write_bound(model: Retriever, target: Path) -> None:
    """Writes the bound of the scores of a matcher, if it has one."""
    matcher = model.matcher
    towers = {"image": model.image_tower, "text": model.text_tower}
    prepared = {
        side: tensors(
            matcher.prepare(
                _tensors(_sample(_specs(embeddings.for_matching(dict(tower.output)), True), 0)),
                side,  # type: ignore[arg-type]
            )
        )
        for side, tower in towers.items()
    }
    similar = np.linspace(-1, 1, _ITEMS, dtype=np.float32)
    if matcher.score_bound(tf.constant(similar), *prepared.values()) is None:
        return
    specs = {
        side: {name: tf.TensorSpec([None, *v.shape[1:]], v.dtype) for name, v in part.items()}
        for side, part in prepared.items()
    }

    def bound(similarity: tf.Tensor, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"bound": matcher.score_bound(similarity, *_split(values, specs))}

    names = (parts.GALLERY, parts.QUERY)
    inputs = [tf.TensorSpec([None], tf.float32, name="similarity")]
    sample = {"similarity": similar}
    for name, (side, part) in zip(names, specs.items(), strict=True):
        inputs += _named(part, name)
        sample |= {f"{name}{key}": np.asarray(value) for key, value in prepared[side].items()}
    write_graph("the matcher", bound, inputs, target / parts.BOUND, (), sample, is_exact=True)


def _specs(output: Mapping[str, Any], is_fixed: bool = False) -> dict[str, tf.TensorSpec]:
    """Returns specifications of an embedding of any number of items.

    Args:
        output: The symbolic output of a tower.
        is_fixed: Whether the number of points is fixed; other queries may have other numbers.
    """
    specs = {}
    for name, tensor in output.items():
        shape = [None, *tensor.shape[1:]]
        if name == "points" and not is_fixed:
            shape[1] = None
        specs[name] = tf.TensorSpec(shape, tf.float32)
    return specs


def _named(specs: Mapping[str, tf.TensorSpec], prefix: str) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(s.shape, s.dtype, name=f"{prefix}{name}") for name, s in specs.items()]


def _sample(specs: Mapping[str, tf.TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Returns a random embedding of a few items."""
    random = np.random.default_rng(seed)
    arrays = {}
    for name, spec in specs.items():
        shape = [_ITEMS, *(size or 4 for size in spec.shape[1:])]
        values = random.normal(size=shape) * (0.1 if name == "log_variance" else 1.0)
        arrays[name] = values.astype(np.float32)
    if "mask" in arrays:
        arrays["mask"] = np.ones_like(arrays["mask"])
    if "offset" in arrays:
        arrays["offset"] = np.abs(arrays["offset"])
    return arrays


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values) for name, values in arrays.items()}


def _split(
    values: Sequence[tf.Tensor], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Splits tensors into the embeddings of images and captions."""
    images, captions = specs.values()
    return (
        dict(zip(images, values[: len(images)], strict=True)),
        dict(zip(captions, values[len(images) :], strict=True)),
    )


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
