"""Writes a trained model as `model.keras`, and as a SavedModel independent of this project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf
from PIL import Image

from data_pipelines.image_decoding import decode_any_for_evaluation
from data_pipelines.options import ImageOptions
from data_pipelines.pixels import encode, evaluation_pixels
from data_pipelines.text import Tokenizer
from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import Gaussian, tensors
from keras_xmr.experiments.export.earlier_saved_model import write_with_variables
from keras_xmr.matchers import LogitMatcher
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import run_never_empty
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import remove_stale_temporaries, replace_atomically, temporary_path

Tensors = dict[str, tf.Tensor]

_TOLERANCE = 1e-4

# Pillow and TensorFlow may come with versions of libjpeg that round in different ways.
_LEVELS = 2


class ExportError(UserError):
    """A model cannot be exported, or the export is not equal to it."""


def check_equal(what: str, name: str, expected: np.ndarray, exported: np.ndarray) -> None:
    """Checks that an exported model gives the same numbers as the model.

    Args:
        what: The exported part, for the message.
        name: Name of the tensor.
        expected: The tensor of the model.
        exported: The output of the exported model.

    Raises:
        ExportError: If they differ by more than rounding.
    """
    gap = float(np.max(np.abs(expected - exported), initial=0.0))
    if not gap <= _TOLERANCE * float(np.max(np.abs(expected), initial=1.0)):
        raise ExportError(f"{what} is not equal to the model: {name} differs by {gap:.3g}")


def export_keras(model: Retriever, path: Path) -> None:
    """Writes `model.keras`, without the optimizer.

    The file loads with `keras_xmr.load_model(path)`, with safe mode on.

    Args:
        model: The model.
        path: The file; it appears whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path, ".keras") as temporary:
        model.without_optimizer().save(temporary)


def export_saved_model(
    model: Retriever,
    tokenizer: Tokenizer,
    options: ImageOptions,
    path: Path,
    earlier: Path | None = None,
) -> None:
    """Writes a SavedModel with the signatures `embed_image`, `embed_text`, `match`, `embed_pixels`.

    Decoding, resizing, tokenizer and vocabulary are inside. With a tokenizer of KerasHub, load
    the SavedModel after `import tensorflow_text`. `embed_image` takes the bytes of
    JPEG or PNG files, string (N,), or region features, float (N, R, F). `embed_text`
    takes captions, string (M,). Both return the tensors of the embedding that are scored, and
    for Gaussian ones `log_sigma`, the uncertainty. `match` takes N images and M captions per image,
    string (N, M), and returns `scores` (N, M), with `probabilities` where scores are log-odds. If
    the matcher scores by direction, the image is the query. A caption that comes more than once is
    embedded once. `embed_pixels` is `embed_image` for decoded photos: pixels
    uint8 (N, size, size, 3).

    All have one first axis, the items, and the result of an item does not depend on the others: a
    server may put requests of several clients into one batch.

    Args:
        model: The model.
        tokenizer: Converts captions to word ids.
        options: The image options of the run.
        path: The folder, which ends in a version number for TF Serving. It appears whole or
            not at all; remains of a killed export next to it are removed.
        earlier: A SavedModel of the same tokenizer and options with other weights. If with the
            weights of now it gives the same numbers, no function is traced, which takes most of
            the time.

    Raises:
        ExportError: If the SavedModel does not give the same numbers as the model, or this
            version exists.
    """
    if path.exists():
        raise ExportError(f"{path} exists; an export is never replaced by another")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_temporaries(path.parent)
    temporary = temporary_path(path)
    try:
        if earlier is None or not _write_with_weights(
            earlier, _Endpoints(model, tokenizer, options, traces=False), temporary
        ):
            shutil.rmtree(temporary, ignore_errors=True)
            endpoints = _Endpoints(model, tokenizer, options)
            served = _served(endpoints)
            functions = {name: getattr(served, name) for name in endpoints.all()}
            signatures = functions | {"serving_default": functions["embed_image"]}
            tf.saved_model.save(served, str(temporary), signatures=signatures)
            endpoints.compare(temporary)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_with_weights(earlier: Path, endpoints: _Endpoints, path: Path) -> bool:
    """Writes an earlier SavedModel with the weights of now; returns whether it equals the model."""
    if not write_with_variables(earlier, path, _variables(endpoints.model)):
        return False
    try:
        endpoints.compare(path)
    except ExportError:
        return False
    return True


