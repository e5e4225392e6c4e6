"""Asks an exported model that TF Serving serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_pipelines.errors import UserError
from keras_xmr.client.grpc import GrpcTransport
from keras_xmr.client.images import checked
from keras_xmr.client.rest import RestTransport
from keras_xmr.client.transport import Transport

Image = Path | str | bytes
"""The path of an image file, or its bytes."""


class ServingClient:
    """Embeds and matches photos and texts by a model behind TF Serving.

    Args:
        address: `http://127.0.0.1:8501` for REST, or `127.0.0.1:8500` for gRPC.
        model: What the server calls the model.
        timeout: Seconds that an answer may take.

    Raises:
        UserError: If gRPC is asked for, and its package is not there.
    """

    def __init__(self, address: str, model: str, timeout: float = 30.0) -> None:
        over_rest = address.startswith(("http://", "https://"))
        make = RestTransport if over_rest else GrpcTransport
        self._transport: Transport = make(address, model, timeout)

    def embed_images(self, images: Sequence[Image]) -> dict[str, np.ndarray]:
        """The tensors of the embedding of each image file, float32 (N, ...).

        Raises:
            UserError: If a file is no image, or the server refuses.
        """
        return self._transport.predict("embed_image", {"image_bytes": checked(images)})

    def embed_texts(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """The tensors of the embedding of each text, float32 (N, ...).

        Raises:
            UserError: If the server refuses.
        """
        return self._transport.predict("embed_text", {"captions": list(texts)})

    def match(
        self, images: Sequence[Image], captions: Sequence[str] | Sequence[Sequence[str]]
    ) -> np.ndarray:
        """Scores of captions for images, float32 (N, M).

        Args:
            images: N image files.
            captions: M texts, for all of them, or M texts for each.

        Raises:
            UserError: If there are no lists of one length for all images, a file is no image, or
                the server refuses.
        """
        shared = all(isinstance(caption, str) for caption in captions)
        lists = [list(captions)] * len(images) if shared else [list(own) for own in captions]
        if len(lists) != len(images) or len({len(own) for own in lists}) > 1:
            raise UserError(
                f"{len(images)} images need as many lists of captions, all of one length; fill "
                "shorter ones with empty texts"
            )
        inputs = {"image_bytes": checked(images), "captions": lists}
        found = self._transport.predict("match", inputs)
        scores = found["scores"] if "scores" in found else found[""]
        # In a batch with the longer lists of others, a server fills up ours.
        return scores[:, : len(lists[0])] if lists else scores
