"""The vocabulary of a parser: words, classes of rare words, and symbols of trees."""

import functools
import json
from collections import Counter
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.json_files import parse_json
from keras_transformer.parsing.linearization import PUNCTUATION_TAGS
from keras_transformer.parsing.word_symbols import as_brackets
from keras_transformer.text import END_ID, PAD_ID, START_ID, UNKNOWN_ID, Tokenizer, in_graph
from keras_transformer.text.plain_text import plain_text
from keras_transformer.text.ragged import Ragged

_SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
_LEAST_COUNT = 2  # a word seen once is more useful as an example of its class
_LEAST_WORDS = 5  # minimum number of words with an ending that makes a class
_LONGEST_ENDING = 3


class ParsingTokenizer(Tokenizer):
    r"""A vocabulary of words for the source, and of tree symbols for the target.

    A sentence is words separated by white space, as the Penn Treebank splits them. Every digit
    becomes 0, `\/` becomes `/`, and brackets become `-LRB-` and `-RRB-`. A word that is unknown as
    written is looked up in lower case. Any other word is replaced by its class: its shape
    (capitals, digits, a hyphen) and its ending of up to three letters.

    With `two_a_word`, meant for trees with two symbols for each word (`word_symbols`), each source
    word is two symbols too: the word, or else the unknown symbol, and its class.

    Ids: 0 padding, 1 start, 2 end of sentence, 3 unknown; then tree symbols, up to
    `target_vocab_size`; then classes and words, up to `vocab_size`. Remaining ids are unused.

    Args:
        symbols: the tree symbols.
        classes: the word classes.
        words: the words, with their counts in the training set.
        two_a_word: whether a word is two symbols.
        vocab_size: number of ids.
        target_vocab_size: number of ids reserved for special and tree symbols; None for no more
            than there are.

    Example:
        >>> pairs = [("Dogs bark", "(S (NP XX NP) (VP XX VP) S)")]
        >>> tokenizer = ParsingTokenizer.learn(pairs, vocab_size=100)
        >>> tokenizer.detokenize(tokenizer.tokenize_target(tf.constant(["(NP XX NP)"])))
        <tf.Tensor: shape=(1,), dtype=string, numpy=array([b'(NP XX NP)'], dtype=object)>
    """

    task = "parsing"
    are_words = True
    pad_id, start_id, end_id, unknown_id = PAD_ID, START_ID, END_ID, UNKNOWN_ID
    file_name = "vocabulary.json"
    sentencepiece_models: dict[str, bytes] = {}  # noqa: RUF012 (there are none)

    def __init__(
        self,
        symbols: list[str],
        classes: list[str],
        words: dict[str, int],
        two_a_word: bool,
        vocab_size: int,
        target_vocab_size: int | None = None,
    ):
        super().__init__()
        self.two_a_word = two_a_word
        self.vocab_size, self.target_vocab_size = vocab_size, target_vocab_size
        self._symbols, self._classes, self._words = list(symbols), list(classes), dict(words)
        self._first_class = target_vocab_size or len(_SPECIAL) + len(symbols)
        self._first_word = self._first_class + len(classes)
        self._symbol_ids = _table(symbols, len(_SPECIAL))
        self._class_ids = _table(classes, self._first_class)
        self._word_ids = _table(list(words), self._first_word)

    @property
    def linearization(self) -> str:
        """The linearization of trees, as in `ParsingOptions`."""
        return "words" if self.two_a_word else "brackets"

    @functools.cached_property
    def has_punctuation(self) -> bool:
        """Whether the trees tag punctuation like the Penn Treebank, so that scoring deletes it."""
        return not PUNCTUATION_TAGS.isdisjoint(map(as_brackets, self._symbols))

    @functools.cached_property
    def pieces(self) -> list[str]:  # type: ignore[override]
        symbols = _filled_up([*_SPECIAL, *self._symbols], self._first_class)
        return _filled_up([*symbols, *self._classes, *self._words], self.vocab_size)

    @classmethod
    def learn(
        cls,
        pairs: Iterable[tuple[str, str]],
        vocab_size: int,
        two_a_word: bool = False,
        target_vocab_size: int | None = None,
    ) -> "ParsingTokenizer":
        """Learns a vocabulary from sentences and their trees.

        It holds all tree symbols, all classes with enough words, and as many words as fit: the most
        frequent ones, if seen at least twice.

        Args:
            pairs: sentences and trees, as words or symbols separated by spaces.
            vocab_size: number of ids.
            two_a_word: whether a word is two symbols.
            target_vocab_size: number of ids for special and tree symbols; None for no more than
                there are.

        Raises:
            UserError: there is no room for the symbols or for any word.
        """
        symbols: Counter[str] = Counter()
        written: Counter[str] = Counter()
        for sentence, tree in pairs:
            written.update(sentence.split())
            symbols.update(tree.split())
        words: Counter[str] = Counter()
        plain = _plain(tf.constant(list(written), tf.string))
        for word, count in zip(plain.numpy().tolist(), written.values(), strict=True):
            words[word.decode("utf-8")] += count
        different = tf.constant(list(words), tf.string)
        classes = [f"<{shape}{hyphen}_>" for shape in _SHAPES for hyphen in ("", "-")]
        for length in range(1, _LONGEST_ENDING + 1):
            found = Counter(_classes(different, length).numpy().tolist())
            enough = (name.decode("utf-8") for name, n in found.items() if n >= _LEAST_WORDS)
            classes += sorted({*enough} - {*classes})
        num_symbols = len(_SPECIAL) + len(symbols)
        if target_vocab_size is not None and target_vocab_size < num_symbols:
            raise UserError(
                f"target_vocab_size must be at least {num_symbols}, the number of special and tree "
                f"symbols: found {target_vocab_size}"
            )
        room = vocab_size - (target_vocab_size or num_symbols) - len(classes)
        if room < 1:
            raise UserError(
                f"vocab_size must be at least {vocab_size - room + 1}, for tree symbols, "
                f"{len(classes)} classes of words, and words: found {vocab_size}"
            )
        known = [(word, n) for word, n in words.most_common(room) if n >= _LEAST_COUNT]
        by_count = [symbol for symbol, _ in symbols.most_common()]
        return cls(by_count, classes, dict(known), two_a_word, vocab_size, target_vocab_size)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        words = tf.strings.split(in_graph.with_single_spaces(text))
        plain = _plain(words.values)
        ids = self._word_ids.lookup(plain)
        is_known = ids != UNKNOWN_ID
        ids = tf.where(is_known, ids, self._word_ids.lookup(in_graph.lower(plain)))
        class_ids = self._classes_of(plain)
        if self.two_a_word:
            both = tf.reshape(tf.stack([ids, class_ids], axis=1), [-1])
            return tf.RaggedTensor.from_row_splits(both, 2 * words.row_splits)
        return words.with_values(tf.where(ids == UNKNOWN_ID, class_ids, ids))

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        return tf.ragged.map_flat_values(self._symbol_ids.lookup, tf.strings.split(text))

    def resplit(self, sentences: Ragged, dropout: float, random: np.random.RandomState) -> Ragged:
        """Replaces some words by unknown ones at random, so that the model learns to handle them.

        A word seen n times is replaced with probability `dropout / (dropout + n)`.
        """
        if not self._words:
            return sentences
        counts = np.fromiter(self._words.values(), float)
        word = sentences.ids - self._first_word
        is_word = (word >= 0) & (word < len(counts))
        share = dropout / (dropout + counts[np.where(is_word, word, 0)])
        is_dropped = is_word & (random.random_sample(len(word)) < share)
        unknown = UNKNOWN_ID if self.two_a_word else self._class_of_word[np.where(is_word, word, 0)]
        return sentences._replace(ids=np.where(is_dropped, unknown, sentences.ids))

    @functools.cached_property
    def _class_of_word(self):
        return self._classes_of(tf.constant(list(self._words))).numpy()

    def _classes_of(self, plain):
        class_ids = self._class_ids.lookup(_classes(plain, 0))
        for length in range(1, _LONGEST_ENDING + 1):
            longer = self._class_ids.lookup(_classes(plain, length))
            class_ids = tf.where(longer == UNKNOWN_ID, class_ids, longer)
        return class_ids

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """The tree symbols among the ids, separated by spaces."""
        names = tf.constant([*_SPECIAL, *self._symbols])
        is_symbol = (ids >= len(_SPECIAL)) & (ids < len(_SPECIAL) + len(self._symbols))
        names = tf.ragged.map_flat_values(
            lambda values: tf.gather(names, values), tf.ragged.boolean_mask(ids, is_symbol)
        )
        return tf.strings.reduce_join(names, axis=1, separator=" ")

    def normalize(self, text: str) -> str:
        return " ".join(plain_text(text).split())

    def to_bytes(self) -> bytes:
        content = {
            "vocab_size": self.vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "two_a_word": self.two_a_word,
            "symbols": self._symbols,
            "classes": self._classes,
            "words": self._words,
        }
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode("utf-8")

    @classmethod
    def from_bytes(cls, content: bytes) -> "ParsingTokenizer":
        try:
            fields = parse_json(content.decode("utf-8"), "vocabulary")
            _check_kinds(fields)
            return cls(**fields)
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise UserError("not the vocabulary of a parser") from error


