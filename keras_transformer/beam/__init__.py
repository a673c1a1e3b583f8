"""Translates more text than one machine can hold, with Apache Beam (an optional extra)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
