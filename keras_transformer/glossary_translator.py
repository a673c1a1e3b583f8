"""A translator that translates the terms of a glossary as the glossary says."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keras_transformer.options.search import SearchOptions
from keras_transformer.text.glossary import Glossary
from keras_transformer.text.placeholders import Span, placeholder_patterns, without_placeholders
from keras_transformer.text.sentences import as_list, as_text
from keras_transformer.translation import Alignment, Translation

if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.translator import Translator


class GlossaryTranslator:
    """Translates as a translator does that is given the terms of each sentence.

    The text of placeholders, such as `{name}` and URLs, has no terms.

    Args:
        translator: a `Translator`; a `CTranslate2Translator` refuses sentences, since it cannot
            search for terms.
        glossary: the terms.
        keep: regular expressions of further placeholders.

    Raises:
        UserError: one of them is no regular expression, or matches an empty text.

    Example:
        >>> glossary = kt.Glossary({"dogs": ["Hunde", "Hunden"]})
        >>> [german] = kt.GlossaryTranslator(translator, glossary)(["Two dogs."])
        >>> "Hunde" in german
        True
    """

    def __init__(
        self,
        translator: "Translator | CTranslate2Translator",
        glossary: Glossary,
        keep: Sequence[str] = (),
    ):
        self.translator, self.glossary, self.keep = translator, glossary, keep
        self._patterns = placeholder_patterns(keep)
        self.options = translator.options
        self.max_source_length = translator.max_source_length

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [best.text for best, *_ in self.translate_n(sentences)]

    def translate_n(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
        copied: Sequence[Sequence[Span]] | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each sentence; other arguments and errors are the translator's.

        Args:
            sentences: as for the translator.
            prefixes: as for the translator.
            copied: the parts of each sentence besides placeholders that have no terms, in order,
                such as `<code>` elements of HTML; None for none.
        """
        texts = as_list(sentences)
        parts = [()] * len(texts) if copied is None else copied
        terms = self.glossary.terms(
            without_placeholders(text, self._patterns, some)
            for text, some in zip(as_text(texts), parts, strict=True)
        )
        return self.translator.translate_n(texts, prefixes, terms)

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """The alignment of each sentence with its translation."""
        return self.translator.align(sentences, translations)

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """The number of tokens of each sentence."""
        return self.translator.count_tokens(sentences)

    def with_options(self, options: SearchOptions) -> "GlossaryTranslator":
        """The same translator with another search."""
        translator = self.translator.with_options(options)
        return GlossaryTranslator(translator, self.glossary, self.keep)
