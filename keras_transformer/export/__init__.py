"""A trained model as other programs take it: one module a format."""

import importlib

__all__ = ["export_ctranslate2", "export_saved_model"]

# A format needs packages that others do without: its module is imported when first used.
_MODULES = {
    "export_ctranslate2": "keras_transformer.export.ctranslate2",
    "export_saved_model": "keras_transformer.export.saved_model",
}


def __getattr__(name):
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
