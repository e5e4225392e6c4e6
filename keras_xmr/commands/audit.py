"""Lists unlabelled pairs with the highest scores, for you to label as right or wrong.

Writes a page of pairs to label, and reads the labels that the page saves. The section `audit` of
the config selects the pairs (`keras-xmr explain audit`).

examples:
  keras-xmr audit --run=saved_models/scenes_pcme
  keras-xmr audit --runs=saved_models/a,saved_models/b --set audit.pairs=500
  keras-xmr audit --run=saved_models/scenes_pcme --labels=labels.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_xmr.commands._options import add_path, add_runs, read_runs
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.utils.files import check_folder

if TYPE_CHECKING:
    from keras_xmr.experiments.config.schema import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_runs(parser)
    add_path(parser, "--labels", "FILE", "labels saved by the page; writes judgements")


def run(arguments: argparse.Namespace) -> None:
    """Finds candidates for missing labels, or reads labels."""
    config, runs = read_runs(arguments)
    check_folder(config.folder)
    audit_runs(config, runs, arguments.labels)


def audit_runs(config: Config, runs: Sequence[Path] = (), labels: Path | None = None) -> None:
    """Audits a split by the scores of some runs, by default of the run of the config.

    Args:
        config: The config of the audited run; its section `audit` applies.
        runs: Folders of the runs of the models.
        labels: Labels to add instead, as the annotation page saves them.
    """
    from keras_xmr.commands._ensemble import scores_of_runs
    from keras_xmr.experiments.audit.audit import audit, merge_labels
    from keras_xmr.experiments.experiment import Experiment

    main = Experiment(config)
    if labels is not None:
        merge_labels(config, main.records, labels)
        return
    models = [Experiment(load_run(run)) for run in runs] or [main]
    # Hubs are items that match much, and an audit looks for these.
    audit(
        config,
        main.records,
        lambda split: scores_of_runs(main, models, split, hubness=False),
    )
