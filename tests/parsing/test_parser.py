"""Parsing as translation: treebanks as pairs, the vocabulary, sentences to trees."""

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf
from helpers import small_model

from keras_transformer import SubwordTokenizer, Translator
from keras_transformer.data import Batches, Corpus
from keras_transformer.errors import UserError
from keras_transformer.parsing import (
    Parser,
    ParsingOptions,
    ParsingTokenizer,
    TreebankPairs,
    format_tree,
    linearize,
    normalized_trees,
    parse_tree,
    score_trees,
    search_defaults,
    trees_of,
    word_symbols,
    words,
)
from keras_transformer.parsing.substitution import substituted
from keras_transformer.text import PAD_ID

TREES = """
( (S (NP-SBJ (DT The) (NNS dogs)) (VP (VBD chased) (NP (CD 12) (NNS cats))) (. .)) )
( (S (NP-SBJ (DT The) (NNS cats)) (VP (VBD saw) (NP (CD 47) (NNS dogs))) (. .)) )
( (S (NP-SBJ (PRP They)) (VP (VBP do) (RB n't) (VP (VB chase) (NP (NN anything)))) (. .)) )
"""
LINEARIZATIONS = ["brackets", "words"]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("treebank") / "trees.mrg"
    path.write_text(TREES)
    return path


@pytest.fixture(scope="module", params=LINEARIZATIONS)
def pairs(request, treebank):
    return TreebankPairs([treebank], ParsingOptions(linearization=request.param))


def learn(pairs, **options):
    two_a_word = pairs.options.linearization == "words"
    options = {"vocab_size": 100, "two_a_word": two_a_word, **options}
    return ParsingTokenizer.learn(pairs.pairs(), **options)


# Pairs


def test_pairs_are_sentences_and_trees_in_symbols(treebank):
    for linearization, as_symbols in (("brackets", linearize), ("words", word_symbols)):
        pairs = TreebankPairs([treebank], ParsingOptions(linearization=linearization))
        assert pairs.check() == 3
        rows = list(pairs)
        normal = list(normalized_trees(treebank))
        assert rows == [(" ".join(words(tree)), as_symbols(tree)) for tree in normal]


@pytest.mark.parametrize(("weight", "least", "most"), [(2.0, 60, 60), (1.5, 31, 59), (0.4, 1, 29)])
def test_extra_trees_come_by_their_weight(treebank, tmp_path, weight, least, most):
    extra = tmp_path / "extra.mrg"
    extra.write_text("(NP (NN tree))\n" * 30)
    pairs = TreebankPairs([treebank], ParsingOptions(extra_weight=weight), [extra])
    rows = list(pairs.pairs())
    assert rows == list(pairs.pairs())
    assert least <= rows.count(("tree", "(NP XX NP)")) <= most
    assert len(rows) - rows.count(("tree", "(NP XX NP)")) == 3


def test_substitution_puts_constituents_in_the_places_of_others(treebank):
    trees = list(normalized_trees(treebank))
    copies = [tuple(substituted(trees, 0.5, seed)) for seed in range(8)]
    assert copies[1] == tuple(substituted(trees, 0.5, 1))
    assert len(set(copies)) > 4
    constituents = {"The dogs", "The cats", "They", "12 cats", "47 dogs", "anything"}
    found = {" ".join(words(tree)) for trees in copies for tree in trees}
    assert any(
        f"The dogs chased {other} ." in found for other in constituents - {"12 cats", "The cats"}
    )
    for tree in (tree for trees in copies for tree in trees):
        # Only an NP that was under an S replaces the first NP of an S.
        assert words(tree)[0] in ("The", "They")
        assert parse_tree(format_tree(tree)) == tree


def test_copies_with_substitutions_follow_the_treebank(treebank):
    options = ParsingOptions(substituted=4, substituted_share=0.5)
    plain = list(TreebankPairs([treebank], ParsingOptions()).pairs())
    rows = list(TreebankPairs([treebank], options).pairs())
    assert rows[:3] == plain
    assert len(rows) == 15
    assert len(set(rows)) > 5


