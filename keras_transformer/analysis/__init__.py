"""Analysis of models: attention as numbers and pictures, and the cost of training."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
