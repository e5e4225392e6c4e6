"""The commands, one file per command; a new command is a new file (docs/how_to/plugins.md).

The first line of the docstring of such a file is its line in the overview of the commands, and the
docstring is its help. `add_arguments(parser)` adds its options, and `run(arguments)` runs it. Only
`run` imports large packages, such as TensorFlow. A file with `SEVERAL_WORKERS` may be started where
TF_CONFIG has several workers. Files that begin with `_` are not commands. An installed package
registers modules of the same form as entry points in the group `keras_xmr.commands`; any other
module is a command by its name with a dot: `my_package.my_command`, `.my_command`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType

from keras_xmr.utils.errors import UserError

GROUP = "keras_xmr.commands"
"""The group of entry points for commands of other packages."""


def command_names() -> list[str]:
    """Returns the names of all commands."""
    return sorted({*_packaged(), *_installed()})


def is_command(word: str) -> bool:
    """Returns whether a word is one of `command_names`."""
    # Other packages are asked for theirs last, as this takes as long as all else of a start.
    return word in _packaged() or word in _installed()


def is_module(word: str) -> bool:
    """Returns whether a word is the name of a module that can be imported."""
    if not re.fullmatch(r"\.[A-Za-z_]\w*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", word):
        return False
    try:
        return importlib.util.find_spec(word.removeprefix(".")) is not None
    except ImportError:
        return False


def load_command(name: str) -> ModuleType:
    """Returns the module of a command, one of `command_names` or a module.

    Raises:
        UserError: If the command of another package cannot be imported, or is not a command.
    """
    if name in _packaged():
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
            f"{module} is not a command: it lacks {' and '.join(missing)}; a command has "
            "add_arguments(parser) and run(arguments)"
        )
    return command


def first_line(name: str) -> str | None:
    """Returns the first line of the docstring of a command of this package, without its imports.

    None for a command of another package.
    """
    path = Path(__file__).with_name(f"{name.replace('-', '_')}.py")
    if name not in _packaged() or not path.is_file():
        return None
    with path.open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


def _packaged() -> list[str]:
    stems = [module.name for module in pkgutil.iter_modules(__path__)]
    return [stem.replace("_", "-") for stem in stems if not stem.startswith("_")]


@cache
def _installed() -> dict[str, str]:
    """Modules of commands of installed packages, by name."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}
