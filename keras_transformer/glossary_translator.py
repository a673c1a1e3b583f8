"""A translator that translates the terms of a glossary as the glossary says."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from keras_transformer.options.search import SearchOptions
from keras_transformer.text.glossary import Glossary
from keras_transformer.text.sentences import as_list
from keras_transformer.translation import Alignment, Translation

if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.translator import Translator


class GlossaryTranslator:
    """Translates as a translator does that is given the terms of each sentence.

    Args:
        translator: a `Translator`; a `CTranslate2Translator` refuses sentences, since it cannot
            search for terms.
        glossary: the terms.

    Example:
        >>> glossary = kt.Glossary({"dogs": ["Hunde", "Hunden"]})
        >>> [german] = kt.GlossaryTranslator(translator, glossary)(["Two dogs."])
        >>> "Hunde" in german
        True
    """

    def __init__(self, translator: "Translator | CTranslate2Translator", glossary: Glossary):
        self.translator, self.glossary = translator, glossary
        self.options = translator.options
        self.max_source_length = translator.max_source_length

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [best.text for best, *_ in self.translate_n(sentences)]

    def translate_n(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[list[Translation]]:
        """The best translations of each sentence; arguments and errors are the translator's."""
        texts = as_list(sentences)
        return self.translator.translate_n(texts, prefixes, self.glossary.terms(texts))

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """The alignment of each sentence with its translation."""
        return self.translator.align(sentences, translations)

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """The number of tokens of each sentence."""
        return self.translator.count_tokens(sentences)

    def with_options(self, options: SearchOptions) -> "GlossaryTranslator":
        """The same translator with another search."""
        return GlossaryTranslator(self.translator.with_options(options), self.glossary)
