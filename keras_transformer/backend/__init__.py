"""The work on a machine: compiled passes, replicas, cores, memory. Nothing here is the paper's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
