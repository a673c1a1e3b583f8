"""The vocabulary of a run: its size with symbols and languages, and what is refused."""

import dataclasses

import pytest
from quick_run import CONFIG

from keras_transformer.data import BuiltinPairs, TextPairs, WeightedPairs
from keras_transformer.errors import UserError
from keras_transformer.options import ParsingOptions
from keras_transformer.parsing import ParsingTokenizer, TreebankPairs
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir, TrainingJob
from keras_transformer.training.vocabulary_choice import chosen_vocabulary, learn_vocabulary

SYMBOLS = ("%", "<0>")
# The vocabulary normalises the first sign, of full width, to the second, so it learns that too.
FULL_WIDTH = "\N{FULLWIDTH PERCENT SIGN}"


@pytest.fixture
def files(tmp_path):
    """Text files with a sign that is normalised to a symbol."""
    for name, side in zip(("en", "de"), zip(*BuiltinPairs("train", 200), strict=True), strict=True):
        lines = (f"{line} 5{FULL_WIDTH}\n" for line in side)
        (tmp_path / name).write_text("".join(lines))
    return tmp_path / "en", tmp_path / "de"


def job(pairs, vocab_size=CONFIG.vocab_size, **fields):
    config = dataclasses.replace(CONFIG, vocab_size=vocab_size)
    return TrainingJob(model_dir="runs/new", train=pairs, config=config, **fields)


@pytest.mark.parametrize("vocab_type", ["bpe", "unigram"])
def test_a_symbol_that_the_text_makes_a_subword_leaves_its_place_to_another(files, vocab_type):
    pairs = TextPairs(*files)
    assert "%" in learn_vocabulary(job(pairs)).pieces
    tokenizer = learn_vocabulary(job(pairs, symbols=SYMBOLS, vocab_type=vocab_type))
    assert tokenizer.vocab_size == CONFIG.vocab_size
    assert {*tokenizer.symbols} == {*SYMBOLS}


@pytest.mark.parametrize(
    ("target_langs", "symbols"), [((), ("%s", "<0>")), (("de",), None), (("de",), ("%s",))]
)
def test_the_largest_and_the_smallest_size_count_what_is_added(files, target_langs, symbols):
    pairs = TextPairs(*files, target_langs)
    for given, name, beyond in ((100_000, "at most ", 1), (10, "at least ", -1)):
        with pytest.raises(UserError, match=f"found {given}$") as error:
            learn_vocabulary(job(pairs, given, symbols=symbols))
        allowed = int(str(error.value).partition(name)[2].partition(",")[0])
        assert learn_vocabulary(job(pairs, allowed, symbols=symbols)).vocab_size == allowed
        with pytest.raises(UserError, match=f"must be {name}{allowed}, "):
            learn_vocabulary(job(pairs, allowed + beyond, symbols=symbols))


def test_the_nearest_size_counts_symbols_too(files, capsys):
    near = job(TextPairs(*files), 100_000, symbols=SYMBOLS, exact_vocab_size=False)
    size = learn_vocabulary(near).vocab_size
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("the text does not allow 100,000")
    assert said[-1].startswith(f"Vocabulary of {size:,}: ")


def test_a_vocabulary_without_the_target_languages_is_refused(files, tmp_path):
    ours = SubwordTokenizer.train(files, CONFIG.vocab_size)
    ours.save(tmp_path / "ours.model")
    given = job(TextPairs(*files, ["de"]), vocabulary=tmp_path / "ours.model")
    with pytest.raises(UserError) as error:
        chosen_vocabulary(given, ModelDir(tmp_path / "new"))
    assert str(error.value) == (
        f"vocabulary={tmp_path}/ours.model: target_langs=de is not in the vocabulary: leave out "
        "target_langs, or leave out vocabulary"
    )


@pytest.mark.parametrize("linearization", ["brackets", "words"])
def test_treebanks_with_weights_are_learned_as_one(tmp_path, linearization):
    options = ParsingOptions(linearization=linearization)
    trees = ["(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))\n", "(S (VP (VB Go)) (. !))\n"]
    for name, tree in zip("ab", trees, strict=True):
        (tmp_path / name).write_text(2 * tree)
    both = TreebankPairs([tmp_path / "a", tmp_path / "b"], options)
    corpora = [TreebankPairs(tmp_path / name, options) for name in "ab"]
    learned = learn_vocabulary(job(WeightedPairs(corpora, [3, 1])))
    assert isinstance(learned, ParsingTokenizer)
    assert learned.to_bytes() == learn_vocabulary(job(both)).to_bytes()