# The vocabulary


def test_symbols_of_trees_come_back(pairs):
    tokenizer = learn(pairs)
    for _, symbols in pairs.pairs():
        ids = tokenizer.tokenize_target(tf.constant([symbols]))
        assert tokenizer.unknown_id not in ids.values
        assert tokenizer.detokenize(ids).numpy() == [symbols.encode()]


def test_ids_that_are_no_symbols_are_not_in_a_tree(pairs):
    tokenizer = learn(pairs, target_vocab_size=40)
    everything = tf.range(tokenizer.vocab_size)[None]
    everything = tf.boolean_mask(everything, everything != tokenizer.end_id)[None]
    found = tokenizer.detokenize(everything).numpy()[0].decode().split()
    assert set(found) == {symbol for _, symbols in pairs.pairs() for symbol in symbols.split()}
    assert len(tokenizer.pieces) == tokenizer.vocab_size == 100


def test_words_and_classes(tmp_path):
    treebank = tmp_path / "trees.mrg"
    treebank.write_text(TREES + "(NP (NN walking) (NN talking) (NN running) (NN king) (NN ring))")
    tokenizer = learn(TreebankPairs([treebank], ParsingOptions()), vocab_size=200)

    def pieces(sentence, tokenizer=tokenizer):
        [ids] = tokenizer.tokenize(tf.constant([sentence])).to_list()
        return [tokenizer.pieces[id_] for id_ in ids]

    # All digits are equal; a word that is unknown as written may be known in lower case.
    assert pieces("The dogs 12 99 Dogs .") == ["The", "dogs", "00", "00", "dogs", "."]
    # The class of an unknown word: shape, and the longest ending that enough words have.
    assert pieces("singing xyz") == ["<aa_ing>", "<aa_>"]
    assert pieces("Xyz XYZ X1 pre-war % ÉTÉ") == [
        "<Aa_>",
        "<AA_>",
        "<0_>",
        "<aa-_>",
        "<--_>",
        "<AA_>",
    ]
    # Brackets and escapes are read in the treebank's notation.
    assert pieces("( 1/2") == [*pieces("-LRB-"), *pieces(r"1\/2")]
    # Two symbols for each word: the word or unknown, and its class.
    options = ParsingOptions(linearization="words")
    two = learn(TreebankPairs([treebank], options), vocab_size=200)
    assert pieces("dogs singing", two) == ["dogs", "<aa_>", "<unk>", "<aa_ing>"]


def test_no_text_is_too_strange_for_the_vocabulary(pairs):
    tokenizer = learn(pairs)
    strange = [b"", b" ", b"\xff\xfe \x00", "\u00a0 \u2028 e\u0301".encode(), b"x" * 10_000]
    ids = tokenizer.tokenize(tf.constant(strange))
    assert ids.row_lengths().numpy().tolist()[:2] == [0, 0]
    assert tf.reduce_max(ids) < tokenizer.vocab_size


def test_word_dropout_of_a_vocabulary_without_words_changes_nothing():
    tokenizer = ParsingTokenizer.learn([("Dogs bark", "(S (NP XX NP) (VP XX VP) S)")], 100)
    sentences = tokenizer.encode(["Dogs bark"])  # each word was seen once, so none is known
    dropped = tokenizer.resplit(sentences, 0.5, np.random.RandomState(0))
    assert dropped.ids.tolist() == sentences.ids.tolist()


