"""The part that all routes share: the models, and computation within the server's limits."""

import asyncio
import dataclasses
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from keras_transformer.documents.markup import (
    LinkedTranslation,
    MarkedSentence,
    MarkupTexts,
    translate_marked,
)
from keras_transformer.documents.paragraphs import Paragraphs
from keras_transformer.errors import UserError
from keras_transformer.options import ServingOptions
from keras_transformer.search import SearchOptions
from keras_transformer.serving.batching import Batcher, QueueFull
from keras_transformer.serving.body import Body
from keras_transformer.serving.prometheus import Metrics
from keras_transformer.serving.servable import Row, Servable
from keras_transformer.serving.tensor_json import parse_json, write_json
from keras_transformer.serving.versions import Model
from keras_transformer.text.placeholders import (
    find_placeholders,
    placeholder_patterns,
    without_placeholders,
)
from keras_transformer.text.repetition import repeated_phrase
from keras_transformer.text.sentences import as_text
from keras_transformer.translation import Translation

_LOG = logging.getLogger("keras_transformer.serving")

# The maximum of each number among the search options of a request, unless the server's own option
# is larger.
MOST = {
    "beam_size": 32,
    "n_best": 32,
    "alpha": 10,
    "patience": 10,
    "extra_length": 300,
    "max_length": 1024,
    "min_length": 1024,
    "no_repeat_ngram": 100,
}
PLACEHOLDERS = placeholder_patterns()
_OPTIONS_OF_REQUESTS = (*MOST, "length_penalty")
# The fields of `ServingOptions` that some part of the server applies.
SERVING_OPTIONS = (
    "max_body_bytes",
    "max_sentences",
    "max_characters",
    "max_sentence_tokens",
    "max_queue",
    "max_connections",
    "max_connections_per_address",
    "request_timeout",
    "read_timeout",
    "batch_wait_ms",
    "poll_seconds",
)


@dataclasses.dataclass(frozen=True)
class Predict:
    """The task of computing a signature."""

    servable: Servable
    signature: str

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        return self.servable.predict(self.signature, rows)

    def joins(self) -> bool:
        return self.servable.joins(self.signature)

    def best(self, results: Sequence[dict[str, Any]]) -> list[str]:
        """The best translation of each row; none for the signature that scores."""
        if self.signature == "score":
            return []
        if self.signature == "serving_default":
            return [result["translation"] for result in results]
        return [result["translations"][0] for result in results]


@dataclasses.dataclass(frozen=True)
class Translate:
    """The task of translating with the request's options; a row is a text."""

    servable: Servable
    options: SearchOptions | None

    def __call__(self, rows: Sequence[str]) -> list:
        return self.servable.translate_n(rows, self.options)

    def joins(self) -> bool:
        return self.servable.joins("nbest")

    def best(self, results: Sequence[Sequence[Translation]]) -> list[str]:
        """The best translation of each row."""
        return [translations[0].text for translations in results]


@dataclasses.dataclass(frozen=True)
class TranslateMarked:
    """The task of translating with placeholders and tags; a row is a `MarkedSentence`.

    The servable must have a `translator_with`.
    """

    servable: Servable
    options: SearchOptions | None

    def __call__(self, rows: Sequence[MarkedSentence]) -> list[list[LinkedTranslation]]:
        assert self.servable.translator_with
        translator = self.servable.translator_with(self.options)
        return translate_marked(translator, rows, patterns_of(self.servable))

    def joins(self) -> bool:
        return self.servable.joins("nbest")

    def best(self, results: Sequence[Sequence[LinkedTranslation]]) -> list[str]:
        """The best translation of each row, without tags."""
        return [translations[0].kept.text for translations in results]


@dataclasses.dataclass(frozen=True)
class Attention:
    """The task of computing attention maps; a row is a text and its translation."""

    servable: Servable

    def __call__(self, rows: Sequence[tuple[str, str]]) -> list:
        if self.servable.attention is None:
            raise UserError(
                "this model shows no attention: serve the model_dir of a translator, with "
                "--engine=tensorflow"
            )
        return [self.servable.attention(*row) for row in rows]

    def joins(self) -> bool:
        return False

    def best(self, results: Sequence[Any]) -> list[str]:
        """No translations."""
        return []


