"""What several commands take, and types of options whose errors are sentences."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from keras_xmr.config.loader import ConfigError, find_config, load_config
from keras_xmr.config.messages import cut, nearest
from keras_xmr.config.schema import Config
from keras_xmr.run_folder import load_run

DEMO = "scenes_pcme"

_CONFIG = "a YAML file, or the name of a config that comes along (`list` prints them)"
_RUN = "the folder of a finished run, saved_models/NAME, whose config applies"
_MODEL = (
    "a published model as it is, without training: a CLIP or SigLIP by the name of a preset of "
    "KerasHub, such as clip_vit_base_patch32, an address hf://USER/MODEL, or a folder of its files"
)


class Options(Protocol):
    """What options are added to: a parser, a group of one, or a form."""

    def add_argument(self, *flags: str, **options: Any) -> argparse.Action: ...


class Form:
    """One of the ways to call a command: its options do not mix with those of another.

    Args:
        parser: The parser of the command, which needs `set_defaults(forms=...)` with all of them.
        name: The `form` of the arguments where it is used.
        title: What it is for. Stands above its options in the help, and in errors.
    """

    def __init__(self, parser: argparse.ArgumentParser, name: str, title: str) -> None:
        self.name, self.title = name, title
        self._group = parser.add_argument_group(title)
        self._actions: list[argparse.Action] = []

    def add_argument(self, *flags: str, **options: Any) -> argparse.Action:
        """Adds an option, as `ArgumentParser.add_argument` does."""
        self._actions.append(self._group.add_argument(*flags, **options))
        return self._actions[-1]

    def typed(self, typed: Iterable[str]) -> str | None:
        """The first of its options among the words that a user has typed."""
        own = {flag for action in self._actions for flag in action.option_strings}
        return next((option for word in typed if (option := word.partition("=")[0]) in own), None)


def choose_form(arguments: argparse.Namespace, typed: Sequence[str]) -> None:
    """Sets `form` to the name of the form that is used; None if no option of any is given.

    Args:
        arguments: The arguments of a command, whose `forms` are all of its forms, if it has some.
        typed: The words that the user has typed.

    Raises:
        ConfigError: If options of two are given.
    """
    forms: tuple[Form, ...] = getattr(arguments, "forms", ())
    given = [(option, form) for form in forms if (option := form.typed(typed))]
    if len(given) > 1:
        what = "; ".join(f"{option} is for {form.title}" for option, form in given)
        raise ConfigError(f"{' and '.join(option for option, _ in given)} do not mix: {what}")
    arguments.form = given[0][1].name if given else None


def add_config(options: Options) -> None:
    """Adds `--config`, which is the demo by default, and `--set`; see `config_of`."""
    options.add_argument(
        "--config", default=DEMO, metavar="FILE", help=f"{_CONFIG}; {DEMO} by default"
    )
    add_set(options)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds `--run`, or `--config` or `--model` in its place, and `--set`; see `config_of`."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--run", type=Path, metavar="FOLDER", help=_RUN)
    group.add_argument("--config", metavar="FILE", help=f"in place of --run: {_CONFIG}")
    _add_model(group)
    add_set(parser)


def add_runs(options: Options) -> None:
    """Adds `--run`, which may be given several times, and more; see `runs_of`."""
    add_run_folders(options, _RUN)
    _add_model(options)
    options.add_argument(
        "--config",
        metavar="FILE",
        help=f"{_CONFIG}; in place of a run, or in place of the config of the first of several",
    )
    add_set(options)


def add_run_folders(options: Options, text: str) -> None:
    """Adds `--run` and `--runs`, which both append to `runs`."""
    options.add_argument(
        "--run", action="append", dest="runs", default=[], type=Path, metavar="FOLDER", help=text
    )
    options.add_argument(
        "--runs",
        action="extend",
        default=[],
        type=_folders,
        metavar="FOLDERS",
        help="several of them, with commas between",
    )


def add_yes(options: Options) -> None:
    """Adds `--yes`, which `config_of` and `runs_of` heed."""
    options.add_argument(
        "--yes",
        action="store_true",
        help="evaluates however long it takes (evaluation.time_limit=null)",
    )


def add_finished_run(parser: argparse.ArgumentParser) -> None:
    """Adds `--run`, which is needed, where nothing of the config can be changed."""
    parser.add_argument(
        "--run", type=Path, required=True, metavar="FOLDER", help="the folder of a finished run"
    )


def add_run_or_model(parser: argparse.ArgumentParser) -> None:
    """Adds `--run`, or `--model`, where nothing of the config can be changed; see `run_of`."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--run", type=Path, metavar="FOLDER", help="the folder of a finished run")
    _add_model(group)


