"""Machine-specific work: compiled passes, replicas, cores, memory. None of it is from the paper."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
