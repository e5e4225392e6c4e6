"""The command line. It reads and checks the config before TensorFlow is imported."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from absl import app, flags
from absl import logging as absl_logging

from data_pipelines.errors import UserError
from keras_xmr.config import Config
from keras_xmr.config_file import ConfigError, find_config, load_config, packaged_configs
from keras_xmr.explain import explain

DEMO = "scenes_pcme"

MODES = {
    "all": "prepare the records if they are missing, train, evaluate, export",
    "prepare": "write the records, and report on the data",
    "train": "train, or go on where a training was stopped",
    "evaluate": "evaluate the trained model, and write a report with tables and plots",
    "export": "write model.keras, and a SavedModel for TF Serving",
    "relevance": "write how relevant each caption is to each image, by the captions alone",
    "tune_reranker": "search the scales of fast re-ranking on the validation split",
}

USAGE = f"""\
Image-text retrieval with many right answers.

usage: python main.py [--config=FILE] [--mode=MODE] [--set key=value ...]
       keras-xmr      (the same, once the package is installed)

Without --config it runs the demo, {DEMO}: minutes on two cores, no network.

  --config=FILE    a YAML file, or the name of a config that comes along (listed below)
  --mode=MODE      one step of the run; without it, `all`:
{{modes}}
  --set key=value  changes any key of the config; may be given several times
  --captions=FILE  with --mode=relevance: captions that need no config: CSV with image,caption,
                   or the JSON of COCO or Karpathy
  --output=FILE    with --captions: where the relevance is written; something.npz
  --explain[=KEY]  prints every key of a config, or of a part of it, with its meaning
  --help           prints this

examples:
  python main.py
  python main.py --config configs/coco_pcme.yaml --set data.source.root=/data/coco
  python main.py --config configs/csv_pcme.yaml --set data.source.root=my_photos --mode=prepare
  python main.py --config coco_pcme --set name=small_batches --set train.batch_size=64
  python main.py --explain=train.phases
  python main.py --mode=relevance --captions captions.csv --set relevance.measure=cider_d

Everything that a run makes is in saved_models/<name>/. A run that was stopped, or killed, goes
on where it was when it is started again.

configs that come along:
{{configs}}
"""

flags.DEFINE_string("config", DEMO, "A YAML file, or the name of a config that comes along.")
flags.DEFINE_enum("mode", "all", list(MODES), "The step of the run.")
flags.DEFINE_string("captions", None, "A captions file, for --mode=relevance.")
flags.DEFINE_string("output", None, "Where the relevance of --captions is written.")
flags.DEFINE_multi_string("set", [], "Changes a key of the config: key=value.")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line.

    Args:
        argv: The arguments, with the name of the program first; those of the process by default.
    """
    argv = list(sys.argv if argv is None else argv)
    if {"--help", "-help", "-h", "--helpfull", "--helpshort"} & set(argv[1:]):
        print(usage())
        return
    for argument in argv[1:]:
        name, _, key = argument.partition("=")
        if name == "--explain":
            _run(partial(_explain, key))
            return
    app.run(lambda rest: _run(lambda: _start(rest)), argv=argv)


def usage() -> str:
    """The help text."""
    modes = "\n".join(f"    {name:<13} {text}" for name, text in MODES.items())
    configs = "\n".join(f"  {n:<16} {_title(path)}" for n, path in packaged_configs().items())
    return USAGE.format(modes=modes, configs=configs)


def _explain(key: str) -> None:
    print(explain(key))


def _title(config: Path) -> str:
    """The first line of a config, which says what it is."""
    with config.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").rstrip()


def _start(rest: Sequence[str]) -> None:
    if len(rest) > 1:
        raise ConfigError(f"{rest[1]!r} is not understood; see --help")
    values = flags.FLAGS.flag_values_dict()
    config = load_config(find_config(values["config"]), values["set"])
    _set_up_logging()
    captions, output = values["captions"], values["output"]
    if output and not captions:
        raise ConfigError("--output goes with --captions; a run writes to saved_models/<name>/")
    if captions is None:
        _work(config, values["mode"])
    elif values["mode"] != "relevance":
        raise ConfigError("--captions goes with --mode=relevance")
    else:
        _relevance(config, Path(captions), Path(output) if output else None)


def _set_up_logging() -> None:
    # absl has set up a format of its own by now.
    logging.basicConfig(format="%(message)s", force=True)
    absl_logging.set_verbosity(absl_logging.WARNING)
    logging.getLogger("tensorflow").setLevel(logging.WARNING)
    logging.getLogger("keras_xmr").setLevel(logging.INFO)


def _relevance(config: Config, captions: Path, output: Path | None) -> None:
    """The relevance of a captions file, which needs no TensorFlow."""
    from keras_xmr.relevance.command import relevance_of_file

    relevance_of_file(captions, output, config.evaluation.splits, config.relevance)


def _work(config: Config, mode: str) -> None:
    """Imports TensorFlow, and does what the mode asks for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    from keras_xmr.pipeline import run

    run(config, mode)


def _run(work: Callable[[], None]) -> None:
    """Does something; mistakes of the user end it with a message and no traceback."""
    try:
        work()
    except KeyboardInterrupt:
        print("\nstopped; start again to go on", file=sys.stderr)
        sys.exit(130)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