def test_word_dropout_takes_rare_words_for_unknown(treebank):
    tokenizer = learn(TreebankPairs([treebank], ParsingOptions(linearization="words")))
    sentences = tokenizer.encode(["The The dogs dogs . ."] * 400)
    dropped = tokenizer.resplit(sentences, 0.5, np.random.RandomState(0)).ids.reshape(400, 12)
    shares = np.mean(dropped[:, ::2] == tokenizer.unknown_id, axis=0)
    # Seen twice, twice and three times: 0.5 / 2.5 and 0.5 / 3.5.
    assert shares == pytest.approx([0.2, 0.2, 0.2, 0.2, 1 / 7, 1 / 7], abs=0.08)
    classes = dropped[:, 1::2]
    assert np.all(classes == classes[:1])


def test_batches_of_a_treebank_drop_other_words_in_each_epoch_and_no_symbols(treebank):
    treebank_pairs = TreebankPairs([treebank], ParsingOptions(linearization="words"))
    corpus = Corpus.build(treebank_pairs, learn(treebank_pairs))

    def sides(batches, epoch):
        """The symbols and the words of all pairs of an epoch, in the order of the symbols."""
        first = epoch * batches.batches_per_epoch
        made = [batches.batch(step) for step in range(first, first + batches.batches_per_epoch)]
        rows = [row for batch in made for row in zip(batch.labels, batch.source_ids, strict=True)]
        pairs = [[side[side != PAD_ID].tolist() for side in row] for row in rows if row[0].any()]
        return zip(*sorted(pairs), strict=True)

    dropped = Batches(corpus, dropout=1.0)
    symbols, sentences = zip(
        *(sides(Batches(corpus), 0), sides(dropped, 0), sides(dropped, 1)), strict=True
    )
    assert symbols[0] == symbols[1] == symbols[2]
    assert sentences[0] != sentences[1] != sentences[2] != sentences[0]


