"""The command line of keras_xmr; `python main.py --help` tells what it does."""

from keras_xmr.__main__ import main

if __name__ == "__main__":
    main()
