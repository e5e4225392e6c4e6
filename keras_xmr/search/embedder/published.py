"""Published models as embedders: files that transformers.js and `optimum` write.

A folder has `config.json`, `preprocessor_config.json`, `tokenizer.json`, and the towers in
`onnx/`, for each precision with another end of the name. A repository of the Hub has the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.search.embedder.embedder import (
    IMAGE_TOWER,
    TEXT_TOWER,
    Embedder,
)
from keras_xmr.search.embedder.hub import hub_folder
from keras_xmr.search.embedder.published_towers import PublishedImages, PublishedTexts
from keras_xmr.search.embedder.sessions import EmbedderError, Graph
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.files import checksum, user_path
from keras_xmr.utils.messages import nearest

PRECISIONS: Mapping[str, str] = {
    "float32": "",
    "float16": "_fp16",
    "quantized": "_quantized",
    "int8": "_int8",
    "uint8": "_uint8",
    "q4": "_q4",
    "q4f16": "_q4f16",
    "bnb4": "_bnb4",
}
"""Ends of the names of towers by precision."""

_CONFIG, _PIXELS, _TOKENIZER = "config.json", "preprocessor_config.json", "tokenizer.json"
_TOKENIZER_OPTIONS = "tokenizer_config.json"
_TOWERS = {"text_model": TEXT_TOWER, "vision_model": IMAGE_TOWER}
_LAYOUT = (
    f"a published model has {_CONFIG}, {_PIXELS}, {_TOKENIZER}, onnx/text_model.onnx and "
    "onnx/vision_model.onnx, as transformers.js and optimum write them"
)
_ADDRESS = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?:@[\w.-]+)?", re.ASCII)
_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}
_BATCH = 32
_OPTIONAL = (_TOKENIZER_OPTIONS,)


def published_embedder(model: str, precision: str = "float32") -> Embedder | None:
    """Returns the embedder of a published model; None if it is not one.

    Args:
        model: A folder with towers in `onnx/`, or `user/name` of a repository of the Hub, with
            `@revision` if need be.
        precision: A key of `PRECISIONS`.

    Raises:
        ConfigError: If the precision is unknown.
        EmbedderError: If it cannot be fetched, or a file is missing, damaged or of another kind.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"--precision={precision}.{nearest(precision, PRECISIONS)}")
    folder = user_path(model)
    if folder.is_dir():
        return _embedder(folder, folder.name, precision) if (folder / "onnx").is_dir() else None
    if not _ADDRESS.fullmatch(model):
        return None
    ends = [f"onnx/{name}{PRECISIONS[precision]}.onnx*" for name in _TOWERS]
    folder = hub_folder(model, [_CONFIG, _PIXELS, _TOKENIZER, *_OPTIONAL, *ends])
    return _embedder(folder, model.partition("@")[0].rpartition("/")[2], precision)


def _embedder(folder: Path, name: str, precision: str) -> Embedder:
    towers = {side: _tower_path(folder, side, precision) for side in _TOWERS}
    config, pixels = _read_json(folder, _CONFIG), _read_json(folder, _PIXELS)
    tokenizer = folder / _TOKENIZER
    if not tokenizer.is_file():
        raise EmbedderError(f"{folder} has no {_TOKENIZER}: {_LAYOUT}")
    weights = {side: list(_external_data(path)) for side, path in towers.items()}
    sources = {_TOKENIZER: tokenizer}
    for side, path in towers.items():
        sources[_TOWERS[side]] = path
        sources |= {data.name: data for data in weights[side]}
    images = PublishedImages(_graph(towers["vision_model"], 1), **_normalization(folder, pixels))
    texts = PublishedTexts(_graph(towers["text_model"]))
    settings = {
        "image": {**_pixel_settings(folder, pixels), "store_side": None},
        "tokenizer": {
            "kind": "json",
            "files": [_TOKENIZER],
            "options": _tokenizer_options(folder, config, texts),
        },
        "published": {"image": images.options(), "text": texts.options()},
        "weights": {_TOWERS[side]: [data.name for data in weights[side]] for side in towers},
    }
    files = {target: checksum(path) for target, path in sorted(sources.items())}
    fingerprint = hashlib.sha256(json.dumps([files, settings], sort_keys=True).encode())
    content = {
        "name": name or "model",
        "fingerprint": fingerprint.hexdigest(),
        "matcher": "cosine",
        "kind": "point",
        "augmentation": "mean_cosine",
        "exact": True,
        "log_odds": False,
        "constants": {},
        "batch_size": _BATCH,
        "precision": precision,
        "features": None,
        "example": "",
        "files": files,
        **settings,
    }
    embedder = Embedder(folder, content, sources)
    _check(embedder, folder)
    return embedder


def _tower_path(folder: Path, name: str, precision: str) -> Path:
    path = folder / "onnx" / f"{name}{PRECISIONS[precision]}.onnx"
    if path.is_file():
        return path
    others = [
        other
        for other, end in PRECISIONS.items()
        if (folder / "onnx" / f"{name}{end}.onnx").is_file()
    ]
    if others:
        raise EmbedderError(
            f"{folder} has no tower {path.name} of {precision}; use --precision={others[0]}"
        )
    raise EmbedderError(f"{folder} has no onnx/{path.name}: {_LAYOUT}")


