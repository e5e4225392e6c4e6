"""The command line: loads the command, parses its arguments, and prints errors as sentences.

Help, and errors in the words of a command, are printed before TensorFlow is imported. A config is
checked with the parts that it chooses, and these import it.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NoReturn

from keras_xmr import __version__
from keras_xmr.commands import command_names, first_line, is_command, is_module, load_command
from keras_xmr.commands._memory import memory_error_message
from keras_xmr.commands._quiet import hide_log_lines
from keras_xmr.experiments.runs.cluster import TF_CONFIG, cluster_of
from keras_xmr.model.required_backend import check_backend
from keras_xmr.utils.disk_errors import disk_error_message
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.messages import cut, nearest
from keras_xmr.utils.program import NAME, adapt_help, program
from keras_xmr.utils.tables import on_one_line
from keras_xmr.utils.termination import EXIT_CODE, TerminatedError

_DEFAULT = "run"

_OVERVIEW = """\
Image-text retrieval with many relevant items per query.

usage: keras-xmr COMMAND [--config=FILE] [--set key=value ...] ...
       keras-xmr --version

The default command is `run`. All output of a run is in saved_models/<name>/. The environment
variable TQDM_DISABLE=1 hides progress bars.

commands (details: keras-xmr COMMAND --help):
{commands}

examples:
  keras-xmr demo
  keras-xmr --config=csv_pretrained --set data.source.root=my_photos
  keras-xmr index --run=saved_models/csv_pretrained --images=my_photos
  keras-xmr search 'two dogs in the snow'
  keras-xmr serve
  keras-xmr --config=coco_pcme --set data.source.root=/data/coco
  keras-xmr evaluate --run=saved_models/coco_pcme --set evaluation.folds=5
  keras-xmr evaluate --scores=clip.npy --ground-truth=captions_val2014.json
  keras-xmr compare --configs=scenes_vsepp,scenes_pcme --seeds=0,1,2

configs by name, with their titles: keras-xmr list
"""

_BEGINNING = """\
You have photos: search them by words, with a published model and without training.
  keras-xmr index --model=clip_vit_base_patch32 --images=my_photos
  keras-xmr serve --index=saved_models/clip_vit_base_patch32/index

You have photos with captions: train a model on them (docs/tutorials/own_photos.md).
  keras-xmr --config=csv_pretrained --set data.source.root=my_photos

You have scores or embeddings of another model: measure them.
  keras-xmr evaluate --scores=clip.npy --ground-truth=captions_val2014.json

You have nothing yet: train and search on synthetic scenes, in minutes.
  keras-xmr demo

keras-xmr list has the configs of papers and data sets, keras-xmr --help all commands.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that raises `ConfigError`."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')} ({self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line.

    Args:
        argv: The arguments after the name of the program; by default of the process.
    """
    words = list(sys.argv if argv is None else argv)[1:]
    _run(lambda: _start(words))


def _start(words: Sequence[str]) -> None:
    if not words:
        print(adapt_help(_BEGINNING), end="")
        return
    if words[0] in ("--help", "-h"):
        print(overview())
        return
    if words[0] == "--version":
        print(f"{NAME} {__version__}")
        return
    has_name = not words[0].startswith("-")
    name = words[0] if has_name else _DEFAULT
    if not is_command(name) and not is_module(name):
        raise ConfigError(f"unknown command {cut(repr(name))}.{nearest(name, command_names())}")
    command = load_command(name)
    arguments = _parse(name, command, words[has_name:])
    if cluster_of().count > 1 and not getattr(command, "SEVERAL_WORKERS", False):
        raise ConfigError(f"{name} runs in one process; start it without {TF_CONFIG}")
    check_backend()
    _set_up_logging()
    # An image that is too large is refused by name, which the warning of Pillow does not have.
    warnings.filterwarnings("ignore", "Image size", RuntimeWarning)
    if "keras_xmr.parts.registry" in sys.modules:
        hide_log_lines()
    command.run(arguments)


def overview() -> str:
    """Returns the help of the command line."""
    return adapt_help(
        _OVERVIEW.format(
            commands="\n".join(f"  {name:<11}{summary(name)}" for name in command_names())
        )
    )


def summary(name: str) -> str:
    """Returns the first line of the docstring of a command, or the reason if it cannot be
    loaded.
    """
    if (first := first_line(name)) is not None:
        return first
    try:
        return (load_command(name).__doc__ or "").partition("\n")[0]
    except UserError as error:
        return str(error)


def _parse(name: str, command: ModuleType, words: Sequence[str]) -> argparse.Namespace:
    """Returns the arguments of a command.

    Raises:
        ConfigError: If one is unknown, has an invalid value, or excludes another.
    """
    text, examples, rest = (command.__doc__ or "").partition("examples:\n")
    parser = _Parser(
        prog=f"{program()} {name}",
        description=adapt_help(text.rstrip()),
        epilog=adapt_help(examples + rest.rstrip()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    # argparse makes an empty list of such a value.
    if empty := [word for word in words if word.startswith("--") and word.endswith("=--")]:
        raise ConfigError(f"{cut(empty[0].removesuffix('=--'))}: '--' is not a value")
    try:
        arguments, unknown = parser.parse_known_args(words)
    except ConfigError:
        # A misspelt option is also a missing one, and its spelling helps more.
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        if misspelt := [word for word in options if word not in _options(parser)]:
            raise ConfigError(_unknown(misspelt[0], name, parser)) from None
        raise
    if unknown:
        raise ConfigError(_unknown(unknown[0], name, parser))
    return arguments


def _unknown(word: str, name: str, parser: argparse.ArgumentParser) -> str:
    """Returns the message on a word that a command does not accept."""
    if word.startswith("-"):
        option = word.partition("=")[0]
        return f"{name} has no option {cut(option)}.{nearest(option, _options(parser), 0.6)}"
    if is_command(word):
        return f"{word!r} is a command, and the command comes first: {program()} {word} ..."
    return f"{name} does not accept {cut(repr(word))} ({parser.prog} --help)"


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return list(dict.fromkeys(re.findall(r"--[a-z][a-z-]*", parser.format_usage())))


def _set_up_logging() -> None:
    logging.basicConfig(format="%(message)s", force=True)
    tensorflow = logging.getLogger("tensorflow")
    tensorflow.setLevel(logging.WARNING)
    # It counts the functions of one line as one: of all towers, each of which is traced once.
    tensorflow.addFilter(lambda record: "tf.function retracing" not in record.getMessage())
    logging.getLogger("keras_xmr").setLevel(logging.INFO)


def _run(work: Callable[[], None]) -> None:
    """Runs a command; errors that a user can fix, as a full disk, end it without a traceback."""
    try:
        work()
        # Python has no standard output where the shell closed it (`>&-`).
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to resume", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has enough; Python flushes it again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except TerminatedError as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(EXIT_CODE)
    except UserError as error:
        # The name of a file may contain control codes of the terminal.
        lines = map(on_one_line, str(error).split("\n"))
        print("error: " + "\n".join(lines), file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except Exception as error:
        message = disk_error_message(error) or memory_error_message(error)
        if message is None and isinstance(error, OSError):
            message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            message = message or str(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(1)