class Server:
    """Holds the models, and computes requests within the limits, for all routes.

    Args:
        models: the models to serve; they may be loaded later.
        options: the limits.
        tokens_per_batch: the token budget of a batch.
        workers: number of batches computed in parallel.

    Raises:
        UserError: the server does not apply an option.
    """

    def __init__(
        self,
        models: Iterable[Model],
        options: ServingOptions = ServingOptions(),
        tokens_per_batch: int = 4096,
        workers: int = 1,
    ):
        options.expect_only(SERVING_OPTIONS, "the server", "leave it out")
        self.models = {model.name: model for model in models}
        self.options = options
        self.metrics = Metrics(lambda: len(self.batcher), self._served)
        self._next_log, self._unlogged = 0.0, 0  # for `note_refused`
        self.batcher = Batcher(
            tokens_per_batch,
            options.batch_wait_ms / 1000,
            options.max_queue,
            workers,
            self.metrics.observe_batch,
        )

    def note_refused(self, client: str, reason: str, status: int | None, details: str) -> None:
        """Counts a connection that was refused or closed early, and logs one a second at most."""
        self.metrics.observe_refused(reason, status)
        if time.monotonic() < self._next_log:
            self._unlogged += 1
            return
        about = {"client": client, "reason": reason, "status": status, "details": details[:200]}
        _LOG.warning("refused", extra={"fields": about | {"not_logged": self._unlogged}})
        self._next_log, self._unlogged = time.monotonic() + 1, 0

    def _served(self):
        return [
            (model.name, model.current[0], model.loaded_at)
            for model in self.models.values()
            if model.current
        ]

    def is_ready(self) -> bool:
        """Whether every model has a version that is loaded and warmed up."""
        return all(model.current for model in self.models.values())

    def model(self, request: Request) -> tuple[Model, int, Servable]:
        """The model of the path's {name}, its current version's number, and that version.

        Raises:
            HTTPException: 404, no such model, or {version} is not current; 503, it is loading.
        """
        name, asked = request.path_params["name"], request.path_params.get("version")
        if model := self.models.get(name):
            if model.current is None:
                raise HTTPException(503, f"model {name} is loading", {"Retry-After": "5"})
            version, servable = model.current
            if asked in (None, version):
                return model, version, servable
        wanted = f"Latest({name})" if asked is None else f"Specific({name}, {asked})"
        raise HTTPException(404, f"Servable not found for request: {wanted}")

    def search_options(
        self, servable: Servable, changes: Mapping[str, Any]
    ) -> SearchOptions | None:
        """The servable's search options with a request's changes.

        Raises:
            UserError: an option is unknown or too large, or the servable's search is fixed.
        """
        if not changes:
            return servable.options
        if servable.options is None:
            raise UserError("the search of a SavedModel is fixed: leave out the options")
        for name, value in changes.items():
            if name not in _OPTIONS_OF_REQUESTS:
                among = ", ".join(_OPTIONS_OF_REQUESTS)
                raise UserError(f"options must be among {among}: found {name[:80]!r}")
            if name in MOST and isinstance(value, int | float):
                most = max(MOST[name], getattr(servable.options, name) or 0)
                if value > most:
                    raise UserError(f"{name} must be at most {most}: found {value}")
        return dataclasses.replace(servable.options, **changes)

    async def in_languages(self, servable: Servable, body: Mapping[str, Any]) -> Servable:
        """The servable for the `target_lang` and `source_lang` of a request, if it names any.

        Raises:
            UserError: the model has not these languages.
        """
        target_lang, source_lang = (body.get(name) for name in ("target_lang", "source_lang"))
        for name, code in (("target_lang", target_lang), ("source_lang", source_lang)):
            if not isinstance(code, str | None):
                raise UserError(f"{name} must be the code of a language: found {str(code)[:80]!r}")
        if target_lang is None and source_lang is None:
            return servable
        return await asyncio.to_thread(servable.in_languages, target_lang, source_lang)

    async def split(self, servable: Servable, texts: Sequence[str | bytes]) -> Paragraphs:
        """Splits texts into the sentences that `compute` gets; `Paragraphs.join` is the way back.

        Raises:
            UserError: the model is a parser, or there are too many texts or too long ones.
        """
        if servable.task != "translation":
            raise UserError("split=sentences is for translation: leave it out for a parser")
        self._check_size("text", texts)
        return await asyncio.to_thread(
            Paragraphs, texts, servable.source_lang, servable.count_tokens
        )

    async def translate(
        self,
        request: Request,
        servable: Servable,
        options: SearchOptions | None,
        sentences: Sequence[str],
    ) -> list[list[Translation]]:
        """Translates by `compute`, and copies placeholders if the model has an alignment."""
        self._check_size("sentence", sentences)
        # Long texts take their time.
        rows = await asyncio.to_thread(_marked, sentences) if servable.copies_parts else []
        if not (servable.translator_with and any(row.kept for row in rows)):
            return await self.compute(request, Translate(servable, options), sentences, sentences)
        found = await self.compute(request, TranslateMarked(servable, options), rows, sentences)
        return [[Translation(one.kept.text, one.kept.score) for one in some] for some in found]

    async def read_markup(
        self,
        servable: Servable,
        texts: Sequence[str],
        language: str | None,
        split: bool = True,
        format: str = "html",
    ) -> MarkupTexts:
        """Reads texts with markup, whose sentences `compute` gets; `MarkupTexts.join` leads back.

        Raises:
            UserError: the model has no alignment, or there are too many texts or too long ones.
        """
        if servable.translator_with is None:
            raise UserError(
                f"format={format} needs the alignment of words, which this model does not have: "
                "serve the model_dir of a translator"
            )
        self._check_size("text", texts)
        patterns = patterns_of(servable)
        return await asyncio.to_thread(MarkupTexts, texts, language, split, patterns, format)

    async def read_json(self, request: Request) -> Any:
        """Reads the body as strict JSON.

        Raises:
            UserError: the body is not strict JSON.
            HTTPException: as for `read_body`.
        """
        return await asyncio.to_thread(parse_json, await self.read_body(request))

    async def read_body(self, request: Request) -> bytes:
        """Reads the body, expanded if it is compressed.

        Raises:
            UserError: the compressed body is not gzip.
            HTTPException: 413, the body is too large, or expands to more; 408, it arrives too
                slowly; 415, it is compressed by another method than gzip.
        """
        limit = self.options.max_body_bytes
        too_large = HTTPException(413, f"the body is larger than the limit of {limit} bytes")
        if int(request.headers.get("content-length", 0)) > limit:
            raise too_large
        body = Body(request.headers.getlist("content-encoding"), limit)
        try:
            async with asyncio.timeout(self.options.read_timeout):
                async for chunk in request.stream():
                    if not body.takes(chunk):
                        raise too_large
        except TimeoutError:
            seconds = self.options.read_timeout
            message = f"the body did not arrive within {seconds:g} seconds"
            raise HTTPException(408, message, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise HTTPException(499, "the client has gone") from None
        return body.content()

    async def compute(
        self,
        request: Request,
        task: Predict | Translate | TranslateMarked | Attention,
        rows: Sequence[Any],
        texts: Sequence[str | bytes],
    ) -> list[Any]:
        """Computes the result of each row, in batches with rows of other requests.

        Args:
            request: the request whose client waits.
            task: computes the rows.
            rows: the rows to compute.
            texts: the texts that count towards the limits of characters and tokens.

        Raises:
            UserError: there are too many sentences, or too long ones.
            HTTPException: 429, the queue is full; 504, the time is over; 499, the client has
                disconnected.
        """
        if not rows:
            return []
        tokens = await asyncio.to_thread(self._count_tokens, task.servable, rows, texts)
        request.state.sentences, request.state.tokens = len(rows), tokens
        try:
            client = request.client.host if request.client else ""
            future = self.batcher.submit(task, rows, tokens, client)
        except QueueFull:
            message = f"the queue of {self.options.max_queue} is full: try again later"
            raise HTTPException(429, message, {"Retry-After": "1"}) from None
        result, gone = asyncio.wrap_future(future), asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                {result, gone},
                timeout=self.options.request_timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if result.done():
                if best := task.best(result.result()):
                    await asyncio.to_thread(self._log_doubts, request, task, rows, texts, best)
                return result.result()
            if gone.done():
                raise HTTPException(499, "the client has gone")
            message = (
                f"timed out after {self.options.request_timeout:g} seconds: "
                "send fewer sentences in a request, or try again later"
            )
            raise HTTPException(504, message, {"Retry-After": "10"})
        finally:
            gone.cancel()
            result.cancel()  # so that a request that is not done is computed no further

    def _log_doubts(self, request, task, rows, texts, translations):
        """Logs how many translations repeat a phrase or lack a term of the glossary.

        It logs no text, which is the client's.
        """
        if task.servable.task != "translation":
            return
        pairs = list(zip(as_text(texts), translations, strict=True))
        about = {"path": request.url.path, "sentences": len(pairs)}
        repeated = sum(
            repeated_phrase(translation, text) is not None for text, translation in pairs
        )
        if repeated:
            fields = about | {"repeated": repeated, "try": "no_repeat_ngram=3"}
            _LOG.warning("repetition", extra={"fields": fields})
        glossary = task.servable.glossary
        if glossary is None:
            return
        copied = [row.kept if isinstance(row, MarkedSentence) else () for row in rows]
        without = sum(
            not glossary.is_met(without_placeholders(text, PLACEHOLDERS, some), translation)
            for (text, translation), some in zip(pairs, copied, strict=True)
        )
        if without:
            _LOG.warning("terms", extra={"fields": about | {"without_terms": without}})

    def _count_tokens(self, servable, rows, texts):
        self._check_size("sentence", texts, len(rows))
        tokens = servable.count_tokens(texts)
        most = min(self.options.max_sentence_tokens, servable.max_tokens)
        _check_longest("sentence", "tokens", tokens, most)
        return sum(tokens)

    def _check_size(self, what, texts, count=None):
        """Refuses too many sentences, which are the texts unless `count` says, and long texts."""
        count, most = len(texts) if count is None else count, self.options.max_sentences
        if count > most:
            raise UserError(f"a request must have at most {most} sentences: found {count}")
        lengths = map(_characters, texts)
        _check_longest(what, "characters", lengths, self.options.max_characters)


def _check_longest(what, unit, lengths, most):
    for number, length in enumerate(lengths):
        if length > most:
            raise UserError(
                f"a {what} must have at most {most} {unit}: found {length} at index {number}"
            )


def _characters(text):
    return len(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


def patterns_of(servable: Servable) -> Sequence[re.Pattern[str]]:
    """The patterns of what the translations of a model copy."""
    return PLACEHOLDERS if servable.copies_parts else []


def _marked(sentences):
    """The sentences with their placeholders."""
    return [
        MarkedSentence(text, tuple(find_placeholders(text, PLACEHOLDERS))) for text in sentences
    ]


def asks_for_split(body: Mapping[str, Any]) -> bool:
    """Whether a request asks to split its texts: whether its `split` is "sentences".

    Raises:
        UserError: it is neither that nor "none", the default.
    """
    split = body.get("split", "none")
    if split not in ("none", "sentences"):
        raise UserError(f"split must be none or sentences: found {str(split)[:80]!r}")
    return split == "sentences"


def format_of(body: Mapping[str, Any]) -> str:
    """The `format` of the texts of a request: "text", the default, "html" or "markdown".

    Raises:
        UserError: it is none of these.
    """
    format_ = body.get("format", "text")
    if format_ not in ("text", "html", "markdown"):
        raise UserError(f"format must be text, html or markdown: found {str(format_)[:80]!r}")
    return format_


async def _gone(request):
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None):
    """A response with a body of strict JSON."""
    return Response(write_json(value), status, headers, "application/json")
