"""`python -m keras_transformer` is the command `keras-transformer`."""

from keras_transformer.cli.main import main

if __name__ == "__main__":
    main()
