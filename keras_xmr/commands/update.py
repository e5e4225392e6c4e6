"""Takes over photos and captions that have changed: records, training, report and index.

The new model takes the place of the old one when it is complete, and search and the server use the
old one until then. If nothing has changed but photos without captions, the index alone is brought
up to date.

examples:
  keras-xmr update --run=saved_models/csv_pretrained
"""

from __future__ import annotations

import argparse
from pathlib import Path

from data_pipelines.errors import UserError
from keras_xmr.commands._options import add_finished_run
from keras_xmr.commands.index import report_lines
from keras_xmr.config.abilities import is_as_published
from keras_xmr.program import program
from keras_xmr.run_folder import load_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_finished_run(parser)
    parser.add_argument(
        "--index", type=Path, metavar="FOLDER", help="the index of the run; <run>/index by default"
    )


def run(arguments: argparse.Namespace) -> None:
    """Brings the run up to date."""
    config = load_run(arguments.run)
    if is_as_published(config):
        raise UserError(
            f"{config.folder} is a published model, of which nothing is trained; bring its index "
            f"up to date with `{program()} index --run={config.folder} --images=FOLDER`"
        )

    from keras_xmr.update import update

    report = update(config, arguments.index)
    print("\n".join(report_lines(report)) if report else f"{config.folder} is up to date")
