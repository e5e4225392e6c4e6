"""The commands: one file each, which is all that a new one needs (docs/how_to/add_a_method.md).

The first line of the docstring of such a file is what the command line says of it among others,
and the rest what it says of it alone. `add_arguments(parser)` adds what it takes, `run(arguments)`
does it. Only `run` imports what takes time, such as TensorFlow. A file that sets
`SEVERAL_WORKERS` may be started where TF_CONFIG names several. Files that begin with `_` are not
commands. An installed package names modules of the same form in its entry points, under
`keras_xmr.commands`; any other module is named with a dot: `my_package.my_command`, `.my_command`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from data_pipelines.errors import UserError

GROUP = "keras_xmr.commands"
"""The group of entry points that name commands of other packages."""


def command_names() -> list[str]:
    """The words that the command line understands."""
    return sorted({*_own(), *_installed()})


def is_module(word: str) -> bool:
    """Whether a word names a module that can be imported, as a command of another package."""
    if not re.fullmatch(r"\.[A-Za-z_]\w*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", word):
        return False
    try:
        return importlib.util.find_spec(word.removeprefix(".")) is not None
    except ImportError:
        return False


def load_command(name: str) -> ModuleType:
    """The module of a command, one of `command_names` or a module.

    Raises:
        UserError: If that of another package cannot be imported, or is not a command.
    """
    if name in _own():
        return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    module = _installed().get(name, name.removeprefix("."))
    try:
        command = importlib.import_module(module)
    except Exception as error:  # Whatever the code of others may raise.
        raise UserError(
            f"the command {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if missing := [f for f in ("add_arguments", "run") if not hasattr(command, f)]:
        raise UserError(
            f"{module} is not a command: it has no {' and no '.join(missing)}; a command has "
            "add_arguments(parser) and run(arguments)"
        )
    return command


def _own() -> list[str]:
    stems = [module.name for module in pkgutil.iter_modules(__path__)]
    return [stem.replace("_", "-") for stem in stems if not stem.startswith("_")]


@cache
def _installed() -> dict[str, str]:
    """Modules of commands of installed packages, by name; ours come first."""
    return {point.name: point.value for point in entry_points(group=GROUP)}
