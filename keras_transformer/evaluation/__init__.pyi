from .bleu import (
    Score,
    check_language,
    format_scores,
    has_moses_tokens,
    language_warning,
    short_lines_warning,
    split_compounds,
    translation_scores,
)
from .error_rates import error_rates
from .perplexity import ReferenceLoss
from .significance import (
    MOST_REFERENCES,
    Estimate,
    bootstrap_scores,
    check_bootstrap,
    format_comparison,
    format_margins,
)

__all__ = [
    "MOST_REFERENCES",
    "Estimate",
    "ReferenceLoss",
    "Score",
    "bootstrap_scores",
    "check_bootstrap",
    "check_language",
    "error_rates",
    "format_comparison",
    "format_margins",
    "format_scores",
    "has_moses_tokens",
    "language_warning",
    "short_lines_warning",
    "split_compounds",
    "translation_scores",
]
