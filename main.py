"""The command line of keras_xmr; `python main.py --help` tells what it does."""

COMMAND_LINE_OF_KERAS_XMR = True  # Lets `import keras_xmr` leave TensorFlow for later.

from keras_xmr.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
