"""Runs the command `keras-transformer` as `python -m keras_transformer`."""

from keras_transformer.cli.main import main

if __name__ == "__main__":
    main()
