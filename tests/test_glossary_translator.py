"""A translator with a glossary: which terms it asks for, alone and with placeholders."""

import pytest

import keras_transformer as kt
from keras_transformer.options import SearchOptions
from keras_transformer.translation import Alignment, Translation


class Asked:
    """A translator that remembers the terms which it is asked for, and copies sentences."""

    options, max_source_length = SearchOptions(), 100

    def translate_n(self, sentences, prefixes=None, terms=None):
        self.terms = terms
        return [[Translation(sentence, -1.0)] for sentence in sentences]

    def with_options(self, options):
        return self

    def count_tokens(self, sentences):
        return [len(sentence.split()) for sentence in sentences]

    def align(self, sentences, translations):
        return [Alignment([], [], []) for _ in sentences]


GLOSSARY = kt.Glossary({"name": "Name", "example": "Beispiel", "old name": "Altname"})


@pytest.mark.parametrize(
    ("sentence", "terms"),
    [
        ("A name", ["Name"]),
        (b"A name", ["Name"]),
        ("Hello {name}, your name", ["Name"]),
        ("https://example.org/name?name=%(name)s", []),
        ("old {x} name", ["Name"]),
        ("old <name>", []),
    ],
)
def test_placeholders_have_no_terms(sentence, terms):
    translator = kt.GlossaryTranslator(Asked(), GLOSSARY, keep=["<.*>"])
    for one in (translator, translator.with_options(SearchOptions(beam_size=2))):
        one([sentence])
        assert one.translator.terms == [[(form,) for form in terms]]


def test_a_copied_placeholder_needs_no_term_beside_it():
    translator = kt.PlaceholderTranslator(kt.GlossaryTranslator(Asked(), GLOSSARY))
    assert translator(["Hello {name}"]) == ["Hello {name}"]
    assert translator.translator.translator.terms == [[]]


@pytest.mark.filterwarnings("ignore::keras_transformer.documents.placeholders.PlaceholderWarning")
@pytest.mark.parametrize("is_lost", [False, True])
def test_elements_that_html_copies_have_no_terms(is_lost):
    asked = []

    class Recording(Asked):
        def translate_n(self, sentences, prefixes=None, terms=None):
            asked.extend(terms)
            return super().translate_n(["lost"] if is_lost else sentences)

    html = "A <kbd>name</kbd>, an <i translate=no>example</i> of a Name"
    [[best]] = kt.translate_html(kt.GlossaryTranslator(Recording(), GLOSSARY), [html])
    assert "<kbd>name</kbd>" in best.text
    # If they are lost, the other hypotheses are asked for, and then the text without them.
    assert asked == [[("Name",)]] * (3 if is_lost else 1)
