"""The Transformer of "Attention Is All You Need" for Keras 3."""

import lazy_loader

__version__ = "0.2.0"

# __init__.pyi lists the public names. Each is imported at its first use, so importing the package
# takes no time and loads no backend.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
