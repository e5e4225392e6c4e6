"""The command line: `keras-xmr`, and `python -m keras_xmr`."""

import sys


def main() -> None:
    """Runs the command line; says what is missing where losses and metrics alone are installed."""
    try:
        from keras_xmr.commands._cli import main as run

        run()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("keras_xmr", "data_pipelines"):
            raise
        sys.exit(
            f"error: commands need {error.name}, which is not installed: install the extra "
            "`tensorflow`, such as pip install 'keras-xmr[tensorflow]', or in a clone "
            "pip install '.[tensorflow]'"
        )


if __name__ == "__main__":
    main()