class _Endpoints:
    """The functions of the SavedModel."""

    def __init__(
        self, model: Retriever, tokenizer: Tokenizer, options: ImageOptions, traces: bool = True
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options
        self.takes_regions = model.image_tower.input.dtype != "uint8"
        files = tf.TensorSpec([None], tf.string)
        self.pixels = tf.function(self._pixels, [files], autograph=False)
        self.embed_pixels: Any = self._embed_pixels
        self.embed_some_text: Any = self._embed_some_text
        if not traces:  # A tower that is called once or twice is not worth it.
            return
        # Each is traced once for all endpoints, and never run operation by operation.
        shape, dtype = model.image_tower.input_shape[1:], model.image_tower.input.dtype
        inputs = tf.TensorSpec([None, *shape], dtype)
        self.embed_pixels = tf.function(self._embed_pixels, [inputs], autograph=False)
        self.embed_some_text = tf.function(self._embed_some_text, [files], autograph=False)

    def all(self) -> dict[str, tuple[Callable[..., Tensors], list[tf.TensorSpec]]]:
        """Returns every endpoint: its function and its inputs."""
        captions = tf.TensorSpec([None], tf.string, name="captions")
        lists = tf.TensorSpec([None, None], tf.string, name="captions")
        shape = self.model.image_tower.input_shape[1:]
        if self.takes_regions:
            images = tf.TensorSpec([None, *shape], tf.float32, name="regions")
        else:
            images = tf.TensorSpec([None], tf.string, name="image_bytes")
        endpoints: dict[str, tuple[Callable[..., Tensors], list[tf.TensorSpec]]] = {
            "embed_image": (self.embed_image, [images]),
            "embed_text": (self.embed_text, [captions]),
            "match": (self.match, [images, lists]),
        }
        if not self.takes_regions:
            pixels = tf.TensorSpec([None, *shape], tf.uint8, name="pixels")
            endpoints["embed_pixels"] = (self.embed_pixels, [pixels])
        return endpoints

    def embed_image(self, images: tf.Tensor) -> Tensors:
        """Embeddings of images."""
        return self.embed_pixels(images if self.takes_regions else self.pixels(images))

    def _embed_pixels(self, pixels: tf.Tensor) -> Tensors:
        """Embeddings of inputs of the image tower."""
        embed = partial(self.model.image_tower, training=False)
        return _add_uncertainty(run_never_empty(embed, pixels))

    def embed_text(self, captions: tf.Tensor) -> Tensors:
        """Embeddings of captions."""
        embedding = self.embed_some_text(captions)
        return {name: value[: tf.size(captions)] for name, value in embedding.items()}

    def match(self, images: tf.Tensor, captions: tf.Tensor) -> Tensors:
        """Scores, and probabilities, of the captions (N, M) of each of N images."""
        tf.debugging.assert_equal(
            tf.shape(captions)[0], tf.shape(images)[0], "match takes a list of captions per image"
        )
        different, places = tf.unique(tf.reshape(captions, [-1]))
        scores = self.model.score(self.embed_image(images), self.embed_some_text(different))
        scores = tf.gather(scores, tf.reshape(places, tf.shape(captions)), batch_dims=1)
        if isinstance(self.model.matcher, LogitMatcher):
            return {"scores": scores, "probabilities": self.model.matcher.probability(scores)}
        return {"scores": scores}

    def _pixels(self, files: tf.Tensor) -> tf.Tensor:
        """Pixels uint8 (N, size, size, 3) of image files; an error names the file."""
        numbers = tf.range(tf.size(files))
        names = tf.strings.join(["image ", tf.strings.as_string(numbers), " (counted from 0)"])
        size = self.options.size
        return tf.map_fn(
            lambda item: decode_any_for_evaluation(item[0], self.options, item[1]),
            (files, names),
            fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
        )

    def _embed_some_text(self, captions: tf.Tensor) -> Tensors:
        """Embeds texts; of an empty list, an empty caption."""
        one = tf.constant([""])
        captions = tf.cond(tf.size(captions) > 0, lambda: captions, lambda: one)
        return _add_uncertainty(self.model.text_tower(self.tokenizer(captions), training=False))

    def compare(self, folder: Path) -> None:
        """Checks that a SavedModel gives the same numbers as the model."""
        with _graphs_as_they_are():
            self._compare(tf.saved_model.load(str(folder)))

    def _compare(self, loaded: Any) -> None:
        captions = tf.constant(["a dog runs on the grass", "two men", "雪 ❄ snow", ""])
        # Files of all kinds are decoded; embedding the oddest two shows the same as embedding all.
        files = self._some_images()[-2:]
        inputs = {
            "embed_image": [files],
            "embed_text": [captions],
            "match": [files, tf.tile(captions[None], [len(files), 1])],
        }
        # `embed_pixels` is the part of `embed_image` after the decoding.
        for name, arguments in inputs.items():
            expected = getattr(self, name)(*arguments)
            exported = getattr(loaded, name)(*arguments)
            for key, value in expected.items():
                check_equal(f"the exported {name}", key, value.numpy(), exported[key].numpy())

    def _some_images(self) -> tf.Tensor:
        if self.takes_regions:
            return tf.constant(some_inputs(self.model.image_tower))
        files = image_files()
        seen = self.pixels(tf.constant(list(files.values()))).numpy()
        for (name, data), decoded in zip(files.items(), seen, strict=True):
            expected = evaluation_pixels(data, name, self.options)
            gap = np.abs(decoded.astype(int) - expected.astype(int)).max()
            if gap > _LEVELS:
                raise ExportError(
                    f"the exported model decodes a {name} file differently from the records: "
                    f"pixels differ by up to {gap} of 255"
                )
        return tf.constant(list(files.values()))


@contextmanager
def _graphs_as_they_are() -> Iterator[None]:
    """Lets TensorFlow run graphs without improving them, which for one call takes far longer."""
    option = "disable_meta_optimizer"
    before = tf.config.optimizer.get_experimental_options().get(option, False)
    tf.config.optimizer.set_experimental_options({option: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({option: before})


def _served(endpoints: _Endpoints) -> tf.Module:
    """Returns the content of a SavedModel: the endpoints, and the variables and tables that
    they read.

    `keras.export.ExportArchive` holds the same, but traces all functions twice.
    """
    served = tf.Module()
    served.read = [variable.value for variable in _variables(endpoints.model)]
    tables = tf.saved_model.experimental.TrackableResource
    inside = tf.train.TrackableView(endpoints.tokenizer).descendants()
    served.tables = [resource for resource in inside if isinstance(resource, tables)]
    for name, (function, signature) in endpoints.all().items():
        # Traced here: what is first traced while it is saved is traced once more for each call.
        traced = tf.function(function, signature, autograph=False).get_concrete_function()
        setattr(served, name, traced)
    return served


def _variables(model: Retriever) -> list[Any]:
    """Returns the variables of Keras that the endpoints of a model read."""
    layers = (model.image_tower, model.text_tower, model.matcher)
    variables = [variable for layer in layers for variable in layer.variables]
    # Variables of losses that the matcher shares; other layers of losses are not served.
    shared = [
        getattr(loss, name)
        for loss in model.objective.losses_
        for name in loss.contract.shared_parameters
    ]
    return [*variables, *shared]


def _add_uncertainty(embedding: Tensors) -> Tensors:
    kept = tensors(embeddings.for_matching(embedding))
    if "log_variance" in embedding:
        kept["log_sigma"] = embeddings.log_sigma(cast(Gaussian, embedding))
    return kept


_ORIENTATION = 0x0112


def image_files() -> dict[str, bytes]:
    """Makes small JPEG and PNG files, by their format and property; the oddest are the last two."""
    random = np.random.default_rng(0)
    photo = Image.fromarray(random.integers(0, 256, (7, 9, 3), np.uint8)).resize((131, 97))
    opacity = Image.linear_gradient("L").resize(photo.size)
    turned = Image.Exif()
    turned[_ORIENTATION] = 6
    return {
        "plain JPEG": _file(photo, "JPEG"),
        "rotated JPEG": _file(photo, "JPEG", exif=turned),
        "grey JPEG": _file(photo.convert("L"), "JPEG"),
        "plain PNG": _file(photo, "PNG"),
        "palette PNG": _file(photo.quantize(32), "PNG"),
        "rotated PNG": _file(photo, "PNG", exif=turned),
        "CMYK JPEG": _file(Image.merge("CMYK", [*photo.split(), opacity]), "JPEG"),
        "transparent PNG": _file(Image.merge("RGBA", [*photo.split(), opacity]), "PNG"),
    }


def some_inputs(tower: Any) -> np.ndarray:
    """Returns a few random inputs of an image tower: pixels uint8 (3, H, W, 3), or regions
    float32.
    """
    random = np.random.default_rng(0)
    shape = [size or 3 for size in (3, *tower.input_shape[1:])]
    if tower.input.dtype == "uint8":
        return random.integers(0, 256, shape, np.uint8)
    return random.normal(size=shape).astype(np.float32)


def _file(image: Image.Image, file_format: str, **options: Any) -> bytes:
    # Of JPEG files in which colour is coarser than brightness, a part is not decoded quite as
    # the whole is.
    return encode(
        image, file_format, **({"subsampling": 0} if file_format == "JPEG" else {}), **options
    )


def versions(folder: Path) -> list[Path]:
    """Returns the versions in a folder, the oldest first."""
    folders = folder.iterdir() if folder.is_dir() else ()
    versions = [path for path in folders if path.name.isdecimal() and path.is_dir()]
    return sorted(versions, key=lambda path: int(path.name))


def next_version(folder: Path) -> Path:
    """Returns the folder of the next version."""
    numbers = [int(path.name) for path in versions(folder)]
    return folder / str(max(numbers, default=0) + 1)


def remove_old_versions(folder: Path, keep: int) -> None:
    """Removes all but the newest versions.

    Args:
        folder: Holds the versions.
        keep: Number of versions that stay.
    """
    for path in versions(folder)[:-keep]:
        # A server sees the version whole or not at all.
        temporary = temporary_path(path)
        os.replace(path, temporary)
        shutil.rmtree(temporary)