def add_index(parser: argparse.ArgumentParser) -> None:
    """Adds `--index`, and `--run` for one that was moved."""
    parser.add_argument(
        "--index", type=Path, required=True, metavar="FOLDER", help="the index, as `index` made it"
    )
    parser.add_argument(
        "--run", type=Path, metavar="FOLDER", help="the run of the index, if it was moved since"
    )


def run_of(arguments: argparse.Namespace) -> Path:
    """The folder of the run that `--run` names, or of the one of `--model`, which may be new.

    Raises:
        UserError: If there is no such run, or the model cannot be had.
    """
    if arguments.model is None:
        load_run(arguments.run)
        return Path(arguments.run)

    from keras_xmr.training.pretrained_run import pretrained_run

    return pretrained_run(arguments.model)


def config_of(arguments: argparse.Namespace) -> Config:
    """The config that the user asks for with `--run`, `--config` or `--model`, and `--set`.

    Raises:
        ConfigError: If there is none, or something is wrong with it.
    """
    if getattr(arguments, "run", None) or getattr(arguments, "model", None):
        return load_run(run_of(arguments), _overrides(arguments))
    return load_config(find_config(arguments.config), _overrides(arguments))


def runs_of(arguments: argparse.Namespace) -> tuple[Config, list[Path]]:
    """The config that applies, and the folders of the runs that are given, if any are.

    Raises:
        ConfigError: If there is neither a config nor a run, or something is wrong with one.
    """
    models = [] if arguments.model is None else [run_of(arguments)]
    runs = [load_run(run).folder for run in (*arguments.runs, *models)]
    if arguments.config is not None:
        return load_config(find_config(arguments.config), _overrides(arguments)), runs
    if not runs:
        raise ConfigError("which run? Give --run=saved_models/NAME, --config or --model")
    return load_run(runs[0], _overrides(arguments)), runs


def words(text: str) -> list[str]:
    """The words of an option that takes several, with commas between."""
    return [word.strip() for word in text.split(",") if word.strip()]


def whole(least: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number.

    Args:
        least: The least that it may be.
    """

    def number(text: str) -> int:
        if not text.isdecimal() or len(text) > 10 or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"{cut(repr(text))} is not a whole number from {least} on"
            )
        return int(text)

    return number


def one_of(*choices: str) -> Callable[[str], str]:
    """The type of an option that takes one of several words."""

    def choice(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"got {cut(repr(text))}.{nearest(text, choices)}")
        return text

    return choice


def _overrides(arguments: argparse.Namespace) -> list[str]:
    """What changes the config: `--set`, and `--yes` where a command has it."""
    return [*arguments.set, *(["evaluation.time_limit=null"] * getattr(arguments, "yes", False))]


def _folders(text: str) -> list[Path]:
    return [Path(word) for word in words(text)]


def _add_model(options: Options) -> None:
    options.add_argument("--model", metavar="NAME", help=_MODEL)


def add_set(options: Options) -> None:
    """Adds `--set`, which `config_of` heeds."""
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="changes any key of the config; may be given several times (`explain` has the keys)",
    )
