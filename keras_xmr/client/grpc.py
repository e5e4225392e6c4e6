"""Requests to TF Serving over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from keras_xmr.client.transport import Transport

# A batch of photos is larger than the 4 MB that gRPC takes.
_MOST_BYTES = 256 * 1024**2


class GrpcTransport(Transport):
    """Asks one model over gRPC. Needs `pip install 'keras-xmr[tf-serving]'`, and TensorFlow.

    Args:
        address: Of the server, such as `127.0.0.1:8500`.
        model: What the server calls the model.
        timeout: Seconds.

    Raises:
        UserError: If the package is not there.
    """

    def __init__(self, address: str, model: str, timeout: float) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError:
            raise UserError("gRPC needs pip install 'keras-xmr[tf-serving]'") from None
        limits = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
        channel = grpc.insecure_channel(address, [(name, _MOST_BYTES) for name in limits])
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._address, self._model, self._timeout = address, model, timeout

    def predict(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
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
