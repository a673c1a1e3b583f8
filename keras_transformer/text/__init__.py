"""Text: its lines and characters, and vocabularies from text to ids and back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
