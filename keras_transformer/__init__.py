"""The Transformer of "Attention Is All You Need" for Keras 3."""

import sys

import lazy_loader

__version__ = "0.2.0"

# __init__.pyi lists the public names. Each is imported at its first use, so importing the package
# takes no time and loads no backend.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if "keras" in sys.modules:
    # `keras.models.load_model` knows only registered classes; importing them registers them.
    from keras_transformer import layers, losses, metrics, model, schedules  # noqa: F401
