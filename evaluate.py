"""Judges a trained model: `keras-transformer evaluate`, from a checkout."""

import sys

from keras_transformer.cli.main import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
