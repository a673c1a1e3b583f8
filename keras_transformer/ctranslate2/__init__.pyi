from .converted import ConvertedModel, ModelInMemory
from .export import export_ctranslate2
from .translator import CTranslate2Translator

__all__ = ["CTranslate2Translator", "ConvertedModel", "ModelInMemory", "export_ctranslate2"]
