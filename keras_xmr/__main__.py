"""`python -m keras_xmr` is the command line."""

from keras_xmr.cli import main

if __name__ == "__main__":
    main()
