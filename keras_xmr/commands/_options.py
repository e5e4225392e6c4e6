"""Options that several commands share, with readable errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from keras_xmr.commands._quiet import hide_log_lines, import_tensorflow
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.files import user_path
from keras_xmr.utils.messages import cut, nearest

if TYPE_CHECKING:
    from keras_xmr.experiments.config.schema import Config
    from keras_xmr.experiments.experiment import Experiment
    from keras_xmr.search.embedder import Embedder

DEMO = "scenes_pcme"

_CONFIG = "YAML file, or name of a packaged config (see `list`)"
_RUN = "folder of a finished run, saved_models/NAME, with its config"
_MODEL = (
    "published model, used without training: a CLIP or SigLIP as a preset of KerasHub, such as "
    "clip_vit_base_patch32, as an address hf://USER/MODEL, or as a folder of its files"
)


class Options(Protocol):
    """Protocol of everything with options: a parser, or a group of options."""

    def add_argument(self, *flags: str, **options: Any) -> argparse.Action: ...


def add_value(options: Options, flag: str, placeholder: str, text: str, **more: Any) -> None:
    """Adds an option with a value, which the help names by its placeholder."""
    options.add_argument(flag, metavar=placeholder, help=text, **more)


def add_path(options: Options, flag: str, placeholder: str, text: str, **more: Any) -> None:
    """Adds an option for a path; `placeholder` is its placeholder in the help: FILE or FOLDER."""
    add_value(options, flag, placeholder, text, type=user_path, **more)


def add_list(options: Options, flag: str, placeholder: str, text: str, **more: Any) -> None:
    """Adds an option that may be repeated; its value is a list."""
    text = f"{text}; may be repeated"
    add_value(options, flag, placeholder, text, **{"action": "append", "default": [], **more})


def add_config(options: Options) -> None:
    """Adds `--config`, by default the demo, and `--set`; see `read_config`."""
    add_value(options, "--config", "FILE", f"{_CONFIG}; default {DEMO}", default=DEMO)
    add_set(options)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the alternatives `--run`, `--config` and `--model`, and `--set`; see `read_config`."""
    group = parser.add_mutually_exclusive_group(required=True)
    add_path(group, "--run", "FOLDER", _RUN)
    add_value(group, "--config", "FILE", f"instead of --run: {_CONFIG}")
    add_value(group, "--model", "NAME", _MODEL)
    add_set(parser)


def add_runs(options: Options) -> None:
    """Adds `--run`, which may be repeated, `--runs`, `--model`, `--config` and `--set`."""
    add_run_folders(options, _RUN)
    add_value(options, "--model", "NAME", _MODEL)
    text = f"{_CONFIG}; instead of a run, or for an ensemble (default: the config of its first run)"
    add_value(options, "--config", "FILE", text)
    add_set(options)


def add_run_folders(options: Options, text: str) -> None:
    """Adds `--run` and `--runs`, which both append to `runs`."""
    add_list(options, "--run", "FOLDER", text, dest="runs", type=user_path)
    text = "several of them, separated by commas"
    add_list(options, "--runs", "FOLDERS", text, action="extend", type=_folders)


def add_yes(options: Options) -> None:
    """Adds `--yes`, which `read_config` and `read_runs` read."""
    text = "do not stop when evaluation would exceed evaluation.time_limit"
    options.add_argument("--yes", action="store_true", help=text)


