"""Vocabularies without TensorFlow: their subwords and special ids, as other engines need them."""

import contextlib
import dataclasses
import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import LARGEST_WHOLE
from keras_transformer.json_files import parse_json
from keras_transformer.text.languages import Languages, languages_in
from keras_transformer.text.normalization import models_by_file

if TYPE_CHECKING:
    from keras_transformer.text.tokenizer import Tokenizer

PAD_ID = 0
"""The id of padding."""
START_ID = 1
"""The id of the start symbol, with which every target begins."""
END_ID = 2
"""The id of the end symbol, with which every sentence ends."""
UNKNOWN_ID = 3
"""The id of text outside the vocabulary."""

# The special pieces of a Marian model, and the files in its vocabulary.zip.
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SOURCE, TARGET, PIECES = "source.spm", "target.spm", "vocab.json"
# The special tokens of OpenNMT-tf, which begin each of its vocabularies.
OPENNMT_SPECIAL = ("<blank>", "<s>", "</s>")
# The files in the vocabulary.languages.zip of M2M100 and NLLB, besides `PIECES`.
MODEL, LANGUAGES = "sentencepiece.model", "languages.json"

# What reading a damaged zip file of JSON raises; for other compression than its own, it raises
# RuntimeError, OSError or LZMAError.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The subwords of a model that translates, and its special ids.

    Attributes:
        pieces: the subword of each id.
        pad_id, start_id, end_id, unknown_id: the special ids.
        sentencepiece_models: serialised SentencePiece models that split text, by file name.
        languages: the languages of a multilingual vocabulary; None for any other.
    """

    pieces: list[str]
    pad_id: int
    start_id: int
    end_id: int
    unknown_id: int
    sentencepiece_models: dict[str, bytes]
    target_vocab_size: int | None = None
    languages: Languages | None = None

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.pieces)

    @classmethod
    def of_sentencepiece(cls, model: bytes) -> "Vocabulary":
        """Reads a `vocabulary.model`; raises `UserError` if it is none."""
        processor = load_processor(model)
        expect_special_ids(processor)
        pieces = [processor.id_to_piece(id_) for id_ in range(processor.vocab_size())]
        models, languages = models_by_file(model), languages_in(model)
        return cls(pieces, PAD_ID, START_ID, END_ID, UNKNOWN_ID, models, languages=languages)

    @classmethod
    def of_marian(cls, content: bytes) -> "Vocabulary":
        """Reads a `vocabulary.zip`; raises `UserError` if it is none."""
        source, target, ids = read_marian(content)
        check_marian(ids)
        pieces = sorted(ids, key=ids.__getitem__)
        for model in (source, target):
            load_processor(model)
        models = {SOURCE: source, TARGET: target}
        return cls(pieces, ids[PAD], ids[PAD], ids[END], ids[UNKNOWN], models)

    @classmethod
    def of_opennmt(cls, content: bytes) -> "Vocabulary":
        """Reads a `vocabulary.opennmt.zip`; raises `UserError` if it is none."""
        source, target, pieces = read_opennmt(content)
        unknown = check_opennmt(pieces)
        models, size = opennmt_models(source, target), unknown + 1
        for model in models.values():
            load_processor(model)
        target_size = size if len(pieces) > size else None
        return cls(pieces, PAD_ID, START_ID, END_ID, unknown, models, target_size)

    @classmethod
    def of_multilingual(cls, content: bytes) -> "Vocabulary":
        """Reads a `vocabulary.languages.zip`; raises `UserError` if it is none."""
        model, ids, languages = read_multilingual(content)
        load_processor(model)
        return cls(
            sorted(ids, key=ids.__getitem__),
            ids[PAD],
            ids[END],
            ids[END],
            ids[UNKNOWN],
            multilingual_models(model),
            languages=languages,
        )


def expect_fits(vocabulary: "Vocabulary | Tokenizer", config: TransformerConfig) -> None:
    """Raises `UserError` unless a model of this configuration has the ids of a vocabulary."""
    for name in ("vocab_size", "target_vocab_size", "pad_id", "start_id", "end_id"):
        ours, found = getattr(vocabulary, name), getattr(config, name)
        if found != ours:
            raise UserError(
                f"the model must have {name}={ours}, as its vocabulary has: found {found}"
            )


def parsed_model(model: bytes) -> ModelProto:
    """The parts of a serialised SentencePiece model; raises `UserError` if it is none."""
    if isinstance(model, str | os.PathLike):
        raise UserError(
            f"model must be the content of a SentencePiece model: found {str(model)!r}; "
            "to read a file, call SubwordTokenizer.load"
        )
    if not model:
        raise UserError("not a SentencePiece model: it is empty")
    try:
        return ModelProto.FromString(model)
    except DecodeError as error:
        raise UserError("not a SentencePiece model") from error


def load_processor(model: bytes) -> SentencePieceProcessor:
    """Loads a serialised SentencePiece model; raises `UserError` if it is none."""
    parsed_model(model)
    try:
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError("not a SentencePiece model") from error


def expect_special_ids(processor: SentencePieceProcessor) -> None:
    """Raises `UserError` unless a SentencePiece model has the special ids of this package."""
    found = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
    if found != (PAD_ID, START_ID, END_ID, UNKNOWN_ID):
        raise UserError(
            "the pad, start, end and unknown ids of the SentencePiece model must be "
            f"{(PAD_ID, START_ID, END_ID, UNKNOWN_ID)}: found {found}; spm_train makes one "
            f"with --pad_id={PAD_ID} --bos_id={START_ID} --eos_id={END_ID} "
            f"--unk_id={UNKNOWN_ID}"
        )


def read_marian(content: bytes) -> tuple[bytes, bytes, dict[str, int]]:
    """The SentencePiece models of source and target, and the id of each piece.

    Raises:
        UserError: `content` is not a `vocabulary.zip`.
    """
    source, target, vocabulary = _unzipped(content, SOURCE, TARGET, PIECES)
    return source, target, _parsed(vocabulary, PIECES)


def written_marian(source: bytes, target: bytes, ids: Mapping[str, int]) -> bytes:
    """The content of a `vocabulary.zip`, which `read_marian` reads."""
    return _zipped({SOURCE: source, TARGET: target, PIECES: json.dumps(ids)})


def read_multilingual(content: bytes) -> tuple[bytes, dict[str, int], Languages]:
    """The SentencePiece model, the id of each piece and symbol, and the languages.

    Raises:
        UserError: `content` is not a `vocabulary.languages.zip`.
    """
    model, vocabulary, languages = _unzipped(content, MODEL, PIECES, LANGUAGES)
    ids, found = _parsed(vocabulary, PIECES), Languages.from_json(_parsed(languages, LANGUAGES))
    check_marian(ids)
    for symbol in found.symbols.values():
        if symbol not in ids:
            raise UserError(f"{LANGUAGES}: {symbol} has no id in {PIECES}")
    return model, ids, found


def written_multilingual(model: bytes, ids: Mapping[str, int], languages: Languages) -> bytes:
    """The content of a `vocabulary.languages.zip`, which `read_multilingual` reads."""
    return _zipped({MODEL: model, PIECES: json.dumps(ids), LANGUAGES: languages.to_json()})


def multilingual_models(model: bytes) -> dict[str, bytes]:
    """The SentencePiece models that an export of M2M100 or NLLB has, by file name."""
    return {SOURCE: model, TARGET: model}


def _unzipped(content, *names):
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST_WHOLE:
                raise ValueError
            return list(map(archive.read, names))
    except _DAMAGED as error:
        *others, last = names
        raise UserError(f"not a zip file of {', '.join(others)} and {last}") from error


def _zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, of_file in files.items():
            archive.writestr(zipfile.ZipInfo(name), of_file)
    return content.getvalue()


def read_opennmt(content: bytes) -> tuple[bytes, bytes, list[str]]:
    """The SentencePiece models of source and target, and the piece of each id.

    Raises:
        UserError: `content` is not a `vocabulary.opennmt.zip`.
    """
    source, target, ids = read_marian(content)
    _check_ids(ids)
    return source, target, sorted(ids, key=ids.__getitem__)


def written_opennmt(source: bytes, target: bytes, pieces: Sequence[str]) -> bytes:
    """The content of a `vocabulary.opennmt.zip`, which `read_opennmt` reads."""
    return written_marian(source, target, {piece: id_ for id_, piece in enumerate(pieces)})


def opennmt_models(source: bytes, target: bytes) -> dict[str, bytes]:
    """The SentencePiece models that an export of an OpenNMT-tf model has, by file name.

    There is none if both sides split their text at spaces.
    """
    if not source:
        return {}
    if source == target:
        return {"sentencepiece.model": source}
    return {"sentencepiece.model": source, "sentencepiece.target.model": target}


def check_opennmt(pieces: Sequence[str]) -> int:
    """The id of `<unk>`; raises `UserError` unless pieces are those of an OpenNMT-tf model."""
    if tuple(pieces[: len(OPENNMT_SPECIAL)]) != OPENNMT_SPECIAL:
        raise UserError(f"the first pieces must be {', '.join(OPENNMT_SPECIAL)}")
    if UNKNOWN not in pieces:
        raise UserError(f"vocabulary must have the piece {UNKNOWN}: found none")
    return pieces.index(UNKNOWN)


def _parsed(content, name):
    try:
        return parse_json(content.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 text") from error


def check_marian(ids: Mapping[str, int]) -> None:
    """Raises `UserError` unless each piece has an id of its own, special pieces included."""
    _check_ids(ids)
    for piece in (PAD, END, UNKNOWN):
        if piece not in ids:
            raise UserError(f"vocabulary must have the piece {piece}: found none")


def _check_ids(ids):
    if not isinstance(ids, Mapping):
        raise UserError(f"vocabulary must map pieces to ids: found {type(ids).__name__}")
    try:
        "".join(ids).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise UserError("the pieces of vocabulary must be strings without surrogates") from error
    numbers = list(ids.values())
    if any(type(id_) is not int for id_ in numbers) or sorted(numbers) != list(range(len(ids))):
        raise UserError(f"vocabulary must have each id from 0 to {len(ids) - 1} once")


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Adds the file's name to errors about it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: cannot read the vocabulary: {reason}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
