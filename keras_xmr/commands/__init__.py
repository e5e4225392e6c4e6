"""The commands: one file each, which is all that a new one needs (docs/add_a_method.md).

The first line of the docstring of such a file is what the command line says of it among others,
and the rest what it says of it alone. `add_arguments(parser)` adds what it takes, `run(arguments)`
does it. Only `run` imports what takes time, such as TensorFlow. A file that sets
`SEVERAL_WORKERS` may be started where TF_CONFIG names several. Files that begin with `_` are none.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def command_names() -> list[str]:
    """The words that the command line understands."""
    stems = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(stem.replace("_", "-") for stem in stems if not stem.startswith("_"))


def load_command(name: str) -> ModuleType:
    """The module of a command, one of `command_names`."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
