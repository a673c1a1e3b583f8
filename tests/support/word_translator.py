"""A translator of words to capitals, with an alignment, as `markup` and `placeholders` need it."""

import re

from keras_transformer.options import SearchOptions
from keras_transformer.translation import Alignment, Translation


class Words:
    """Translates word for word to capitals; the words of each sentence are in another order.

    Args:
        order: the index of the source word of each word of a translation, given their number.
        links: the same as the alignment says it; default: `order`.
    """

    options, max_source_length = SearchOptions(), 1024

    def __init__(self, order=range, links=None):
        self._order, self._links = order, links or order
        self.sentences = []

    def with_options(self, options):
        return self

    def count_tokens(self, sentences):
        return [len(sentence.split()) for sentence in sentences]

    def translate_n(self, sentences):
        self.sentences += sentences
        return [[self._translation(sentence.split())] for sentence in sentences]

    def _translation(self, words):
        chosen = (words[index] for index in self._order(len(words)))
        return Translation(
            " ".join(word if re.search("[%{/=@]", word) else word.upper() for word in chosen), -1.0
        )

    def align(self, sentences, translations):
        return [
            Alignment(
                [f"▁{word}" for word in sentence.split()],
                [f"▁{word}" for word in translation.split()],
                [
                    (index, number)
                    for number, index in enumerate(self._links(len(sentence.split())))
                    if number < len(translation.split())
                ],
            )
            for sentence, translation in zip(sentences, translations, strict=True)
        ]


class Always(Words):
    """Gives one translation for every sentence."""

    def __init__(self, translation):
        super().__init__()
        self._given = translation

    def _translation(self, words):
        return Translation(self._given, -1.0)


class Same(Words):
    """Translates each sentence to itself, whose tokens are words and punctuation."""

    def _translation(self, words):
        return Translation(" ".join(words), -1.0)

    def align(self, sentences, translations):
        pieces = [*map(_pieces, sentences)]
        return [Alignment(some, some, [(at, at) for at in range(len(some))]) for some in pieces]


def _pieces(text):
    return [
        "▁" * (not match.start() or text[match.start() - 1].isspace()) + match[0]
        for match in re.finditer(r"\w+|[^\w\s]", text)
    ]
