"""Files of published models from the Hub of Hugging Face."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_xmr.search.embedder.sessions import EmbedderError
from keras_xmr.utils.installing import install_command


def hub_folder(model: str, names: Sequence[str]) -> Path:
    """Returns the folder of a repository in the cache of `huggingface_hub`, fetched if need be.

    Without a connection, files that were fetched before are taken.

    Args:
        model: `user/name`, with `@revision` if need be.
        names: Patterns of the names of the files.

    Raises:
        EmbedderError: If they cannot be fetched.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise EmbedderError(
            f"{model} is not a folder, and huggingface_hub, which would fetch it, is not "
            f"installed: {install_command('search')}"
        ) from None
    name, _, revision = model.partition("@")
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=list(names)
        )
    except Exception as error:  # Each fault has a class of its own.
        reason = str(error).strip().partition("\n")[0].rstrip(".")[:300]
        raise EmbedderError(
            f"{model} is not a folder, and cannot be fetched from the Hub ({reason}); check the "
            "name and the connection, or copy its files from another machine and name their folder"
        ) from None
    return Path(folder)
