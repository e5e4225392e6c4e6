"""Models in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import verify
from keras_xmr.utils.installing import install_command

_OLDEST = (1, 20)
"""Version of ONNX Runtime that reads all files."""

_ERRORS_ALONE = 3

_REMEDY = "run `index` again with the --run or --model of the index, or update onnxruntime"


class EmbedderError(UserError):
    """Error of an embedder that is missing, damaged or cannot be run."""


def runtime() -> Any:
    """Imports ONNX Runtime.

    Raises:
        EmbedderError: If it is missing, or too old.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise EmbedderError(
            f"searches need onnxruntime, which cannot be imported ({error}): "
            f"{install_command('search')}"
        ) from None
    version = str(onnxruntime.__version__)
    if tuple(int(number) for number in version.split(".")[:2]) < _OLDEST:
        raise EmbedderError(
            f"onnxruntime {version} is too old; searches need {'.'.join(map(str, _OLDEST))} or "
            f"later: {install_command('search')}"
        )
    return onnxruntime


def verified(path: Path, sha256: str) -> Path:
    """Returns the path of a file that has its checksum.

    Raises:
        EmbedderError: If it is missing, or has another.
    """
    try:
        verify(path, sha256)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EmbedderError(
            f"{path} is missing or damaged ({reason}); copy the folder again, or run `index` again "
            "with the --run or --model of the index"
        ) from None
    return path


class Graph:
    """A model in ONNX, loaded.

    Args:
        path: The file.
        threads: Number of threads of one call; 0 for one per core.
        is_brief: Whether it will run a few times: it is loaded as it is, which takes
            less time, and runs slower.
        remedy: What to do if it cannot be used.

    Attributes:
        path: The file.
        inputs: The inputs by name, with their shapes and types.
        outputs: The names of its outputs.

    Raises:
        EmbedderError: If it is not a model, or ONNX Runtime cannot run it.
    """

    def __init__(
        self, path: Path, threads: int = 0, remedy: str = _REMEDY, is_brief: bool = False
    ) -> None:
        self.path, self._remedy = path, remedy
        onnxruntime = runtime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _ERRORS_ALONE
        options.intra_op_num_threads = threads
        # Plans of activations by shape take no time off, and more memory in several threads.
        options.enable_mem_pattern = False
        # Waiting threads would take a whole core each.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if is_brief:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # Each fault has a class of its own.
            raise self._fault("cannot be loaded", error) from None
        self._freeing = onnxruntime.RunOptions()
        self._freeing.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.inputs: dict[str, Any] = {each.name: each for each in self._session.get_inputs()}
        self.outputs: list[str] = [each.name for each in self._session.get_outputs()]

    def __call__(
        self,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        last: bool = False,
    ) -> dict[str, np.ndarray]:
        """Returns the outputs by name, all of them or some; inputs that it lacks are ignored.

        Args:
            inputs: Arrays by name.
            outputs: Names of outputs; None for all.
            last: Whether memory of activations is freed, which the next call takes again.

        Raises:
            EmbedderError: If they do not fit the model.
        """
        names = self.outputs if outputs is None else list(outputs)
        feed = {name: value for name, value in inputs.items() if name in self.inputs}
        try:
            values = self._session.run(names, feed, self._freeing if last else None)
            return dict(zip(names, values, strict=True))
        except Exception as error:
            raise self._fault("cannot be run", error) from None

    def _fault(self, what: str, error: Exception) -> EmbedderError:
        reason = str(error).strip().partition("\n")[0][:300]
        return EmbedderError(f"{self.path} {what} by onnxruntime ({reason}); {self._remedy}")