_SHAPES = ("0", "Aa", "AA", "aa", "--")  # a digit; capital first, all capitals, neither; no letter


def _check_kinds(fields):
    """Raises `ValueError` for values of other kinds than `to_bytes` writes."""
    kinds = {"vocab_size": int, "target_vocab_size": int | None, "two_a_word": bool}
    kinds |= {"symbols": list, "classes": list, "words": dict}
    if not isinstance(fields, dict) or fields.keys() != kinds.keys():
        raise ValueError
    if not all(isinstance(value, kinds[name]) for name, value in fields.items()):
        raise ValueError
    names = [*fields["symbols"], *fields["classes"]]
    counts = fields["words"].values()
    if any(type(name) is not str for name in names) or any(type(n) is not int for n in counts):
        raise ValueError


def _filled_up(names: list[str], size: int) -> list[str]:
    return names + [f"<nothing-{i}>" for i in range(len(names), size)]


def _table(names: list[str], first_id: int) -> tf.lookup.StaticHashTable:
    # A table must not be empty, and the empty word is never looked up.
    ids = [UNKNOWN_ID, *range(first_id, first_id + len(names))]
    entries = tf.lookup.KeyValueTensorInitializer(tf.constant(["", *names]), tf.constant(ids))
    return tf.lookup.StaticHashTable(entries, default_value=UNKNOWN_ID)


