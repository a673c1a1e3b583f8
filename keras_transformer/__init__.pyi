from . import (
    ctranslate2,
    data,
    evaluation,
    export,
    importers,
    layers,
    machine,
    parsing,
    report,
    search,
    text,
    training,
)
from .attention_maps import AttentionMaps, attention_maps
from .config import TransformerConfig
from .ctranslate2.translator import CTranslate2Translator
from .documents.markup import MarkupWarning, translate_html, translate_markdown
from .documents.paragraphs import Paragraphs, translate_paragraphs
from .documents.placeholders import PlaceholderTranslator, PlaceholderWarning
from .engines import load
from .errors import UserError
from .glossary_translator import GlossaryTranslator
from .importers.m2m100 import import_m2m100
from .importers.marian import import_marian
from .importers.opennmt import import_opennmt
from .losses import LabelSmoothedCrossEntropy
from .metrics import Perplexity, TokenAccuracy, TokenCount
from .minimum_bayes_risk import MinimumBayesRisk
from .model import Transformer
from .presets import PRESETS
from .schedules import InverseSquareRootSchedule
from .text.glossary import Glossary
from .text.marian import MarianTokenizer
from .text.opennmt import OpenNMTTokenizer
from .text.subword import SubwordTokenizer
from .training.model_dir import ModelDir
from .translation import CutWarning, TermsWarning
from .translator import Translator

__version__: str

__all__ = [
    "PRESETS",
    "AttentionMaps",
    "CTranslate2Translator",
    "CutWarning",
    "Glossary",
    "GlossaryTranslator",
    "InverseSquareRootSchedule",
    "LabelSmoothedCrossEntropy",
    "MarianTokenizer",
    "MarkupWarning",
    "MinimumBayesRisk",
    "ModelDir",
    "OpenNMTTokenizer",
    "Paragraphs",
    "Perplexity",
    "PlaceholderTranslator",
    "PlaceholderWarning",
    "SubwordTokenizer",
    "TermsWarning",
    "TokenAccuracy",
    "TokenCount",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "UserError",
    "attention_maps",
    "ctranslate2",
    "data",
    "evaluation",
    "export",
    "import_m2m100",
    "import_marian",
    "import_opennmt",
    "importers",
    "layers",
    "load",
    "machine",
    "parsing",
    "report",
    "search",
    "text",
    "training",
    "translate_html",
    "translate_markdown",
    "translate_paragraphs",
]
