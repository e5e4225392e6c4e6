"""The command line. It reads and checks the config before TensorFlow is imported."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from absl import app, flags
from absl import logging as absl_logging

from data_pipelines.errors import UserError
from data_pipelines.folders import check_folder
from keras_xmr.config.explain import explain
from keras_xmr.config.loader import (
    ConfigError,
    find_config,
    find_configs,
    load_config,
    packaged_configs,
)
from keras_xmr.config.messages import cut
from keras_xmr.config.schema import Config
from keras_xmr.run_folder import load_run
from keras_xmr.training.cluster import TF_CONFIG, workers_of
from keras_xmr.training.termination import EXIT_CODE, TerminatedError

DEMO = "scenes_pcme"

MODES = {
    "all": "prepare the records if they are missing, train, evaluate, export",
    "prepare": "write the records, and report on the data",
    "train": "train, or go on where a training was stopped",
    "evaluate": "evaluate the trained model, and write a report with tables and plots",
    "export": "write model.keras, and a SavedModel for TF Serving",
    "relevance": "write how relevant each caption is to each image, by the captions alone",
    "audit": "list unlabelled pairs that models believe in, for you to mark as right or wrong",
    "tune_reranker": "search the scales of fast re-ranking on the validation split",
    "compare": "train and evaluate several configs, and test which differences are real",
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
  --runs=FOLDERS   with --mode=audit: the runs whose models are asked, separated by commas; with
                   --mode=evaluate: runs that are evaluated as one, by the mean of their scores.
                   The config of the first applies if there is no --config
  --marks=FILE     with --mode=audit: the marks that the sheet has saved; writes judgements
  --captions=FILE  with --mode=relevance: captions that need no config: CSV with image,caption,
                   or the JSON of COCO or Karpathy
  --output=FILE    with --captions: where the relevance is written, something.npz
  --explain[=KEY]  prints every key of a config, or of a part of it, with its meaning
  --list[=PATTERN] prints the configs that come along, such as 'coco_*', and what each is
  --help           prints this

scores of any other model, with neither config nor training:

  --mode=evaluate --scores=FILE --ground-truth=FILE

  --ground-truth=FILE          images and captions: captions as COCO has them (JSON), a split
                               file of Karpathy (JSON), or CSV: image,caption[,grade]
  --scores=FILE                .npy or .npz: a row for each image, a column for each caption, in
                               the order of the ground truth; larger is better
  --text-to-image-scores=FILE  the same for ranking images, if those scores are others
  --image-embeddings=FILE, --caption-embeddings=FILE
                               in place of scores: a row for each, in the same order
  --similarity=cosine|dot      how embeddings are scored; cosine by default
  --split=NAME                 the split of a Karpathy file; test by default
  --judgements=NAME|FILE       measures against further judgements: eccv_caption, cxc, CSV with
                               image,caption,grade, or .npz; may be given several times
  --labels=FILE                instance annotations as COCO has them, for PMRP
  --relevance=FILE             .npy or .npz of the shape of the scores, for ASP; without one,
                               the CIDEr of the captions, and their TF-IDF beside it
  --rerank=NAME                a re-ranker, such as fast_reranking, or with options
                               '{{{{name: fast_reranking, preset: cub}}}}'; several times if need be
  --folds=N                    also the mean over N folds of the images ("1K" on COCO: 5)
  --output=FOLDER              where the figures go; beside the scores by default

  In COCO's files the order is that of the lists "images" and "annotations"; in a split file
  that of its images, with their captions one after another; in CSV that of first occurrence.

several methods:

  --mode=compare --configs=NAMES --seeds=0,1,2

  --configs=NAMES  files or names of configs, with commas between them, or patterns such as
                   'scenes_*'; may be given several times. --set changes all of them
  --seeds=NUMBERS  every config is run with each of these seeds, as <config>-seed<seed>; 0 by
                   default. What has been trained or evaluated before is not done again
  --runs=FOLDERS   folders of finished runs, in place of configs or beside them
  --output=FOLDER  where tables, plots and statistics go; saved_models/comparison by default

examples:
  python main.py
  python main.py --config configs/coco_pcme.yaml --set data.source.root=/data/coco
  python main.py --config configs/csv_pcme.yaml --set data.source.root=my_photos --mode=prepare
  python main.py --config coco_pcme --set name=small_batches --set train.batch_size=64
  python main.py --explain=train.phases
  python main.py --mode=relevance --captions captions.csv --set relevance.measure=cider_d
  python main.py --mode=evaluate --scores=clip.npy --ground-truth=captions_val2014.json
  python main.py --mode=evaluate --runs=saved_models/coco_saf,saved_models/coco_sgr
  python main.py --mode=compare --configs=scenes_vsepp,scenes_pcme --seeds=0,1,2

Everything that a run makes is in saved_models/<name>/. A run that was stopped, or killed, goes
on where it was when it is started again. Several machines train together if TF_CONFIG names them
(docs/many_machines.md).

configs that come along (coco_pcme and so on; --list says what each is):
{{configs}}
"""