def _plain(words: tf.Tensor) -> tf.Tensor:
    """Words in the vocabulary's form: no escapes, every digit 0."""
    for pattern, plain in ((r"\\([/*])", r"\1"), (r"\(", "-LRB-"), (r"\)", "-RRB-"), (r"\d", "0")):
        words = tf.strings.regex_replace(words, pattern, plain)
    return words


def _classes(plain: tf.Tensor, length: int) -> tf.Tensor:
    """The class of each word, from its shape and its last `length` letters."""

    def is_like(pattern):
        return tf.strings.regex_full_match(plain, pattern)

    shape = tf.where(is_like(r".*\p{Ll}.*"), "aa", "--")
    shape = tf.where(is_like(r".*\p{Lu}.*"), "AA", shape)
    shape = tf.where(is_like(r"\p{Lu}.*\p{Ll}.*"), "Aa", shape)
    shape = tf.where(is_like(r".*\d.*"), "0", shape)
    hyphen = tf.where(is_like(r".+-.+"), "-", "")
    first = tf.maximum(tf.strings.length(plain, unit="UTF8_CHAR") - length, 0)
    endings = tf.strings.substr(plain, first, tf.fill(tf.shape(first), length), unit="UTF8_CHAR")
    return tf.strings.join(["<", shape, hyphen, "_", in_graph.lower(endings), ">"])
