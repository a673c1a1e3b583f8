"""Trains a Transformer: `keras-transformer train`, from a checkout."""

import sys

from keras_transformer.cli.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
