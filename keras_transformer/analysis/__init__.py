"""Views of a trained model: its attention, as numbers and pictures, and its cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
