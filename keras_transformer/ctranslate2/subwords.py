"""The vocabulary of a model exported to CTranslate2: text to subwords and back, no TensorFlow."""

import copy
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from sentencepiece import SentencePieceProcessor

from keras_transformer.text.language_code import LANGUAGE_SYMBOL
from keras_transformer.text.languages import Direction, Languages, not_multilingual
from keras_transformer.text.sentences import utf_8
from keras_transformer.text.vocabulary import LANGUAGES, PAD, PAD_ID

_LANGUAGE = re.compile(LANGUAGE_SYMBOL.encode())


class Subwords:
    """Splits and joins text like the tokenizer of the exported model.

    Args:
        folder: the folder that `export_ctranslate2` wrote.

    Attributes:
        end: the end symbol.
        languages: the languages of a multilingual model; None for any other.
        first: the symbol that each translation begins with, such as a language; None for none.
        num_source_symbols: the number of symbols that `split_source` adds before a sentence.

    Example:
        >>> kt.ctranslate2.export_ctranslate2(model, tokenizer, "export")
        >>> subwords = Subwords("export")
        >>> subwords.join(subwords.split_target([b"Zwei Hunde."]))
        ['Zwei Hunde.']
    """

    def __init__(self, folder: str | os.PathLike):
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text("utf-8"))
        self.end, self._unknown = config["eos_token"], config["unk_token"]
        # An imported Marian model has a vocabulary file for each side. It may translate to several
        # languages; a source sentence then begins with the symbol of one.
        self._is_marian = (folder / "source.spm").exists()
        languages = folder / LANGUAGES
        self.languages: Languages | None = None
        if languages.exists():
            self.languages = Languages.from_json(json.loads(languages.read_text("utf-8")))
        self._direction: Direction | None = None
        names = ["source.spm", "target.spm"] if self._is_marian else ["sentencepiece.model"]
        if (folder / "sentencepiece.target.model").exists():  # targets are split differently
            names.append("sentencepiece.target.model")
        processors: list[Any] = [
            SentencePieceProcessor(model_file=str(folder / name))
            for name in names
            if (folder / name).exists()
        ]
        if not processors:  # an imported OpenNMT-tf model whose text another program splits
            processors = [_Spaces({config["bos_token"], self.end})]
        self._source, self._target = processors[0], processors[-1]
        pieces = _pieces(folder, "source")
        pad = PAD if self._is_marian else pieces[PAD_ID]
        self._special = {pad, config["bos_token"], self.end}
        self._known_source = {*pieces} - self._special
        self._known_target = {*_pieces(folder, "target")} - self._special

    def with_languages(self, target_lang: str | None, source_lang: str | None = None) -> Self:
        """Returns the same subwords for one pair of languages of a multilingual model.

        Arguments and errors are those of `Translator.with_languages`.
        """
        if self.languages is None:
            raise not_multilingual(target_lang, source_lang)
        other = copy.copy(self)
        other._direction = self.languages.direction(target_lang, source_lang)
        return other

    def expect_direction(self) -> None:
        """Raises `UserError` if the model is multilingual, and no direction is chosen."""
        if self.languages is not None and self._direction is None:
            self.languages.direction(None)

    @property
    def first(self) -> str | None:
        return self._direction and self._direction.target

    @property
    def num_source_symbols(self) -> int:
        return 1 if self._direction else 0

    def split_source(self, sentences: Sequence[bytes]) -> list[list[str]]:
        """The subwords of source sentences in UTF-8, without an end symbol."""
        split = self._split_source(sentences)
        if self._direction is None:
            return split
        return [[self._direction.source, *pieces] if pieces else [] for pieces in split]

    def _split_source(self, sentences):
        sentences = list(map(utf_8, sentences))
        languages = [self._language(sentence) for sentence in sentences]
        rest = [s[len(language) :] for s, language in zip(sentences, languages, strict=True)]
        return [
            [language.decode(), *pieces] if language else pieces
            for language, pieces in zip(languages, self._split(self._source, rest), strict=True)
        ]

    def split_target(self, sentences: Sequence[bytes]) -> list[list[str]]:
        """The subwords of target sentences in UTF-8, without an end symbol."""
        return self._split(self._target, sentences)

    def _split(self, processor, sentences):
        is_lowercase = processor.normalize("A").endswith("a")
        texts = [utf_8(sentence, is_lowercase) for sentence in sentences]
        # Text that spells a special symbol is unknown.
        return [
            [self._unknown if piece in self._special else piece for piece in pieces]
            for pieces in processor.encode(texts, out_type=str, num_threads=1)
        ]

    def known(self, pieces: Sequence[str], is_target: bool = False) -> list[str]:
        """The subwords as the model reads them: those that its side lacks are unknown."""
        known = self._known_target if is_target else self._known_source
        return [piece if piece in known else self._unknown for piece in pieces]

    def join(self, translations: Iterable[Sequence[str]]) -> list[str]:
        """Joins target subwords to texts without special symbols; white space may surround them."""
        if self._is_marian:  # its tokenizer drops unknown pieces
            translations = ([piece for piece in t if piece != self._unknown] for t in translations)
        if self.first is not None:  # and that of M2M100 drops what no text has
            unknown = self._target.unk_id()
            translations = (
                [piece for piece in t if self._target.piece_to_id(piece) != unknown]
                for t in translations
            )
        return self._target.decode(list(translations))

    def _language(self, sentence):
        """The language symbol at the beginning of the sentence, or an empty one."""
        found = _LANGUAGE.match(sentence) if self._is_marian else None
        symbol = found[0].decode("utf-8", "surrogateescape") if found else None
        return found[0] if symbol in self._known_source else b""


class _Spaces:
    """Splits text at spaces; its methods are those of `SentencePieceProcessor`."""

    def __init__(self, special):
        self._special = special

    def encode(self, texts, out_type=str, num_threads=1):
        decoded = (text.decode("utf-8", "replace") for text in texts)
        return [[token for token in text.split(" ") if token] for text in decoded]

    def decode(self, translations):
        return [" ".join(p for p in pieces if p not in self._special) for pieces in translations]

    def normalize(self, text):
        return text


def _pieces(folder, side):
    """The subwords of a side by id: all of them, or in targets fewer, the first ones."""
    shared = folder / "shared_vocabulary.json"
    path = shared if shared.exists() else folder / f"{side}_vocabulary.json"
    return json.loads(path.read_text("utf-8"))
