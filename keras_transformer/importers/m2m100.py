"""Imports M2M100 and NLLB models from a folder that Hugging Face's Transformers saved."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.files import read_whole
from keras_transformer.importers.hugging_face import (
    POSITIONS,
    check_files,
    check_size,
    converted,
    names_in_layers,
    names_of_embeddings,
    read_configuration,
    read_weights,
    set_weights,
)
from keras_transformer.json_files import read_json
from keras_transformer.model import Transformer
from keras_transformer.text.languages import Languages
from keras_transformer.text.multilingual import MultilingualTokenizer
from keras_transformer.text.vocabulary import END, PAD, UNKNOWN, load_processor

_CONFIG, _MODEL, _PIECES = "config.json", "sentencepiece.bpe.model", "vocab.json"
# Where a folder of NLLB lists the symbols of languages: with ids, or in the order of their ids.
_WITH_IDS = "tokenizer.json"
_IN_ORDER = ("special_tokens_map.json", "tokenizer_config.json")
_START = "<s>"  # fairseq's start symbol, which these models do not use
_FIRST_PIECES = (_START, PAD, END, UNKNOWN)  # their ids are 0 to 3

# The languages of M2M100 in the order of their ids, and of its version for WMT21.
_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
        "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
        "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl "
        "tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
_LARGEST = 2**20  # of vocabularies, which have 128,112 and 256,206 pieces
_NLLB_LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")

_DEFAULTS = {
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "scale_embedding": True,
    "tie_word_embeddings": True,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
    "eos_token_id": 2,
}


def import_m2m100(folder: str | os.PathLike) -> tuple[Transformer, MultilingualTokenizer]:
    """Reads an M2M100 or NLLB model that Hugging Face's Transformers saved.

    The folder holds `config.json`, the weights in `model.safetensors` or `pytorch_model.bin`, in
    one file or several, and `sentencepiece.bpe.model`. M2M100 has `vocab.json` too. For NLLB,
    `tokenizer.json` or `special_tokens_map.json` lists the languages.

    Args:
        folder: a folder that `git clone` or `save_pretrained` made.

    Returns:
        The model, in float32, and its vocabulary of several languages.

    Raises:
        UserError: a file is missing or damaged, or the model is of another kind, such as a mixture
            of experts; the message gives all reasons that can be found at once.

    Example:
        >>> translator = Translator(*import_m2m100("nllb-200-distilled-600M"))
        >>> [french] = translator.with_languages("fra_Latn", "eng_Latn")(["A man rides a horse."])
    """
    folder = Path(folder)
    check_files(folder, "m2m_100", "an M2M100 or NLLB model", (_CONFIG, _MODEL))
    theirs = read_configuration(folder, _DEFAULTS)
    if "moe" in str(theirs.get("model_type")):
        raise UserError(
            f"{folder}/{_CONFIG}: a mixture of experts cannot be imported: use a dense model, such "
            "as nllb-200-3.3B"
        )
    try:
        tokenizer = _tokenizer(folder, theirs.get("vocab_size"))
        config = converted(
            theirs,
            {"model_type": "m2m_100"},
            tokenizer,
            share_embeddings=True,
            pre_norm=True,
            positions="sinusoidal_fairseq",
        )
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    arrays = read_weights(folder)
    check_size(config, arrays, folder)
    model = Transformer(config, name="transformer")
    try:
        set_weights(model, arrays, lambda path: _names_of(path, config), _not_weights())
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    return model, tokenizer


def _names_of(path, config):
    if path in ("encoder/norm/gamma", "decoder/norm/gamma"):
        return [f"model.{path.partition('/')[0]}.layer_norm.weight"]
    if path in ("encoder/norm/beta", "decoder/norm/beta"):
        return [f"model.{path.partition('/')[0]}.layer_norm.bias"]
    return names_in_layers(path) or names_of_embeddings(path, config)


def _not_weights():
    """Names in files of earlier versions that are no weights: tables of positions, versions."""
    return [
        *POSITIONS,
        *(name + "s" for name in POSITIONS),
        *(f"model.{side}.version" for side in ("encoder", "decoder")),
    ]


def _tokenizer(folder, vocab_size):
    if not isinstance(vocab_size, int):
        raise UserError(f"{_CONFIG}: vocab_size must be an integer: found {vocab_size!r}")
    if vocab_size > _LARGEST:
        raise UserError(f"{_CONFIG}: vocab_size must be at most {_LARGEST:,}: found {vocab_size:,}")
    model = read_whole(folder / _MODEL)
    if (folder / _PIECES).is_file():
        ids, symbols = _of_m2m100(folder)
    else:
        ids, symbols = _of_nllb(folder, load_processor(model))
    known = {id_ for id_ in ids.values() if type(id_) is int}  # the tokenizer refuses others
    more = sorted(set(range(vocab_size)) - known)
    ids |= {f"<unused_{id_}>": id_ for id_ in more}  # rows that fill the matrix up
    return MultilingualTokenizer(model, ids, Languages(symbols, in_target=True))


def _of_m2m100(folder) -> tuple[dict[str, int], dict[str, str]]:
    """The id of each piece and symbol of M2M100, and the symbol of each language."""
    ids = read_json(folder / _PIECES)
    if not isinstance(ids, Mapping):
        raise UserError(f"{_PIECES} must map pieces to ids: found {type(ids).__name__}")
    family = _settings(folder).get("language_codes", "m2m100")
    if str(family) not in _LANGUAGES:
        found = f"found {family!r}"
        raise UserError(f"tokenizer_config.json: language_codes must be m2m100 or wmt21: {found}")
    symbols = {code: f"__{code}__" for code in _LANGUAGES[family].split()}
    first = len(ids)
    return {**ids, **{one: first + n for n, one in enumerate(symbols.values())}}, symbols


def _of_nllb(folder, processor) -> tuple[dict[str, int], dict[str, str]]:
    """The id of each piece and symbol of NLLB, and the symbol of each language.

    fairseq puts padding at 1, so its other pieces follow one later than in the SentencePiece model:

        id             0    1      2     3      4       5
        SentencePiece  unk  <s>    </s>  ▁the   ...
        fairseq        <s>  <pad>  </s>  <unk>  ▁the    ...
    """
    special = processor.unk_id(), processor.bos_id(), processor.eos_id()
    if special != (0, 1, 2):
        raise UserError(
            f"{_MODEL}: the unknown, start and end ids must be (0, 1, 2): found {special}; a model "
            f"of M2M100 needs its {_PIECES}"
        )
    if _settings(folder).get("legacy_behaviour"):
        raise UserError(
            "tokenizer_config.json: legacy_behaviour puts the language after the sentence, unlike "
            "the training of NLLB: set it to false"
        )
    ids = {piece: id_ for id_, piece in enumerate(_FIRST_PIECES)}
    size = processor.vocab_size()
    ids |= {processor.id_to_piece(id_): id_ + 1 for id_ in range(3, size)}
    of_languages = _language_ids(folder, size + 1)
    return {**ids, **of_languages}, {code: code for code in of_languages}


def _language_ids(folder, first) -> dict[str, int]:
    """The id of each language of NLLB; in files without ids, the first language has `first`."""
    if (folder / _WITH_IDS).is_file():
        found = read_json(folder / _WITH_IDS)
        added = found.get("added_tokens") if isinstance(found, dict) else None
        ids: dict[str, Any] = {
            one["content"]: one.get("id")  # the tokenizer refuses None
            for one in (added if isinstance(added, list) else [])
            if isinstance(one, dict) and _NLLB_LANGUAGE.fullmatch(str(one.get("content")))
        }
        if ids:
            return ids
    for name in _IN_ORDER:
        settings = read_json(folder / name) if (folder / name).is_file() else {}
        for field in ("additional_special_tokens", "extra_special_tokens"):
            found = settings.get(field) if isinstance(settings, dict) else None
            found = found if isinstance(found, list) else []
            codes = [code for code in found if _NLLB_LANGUAGE.fullmatch(str(code))]
            if codes:
                return {code: first + number for number, code in enumerate(codes)}
    raise UserError(
        f"the languages are missing: {_WITH_IDS} or {_IN_ORDER[0]} must list their symbols, such "
        "as eng_Latn"
    )


def _settings(folder) -> dict:
    path = folder / "tokenizer_config.json"
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}
