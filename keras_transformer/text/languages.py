"""The languages of a multilingual model: their codes, their symbols, and where it reads these."""

import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from keras_transformer.errors import UserError
from keras_transformer.text.language_code import check_language_code, short_code

_CONTROL = ModelProto.SentencePiece.CONTROL
_MOST_SHOWN = 12


class Direction(NamedTuple):
    """The symbols by which a multilingual model translates from one language into another.

    Attributes:
        source: the symbol that begins each source sentence.
        target: the symbol that begins each translation, known before the search; None for none.
    """

    source: str
    target: str | None = None


@dataclasses.dataclass(frozen=True)
class Languages:
    """The languages of a multilingual vocabulary.

    Attributes:
        symbols: the symbol of each language by its code, such as `{"fr": "<2fr>"}`.
        in_target: False if a source begins with the symbol of the target language (Johnson et al.,
            2017), as in models trained here. True if each side begins with the symbol of its own
            language, as in M2M100 and NLLB.

    Example:
        >>> languages = Languages({"de": "<2de>", "fr": "<2fr>"}, in_target=False)
        >>> languages.direction("fr")
        Direction(source='<2fr>', target=None)
    """

    symbols: Mapping[str, str]
    in_target: bool

    def direction(self, target_lang: str | None, source_lang: str | None = None) -> Direction:
        """The symbols for a pair of languages.

        Args:
            target_lang: code of the target language.
            source_lang: code of the source language; None if the model does not read it.

        Raises:
            UserError: a code is missing, or is not one of this model, or `source_lang` is given to
                a model that does not read it.
        """
        target = self._symbol("target_lang", target_lang)
        if self.in_target:
            return Direction(self._symbol("source_lang", source_lang), target)
        if source_lang is not None:
            raise UserError(
                f"source_lang={source_lang} has no effect on this model, which reads only the "
                "target language: leave it out"
            )
        return Direction(target)

    def _symbol(self, name, code):
        if code is None:
            raise UserError(
                f"this model is for several languages: give {name}, one of {self._list()}"
            )
        if code not in self.symbols:
            near = nearest_codes(code, list(self.symbols))
            advice = f"did you mean {' or '.join(near)}?" if near else f"use one of {self._list()}"
            raise UserError(f"{name}={code} is not a language of this model: {advice}")
        return self.symbols[code]

    def _list(self):
        codes = list(self.symbols)
        return ", ".join([*codes[:_MOST_SHOWN], *["..."] * (len(codes) > _MOST_SHOWN)])

    def to_json(self) -> str:
        """Writes JSON text, which `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, value: Any) -> "Languages":
        """Makes the languages of parsed JSON; raises `UserError` if it is not from `to_json`."""
        if not isinstance(value, dict) or value.keys() != {"symbols", "in_target"}:
            raise UserError("the languages must be an object of symbols and in_target")
        symbols = value["symbols"]
        if not isinstance(symbols, dict) or not all(
            isinstance(symbol, str) for symbol in symbols.values()
        ):
            raise UserError("symbols must map codes of languages to strings")
        return cls(symbols, bool(value["in_target"]))


def not_multilingual(target_lang: str | None, source_lang: str | None) -> UserError:
    """The error that says that a model takes no languages."""
    name, code = "target_lang", target_lang
    if target_lang is None:
        name, code = "source_lang", source_lang
    return UserError(f"this model translates between two languages: leave out {name}={code}")


def nearest_codes(code: str, codes: Sequence[str]) -> list[str]:
    """The codes that a mistyped one may mean: of the same language, else of a similar spelling.

    Example:
        >>> nearest_codes("fr", ["deu_Latn", "fra_Latn"]), nearest_codes("frr_Latn", ["fra_Latn"])
        (['fra_Latn'], ['fra_Latn'])
    """
    same = [each for each in codes if short_code(each) == short_code(code)]
    return same[:3] or difflib.get_close_matches(code, codes, n=1)


def language_symbol(code: str) -> str:
    """The symbol of a target language in a vocabulary that is learned here.

    Raises:
        UserError: it is not a code.

    Example:
        >>> language_symbol("fr")
        '<2fr>'
    """
    check_language_code(code, "target_langs")
    return f"<2{code}>"


def with_languages(model: bytes, codes: Sequence[str]) -> bytes:
    """Adds the symbols of target languages to a SentencePiece model, as its last pieces.

    They are control symbols, which no text is split into, whatever is in it. Those that the model
    has already stay as they are.

    Args:
        model: a serialised SentencePiece model.
        codes: codes of languages.
    """
    proto = ModelProto.FromString(model)
    known = {each.piece for each in proto.pieces if each.type == _CONTROL}
    for symbol in dict.fromkeys(map(language_symbol, codes)):
        if symbol not in known:
            proto.pieces.add(piece=symbol, score=0.0, type=_CONTROL)
    return proto.SerializeToString()


def languages_in(model: bytes) -> Languages | None:
    """The languages whose symbols are in a SentencePiece model; None if there are none.

    Example:
        >>> languages_in(SubwordTokenizer.load("runs/demo/vocabulary.model").model) is None
        True
    """
    pieces = ModelProto.FromString(model).pieces
    symbols = [each.piece for each in pieces if each.type == _CONTROL]
    found = {one[2:-1]: one for one in symbols if one.startswith("<2") and one.endswith(">")}
    return Languages(found, in_target=False) if found else None
