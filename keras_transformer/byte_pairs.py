"""Byte-pair encoding with dropout: subwords split anew at random, exactly repeatable."""

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.errors import UserError
from keras_transformer.ragged import Ragged, ranges

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_NONE = np.iinfo(np.int64).max
_NORMAL = ModelProto.SentencePiece.NORMAL


class BytePairMerges:
    """The merges of a SentencePiece model of type BPE.

    SentencePiece samples too, but its seed does not fix what it gives: that differs from process
    to process.

    Args:
        model: the model.

    Raises:
        UserError: the model is no byte-pair encoding, or has pieces of several words.
    """

    def __init__(self, model: ModelProto):
        if model.trainer_spec.model_type != model.trainer_spec.BPE:
            raise UserError('expected a vocabulary of model_type "bpe" for bpe_dropout')
        pieces = [piece.piece for piece in model.pieces]
        normal = {
            piece.piece: id_ for id_, piece in enumerate(model.pieces) if piece.type == _NORMAL
        }
        if any(_SPACE in piece[1:] for piece in normal):
            raise UserError("expected a vocabulary without pieces of several words for bpe_dropout")
        self._begins_word = np.array([piece.startswith(_SPACE) for piece in pieces])

        # What an id is made of: characters, unless it is a byte or another symbol of its own.
        spelled = [
            [normal.get(character, id_) for character in piece] if piece in normal else [id_]
            for id_, piece in enumerate(pieces)
        ]
        self._spelling = Ragged(
            np.array([id_ for ids in spelled for id_ in ids]), np.array([*map(len, spelled)])
        )

        # The best score goes first; scores fall with the number of the merge.
        by_score = sorted(normal.values(), key=lambda id_: -model.pieces[id_].score)
        rank = {id_: number for number, id_ in enumerate(by_score)}
        merges = sorted(
            (normal[piece[:cut]] * len(pieces) + normal[piece[cut:]], rank[id_])
            for piece, id_ in normal.items()
            for cut in range(1, len(piece))
            if piece[:cut] in normal and piece[cut:] in normal
        )
        self._num_pieces = len(pieces)
        self._pairs = np.array([pair for pair, _ in merges] + [_NONE])
        self._ranks = np.array([rank for _, rank in merges] + [_NONE])
        self._merged = np.array(by_score)

    def resplit(self, sentences: Ragged, dropout: float, random: np.random.RandomState) -> Ragged:
        """Splits the text of tokenised sentences anew.

        In each word, again and again, each possible merge is left out with probability `dropout`,
        and the best of the others is made, until there is none (Provilkov et al., 2020,
        algorithm 1). All words are treated side by side. Without dropout it is what SentencePiece
        does.
        """
        ids, sentence = self._spelled(sentences)
        is_first = self._begins_word[ids] | (np.diff(sentence, prepend=-1) > 0)
        word = np.cumsum(is_first) - 1
        sentence_of_word = sentence[is_first]
        ranks = self._ranks_of(ids, word, np.arange(len(ids)))
        done_ids, done_words = [], []
        while len(ids):
            starts = np.flatnonzero(np.diff(word, prepend=-1))
            sizes = np.diff(starts, append=len(ids))
            tried = np.where(random.random_sample(len(ids)) < dropout, _NONE, ranks)
            best = np.repeat(np.minimum.reduceat(tried, starts), sizes)
            stays = best != _NONE
            done_ids.append(ids[~stays])
            done_words.append(word[~stays])

            merged = np.flatnonzero(stays & (tried == best))
            merged = merged[np.diff(word[merged], prepend=-1) > 0]  # the first of a word's equals
            ids[merged] = self._merged[best[merged]]
            stays[merged + 1] = False
            merged = (np.cumsum(stays) - 1)[merged]
            ids, word, ranks = ids[stays], word[stays], ranks[stays]
            ranks[merged] = self._ranks_of(ids, word, merged)
            before = merged[merged > 0] - 1
            ranks[before] = self._ranks_of(ids, word, before)

        word = np.concatenate([*done_words, word])
        order = np.argsort(word, kind="stable")
        lengths = np.bincount(sentence_of_word[word], minlength=len(sentences.lengths))
        return Ragged(np.concatenate([*done_ids, ids])[order], lengths)

    def _spelled(self, sentences):
        """The smallest symbols of sentences, and the number of the sentence of each."""
        lengths = self._spelling.lengths[sentences.ids]
        ids = self._spelling.ids[ranges(self._spelling.starts[sentences.ids], lengths)]
        sentence = np.repeat(np.arange(len(sentences.lengths)), sentences.lengths)
        return ids, np.repeat(sentence, lengths)

    def _ranks_of(self, ids, word, places):
        """The rank of the merge of each of these symbols with the next one, if there is any."""
        following = np.minimum(places + 1, len(ids) - 1)
        pairs = ids[places] * self._num_pieces + ids[following]
        found = np.searchsorted(self._pairs, pairs)
        is_merge = (self._pairs[found] == pairs) & (word[places] == word[following])
        return np.where(is_merge & (following > places), self._ranks[found], _NONE)
