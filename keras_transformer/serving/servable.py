"""The models of a server: translators, parsers and SavedModels, with the same signatures."""

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DT_FLOAT, DT_STRING
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.documents.placeholders import Translator as PlainTranslator
from keras_transformer.errors import Unsupported, UserError
from keras_transformer.glossary_translator import GlossaryTranslator
from keras_transformer.parsing.parser import trees_of
from keras_transformer.parsing.trees import format_tree
from keras_transformer.report.word_attention import WordAttention, pair_attention
from keras_transformer.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.search.beam import BEAM_SEARCH_OPTIONS
from keras_transformer.text.glossary import Glossary
from keras_transformer.text.language_code import short_code
from keras_transformer.text.languages import Languages, not_multilingual
from keras_transformer.text.sentences import as_text
from keras_transformer.translation import Translation, as_translations
from keras_transformer.translator import Translator

if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator

_MOST_DIRECTIONS = 1000  # pairs of languages that are kept: a client may ask for 40,000 of NLLB

Row = tuple[Any, ...]  # a value for each input of a signature, in the order of the inputs' names
Texts = Sequence[str | bytes]
Attention = Callable[[str, str], dict[str, WordAttention]]  # from a text and its translation
Translating = Callable[[SearchOptions | None], PlainTranslator]  # by options or its own