DATA_SETS = {
    "scenes": "the embedded data set",
    "csv": "your own photos, or their precomputed features",
    "coco": "COCO Captions: rows of the papers",
    "f30k": "Flickr30K: rows of the papers",
    "cub": "CUB Captions: rows of the papers",
}
"""What the configs are on, by the first part of their names."""

flags.DEFINE_string("config", DEMO, "A YAML file, or the name of a config that comes along.")
flags.DEFINE_enum("mode", "all", list(MODES), "The step of the run.")
flags.DEFINE_string("captions", None, "A captions file, for --mode=relevance.")
flags.DEFINE_string("marks", None, "Marks of a sheet, for --mode=audit.")
flags.DEFINE_string("output", None, "Where the relevance, or the figures, of your files go.")
flags.DEFINE_multi_string("configs", [], "Configs to compare, with commas between them.")
flags.DEFINE_list("seeds", ["0"], "The seeds of each config that is compared.")
flags.DEFINE_list("runs", [], "Folders of finished runs: to compare, audit, or evaluate as one.")
flags.DEFINE_multi_string("set", [], "Changes a key of the config: key=value.")

_OWN_FILES = {
    "ground-truth": "Images, captions and what is right.",
    "scores": "Scores (images, captions).",
    "text-to-image-scores": "Scores (images, captions) that rank images.",
    "image-embeddings": "Embeddings of the images.",
    "caption-embeddings": "Embeddings of the captions.",
    "labels": "Instance annotations.",
    "relevance": "Semantic relevance (images, captions).",
}
for _name, _text in _OWN_FILES.items():
    flags.DEFINE_string(_name, None, _text)
flags.DEFINE_enum("similarity", "cosine", ["cosine", "dot"], "How embeddings are scored.")
flags.DEFINE_string("split", None, "The split of a Karpathy file.")
flags.DEFINE_multi_string("judgements", [], "Further judgements, by name or file.")
flags.DEFINE_multi_string("rerank", [], "Re-rankers, as in evaluation.rerankers.")
flags.DEFINE_integer("folds", 0, "Folds of the images.", lower_bound=0)
_OF_SEVERAL_WORKERS = ("all", "train")
_NEEDS_MODE = {
    "configs": "--mode=compare",
    "seeds": "--mode=compare",
    "runs": "--mode=compare, --mode=audit or --mode=evaluate",
    "marks": "--mode=audit",
}
_GPUS = ("nvidia[0-9]*", "nvhost-gpu", "nvmap", "dxg", "kfd")
"""Devices of GPUs: of NVIDIA's cards and boards, within Windows, and of AMD."""

_OWN_OPTIONS = ("similarity", "split", "judgements", "folds")


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
        if name in ("--explain", "--list"):
            _run(partial(_explain if name == "--explain" else _list, key))
            return
    app.run(lambda rest: _run(lambda: _start(rest)), argv=argv)


