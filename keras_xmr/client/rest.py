"""Requests to TF Serving over REST."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from keras_xmr.client.transport import Transport


class RestTransport(Transport):
    """Asks one model over REST, by columns: a list for each input.

    Args:
        url: Of the server, such as `http://127.0.0.1:8501`.
        model: What the server calls the model.
        timeout: Seconds.
    """

    def __init__(self, url: str, model: str, timeout: float) -> None:
        self._url = f"{url.rstrip('/')}/v1/models/{model}:predict"
        self._timeout = timeout

    def predict(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        body = {"signature_name": signature, "inputs": {k: _plain(v) for k, v in inputs.items()}}
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                outputs = json.load(answer)["outputs"]
        except urllib.error.HTTPError as error:
            raise UserError(f"{self._url} refuses {signature}: {_reason(error)}") from None
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{self._url} gives no answer to {signature}: {error}") from None
        # Of a signature with one output, the name is left out.
        named = outputs if isinstance(outputs, dict) else {"": outputs}
        return {name: np.asarray(values, np.float32) for name, values in named.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _reason(error: urllib.error.HTTPError) -> str:
    """What the server says under `error`, or its status."""
    try:
        return str(json.load(error)["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
