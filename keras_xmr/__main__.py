"""`python -m keras_xmr` is the command line."""

from keras_xmr.commands._cli import main

if __name__ == "__main__":
    main()
