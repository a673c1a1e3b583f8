"""Attention between the words of a sentence pair: labelled weights, ready to draw."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.attention_maps import attention_maps
from keras_transformer.errors import UserError
from keras_transformer.model import Transformer
from keras_transformer.text import Tokenizer
from keras_transformer.text.words import MARKS, is_word

MAX_LENGTH = 400  # tokens of a side: a picture of more is unreadable
JOINED = "·"  # marks a subword that continues a word
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class WordAttention(NamedTuple):
    """Attention weights from the words of one sentence to those of another, or its own.

    Attributes:
        title: kind of attention, such as "encoder self-attention".
        queries: words that attend, as written by `readable`.
        keys: words that are attended to.
        weights: float32 (layers, num_heads, queries, keys); each row sums to one.
        pieces: subwords of the queries, as in the vocabulary; `▁` begins each word.
        key_pieces: subwords of the keys.
    """

    title: str
    queries: list[str]
    keys: list[str]
    weights: np.ndarray
    pieces: list[str]
    key_pieces: list[str]

    def find(self, word: str) -> list[int]:
        """Finds the query positions of all subwords of a word's first occurrence.

        Only whole words match: "or" is not found in "horse". Several words with blanks between them
        match too.

        Raises:
            UserError: the word is not there.
        """
        text, owners = _spelled(self.pieces)
        # A letter at either end of the word must not touch another letter; a sign may.
        letter = rf"[\w{MARKS}]"
        pattern = rf"(?<!{letter}(?={letter})){re.escape(word)}(?!(?<={letter}){letter})"
        for match in re.finditer(pattern, text):
            inside = set().union(*owners[match.start() : match.end()])
            outside = set().union(*owners[: match.start()], *owners[match.end() :])
            if inside and not inside & outside:
                return sorted(inside)
        raise UserError(
            f"{self.title}: word must be among {' '.join(self.queries)}: found {word!r}"
        )


def pair_attention(
    model: Transformer, tokenizer: Tokenizer, source: str, target: str
) -> dict[str, WordAttention]:
    """Computes the attention of all layers and heads for a source and its translation.

    In decoder self-attention, a word labels the position that reads it. In cross-attention, it
    labels the position that predicts it, which is the one before.

    Args:
        model: a built `Transformer`.
        tokenizer: its vocabulary.
        source: a sentence.
        target: its translation, the model's own or any other.

    Returns:
        Attention by name: "encoder", "decoder" and "memory" (cross-attention). If another
        `layer_type` replaces self-attention, "memory" alone.

    Raises:
        UserError: a sentence has no token, or more than 400.

    Example:
        >>> maps = pair_attention(model, tokenizer, "Two dogs.", "Zwei Hunde.")
        >>> memory = maps["memory"]
        >>> memory.weights[0].shape == (config.num_heads, len(memory.queries), len(memory.keys))
        True
        >>> memory.queries[-1], memory.keys[-1]
        ('</s>', '</s>')
    """
    source_ids = _ids("source", source, tokenizer.tokenize)
    target_ids = _ids("target", target, tokenizer.tokenize_target)
    tokenizer.expect_direction()
    start, end = [tokenizer.start_id], [tokenizer.end_id]
    if tokenizer.first_id is not None:
        target_ids = [tokenizer.first_id, *target_ids]
    maps = attention_maps(model, [source_ids + end], [start + target_ids])
    before = "▁" if tokenizer.are_words else ""

    def pieces(ids):
        return [before + tokenizer.pieces[id_] for id_ in ids]

    read, written, words = start + target_ids, target_ids + end, source_ids + end
    of_words = {
        "encoder": ("encoder self-attention", words, words),
        "decoder": ("decoder self-attention", read, read),
        "memory": ("encoder-decoder attention", written, words),
    }
    attentions = {}
    for name, layers in maps._asdict().items():
        if layers:
            title, queries, keys = of_words[name]
            weights = np.concatenate([np.asarray(layer, "float32") for layer in layers])
            queries, keys = pieces(queries), pieces(keys)
            attentions[name] = WordAttention(
                title, readable(queries), readable(keys), weights, queries, keys
            )
    return attentions


def readable(pieces: Sequence[str]) -> list[str]:
    """Writes subwords for readers: `·` marks the continuation of a word.

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
        else (JOINED + piece if is_word(piece[:1]) else piece)
        for piece in pieces
    ]


def _characters(pieces):
    """Labels byte pieces by the characters that they spell, or as they are if they spell none."""
    spelled = bytes(int(piece[3:5], 16) for piece in pieces)
    labels = []
    for character in spelled.decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        if not character.isprintable():  # includes bytes that spell no character
            labels += pieces[len(labels) : len(labels) + size]
        elif size == 1:
            labels.append(character)
        else:
            labels += [f"{character} {part}/{size}" for part in range(1, size + 1)]
    return labels


def _spelled(pieces):
    """Returns the text that pieces spell, and the pieces that each of its characters comes from.

    Example: ["▁caf", "<0xC3>", "<0xA9>"] spell " café", from [set(), {0}, {0}, {0}, {1, 2}]: a
    blank belongs to no piece.
    """
    content, piece_of_byte = b"", []
    for index, piece in enumerate(pieces):
        is_byte = _BYTE.fullmatch(piece)
        spelled = bytes([int(piece[3:5], 16)]) if is_byte else piece.replace("▁", " ").encode()
        content += spelled
        piece_of_byte += [index] * len(spelled)
    text, owners, place = content.decode("utf-8", "surrogateescape"), [], 0
    for character in text:
        size = len(character.encode("utf-8", "surrogateescape"))
        owners.append(set() if character == " " else {*piece_of_byte[place : place + size]})
        place += size
    return text, owners


def _ids(side, sentence, tokenize):
    if not isinstance(sentence, str):
        raise UserError(f"{side} must be one sentence: found {type(sentence).__name__}")
    ids = tokenize(tf.constant([sentence.encode("utf-8", "replace")])).to_list()[0]
    if not 1 <= len(ids) <= MAX_LENGTH:
        raise UserError(f"{side} must be a sentence of 1 to {MAX_LENGTH} tokens: found {len(ids)}")
    return ids
