from .converted import ConvertedModel
from .ctranslate2 import export_ctranslate2
from .saved_model import export_saved_model

__all__ = ["ConvertedModel", "export_ctranslate2", "export_saved_model"]
