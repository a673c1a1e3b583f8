"""Pages and pictures: attention between words, the paper's figures, the report of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
