"""Requests by which TF Serving warms up before it accepts clients.

The first request of a signature is slow: tables are filled and kernels chosen. A server reads
`assets.extra/tf_serving_warmup_requests` of a version, a TFRecord file of `PredictionLog`
(tensorflow_serving/apis/prediction_log.proto), and serves the version once it has answered them.

Four nested messages of strings are written here field by field, so that an export needs no package
of TF Serving; the tests read them with the messages of `tensorflow-serving-api`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import tensorflow as tf

FILE = Path("assets.extra", "tf_serving_warmup_requests")
"""The file of the requests in the folder of a version."""

# Numbers of the fields, from prediction_log.proto, predict.proto and model.proto.
_PREDICT_LOG, _REQUEST = 6, 1
_MODEL_SPEC, _INPUTS, _KEY, _VALUE = 1, 2, 1, 2
_SIGNATURE_NAME = 3


def write_warm_up(folder: Path, requests: Iterable[tuple[str, Mapping[str, tf.Tensor]]]) -> None:
    """Writes the requests of a version.

    Args:
        folder: The folder of the version.
        requests: The name of a signature and its inputs, for each request.
    """
    path = folder / FILE
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(signature, inputs))


def prediction_log(signature: str, inputs: Mapping[str, tf.Tensor]) -> bytes:
    """One request as a `PredictionLog`. The name of the model is left to the server.

    Args:
        signature: The name of a signature.
        inputs: The inputs of the signature.
    """
    request = _field(_MODEL_SPEC, _field(_SIGNATURE_NAME, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """A field of a message that is a string or a message: number and kind, length, content."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first; all but the last have the top bit."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
