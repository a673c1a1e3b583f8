"""Alignments of words, made of alignments of subwords."""

import itertools
import pickle
import threading
import warnings

import pytest

from keras_transformer.documents.markup import MarkupWarning
from keras_transformer.documents.placeholders import PlaceholderWarning
from keras_transformer.errors import Unsupported
from keras_transformer.text.html_reader import MarkupProblem
from keras_transformer.text.subword import VocabularySizeError
from keras_transformer.translation import Alignment, CutWarning, TermsWarning, cut, without_warning


def of_words(source, target, links):
    return Alignment(source.split(), target.split(), links).of_words()


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("▁a ▁b", "▁c ▁d", [(1, 0), (0, 1)], "0-1 1-0"),
        ("▁a b ▁c", "▁d e f", [(0, 0), (1, 1), (2, 2)], "0-0 1-0"),  # each link once
        ("▁ a ▁b", "▁c ▁ d", [(0, 0), (1, 2), (2, 1)], "0-0 0-1 1-1"),  # a mark by itself
        ("a ▁b", "c ▁d", [(0, 0), (1, 1)], "0-0 1-1"),  # no mark before the first word
        ("", "▁a", [], ""),
    ],
)
def test_words_are_linked_if_their_subwords_are(source, target, links, expected):
    found = of_words(source, target, links)
    assert " ".join(f"{one}-{other}" for one, other in found.links) == expected


def test_each_piece_may_be_a_word():
    alignment = Alignment(["the", "dog"], ["der", "hund"], [(1, 1), (0, 0), (0, 0)], are_words=True)
    words = alignment.of_words()
    assert words == (["the", "dog"], ["der", "hund"], [(0, 0), (1, 1)], True)
    assert words.of_words() == words


def test_words_are_those_of_the_text():
    found = of_words("▁Zwei ▁Hun de , ▁ drei .", "▁ ja", [])
    assert found.source == ["Zwei", "Hunde,", "drei."]
    assert found.target == ["ja"]


def test_every_subword_belongs_to_one_word():
    for pieces in itertools.product(["▁", "a", "▁a"], repeat=4):
        text = "".join(pieces).replace("▁", " ")
        words = Alignment(list(pieces), ["▁x"], [(i, 0) for i in range(4)]).of_words()
        assert "".join(words.source) == text.replace(" ", "")
        assert [index for index, _ in words.links] == list(range(len(words.source)))


@pytest.mark.parametrize(
    "error",
    [
        CutWarning("sentences", [1, 3], 1024),
        MarkupWarning(0, MarkupProblem(1, "<b>", 1)),
        PlaceholderWarning([1, 3]),
        TermsWarning([1, 3]),
        Unsupported("CTranslate2", "terms", "leave them out"),
        VocabularySizeError("at most {}", 300, 400),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_and_warnings_can_be_sent_to_another_process(error):
    received = pickle.loads(pickle.dumps(error))
    assert type(received) is type(error)
    assert str(received) == str(error) and vars(received) == vars(error)


def test_a_block_without_a_warning_changes_no_other_thread():
    entered, left = threading.Event(), threading.Event()

    def other_thread():
        with without_warning(CutWarning):
            entered.set()
            left.wait(60)

    thread = threading.Thread(target=other_thread)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with without_warning(CutWarning):
            thread.start()
            entered.wait(60)
            cut([[1, 2]], 1, "sentences")
        assert not caught
        left.set()
        thread.join()
        cut([[1, 2]], 1, "sentences")
    assert [one.category for one in caught] == [CutWarning]
