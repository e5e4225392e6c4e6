"""The command line: `keras-xmr`, and `python -m keras_xmr`."""

import atexit
import gc
import sys


def main() -> None:
    """Runs the command line; says what is missing where losses and metrics alone are installed."""
    # TensorFlow makes millions of objects that stay: looking for garbage among them takes seconds,
    # and one more at the end.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        from keras_xmr.commands._cli import main as run

        run()
    except ModuleNotFoundError as error:
        from keras_xmr.utils.installing import install_command

        if (error.name or "").partition(".")[0] in ("keras_xmr", "data_pipelines"):
            raise
        sys.exit(
            f"error: commands need {error.name}, which is not installed: "
            f"{install_command('tensorflow')}"
        )


if __name__ == "__main__":
    main()
