"""Sentence pairs: sources, corpora of ids, and batches."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
