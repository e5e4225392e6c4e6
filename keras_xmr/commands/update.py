"""Updates a run after changes of its photos and captions.

Records, model, report and index are rebuilt if needed. The new model replaces the old one when it
is complete; search and a running server use the old one until the new index is complete, too. If
only photos without captions have changed, only the index is updated. A model with a part in closed
form keeps its options, and whether anything is trained; --choose chooses them again.

examples:
  keras-xmr update --run=saved_models/csv_pretrained
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_path
from keras_xmr.commands.index import summary_lines
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.program import program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_path(parser, "--run", "FOLDER", "folder of a finished run", required=True)
    add_path(parser, "--index", "FOLDER", "index of the run; default RUN/index")
    parser.add_argument(
        "--choose", action="store_true", help="choose all options of the model again, by validation"
    )


def run(arguments: argparse.Namespace) -> None:
    """Updates the run."""
    config = load_run(arguments.run)
    if is_as_published(config):
        raise UserError(
            f"{config.folder} is a published model, which is not trained; update its index with "
            f"`{program()} index --run={config.folder} --images=FOLDER`"
        )

    from keras_xmr.commands._update_run import update

    summary = update(config, arguments.index, arguments.choose)
    print("\n".join(summary_lines(summary)) if summary else f"{config.folder} is up to date")
