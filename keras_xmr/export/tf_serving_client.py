"""Client of an exported model behind TF Serving; over REST it needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.pixels import naming, open_image
from data_pipelines.sources import UnreadableError
from keras_xmr.export.http_client import post_json
from keras_xmr.utils.errors import UserError

Image = Path | str | bytes
"""The path of an image file, or its bytes."""

_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP")

_MAX_GRPC_BYTES = 256 * 1024**2
"""Larger than the default of gRPC, 4 MB, which a batch of photos exceeds."""


class ServingClient:
    """Embeds and matches photos and texts by a model behind TF Serving.

    Args:
        address: `http://127.0.0.1:8501` for REST, or `127.0.0.1:8500` for gRPC.
        model: Name of the model on the server.
        timeout: Maximum time of a request, in seconds.

    Raises:
        UserError: If gRPC is requested, and its package is not installed.
    """

    def __init__(self, address: str, model: str, timeout: float = 30.0) -> None:
        self._address, self._model, self._timeout = address.rstrip("/"), model, timeout
        is_rest = address.startswith(("http://", "https://"))
        self._stub: Any = None if is_rest else _grpc_stub(address)

    def embed_images(self, images: Sequence[Image]) -> dict[str, np.ndarray]:
        """Embeds image files: the tensors of the embedding, float32 (N, ...).

        Raises:
            UserError: If a file is not an image, or the server refuses.
        """
        return self._predict("embed_image", {"image_bytes": _read_images(images)})

    def embed_texts(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Embeds texts: the tensors of the embedding, float32 (N, ...).

        Raises:
            UserError: If the server refuses.
        """
        return self._predict("embed_text", {"captions": list(texts)})

    def match(
        self, images: Sequence[Image], captions: Sequence[str] | Sequence[Sequence[str]]
    ) -> np.ndarray:
        """Scores captions for images, float32 (N, M).

        Args:
            images: N image files.
            captions: M texts, for all of them, or M texts per image.

        Raises:
            UserError: If the lists of captions differ in length, a file is not an image, or the
                server refuses.
        """
        shared = all(isinstance(caption, str) for caption in captions)
        lists = [list(captions)] * len(images) if shared else [list(texts) for texts in captions]
        if len(lists) != len(images) or len({len(texts) for texts in lists}) > 1:
            raise UserError(
                f"{len(images)} images need as many lists of captions, all of one length; fill "
                "shorter ones with empty texts"
            )
        inputs = {"image_bytes": _read_images(images), "captions": lists}
        outputs = self._predict("match", inputs)
        scores = outputs["scores"] if "scores" in outputs else outputs[""]
        # In a batch with the longer lists of other clients, a server pads these.
        return scores[:, : len(lists[0])] if lists else scores

    def _predict(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Sends lists of texts or of bytes by name, and returns the outputs of a signature."""
        if self._stub is None:
            return self._predict_by_rest(signature, inputs)
        return self._predict_by_grpc(signature, inputs)

    def _predict_by_rest(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        url = f"{self._address}/v1/models/{self._model}:predict"
        body = {"signature_name": signature, "inputs": inputs}
        answer = post_json(url, body, signature, self._timeout)
        try:
            outputs = answer["outputs"]
        except (KeyError, TypeError) as error:
            raise UserError(f"{url} gives no answer to {signature}: {error}") from None
        # The name is left out of a signature with one output.
        named = outputs if isinstance(outputs, dict) else {"": outputs}
        return {name: np.asarray(values, np.float32) for name, values in named.items()}

    def _predict_by_grpc(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self._model, signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        try:
            answer = self._stub.Predict(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise UserError(f"{self._address} refuses {signature}: {error.details()}") from None
        return {name: tf.make_ndarray(tensor) for name, tensor in answer.outputs.items()}


def _grpc_stub(address: str) -> Any:
    try:
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc
    except ImportError:
        raise UserError(
            "gRPC needs packages that are not installed: pip install 'keras-xmr[tf-serving]'"
        ) from None
    limits = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
    channel = grpc.insecure_channel(address, [(name, _MAX_GRPC_BYTES) for name in limits])
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def _read_images(images: Sequence[Image]) -> list[bytes]:
    """Reads image files, and checks their headers.

    A graph refuses a whole batch for one broken file, and a server may have put images of other
    clients into it: a header that is broken is refused here.

    Raises:
        UserError: If one is not an image that an exported model reads, has a broken header, or too
            many pixels; with its number.
        OSError: If one cannot be read.
    """
    files = []
    for number, image in enumerate(images):
        data = image if isinstance(image, bytes) else Path(image).read_bytes()
        path = "" if isinstance(image, bytes) else f": {image}"
        name = f"image {number} (counted from 0{path})"
        try:
            with naming(data, name):
                kind = open_image(data).format
        except UnreadableError as error:
            raise UserError(str(error)) from None
        if kind not in _FORMATS:
            raise UserError(
                f"{name} is a {kind} file, which exported models do not read; save it as PNG"
            )
        files.append(data)
    return files