def usage() -> str:
    """The help text."""
    modes = "\n".join(f"    {name:<13} {text}" for name, text in MODES.items())
    return USAGE.format(modes=modes, configs="\n".join(_configs_by_data_set()))


def _configs_by_data_set() -> Iterator[str]:
    """The names of all configs: a paragraph a data set, which stands in it once."""
    names = [name.partition("_") for name in packaged_configs()]
    for data_set, text in DATA_SETS.items():
        yield f"  {data_set}_...  {text}"
        variants = ", ".join(variant for prefix, _, variant in names if prefix == data_set)
        yield from textwrap.wrap(variants, 96, initial_indent="    ", subsequent_indent="    ")


def _list(pattern: str) -> None:
    """Prints configs and what they are."""
    found = find_configs(pattern or "*")
    width = max(len(path.stem) for path in found)
    for path in found:
        print(f"{path.stem:<{width}}  {_title(path)}")


def _explain(key: str) -> None:
    print(explain(key))


def _title(config: Path) -> str:
    """The first line of a config, which says what it is."""
    with config.open(encoding="utf-8", errors="replace") as file:
        return file.readline().lstrip("# ").rstrip()


def _start(rest: Sequence[str]) -> None:
    if len(rest) > 1:
        raise ConfigError(f"{rest[1]!r} is not understood; see --help")
    values = flags.FLAGS.flag_values_dict()
    given = {name for name in values if flags.FLAGS[name].present}
    if workers_of().count > 1 and values["mode"] not in _OF_SEVERAL_WORKERS:
        raise ConfigError(
            f"--mode={values['mode']} is the work of one process; start it without {TF_CONFIG}"
        )
    if own := given & {*_OWN_FILES, *_OWN_OPTIONS, "rerank"}:
        _evaluate_external_scores(values, given, sorted(own)[0])
        return
    for mode, work in (("audit", _audit), ("compare", _compare)):
        if values["mode"] == mode:
            work(values, given)
            return
    if values["mode"] == "evaluate" and "runs" in given:
        _evaluate_ensemble(values, given)
        return
    if useless := [name for name in _NEEDS_MODE if name in given]:
        raise ConfigError(f"--{useless[0]} needs {_NEEDS_MODE[useless[0]]}")
    config = load_config(find_config(values["config"]), values["set"])
    _set_up_logging()
    captions, output = values["captions"], values["output"]
    if output and not captions:
        raise ConfigError(
            "--output goes with --captions, --scores or --mode=compare; a run writes to "
            "saved_models/<name>/"
        )
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


def _audit(values: dict[str, Any], given: set[str]) -> None:
    """Looks for missing labels, or takes the marks that somebody has made."""
    if useless := given & {"captions", "output", "configs", "seeds"}:
        raise ConfigError(f"--{useless.pop()} has no effect with --mode=audit; leave it out")
    config, runs = _config_and_runs(values, given)
    check_folder(config.folder)
    _set_up_logging()
    _quiet_tensorflow()

    from keras_xmr.audit import command

    if values["marks"] is None:
        command.audit(config, runs)
    else:
        command.merge_marks(config, Path(values["marks"]))


def _config_and_runs(values: dict[str, Any], given: set[str]) -> tuple[Config, list[Path]]:
    """Finished runs, and the config that applies to them: that of the first if none is given."""
    runs = [load_run(Path(run)).folder for run in values["runs"]]
    if runs and "config" not in given:
        return load_run(runs[0], values["set"]), runs
    return load_config(find_config(values["config"]), values["set"]), runs