def add_run_or_model(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Adds the alternatives `--run` and `--model`, and `--precision`; see `find_run`."""
    group = parser.add_mutually_exclusive_group(required=required)
    add_path(group, "--run", "FOLDER", "folder of a finished run")
    text = (
        f"{_MODEL}; or, without TensorFlow, its towers in ONNX: USER/MODEL of the Hub, or a "
        "folder, with onnx/text_model.onnx and onnx/vision_model.onnx"
    )
    add_value(group, "--model", "NAME", text)
    text = "of the weights in ONNX: float32 (by default), float16, or another that was published"
    add_value(parser, "--precision", "NAME", text, default="float32")


def add_index(parser: argparse.ArgumentParser) -> Options:
    """Adds `--index`, which may get alternatives."""
    group = parser.add_mutually_exclusive_group()
    text = "folder of an index, built by `index`; default: the only one in saved_models"
    add_path(group, "--index", "FOLDER", text)
    return group


def find_index(arguments: argparse.Namespace) -> Path:
    """Returns the folder of `--index`, or of the only index in saved_models.

    Raises:
        ConfigError: If there is none, or more than one.
    """
    if arguments.index is not None:
        return Path(arguments.index)
    indexes = known_indexes()
    if len(indexes) == 1:
        return indexes[0]
    if indexes:
        choices = ", ".join(f"--index={path}" for path in indexes)
        raise ConfigError(f"saved_models has {len(indexes)} indexes; use one of {cut(choices)}")
    raise ConfigError(
        "saved_models has no index: build one with `index --images=FOLDER`, or name it with --index"
    )


def known_indexes() -> list[Path]:
    """Returns the indexes of the runs in saved_models."""
    return sorted(path.parent for path in Path("saved_models").glob("*/index/manifest.json"))


def find_run(arguments: argparse.Namespace) -> Path:
    """Returns the folder of the run of `--run`, or of `--model`, which may be new.

    Raises:
        UserError: If the run does not exist, or the model is not available.
    """
    if arguments.model is None:
        _load_run(arguments.run)
        return Path(arguments.run)

    import_tensorflow()
    from keras_xmr.experiments.runs.pretrained import pretrained_run

    return pretrained_run(arguments.model)


def published(arguments: argparse.Namespace) -> Embedder | None:
    """Returns the embedder of `--model` if that was published in ONNX: without TensorFlow.

    Raises:
        UserError: If it cannot be fetched, or a file is missing or damaged.
    """
    if arguments.model is None:
        return None
    from keras_xmr.search.embedder.published import published_embedder

    return published_embedder(arguments.model, arguments.precision)


def read_config(arguments: argparse.Namespace) -> Config:
    """Returns the config of `--run`, `--config` or `--model`, changed by `--set`.

    Raises:
        ConfigError: If the config does not exist or is not valid.
    """
    if getattr(arguments, "run", None) or getattr(arguments, "model", None):
        return _load_run(find_run(arguments), _overrides(arguments))
    return _load_config(arguments)


def read_runs(arguments: argparse.Namespace) -> tuple[Config, list[Path]]:
    """Returns the config, and the folders of the runs of the command line, if any.

    Raises:
        ConfigError: If there is neither a config nor a run, or one of them is not valid.
    """
    models = [] if arguments.model is None else [find_run(arguments)]
    runs = [_load_run(run).folder for run in (*arguments.runs, *models)]
    if arguments.config is not None:
        return _load_config(arguments), runs
    if not runs:
        raise ConfigError("no run: use --run=saved_models/NAME, --config or --model")
    return _load_run(runs[0], _overrides(arguments)), runs


def _load_config(arguments: argparse.Namespace) -> Config:
    """Loads the config of `--config`. Searches need none of its packages."""
    hide_log_lines()
    from keras_xmr.experiments.config.loader import load_config
    from keras_xmr.experiments.config.packaged_configs import find_config

    return load_config(find_config(arguments.config), _overrides(arguments))


def _load_run(folder: Path, overrides: Sequence[str] = ()) -> Config:
    hide_log_lines()
    from keras_xmr.experiments.runs.configs import load_run

    return load_run(folder, overrides)


def read_experiment(
    arguments: argparse.Namespace, *, run: bool = True, records: bool = False, trains: bool = False
) -> Experiment:
    """Reads a config, and checks that results can be written before TensorFlow is imported.

    Args:
        arguments: Arguments that `read_config` reads.
        run: Whether the command writes into the folder of the run.
        records: Whether it writes records, if they are missing.
        trains: Whether it trains.

    Raises:
        UserError: If the config is not valid, or a folder cannot be written to.
    """
    config = read_config(arguments)
    return new_experiment(config, run=run, records=records, trains=trains)


def new_experiment(
    config: Config, *, run: bool = True, records: bool = False, trains: bool = False
) -> Experiment:
    """Returns the experiment of a config; see `read_experiment`."""
    from keras_xmr.experiments.runs.cluster import cluster_of
    from keras_xmr.experiments.runs.configs import check_folders

    if cluster_of().is_chief:
        check_folders(config, run=run, records=records, trains=trains)

    from keras_xmr.experiments.experiment import Experiment

    return Experiment(config)


def words(text: str) -> list[str]:
    """Splits the value of an option at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def integer_from(minimum: int) -> Callable[[str], int]:
    """Returns the type of an option for an integer of at least `minimum`."""

    def number(text: str) -> int:
        if not text.isdecimal() or len(text) > 10 or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"{cut(repr(text))} is not a valid integer: use {minimum} or more"
            )
        return int(text)

    return number


def one_of(*choices: str) -> Callable[[str], str]:
    """Returns the type of an option for one of several words."""

    def choice(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"got {cut(repr(text))}.{nearest(text, choices)}")
        return text

    return choice


def add_set(
    options: Options, text: str = "change a key of the config (`explain` lists the keys)"
) -> None:
    """Adds `--set`, which `read_config` and `read_runs` read."""
    add_list(options, "--set", "KEY=VALUE", text)


def _overrides(arguments: argparse.Namespace) -> list[str]:
    """Changes of the config by `--set`, and by `--yes` where a command has it."""
    return [*arguments.set, *(["evaluation.time_limit=null"] * getattr(arguments, "yes", False))]


def _folders(text: str) -> list[Path]:
    return [user_path(word) for word in words(text)]
