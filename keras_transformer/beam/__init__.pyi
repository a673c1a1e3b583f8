from .translate_files import TranslateFiles
from .translate_text import Failure, TranslateText

__all__ = ["Failure", "TranslateFiles", "TranslateText"]
