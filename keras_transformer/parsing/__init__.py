"""English constituency parsing (paper, section 6.3): treebanks, trees as symbols, a parser."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
