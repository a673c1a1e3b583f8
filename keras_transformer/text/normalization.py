"""Normalisation of a vocabulary's text: a rule of SentencePiece for each side.

A SentencePiece model has one rule. In ours it is the source's. If targets have another one, it is
in a field of its own, which other programs skip.
"""

import functools
import io
import tempfile

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from sentencepiece import SentencePieceNormalizer, SentencePieceTrainer
from sentencepiece.sentencepiece_model_pb2 import (  # type: ignore[attr-defined]
    ModelProto,
    NormalizerSpec,
)

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_NON_JOINER = "\N{ZERO WIDTH NON-JOINER}"
NORMALIZATIONS = ("source", "both", "none")
"""The sides whose text a new vocabulary normalises by NFKC; the first is the default."""


class Rules:
    """The rules of both sides.

    U+200C, which Persian and Indian languages have within words, is a space to SentencePiece's
    rule. It stays if `forms` has seen it: a vocabulary without it would spell it in bytes.

    Args:
        normalization: the sides to normalise, one of `NORMALIZATIONS`.
        lowercase: whether both sides are in lower case.
    """

    def __init__(self, normalization: str, lowercase: bool):
        self._nfkc = normalization != "none", normalization == "both"
        self._lowercase = lowercase
        self._make(has_non_joiner=False)

    def _make(self, has_non_joiner: bool) -> None:
        self._has_non_joiner = has_non_joiner
        self.source, self.target = (
            _rule(nfkc, self._lowercase, has_non_joiner) for nfkc in self._nfkc
        )
        self._normalizers = [_normalizer(self.source), _normalizer(self.target)]

    def forms(self, sentence: bytes) -> list[bytes]:
        """The forms that a sentence in UTF-8 has as a source and as a target, each of them once."""
        if sentence.isascii() and not self._lowercase:  # most sentences
            return [sentence]
        if not self._has_non_joiner and _NON_JOINER.encode() in sentence:
            self._make(has_non_joiner=True)
        return list(dict.fromkeys(rule.normalize(sentence) for rule in self._normalizers))

    def in_model(self, model: bytes) -> bytes:
        """Returns a SentencePiece model without rules, with these ones."""
        proto = ModelProto.FromString(model)
        if self.target != self.source:
            target = proto.Extensions[_TARGET_SPEC]
            target.CopyFrom(proto.normalizer_spec)
            target.MergeFrom(self.target)
        proto.normalizer_spec.MergeFrom(self.source)
        return proto.SerializeToString()


def normalization_of(model: bytes) -> str:
    """The sides that a SentencePiece model normalises, one of `NORMALIZATIONS`."""
    proto = ModelProto.FromString(model)
    if proto.HasExtension(_TARGET_SPEC):
        return "source"
    return "both" if _normalizer(proto.normalizer_spec).normalize("²") == "2" else "none"


def model_of_target(model: bytes) -> bytes:
    """The SentencePiece model that splits targets: the same pieces, with the target's rule."""
    proto = ModelProto.FromString(model)
    if not proto.HasExtension(_TARGET_SPEC):
        return model
    proto.normalizer_spec.CopyFrom(proto.Extensions[_TARGET_SPEC])
    proto.ClearExtension(_TARGET_SPEC)
    return proto.SerializeToString()


def models_by_file(model: bytes) -> dict[str, bytes]:
    """The SentencePiece models that an export has, by file name: of the source, and of the target.

    There is one if both sides have the same rule.
    """
    models = {"sentencepiece.model": model}
    if (target := model_of_target(model)) != model:
        models["sentencepiece.target.model"] = target
    return models


@functools.cache
def _rule(nfkc: bool, lowercase: bool, has_non_joiner: bool) -> NormalizerSpec:
    """Makes a rule: NFKC with all white space as spaces (`nmt_nfkc`), lower case, both or neither.

    With `has_non_joiner`, U+200C stays.

    SentencePiece's own `nmt_nfkc_cf` folds case, to compare text: the final sigma U+03C2 becomes
    U+03C3, and "İ" stays. Here each character has what `str.lower` gives for it alone;
    `plain_text.with_final_sigmas` does what depends on other characters.
    """
    if nfkc and not (lowercase or has_non_joiner):
        return _compiled(normalization_rule_name="nmt_nfkc")
    # Of a model without any rule, SentencePiece would say so on standard error.
    rules = {_SPACE: " "}
    if nfkc:
        rules = dict(SentencePieceNormalizer(rule_name="nmt_nfkc").Decompile())
        if has_non_joiner:
            del rules[_NON_JOINER]
    if lowercase:
        for character in map(chr, range(0x110000)):
            if character.lower() != character:
                rules.setdefault(character, character)
        rules = {c: _lower(rules.get(_lower(c), normal)) for c, normal in rules.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.writelines(f"{_codes(c)}\t{_codes(normal)}\n" for c, normal in rules.items())
        file.flush()
        return _compiled(normalization_rule_tsv=file.name)


def _compiled(**rule):
    """Compiles a rule, which SentencePiece does as it learns a model: here of one letter."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter("a"),
        model_writer=model,
        model_type="char",
        vocab_size=5,
        minloglevel=2,
        **rule,
    )
    spec = ModelProto.FromString(model.getvalue()).normalizer_spec
    return NormalizerSpec(name=spec.name, precompiled_charsmap=spec.precompiled_charsmap)


def _normalizer(rule):
    """A normaliser from text to text: SentencePiece's own marks spaces."""
    spec = NormalizerSpec(
        precompiled_charsmap=rule.precompiled_charsmap,
        add_dummy_prefix=False,
        escape_whitespaces=False,
    )
    return SentencePieceNormalizer(model_proto=ModelProto(normalizer_spec=spec).SerializeToString())


def _lower(characters):
    return "".join(map(str.lower, characters))


def _codes(characters):
    return " ".join(f"{ord(character):X}" for character in characters)


def _target_spec():
    """Declares the field for the target's rule: the format leaves numbers from 200 on to others."""
    file = FileDescriptorProto(
        name="keras_transformer/normalization.proto",
        package="keras_transformer",
        dependency=[ModelProto.DESCRIPTOR.file.name],
        extension=[
            FieldDescriptorProto(
                name="target_normalizer_spec",
                number=200,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
                type=FieldDescriptorProto.TYPE_MESSAGE,
                type_name=f".{NormalizerSpec.DESCRIPTOR.full_name}",
                extendee=f".{ModelProto.DESCRIPTOR.full_name}",
            )
        ],
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return pool.FindExtensionByName("keras_transformer.target_normalizer_spec")


_TARGET_SPEC = _target_spec()
