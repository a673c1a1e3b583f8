from .export import export_ctranslate2
from .translator import CTranslate2Translator

__all__ = ["CTranslate2Translator", "export_ctranslate2"]
