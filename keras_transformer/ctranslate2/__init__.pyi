from .converted import ConvertedModel
from .export import export_ctranslate2
from .translator import CTranslate2Translator

__all__ = ["CTranslate2Translator", "ConvertedModel", "export_ctranslate2"]
