"""The command line: finds the command, parses its arguments, and prints errors as sentences.

Whatever is wrong with the arguments or a config is said before TensorFlow is imported.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NoReturn

from absl import logging as absl_logging

from data_pipelines.disk import disk_error_message
from data_pipelines.errors import UserError
from data_pipelines.memory import memory_error_message
from data_pipelines.tables import on_one_line
from keras_xmr import __version__
from keras_xmr.commands import command_names, is_module, load_command
from keras_xmr.commands._options import choose_form
from keras_xmr.commands._overview import overview
from keras_xmr.commands._quiet import quiet_tensorflow
from keras_xmr.config.loader import ConfigError
from keras_xmr.config.messages import cut, nearest
from keras_xmr.errors import check_backend
from keras_xmr.program import NAME, as_typed, program
from keras_xmr.training.cluster import TF_CONFIG, cluster_of
from keras_xmr.training.termination import EXIT_CODE, TerminatedError

_DEFAULT = "run"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')} ({self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line.

    Args:
        argv: The arguments, with the name of the program first; those of the process by default.
    """
    words = list(sys.argv if argv is None else argv)[1:]
    _run(lambda: _start(words))


def _start(words: Sequence[str]) -> None:
    if not words or words[0] in ("--help", "-h"):
        print(overview())
        return
    if words[0] == "--version":
        print(f"{NAME} {__version__}")
        return
    named = not words[0].startswith("-")
    name = words[0] if named else _DEFAULT
    if name not in command_names() and not is_module(name):
        raise ConfigError(f"there is no command {cut(repr(name))}.{nearest(name, command_names())}")
    command = load_command(name)
    arguments = _parse(name, command, words[named:])
    if cluster_of().count > 1 and not getattr(command, "SEVERAL_WORKERS", False):
        raise ConfigError(f"{name} is the work of one process; start it without {TF_CONFIG}")
    check_backend()
    _set_up_logging()
    _set_up_warnings()
    quiet_tensorflow()
    command.run(arguments)


def _parse(name: str, command: ModuleType, words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command.

    Raises:
        ConfigError: If one is not known, has a wrong value, or does not go with another.
    """
    text, examples, rest = (command.__doc__ or "").partition("examples:\n")
    parser = _Parser(
        prog=f"{program()} {name}",
        description=as_typed(text.rstrip()),
        epilog=as_typed(examples + rest.rstrip()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    # argparse makes an empty list of such a value.
    if bare := [word for word in words if word.startswith("--") and word.endswith("=--")]:
        raise ConfigError(f"{cut(bare[0].removesuffix('=--'))}: '--' is not a value")
    try:
        arguments, unknown = parser.parse_known_args(words)
    except ConfigError:
        # What is misspelt is also missed, and how it is spelt helps more.
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        if misspelt := [word for word in options if word not in _options(parser)]:
            raise ConfigError(_unknown(misspelt[0], name, parser)) from None
        raise
    if unknown:
        raise ConfigError(_unknown(unknown[0], name, parser))
    choose_form(arguments, words)
    return arguments


def _unknown(word: str, name: str, parser: argparse.ArgumentParser) -> str:
    """What to say of a word that a command does not take."""
    if word.startswith("-"):
        option = word.partition("=")[0]
        return f"{name} has no option {cut(option)}.{nearest(option, _options(parser), 0.6)}"
    if word in command_names():
        return f"{word!r} is a command, and commands stand first: {program()} {word} ..."
    return f"{name} does not take the word {cut(repr(word))} ({parser.prog} --help)"


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return list(dict.fromkeys(re.findall(r"--[a-z][a-z-]*", parser.format_usage())))


def _set_up_logging() -> None:
    logging.basicConfig(format="%(message)s", force=True)
    absl_logging.set_verbosity(absl_logging.WARNING)
    logging.getLogger("tensorflow").setLevel(logging.WARNING)
    logging.getLogger("keras_xmr").setLevel(logging.INFO)


def _set_up_warnings() -> None:
    # An image that is too large is refused with its name, which the warning of Pillow leaves out.
    warnings.filterwarnings("ignore", "Image size", RuntimeWarning)


def _run(work: Callable[[], None]) -> None:
    """Does something; what a user can mend, as a full disk, ends it without a traceback."""
    try:
        work()
    except KeyboardInterrupt:
        print("\nstopped; start again to go on", file=sys.stderr)
        sys.exit(130)
    except TerminatedError as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(EXIT_CODE)
    except UserError as error:
        # A name of a file may hold commands for the terminal.
        lines = map(on_one_line, str(error).split("\n"))
        print("error: " + "\n".join(lines), file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except Exception as error:
        told = disk_error_message(error) or memory_error_message(error)
        if told is None and isinstance(error, OSError):
            told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            told = told or str(error)
        if told is None:
            raise
        print(f"error: {told}", file=sys.stderr)
        sys.exit(1)