def test_a_saved_vocabulary_is_the_same(pairs, tmp_path):
    tokenizer = learn(pairs, target_vocab_size=40)
    tokenizer.save(tmp_path / "vocabulary.json")
    loaded = ParsingTokenizer.load(tmp_path / "vocabulary.json")
    text = tf.constant(["The dogs do n't talk ."])
    for same in (loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert same.pieces == tokenizer.pieces
        assert same.tokenize(text).to_list() == tokenizer.tokenize(text).to_list()
    twice = json.loads(tokenizer.to_bytes()) | {"symbols": ["NP)", "NP)"]}
    for content in (
        *(b"{}", b"[1]", b"\x00", b'{"words": 1}', b"[" * 100_000),
        json.dumps(twice).encode(),
    ):
        (tmp_path / "other.json").write_bytes(content)
        with pytest.raises(UserError, match="not the vocabulary of a parser"):
            ParsingTokenizer.load(tmp_path / "other.json")


def test_a_vocabulary_without_room_is_refused(pairs):
    with pytest.raises(UserError, match=r"^vocab_size must be at least"):
        learn(pairs, vocab_size=20)
    with pytest.raises(UserError, match="target_vocab_size must be at least"):
        learn(pairs, target_vocab_size=10)


# The parser


@pytest.fixture(scope="module")
def parser(treebank):
    pairs = TreebankPairs([treebank], ParsingOptions())
    tokenizer = learn(pairs, target_vocab_size=40)
    model = small_model(
        seed=3,
        vocab_size=tokenizer.vocab_size,
        target_vocab_size=40,
        share_embeddings=False,
        num_encoder_layers=1,
        num_decoder_layers=1,
    )
    return Parser(Translator(model, tokenizer, beam_size=2, extra_length=10, max_source_length=50))


@pytest.mark.slow
def test_each_sentence_becomes_a_tree_over_its_words(parser):
    strange = "( a ) 1/2 \ud800 \u00a0b"
    sentences = ["The dogs saw 12 cats .", "", "one", " \t ", strange, "x " * 30]
    lines = parser(sentences)
    assert len(lines) == len(sentences)
    assert [line == "" for line in lines] == [not sentence.split() for sentence in sentences]
    for line, tree, sentence in zip(lines, parser.parse(sentences), sentences, strict=True):
        assert words(tree) == sentence.split()
        assert "\n" not in line
        if line:
            escaped = sentence.replace("(", "-LRB-").replace(")", "-RRB-").split()
            assert words(parse_tree(line)) == escaped


def test_company_does_not_matter(parser):
    sentences = ["The dogs saw 12 cats .", "They do n't chase anything .", "dogs"]
    assert parser(sentences) == [parser([sentence])[0] for sentence in sentences]


def test_punctuation_is_what_looks_like_it(pairs):
    tokenizer = learn(pairs)
    if tokenizer.two_a_word:
        symbols = "(S ./0 ( XX/0 ( XX/0 ( ''/0 ( POS/0 ( :/0 ( HYPH/1"
    else:
        symbols = "(S . XX XX '' POS : HYPH S)"
    [tree] = trees_of([symbols], [["dogs", "--", ",", "'", "'", "-", "-"]], tokenizer)
    assert format_tree(tree) == "(S (XX dogs) (: --) (, ,) ('' ') (POS ') (: -) (HYPH -))"


@pytest.mark.parametrize("linearization", LINEARIZATIONS)
def test_punctuation_of_a_treebank_with_other_tags_stays_a_word(tmp_path, linearization):
    path = tmp_path / "french.mrg"
    path.write_text("( (SENT (NP-SUJ (CLS Il)) (VN (V dort)) (PONCT ,) (ADV donc) (PONCT .)))")
    pairs = TreebankPairs([path], ParsingOptions(linearization=linearization))
    [(sentence, symbols)] = pairs.pairs()
    parsed = trees_of([symbols], [sentence.split()], learn(pairs))
    assert score_trees(parsed, list(normalized_trees(path))).exact == 1


@pytest.mark.parametrize("linearization", LINEARIZATIONS)
def test_marks_that_the_penn_treebank_lacks_have_the_tag_that_the_model_finds(
    tmp_path, linearization
):
    path = tmp_path / "web.mrg"
    path.write_text("( (S (NP (NNS 5) (NN %)) (`` «) (VP (VB stop) (, ،)) (. !!) ('' \u201d)))")
    pairs = TreebankPairs([path], ParsingOptions(linearization=linearization))
    [(sentence, symbols)] = pairs.pairs()
    parsed = trees_of([symbols], [sentence.split()], learn(pairs))
    assert score_trees(parsed, list(normalized_trees(path))).exact == 1


def test_signs_that_are_read_as_words_are_never_punctuation():
    tokenizer = ParsingTokenizer(["(S", ".", "S)"], [], {}, False, 10)
    [tree] = trees_of(["(S . . S)"], [["%", "C$"]], tokenizer)
    assert format_tree(tree) == "(S (XX %) (XX C$))"


def test_the_search_is_the_papers():
    # Without words, as from a treebank in which every word occurs once.
    tokenizer = ParsingTokenizer([], [], {}, False, 10)
    assert search_defaults(tokenizer) == {
        "beam_size": 21,
        "alpha": 0.3,
        "length_penalty": "gnmt",
        "patience": None,
        "extra_length": 300,
    }
    two_a_word = ParsingTokenizer([], [], {}, True, 10)
    assert search_defaults(two_a_word)["extra_length"] == 0


@pytest.fixture
def subwords():
    text = ["Ein Hund.", "A dog."] * 20
    return SubwordTokenizer.train_from_sentences(text, vocab_size=280)


def test_a_translator_of_text_is_no_parser(subwords):
    model = small_model(vocab_size=subwords.vocab_size)
    with pytest.raises(UserError, match="Parser needs the model of a parser"):
        Parser(Translator(model, subwords))


def test_a_model_of_other_targets_is_refused(pairs):
    tokenizer = learn(pairs, target_vocab_size=40)
    model = small_model(vocab_size=100, share_embeddings=False)
    with pytest.raises(UserError, match="target_vocab_size=40"):
        Translator(model, tokenizer)
