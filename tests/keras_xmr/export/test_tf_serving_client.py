"""The client of TF Serving, over both of its protocols, against servers that answer as it does."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import datasets
import numpy as np
import pytest
from PIL import Image

from keras_xmr.export.tf_serving_client import ServingClient
from keras_xmr.utils.errors import UserError

PHOTO = datasets.encoded(datasets.picture(1))


def answer(signature, inputs):
    """Scores count the characters of captions; a caption "no" is refused."""
    if signature != "match":
        return {"mean": np.array([[len(item)] for item in next(iter(inputs.values()))], np.float32)}
    if any("no" in own for own in inputs["captions"]):
        raise ValueError("image 0 (counted from 0) is not liked")
    counted = [[float(len(caption)) for caption in own] for own in inputs["captions"]]
    # As from a batch with somebody's longer list.
    return {"scores": np.pad(np.array(counted, np.float32), [(0, 0), (0, 1)])}


class Rest(BaseHTTPRequestHandler):
    """Columns in, columns out; of one output the name is left out."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            if self.path != "/v1/models/mine:predict":
                raise ValueError(f"no model at {self.path}")
            inputs = {
                name: [base64.b64decode(v["b64"]) if isinstance(v, dict) else v for v in values]
                for name, values in body["inputs"].items()
            }
            outputs = [v.tolist() for v in answer(body["signature_name"], inputs).values()]
            status, content = 200, {"outputs": outputs[0]}
        except ValueError as error:
            status, content = 400, {"error": str(error)}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_):
        """Says nothing."""


@pytest.fixture(scope="module")
def rest():
    with ThreadingHTTPServer(("127.0.0.1", 0), Rest) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def grpc_address():
    grpc = pytest.importorskip("grpc")
    service = pytest.importorskip("tensorflow_serving.apis.prediction_service_pb2_grpc")
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    class Service(service.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802 (as TF Serving has it)
            inputs = {}
            for name, tensor in request.inputs.items():
                value = tf.make_ndarray(tensor)
                decode = np.vectorize(bytes.decode, otypes=[object])
                inputs[name] = (decode(value) if name == "captions" else value).tolist()
            found = predict_pb2.PredictResponse()
            try:
                if request.model_spec.name != "mine":
                    raise ValueError(f"no model {request.model_spec.name}")
                for name, value in answer(request.model_spec.signature_name, inputs).items():
                    found.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            except ValueError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return found

    server = grpc.server(ThreadPoolExecutor(1))
    service.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


@pytest.fixture(params=["rest", "grpc_address"])
def address(request):
    return request.getfixturevalue(request.param)


def test_photos_and_texts_are_embedded_and_matched(address, tmp_path):
    client = ServingClient(address, "mine")
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    (embedded,) = client.embed_images([PHOTO, tmp_path / "photo.jpg"]).values()
    assert embedded.tolist() == [[len(PHOTO)]] * 2
    (embedded,) = client.embed_texts(["two", "ß"]).values()
    assert embedded.tolist() == [[3], [1]]
    assert client.match([PHOTO, PHOTO], ["a", "bcd"]).tolist() == [[1, 3], [1, 3]]
    assert client.match([PHOTO, PHOTO], [["a"], ["bcd"]]).tolist() == [[1], [3]]


def test_what_a_server_refuses_is_told(address):
    with pytest.raises(UserError, match=r"refuses match: .*image 0 .* is not liked"):
        ServingClient(address, "mine").match([PHOTO], ["no"])
    with pytest.raises(UserError, match="no model"):
        ServingClient(address, "other").embed_texts(["two"])
    away = address.rpartition(":")[0] + ":9"
    with pytest.raises(UserError, match=":9"):
        ServingClient(away, "mine", timeout=5).embed_texts(["two"])


def webp():
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "WEBP")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"text", r"image 1 \(counted from 0\) is not an image of a known format"),
        (PHOTO[:20], r"image 1 .* is a broken image"),
        (b"", "image 1 .* is empty"),
        (webp(), "image 1 .* is a WEBP file, which exported models do not read"),
    ],
)
def test_a_bad_photo_is_named_before_anything_is_sent(bad, says):
    client = ServingClient("http://127.0.0.1:9", "mine")
    for ask in (client.embed_images, lambda images: client.match(images, ["two"])):
        with pytest.raises(UserError, match=says):
            ask([PHOTO, bad])


def test_lists_of_captions_fit_the_images():
    client = ServingClient("http://127.0.0.1:9", "mine")
    for lists in ([["a"]], [["a"], ["b", "c"]]):
        with pytest.raises(UserError, match="2 images need as many lists of captions"):
            client.match([PHOTO, PHOTO], lists)


@pytest.mark.slow
def test_rest_needs_no_tensorflow():
    script = (
        "import sys; from keras_xmr.export.tf_serving_client import ServingClient;"
        "ServingClient('http://a', 'b');"
        "sys.exit(bool({'tensorflow', 'keras', 'grpc'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
