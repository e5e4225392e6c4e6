"""Names of packages that are not installed: they exist, and say at their first use what to do."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.installing import install_command

_OWN = ("keras_xmr", "data_pipelines")
_FRAMEWORKS = {"tensorflow", "torch", "jax"}


class NotInstalledError(UserError, ImportError):
    """Something needs a package that is not installed; the message says how to install it."""


def explain(name: str, error: ImportError, any_framework: bool) -> str:
    """Returns what a name needs, and how that is installed.

    Args:
        name: The name, for instance "keras_xmr.load".
        error: The error of its import.
        any_framework: Whether PyTorch or JAX serve it as well as TensorFlow.

    Raises:
        ImportError: The error itself, if no other package is missing.
    """
    if isinstance(error, UserError):
        return f"{name}: {error}"
    missing = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or missing in _OWN:
        raise error
    if any_framework and missing in _FRAMEWORKS:
        return (
            f"{name} needs PyTorch, JAX or TensorFlow, and {missing!r} is not installed: `pip "
            "install torch`, or `pip install jax`; KERAS_BACKEND names another that is installed"
        )
    return (
        f"{name} needs {missing}, which is not installed: `{install_command('tensorflow')}`. "
        "Losses, matchers, heads and metrics need PyTorch or JAX alone"
    )


def placeholder(name: str, message: str, is_module: bool) -> Any:
    """Returns an object for a name that cannot be imported; `help` shows the message.

    Args:
        name: The name in its package.
        message: The message of the error at its first use.
        is_module: Whether it stands for a module, of which attributes are read; otherwise it is
            called.
    """

    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotInstalledError(message)

    if not is_module:
        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = message
        return refuse
    module = _Missing(name, message)
    return module


class _Missing(ModuleType):
    """A module whose attributes raise an error, except those that every module may have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotInstalledError(self.__doc__)
