"""The attention between the words of a sentence pair: weights with their labels, ready to draw."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.analysis.attention import attention_maps
from keras_transformer.errors import UserError
from keras_transformer.model import Transformer
from keras_transformer.tokenizers import Tokenizer

MAX_LENGTH = 400  # tokens of a side: nobody could read a picture of more
JOINED = "·"  # begins a subword that goes on with the word before it
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class WordAttention(NamedTuple):
    """What the words of one sentence attend to.

    Attributes:
        title: "encoder self-attention", for example.
        queries: the words that look, as `readable` writes them.
        keys: the words that are looked at.
        weights: float32 (layers, num_heads, queries, keys); each row sums to one.
    """

    title: str
    queries: list[str]
    keys: list[str]
    weights: np.ndarray

    def find(self, word: str) -> list[int]:
        """The positions among the queries of a word's first occurrence: of all its subwords.

        Raises:
            UserError: it is not there.
        """
        plain = [label.removeprefix(JOINED) for label in self.queries]
        for start in range(len(plain)):
            for end in range(start + 1, len(plain) + 1):
                if "".join(plain[start:end]) == word:
                    return list(range(start, end))
        raise UserError(
            f"{self.title}: expected a word among {' '.join(self.queries)}, found {word!r}"
        )


def pair_attention(
    model: Transformer, tokenizer: Tokenizer, source: str, target: str
) -> dict[str, WordAttention]:
    """The attention of every layer and head, as the model reads `source` and writes `target`.

    In decoder self-attention a word stands for the position at which it is read, in attention to
    the source for the position at which it is written, which is the one before.

    Args:
        model: a built `Transformer`.
        tokenizer: its vocabulary.
        source: a sentence.
        target: its translation, the model's own or any other.

    Returns:
        By name: "encoder", "decoder" and "memory", the decoder's attention to the source. Where
        another `layer_type` takes the place of self-attention, "memory" alone.

    Raises:
        UserError: a sentence has no token, or more than 400.

    Example:
        >>> maps = pair_attention(model, tokenizer, "Two dogs.", "Zwei Hunde.")
        >>> maps["memory"].queries, maps["memory"].keys
        (['Zwei', 'Hunde', '.', '</s>'], ['Two', 'dogs', '.', '</s>'])
    """
    source_ids = _ids("source", source, tokenizer.tokenize)
    target_ids = _ids("target", target, tokenizer.tokenize_target)
    start, end = [tokenizer.start_id], [tokenizer.end_id]
    maps = attention_maps(model, [source_ids + end], [start + target_ids])

    def labels(ids):
        return readable([tokenizer.pieces[id_] for id_ in ids])

    read, written = labels(start + target_ids), labels(target_ids + end)
    words = labels(source_ids + end)
    of_words = {
        "encoder": ("encoder self-attention", words, words),
        "decoder": ("decoder self-attention", read, read),
        "memory": ("encoder-decoder attention", written, words),
    }
    return {
        name: WordAttention(
            *of_words[name], np.concatenate([np.asarray(layer, "float32") for layer in layers])
        )
        for name, layers in maps._asdict().items()
        if layers
    }


def readable(pieces: Sequence[str]) -> list[str]:
    """Subwords as people read them: `·` where a word goes on, no mark where one begins.

    Example:
        >>> readable(["▁rid", "ing", "▁caf", "<0xC3>", "<0xA9>", ".", "</s>"])
        ['rid', '·ing', 'caf', 'é 1/2', 'é 2/2', '.', '</s>']
    """
    labels = []
    for is_bytes, run in itertools.groupby(pieces, lambda piece: bool(_BYTE.fullmatch(piece))):
        spell = _characters if is_bytes else _words
        labels += spell(list(run))
    return labels


def _words(pieces):
    return [
        (piece[1:] or piece)
        if piece.startswith("▁")
        else (JOINED + piece if piece[:1].isalnum() else piece)
        for piece in pieces
    ]


def _characters(pieces):
    """Byte pieces as the characters that they spell, or as they are if they spell none."""
    spelled = bytes(int(piece[3:5], 16) for piece in pieces)
    labels = []
    for character in spelled.decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        if not character.isprintable():  # so are the bytes that spell none
            labels += pieces[len(labels) : len(labels) + size]
        elif size == 1:
            labels.append(character)
        else:
            labels += [f"{character} {part}/{size}" for part in range(1, size + 1)]
    return labels


def _ids(side, sentence, tokenize):
    ids = tokenize(tf.constant([sentence.encode("utf-8", "replace")])).to_list()[0]
    if not 1 <= len(ids) <= MAX_LENGTH:
        raise UserError(
            f"{side}: expected a sentence of 1 to {MAX_LENGTH} tokens, found {len(ids)}"
        )
    return ids