def _evaluate_ensemble(values: dict[str, Any], given: set[str]) -> None:
    """Evaluates finished runs as one."""
    if useless := given & {"captions", "marks", "configs", "seeds"}:
        raise ConfigError(f"--{useless.pop()} has no effect with --runs; leave it out")
    config, runs = _config_and_runs(values, given)
    _set_up_logging()
    _quiet_tensorflow()

    from keras_xmr.ensemble.evaluate import evaluate_ensemble

    evaluate_ensemble(config, runs, Path(values["output"]) if values["output"] else None)


def _compare(values: dict[str, Any], given: set[str]) -> None:
    """Compares methods; those that are trained for it run TensorFlow in their own processes."""
    if useless := given & {"config", "captions", "marks"}:
        raise ConfigError(f"--{useless.pop()} has no effect with --mode=compare; see --help")
    if (useless := given & {"seeds", "set"}) and "configs" not in given:
        raise ConfigError(f"--{useless.pop()} needs --configs: finished runs stay as they are")
    _set_up_logging()

    from keras_xmr.comparison import compare
    from keras_xmr.comparison.plan import plan_runs

    planned = plan_runs(_listed(values["configs"]), _seeds(values["seeds"]), values["set"])
    folders = [Path(name) for name in values["runs"]]
    compare(planned, folders, Path(values["output"]) if values["output"] else None)


def _listed(texts: Sequence[str]) -> list[str]:
    """The names in texts with commas between them."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _seeds(texts: Sequence[str]) -> list[int]:
    if wrong := [text for text in texts if not text.isdecimal() or len(text) > 10]:
        raise ConfigError(f"--seeds: {cut(repr(wrong[0]))} is not a whole number from 0 on")
    return [int(text) for text in texts]


def _evaluate_external_scores(values: dict[str, Any], given: set[str], name: str) -> None:
    """Evaluates scores that a user brings; TensorFlow is not needed."""
    if values["mode"] != "evaluate":
        raise ConfigError(f"--{name} needs --mode=evaluate")
    if useless := given & {"config", "set"}:
        raise ConfigError(f"--{useless.pop()} has no effect on scores of your own; leave it out")
    if {"similarity", "scores"} <= given:
        raise ConfigError("--similarity is for embeddings, and has no effect on --scores")
    if "ground-truth" not in given:
        raise ConfigError(f"--{name} needs --ground-truth: the images and captions in their order")

    chosen = load_config(
        find_config(DEMO), [f"evaluation.rerankers=[{', '.join(values['rerank'])}]"]
    ).evaluation.rerankers

    from keras_xmr import external_scores
    from keras_xmr.reranking import build_rerankers

    brought: dict[str, Any] = {
        key.replace("-", "_"): Path(values[key]) for key in (*_OWN_FILES, "output") if key in given
    }
    options = {key: values[key] for key in _OWN_OPTIONS}
    external_scores.run(
        external_scores.ExternalScores(**brought, **options), build_rerankers(chosen)
    )


def _work(config: Config, mode: str) -> None:
    """Imports TensorFlow, and does what the mode asks for."""
    _check_folders(config, mode)
    _quiet_tensorflow()

    from keras_xmr.pipeline import run

    run(config, mode)


def _check_folders(config: Config, mode: str) -> None:
    """Checks that the results can be written, before any work is done for them."""
    if not workers_of().is_chief:
        return
    if mode != "prepare":
        check_folder(config.folder)
    if mode == "prepare" or (mode == "all" and not config.data.is_prepared):
        check_folder(config.data.records)


def _quiet_tensorflow() -> None:
    # Where there is no GPU, TensorFlow calls that an error of CUDA.
    has_gpu = any(any(Path("/dev").glob(name)) for name in _GPUS)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")


def _run(work: Callable[[], None]) -> None:
    """Does something; mistakes of the user, and of the disk, end it without a traceback."""
    try:
        work()
    except KeyboardInterrupt:
        print("\nstopped; start again to go on", file=sys.stderr)
        sys.exit(130)
    except TerminatedError as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(EXIT_CODE)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        print(f"error: {named or error}", file=sys.stderr)
        sys.exit(1)