def _external_data(path: Path) -> Iterator[Path]:
    """Yields the files of the weights of a large model; exporters name them in two ways."""
    for pattern in (f"{path.name}_data*", f"{path.name}.data*"):
        yield from sorted(path.parent.glob(pattern))


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
    except FileNotFoundError:
        raise EmbedderError(f"{folder} has no {name}: {_LAYOUT}") from None
    except (OSError, ValueError) as error:
        raise EmbedderError(
            f"{path} cannot be read as JSON ({error}); copy or download the model again"
        ) from None
    return content


def _graph(path: Path, threads: int = 0) -> Graph:
    return Graph(path, threads, "copy or download the model again, or update onnxruntime")


def _side(folder: Path, size: Any, key: str) -> int:
    """Returns the length of the short side, or of all sides, of an entry of the pixels."""
    if isinstance(size, Mapping):
        sides = {size[name] for name in ("height", "width", "shortest_edge") if name in size}
        size = sides.pop() if len(sides) == 1 else None
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 4096:
        raise EmbedderError(
            f"{folder / _PIXELS} has a {key} that is not a square of known size; models with "
            "square photos can search"
        )
    return size


def _pixel_settings(folder: Path, pixels: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of `PixelSettings` without the side of stored photos."""
    is_cropped = bool(pixels.get("do_center_crop", "crop_size" in pixels))
    resize = _side(folder, pixels.get("size"), "size")
    size = _side(folder, pixels.get("crop_size"), "crop_size") if is_cropped else resize
    interpolation = _INTERPOLATIONS.get(pixels.get("resample", 3))
    if interpolation is None:
        raise EmbedderError(
            f"{folder / _PIXELS} scales photos by resample {pixels['resample']}; models with 2 "
            "(bilinear) or 3 (bicubic) can search"
        )
    has_edge = isinstance(pixels.get("size"), Mapping) and "shortest_edge" in pixels["size"]
    return {
        "size": size,
        "resize": resize,
        "fit": "center" if is_cropped or has_edge else "stretch",
        "interpolation": interpolation,
    }


def _normalization(folder: Path, pixels: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of `PublishedImages`."""
    scale = pixels.get("rescale_factor", 1 / 255) if pixels.get("do_rescale", True) else 1.0
    mean, deviation = [0.0] * 3, [1.0] * 3
    if pixels.get("do_normalize", True):
        mean, deviation = pixels.get("image_mean"), pixels.get("image_std")  # type: ignore[assignment]
    try:
        numbers = np.array([mean, deviation, [scale] * 3], np.float64)
        if numbers.shape != (3, 3) or not (np.isfinite(numbers).all() and (numbers[1:] > 0).all()):
            raise ValueError
    except (TypeError, ValueError):
        raise EmbedderError(
            f"{folder / _PIXELS} has no image_mean and image_std of three numbers; copy or "
            "download the model again"
        ) from None
    return {"mean": mean, "deviation": deviation, "scale": scale}


def _tokenizer_options(
    folder: Path, config: Mapping[str, Any], texts: PublishedTexts
) -> dict[str, Any]:
    """Returns the options of `JsonTokenizer`."""
    is_siglip = str(config.get("model_type", "")).startswith("siglip")
    options = {}
    if (folder / _TOKENIZER_OPTIONS).is_file():
        options = _read_json(folder, _TOKENIZER_OPTIONS)
    text = config.get("text_config")
    positions = text.get("max_position_embeddings") if isinstance(text, Mapping) else None
    length = texts.length or positions or (64 if is_siglip else options.get("model_max_length"))
    if not isinstance(length, int) or not 1 <= length <= 1 << 16:
        length = 64 if is_siglip else 77
    is_gemma = str(options.get("tokenizer_class", "")).startswith("Gemma")
    return {
        "max_tokens": length,
        "pad": _padding(folder, options),
        # SigLIP reads the last token, whatever it is.
        "is_padded": is_siglip or texts.length is not None,
        # SigLIP 2 was trained so; its tokenizer keeps capitals.
        "lowercase": is_siglip and is_gemma,
    }


def _padding(folder: Path, options: Mapping[str, Any]) -> int:
    """Returns the id of the padding."""
    tokenizer = _read_json(folder, _TOKENIZER)
    token = options.get("pad_token")
    token = token.get("content") if isinstance(token, Mapping) else token
    added = tokenizer.get("added_tokens") or []
    ids = {entry.get("content"): entry.get("id") for entry in added if isinstance(entry, Mapping)}
    padding = tokenizer.get("padding")
    number = ids.get(token)
    if number is None and isinstance(padding, Mapping):
        number = padding.get("pad_id")
    return number if isinstance(number, int) else 0


def _check(embedder: Embedder, folder: Path) -> None:
    """Embeds a text and a photo.

    Raises:
        EmbedderError: If the model cannot, or their embeddings do not match.
    """
    size = embedder.pixel_options.size
    text = embedder.embed_texts(["a photo"])["mean"]
    image = embedder.embed_pixels(np.full((1, size, size, 3), 99, np.uint8))["mean"]
    if text.shape != image.shape:
        raise EmbedderError(
            f"{folder} embeds texts as {text.shape[1:]} and photos as {image.shape[1:]} numbers, "
            "so it cannot compare them; take a CLIP or a SigLIP"
        )
    if not (np.isfinite(text).all() and np.isfinite(image).all()):
        raise EmbedderError(f"{folder} computes numbers that are not finite; download it again")
