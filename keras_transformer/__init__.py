"""The Transformer of "Attention Is All You Need" for Keras 3."""

import sys

import lazy_loader

__version__ = "0.2.0"

# The public names stand in __init__.pyi. Each is imported when it is first used, so importing the
# package takes no time and loads no backend.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if "keras" in sys.modules:
    # `keras.models.load_model` knows only classes that are registered, which importing them does.
    from keras_transformer import layers, losses, metrics, model, schedules  # noqa: F401
