"""Byte-pair encoding with dropout: subwords split at random, exactly repeatable."""

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from keras_transformer.errors import UserError
from keras_transformer.text.ragged import Ragged, ranges

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_NONE = np.iinfo(np.int64).max
_NORMAL = ModelProto.SentencePiece.NORMAL


class BytePairMerges:
    """The merges of a SentencePiece model of type BPE.

    SentencePiece samples too, but the same seed gives other results in other processes.

    Args:
        model: the model.

    Raises:
        UserError: the model is not a byte-pair encoding, or has pieces of several words.
    """

    def __init__(self, model: ModelProto):
        if model.trainer_spec.model_type != model.trainer_spec.BPE:
            raise UserError('bpe_dropout needs a vocabulary of model_type "bpe"')
        pieces = [piece.piece for piece in model.pieces]
        normal = {
            piece.piece: id_ for id_, piece in enumerate(model.pieces) if piece.type == _NORMAL
        }
        if any(_SPACE in piece[1:] for piece in normal):
            raise UserError("bpe_dropout needs a vocabulary without pieces of several words")
        self._begins_word = np.array([piece.startswith(_SPACE) for piece in pieces])

        # Each id's smallest symbols: its characters, or itself if it is a byte or special symbol.
        spelled = [
            [normal.get(character, id_) for character in piece] if piece in normal else [id_]
            for id_, piece in enumerate(pieces)
        ]
        self._spelling = Ragged(
            np.array([id_ for ids in spelled for id_ in ids]), np.array([*map(len, spelled)])
        )

        # The best score merges first; scores fall with the number of the merge.
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

        Each word starts as characters. In each round, every possible merge of the word is left out
        with probability `dropout`, and the best of the others is made. The word is done when no
        merge is left (Provilkov et al., 2020, algorithm 1). A round treats all words at once.
        Without dropout, the result is that of SentencePiece.

        Example: the merges are e+r (rank 0), h+e (rank 1), h+er and he+r (rank 2). The words are
        "her" and "he", and no merge is left out. `-` stands for a rank of `_NONE`:

            round  ids        word       ranks      merges
            1      h e r h e  0 0 0 1 1  1 0 - 1 -  e+r in word 0, h+e in word 1
            2      h er he    0 0 1      2 - -      h+er in word 0; word 1 is done
            3      her        0          -          word 0 is done

        If h+e were left out of word 1 in round 1, that word would be done with two symbols.

        Args:
            sentences: ids of this vocabulary.
            dropout: probability of leaving a merge out, in [0, 1].
            random: random generator.

        Returns:
            Ids of the same text, sentence by sentence.
        """
        ids, sentence = self._spelled(sentences)  # (symbols,)
        is_first = self._begins_word[ids] | (np.diff(sentence, prepend=-1) > 0)
        word = np.cumsum(is_first) - 1  # (symbols,), index of each symbol's word
        sentence_of_word = sentence[is_first]  # (words,)
        ranks = self._ranks_of(ids, word, np.arange(len(ids)))
        done_ids, done_words = [], []
        while len(ids):
            starts = np.flatnonzero(np.diff(word, prepend=-1))  # (words left,)
            sizes = np.diff(starts, append=len(ids))
            tried = np.where(random.random_sample(len(ids)) < dropout, _NONE, ranks)
            best = np.repeat(np.minimum.reduceat(tried, starts), sizes)  # (symbols,)
            stays = best != _NONE  # False for the symbols of words that are done
            done_ids.append(ids[~stays])
            done_words.append(word[~stays])

            merged = np.flatnonzero(stays & (tried == best))
            merged = merged[np.diff(word[merged], prepend=-1) > 0]  # the first of a word's equals
            ids[merged] = self._merged[best[merged]]
            stays[merged + 1] = False
            merged = (np.cumsum(stays) - 1)[merged]  # their indices among the symbols that stay
            ids, word, ranks = ids[stays], word[stays], ranks[stays]
            ranks[merged] = self._ranks_of(ids, word, merged)
            before = merged[merged > 0] - 1
            ranks[before] = self._ranks_of(ids, word, before)

        word = np.concatenate([*done_words, word])
        order = np.argsort(word, kind="stable")
        lengths = np.bincount(sentence_of_word[word], minlength=len(sentences.lengths))
        return Ragged(np.concatenate([*done_ids, ids])[order], lengths)

    def _spelled(self, sentences):
        """Returns the smallest symbols of sentences, and the index of each one's sentence."""
        lengths = self._spelling.lengths[sentences.ids]
        ids = self._spelling.ids[ranges(self._spelling.starts[sentences.ids], lengths)]
        sentence = np.repeat(np.arange(len(sentences.lengths)), sentences.lengths)
        return ids, np.repeat(sentence, lengths)

    def _ranks_of(self, ids, word, indices):
        """Looks up the rank of merging the symbol at each index with the next one, or `_NONE`."""
        following = np.minimum(indices + 1, len(ids) - 1)
        pairs = ids[indices] * self._num_pieces + ids[following]
        found = np.searchsorted(self._pairs, pairs)
        is_merge = (self._pairs[found] == pairs) & (word[indices] == word[following])
        return np.where(is_merge & (following > indices), self._ranks[found], _NONE)