class Servable(Protocol):
    """A model that answers requests. Several threads may call its methods at the same time."""

    task: str  # "translation" or "parsing"
    engine: str  # "tensorflow", "ctranslate2" or "saved_model"
    signatures: Mapping[str, SignatureDef]
    options: SearchOptions | None  # the defaults of `translate_n`; None: they are fixed
    max_tokens: int  # the maximum number of tokens that are read of a text
    attention: Attention | None  # None: the model shows no attention
    source_lang: str | None  # by whose rules texts are split into sentences; None: English
    languages: Languages | None  # of a model for several of them, which requests choose from
    glossary: Glossary | None  # the terms that translations must contain
    copies_parts: bool  # whether translations copy placeholders
    translator_with: Translating | None  # None: the model has no alignment

    def in_languages(self, target_lang: str | None, source_lang: str | None) -> "Servable":
        """The same model for the languages that a request names.

        Raises:
            UserError: the model has not these languages.
        """

    def count_tokens(self, texts: Texts) -> list[int]:
        """The number of tokens of each text."""

    def joins(self, signature: str) -> bool:
        """Whether requests may share a batch, because no row depends on the others."""

    def predict(self, signature: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The outputs of a signature for each row of inputs."""

    def translate_n(
        self, texts: Texts, options: SearchOptions | None = None
    ) -> list[list[Translation]]:
        """The best translations of each text, best first, by `options` or else `self.options`."""


def signature_defs(n_best: int, names: Sequence[str]) -> dict[str, SignatureDef]:
    """The signatures of `export_saved_model`, for a model that is not a SavedModel."""
    one: list[int] = []
    text, translation = ("text", DT_STRING, one), ("translation", DT_STRING, one)
    score = ("score", DT_FLOAT, one)
    lists = [("translations", DT_STRING, [n_best]), ("scores", DT_FLOAT, [n_best])]
    tensors = {
        "serving_default": ([text], [translation, score]),
        "nbest": ([text], lists),
        "score": ([text, translation], [score]),
    }
    signatures = {}
    for name in names:
        signature = SignatureDef(method_name="tensorflow/serving/predict")
        sides = zip((signature.inputs, signature.outputs), tensors[name], strict=True)
        for side, specs in sides:
            for key, dtype, dimensions in specs:
                side[key].name, side[key].dtype = f"{name}_{key}:0", dtype
                for size in (-1, *dimensions):
                    side[key].tensor_shape.dim.add(size=size)
        signatures[name] = signature
    return signatures


class TranslatorServable:
    """A `Translator` of any engine, with the signatures that its SavedModel would have.

    Args:
        translator: a translator that uses beam search; requests bring no seeds for sampling.
        load_tensorflow: loads the same model in TensorFlow, for what CTranslate2 lacks: attention,
            and some search options of requests. It is called when that is first needed.
        source_lang: code of the source language, if it is known.
        glossary: terms that the translations must contain; None for none.
        copies_parts: whether translations copy placeholders and long numbers.

    Raises:
        UserError: the translator samples.
    """

    def __init__(
        self,
        translator: "Translator | CTranslate2Translator",
        load_tensorflow: Callable[[], Translator] | None = None,
        source_lang: str | None = None,
        glossary: Glossary | None = None,
        copies_parts: bool = True,
    ):
        translator.options.expect_only(
            BEAM_SEARCH_OPTIONS,
            "the server",
            "leave it out, or serve a SavedModel that was exported with it",
        )
        self.translator = translator
        self.glossary, self.copies_parts = glossary, copies_parts
        self.task = translator.tokenizer.task
        self.source_lang = source_lang
        self.languages = translator.languages
        self._directions: dict[tuple[str | None, str | None], TranslatorServable] = {}
        self._lock_of_directions = threading.Lock()
        self.engine, self._tensorflow = "ctranslate2", None
        if isinstance(translator, Translator):
            self.engine, self._tensorflow = "tensorflow", translator
        self._load_tensorflow, self._loading = load_tensorflow, threading.Lock()
        has_tensorflow = self._tensorflow or load_tensorflow
        self.attention = self._attention if has_tensorflow else None
        self.translator_with: Translating | None = self._translator_with
        self.options = translator.options
        self.max_tokens = translator.max_source_length - 1  # without the end symbol
        names = ["serving_default", "nbest", "score"]
        self.signatures = signature_defs(self.options.n_best, names)
        # Holds the graph of the signature `serving_default`; `translator` holds that of `nbest`.
        self._best_only = translator.with_options(self.options.best_only())

    def in_languages(
        self, target_lang: str | None, source_lang: str | None
    ) -> "TranslatorServable":
        if self.languages is None:
            raise not_multilingual(target_lang, source_lang)
        pair = target_lang, source_lang
        # One for each pair, so that its requests share batches.
        with self._lock_of_directions:
            if pair not in self._directions:
                translator = self.translator.with_languages(*pair)
                load_tensorflow = None
                if self.attention:
                    load_tensorflow = functools.partial(self._in_tensorflow, pair)
                of_text = self.source_lang if source_lang is None else short_code(source_lang)
                directed = TranslatorServable(
                    translator, load_tensorflow, of_text, self.glossary, self.copies_parts
                )
                self._directions[pair] = directed
                if len(self._directions) > _MOST_DIRECTIONS:
                    del self._directions[next(iter(self._directions))]  # the oldest
            return self._directions[pair]

    def count_tokens(self, texts: Texts) -> list[int]:
        return self.translator.count_tokens(texts)

    def joins(self, signature: str) -> bool:
        return True

    def predict(self, signature: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
        if signature == "score":
            texts, translations = zip(*rows, strict=True)
            scores = self.translator.score(texts, translations)
            return [{"score": score} for score in scores]
        sentences = [text for (text,) in rows]
        if signature == "serving_default":
            found = self.translate_n(sentences, self.options.best_only())
            best = [translations[0] for translations in found]
            return [{"translation": text, "score": score} for text, score in best]
        return [self._slots(translations) for translations in self.translate_n(sentences)]

    def _slots(self, translations):
        """Fills up to `n_best` slots: a slot without a translation is empty."""
        missing = self.options.n_best - len(translations)
        translations = [*translations, *[Translation("", NO_HYPOTHESIS)] * missing]
        texts, scores = zip(*translations, strict=True)
        return {"translations": list(texts), "scores": list(scores)}

    def translate_n(
        self, texts: Texts, options: SearchOptions | None = None
    ) -> list[list[Translation]]:
        return self._translator_with(options).translate_n(texts)

    def _translator_with(self, options):
        translator = self._translator(options)
        return GlossaryTranslator(translator, self.glossary) if self.glossary else translator

    def _translator(self, options):
        if not options:
            return self.translator
        try:
            return self.translator.with_options(options)
        except Unsupported:
            if self._load_tensorflow is None:
                raise
            return self._in_tensorflow().with_options(options)

    def _attention(self, text, translation):
        translator = self._in_tensorflow()
        return pair_attention(translator.models[0], translator.tokenizer, text, translation)

    def _in_tensorflow(self, languages=None):
        with self._loading:
            if self._tensorflow is None:
                self._tensorflow = self._load_tensorflow()
        return self._tensorflow.with_languages(*languages) if languages else self._tensorflow


class ParserServable(TranslatorServable):
    """A parser: its translations are trees in the treebank's notation.

    It has no signature `score`, since the search may have written a tree with other symbols.
    """

    def __init__(
        self,
        translator: "Translator | CTranslate2Translator",
        load_tensorflow: Callable[[], Translator] | None = None,
        source_lang: str | None = None,
    ):
        super().__init__(translator, load_tensorflow, source_lang)
        self.attention = self.translator_with = None
        self.signatures = signature_defs(self.options.n_best, ["serving_default", "nbest"])

    def translate_n(
        self, texts: Texts, options: SearchOptions | None = None
    ) -> list[list[Translation]]:
        sentences = [text.split() for text in as_text(texts)]
        found = self._translator(options).translate_n([" ".join(words) for words in sentences])
        return [
            [self._with_tree(translation, words) for translation in translations]
            for translations, words in zip(found, sentences, strict=True)
        ]

    def _with_tree(self, translation, words):
        [tree] = trees_of([translation.text], [words], self.translator.tokenizer)
        return translation._replace(text=format_tree(tree) if tree else "")


class SavedModelServable:
    """A SavedModel that `export_saved_model` wrote.

    Args:
        path: the folder of one version.

    Raises:
        UserError: the SavedModel cannot be read, or has other signatures.
    """

    task, engine = "translation", "saved_model"
    options: SearchOptions | None = None
    attention: Attention | None = None
    source_lang: str | None = None  # an export does not say
    languages = glossary = None  # an export has one pair, and no terms
    copies_parts = False
    translator_with: Translating | None = None

    def __init__(self, path: str | os.PathLike):
        content = (Path(path) / "saved_model.pb").read_bytes()
        [graph] = SavedModel.FromString(content).meta_graphs
        self.signatures: Mapping[str, SignatureDef] = dict(graph.signature_def)
        self._loaded = tf.saved_model.load(str(path))
        lacking = [
            f"signature {name}"
            for name in ("nbest", "score", "serving_default")
            if name not in self.signatures
        ]
        # SavedModels of 0.1.0 have all signatures, but not these functions.
        functions = ("count_tokens", "max_tokens")
        lacking += [f"function {name}" for name in functions if not hasattr(self._loaded, name)]
        if lacking:
            raise UserError(
                f"{path}: the SavedModel has no {lacking[0]}: make it with `keras-transformer "
                "export` of this version"
            )
        self.max_tokens = int(self._loaded.max_tokens())

    def in_languages(self, target_lang: str | None, source_lang: str | None) -> Servable:
        raise not_multilingual(target_lang, source_lang)

    def count_tokens(self, texts: Texts) -> list[int]:
        return self._loaded.count_tokens(tf.constant([*texts], tf.string)).numpy().tolist()

    def joins(self, signature: str) -> bool:
        # If a model samples, a text's samples depend on its index in the request.
        return signature in ("sample", "score") or "sample" not in self.signatures

    def predict(self, signature: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
        inputs = self.signatures[signature].inputs
        tensors = {
            name: tf.constant(column, tf.dtypes.as_dtype(inputs[name].dtype))
            for name, column in zip(sorted(inputs), zip(*rows, strict=True), strict=True)
        }
        outputs = self._loaded.signatures[signature](**tensors)
        values = [_values(tensor) for tensor in outputs.values()]
        return [dict(zip(outputs, row, strict=True)) for row in zip(*values, strict=True)]

    def translate_n(
        self, texts: Texts, options: SearchOptions | None = None
    ) -> list[list[Translation]]:
        rows = self.predict("nbest", [(text,) for text in texts])
        return [
            as_translations(zip(row["translations"], row["scores"], strict=True)) for row in rows
        ]


def _values(tensor: tf.Tensor) -> list:
    """The tensor as nested lists of numbers or of text."""

    def decoded(value):
        if isinstance(value, list):
            return [decoded(entry) for entry in value]
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    return decoded(tensor.numpy().tolist())
