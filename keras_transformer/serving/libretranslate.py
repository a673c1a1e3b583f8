"""The interface of LibreTranslate, so that its clients use the server's models.

A model whose name is a pair of languages, such as `en-de`, translates between them. For a model of
another name, the languages with which it was trained count. A model for several languages serves
all their pairs that have codes here.
"""

import asyncio
import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.documents.markup import MarkupTexts
from keras_transformer.documents.paragraphs import Paragraphs
from keras_transformer.errors import UserError
from keras_transformer.options import ServingOptions
from keras_transformer.search import SearchOptions
from keras_transformer.serving.keys import Keys, bearer_key
from keras_transformer.serving.languages import (
    NAMES,
    identify,
    language_code,
    language_pair,
    served_code,
)
from keras_transformer.serving.server import MOST, Server, TranslateMarked, json_response
from keras_transformer.serving.tensor_json import parse_json
from keras_transformer.serving.versions import Model

PATHS = ("/translate", "/detect", "/languages", "/frontend/settings", "/health")
_MOST_FIELDS = 100  # of a form


class TranslateRequest(NamedTuple):
    """A request for translations.

    Attributes:
        texts: the texts to translate.
        is_list: whether the answer has a list; otherwise there is one text.
        source: the code of the source language, or "auto".
        target: the code of the target language.
        alternatives: the number of translations wanted beside the best.
        is_html: whether the texts are HTML.
    """

    texts: list[str]
    is_list: bool
    source: str
    target: str
    alternatives: int
    is_html: bool


class _Choice(NamedTuple):
    """A model for a pair of languages, and the pair as a model for several of them names it."""

    name: str
    languages: dict[str, str]


def _choices(model: Model) -> dict[tuple[str, str], _Choice]:
    """A model's pairs of languages, as this server writes their codes."""
    several = model.multilingual
    trained_from, trained_into = (code and served_code(code) for code in model.languages)
    if several is None:
        pair = language_pair(model.name)
        if pair is None and trained_from and trained_into:
            pair = trained_from, trained_into
        return {pair: _Choice(model.name, {})} if pair else {}
    targets: dict[str, str] = {}
    for code in several.symbols:
        if known := served_code(code):
            targets.setdefault(known, code)
    sources = list(targets)
    if model.languages[0] and not several.in_target:
        sources = [trained_from] if trained_from else []
    return {
        (source, target): _Choice(
            model.name,
            {"target_lang": code} | ({"source_lang": targets[source]} if several.in_target else {}),
        )
        for source in sources
        for target, code in targets.items()
        if source != target
    }


def libretranslate_routes(server: Server, keys: Keys) -> list[Route]:
    """The routes of LibreTranslate's interface.

    Args:
        server: the models and limits.
        keys: if there are any, a request for a translation or detection must send one, as `api_key`
            or in the header.
    """
    models: dict[tuple[str, str], _Choice] = {}
    for model in server.models.values():
        for pair, choice in _choices(model).items():
            models.setdefault(pair, choice)

    def expect_models():
        if not models:
            raise UserError(
                "this server knows the languages of none of its models: start it with "
                "--model=en-de=PATH, where en-de is the source and the target language"
            )

    async def translate(request: Request) -> Response:
        values = await _read_values(server, request, keys)
        expect_models()
        asked = parse_translate(values, server.options)
        source, detected = asked.source, None
        if source == "auto":
            text = await asyncio.to_thread(_plain, asked)
            [detected, *_] = await asyncio.to_thread(_detected, text, models)
            source = detected["language"]
        choice = _model_for(models, source, asked.target)
        if choice is None:
            found = [[text] for text in asked.texts]
        else:
            # As if the path named the model: for `Server.model`, the log and the metrics.
            request.path_params["name"] = choice.name
            found = await _translations(server, request, choice.languages, asked, source)
        answer: dict[str, Any] = {"translatedText": [best for best, *_ in found]}
        if detected:
            answer["detectedLanguage"] = [detected] * len(found)
        if asked.alternatives:
            answer["alternatives"] = [others for _, *others in found]
        if not asked.is_list:
            answer = {name: value for name, [value] in answer.items()}
        return json_response(answer)

    async def detect(request: Request) -> Response:
        values = await _read_values(server, request, keys)
        expect_models()
        texts, _ = _texts(values, server.options)
        return json_response(await asyncio.to_thread(_detected, "\n".join(texts), models))

    async def languages(request: Request) -> Response:
        expect_models()
        codes = sorted(set(itertools.chain(*models)), key=NAMES.__getitem__)
        return json_response(
            [
                _named(code) | {"targets": sorted({code, *(to for of, to in models if of == code)})}
                for code in codes
            ]
        )

    async def settings(request: Request) -> Response:
        expect_models()
        source, target = next(iter(models))
        return json_response(
            {
                "charLimit": server.options.max_characters,
                "frontendTimeout": 500,  # milliseconds between typing and a request
                "apiKeys": bool(keys),
                "keyRequired": bool(keys),
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {"source": _named(source), "target": _named(target)},
            }
        )

    async def health(request: Request) -> Response:
        return json_response({"status": "ok"})

    return [
        Route("/translate", translate, methods=["POST"]),
        Route("/detect", detect, methods=["POST"]),
        Route("/languages", languages),
        Route("/frontend/settings", settings),
        Route("/health", health),
    ]


def parse_translate(values: Mapping[str, Any], options: ServingOptions) -> TranslateRequest:
    """The request that the fields of a body make.

    Raises:
        UserError: a field is missing, has another form, or is beyond a limit.
    """
    texts, is_list = _texts(values, options)
    source, target = (_language(values, name) for name in ("source", "target"))
    if target == "auto":
        raise UserError("auto is not supported as a target language")
    if values.get("format") not in (None, "", "text", "html"):
        raise UserError(f"{str(values['format'])[:80]} format is not supported")
    try:
        alternatives = max(0, int(values.get("alternatives") or 0))
    except (TypeError, ValueError):
        raise UserError("Invalid request: alternatives parameter is not a number") from None
    most = MOST["n_best"] - 1
    if alternatives > most:
        raise UserError(f"Invalid request: alternatives parameter must be <= {most}")
    is_html = values.get("format") == "html"
    return TranslateRequest(texts, is_list, source, target, alternatives, is_html)


def parse_form(body: bytes, content_type: str) -> dict[str, str]:
    """The fields of a form, `application/x-www-form-urlencoded` or `multipart/form-data`.

    As in LibreTranslate, a field that occurs twice has its first value, and lines end with \\n.

    Raises:
        UserError: the form has too many fields, or has parts and names no boundary.

    Example:
        >>> parse_form(b"q=Two+dogs.&source=en", "application/x-www-form-urlencoded")
        {'source': 'en', 'q': 'Two dogs.'}
    """
    if content_type.lower().startswith("multipart/form-data"):
        fields = _parts(body, content_type)
    else:
        try:
            fields = parse_qsl(body.decode(errors="replace"), True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise UserError(f"Invalid request: more than {_MOST_FIELDS} fields") from None
    return {
        name: value.replace("\r\n", "\n").replace("\r", "\n") for name, value in reversed(fields)
    }


def _parts(body, content_type):
    """The names and values of `multipart/form-data`, without files."""
    boundary = re.search(r'boundary="?([^";,\s]{1,70})', content_type, re.IGNORECASE)
    if not boundary:
        raise UserError("Invalid request: multipart/form-data without a boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode("latin-1"))
    fields = []
    for part in parts[1:-1]:  # the first one is empty, the last one the end, `--`
        head, _, value = part.partition(b"\r\n\r\n")
        if name := re.search(rb'[; ]name=(?:"([^"]*)"|([^\s;"]+))', head, re.IGNORECASE):
            found = name[1] or name[2] or b""
            fields.append((found.decode(errors="replace"), value.decode(errors="replace")))
    return fields


async def _read_values(server, request, keys):
    """The fields of a request, from its body and the query of its URL.

    Raises:
        UserError: the body is no object and no form, or a key is missing.
        HTTPException: 403, the key is unknown; others as for `Server.read_body`.
    """
    body = await server.read_body(request)
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        values = await asyncio.to_thread(parse_json, body)
        if not isinstance(values, dict):
            raise UserError("Invalid JSON format: the body must be an object")
    else:
        form = await asyncio.to_thread(parse_form, body, content_type)
        values = form | dict(request.query_params)
        if "q" not in values and body.lstrip().startswith(b"{"):  # as `curl -d` sends it
            raise UserError("Invalid request: JSON needs the header Content-Type: application/json")
    if keys:
        in_url = request.query_params.get("api_key")
        _expect_key(keys, bearer_key(request.headers), values.get("api_key") or in_url)
    return values


def _expect_key(keys, in_header, in_body):
    given = [key for key in (in_header, str(in_body or "").encode()) if key]
    if not given:
        raise UserError("this server needs an API key: send it as api_key")
    if not any(map(keys.knows, given)):
        raise HTTPException(403, "Invalid API key")


def _texts(values, options):
    """The texts of the field `q`, and whether it is a list."""
    q = values.get("q")
    if not q:
        raise UserError("Invalid request: missing q parameter")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise UserError("Invalid request: q parameter is not a string or a list of strings")
    for size, limit in (
        (len(texts), options.max_sentences),
        (max(map(len, texts)), options.max_characters),
    ):
        if size > limit:
            raise UserError(f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return texts, isinstance(q, list)


def _language(values, name):
    """The code in a field, or "auto"."""
    value = values.get(name)
    if not value:
        raise UserError(f"Invalid request: missing {name} parameter")
    code = "auto" if value == "auto" else language_code(str(value))
    if code is None:
        raise UserError(f"{str(value)[:80]} is not supported")
    return code


def _detected(text, models):
    """The most probable languages of a text; if all models have one source language, that one."""
    sources = {source for source, _ in models}
    if len(sources) == 1:
        return [{"confidence": 100, "language": sources.pop()}]
    return identify(text, itertools.chain(*models))


def _model_for(models, source, target):
    """The model for a pair of languages; None for a pair of equal ones."""
    for code in (source, target):
        if not any(code in pair for pair in models):
            raise UserError(f"{code} is not supported")
    if (source, target) not in models and source != target:
        raise UserError(
            f"{NAMES[target]} ({target}) is not available as a target language from "
            f"{NAMES[source]} ({source})"
        )
    return models.get((source, target))


async def _translations(server, request, languages, asked, source):
    """The best translation of each text, and then its alternatives, all different."""
    _, _, servable = server.model(request)
    servable = await server.in_languages(servable, languages)
    options = _options(servable.options, asked.alternatives)
    if asked.is_html:
        read = await server.read_markup(servable, asked.texts, source)
        task = TranslateMarked(servable, options)
        texts = [sentence.text for sentence in read.sentences]
        found = await server.compute(request, task, read.sentences, texts)
    else:
        read = await asyncio.to_thread(Paragraphs, asked.texts, source, servable.count_tokens)
        found = await server.translate(request, servable, options, read.sentences)
    joined = await asyncio.to_thread(read.join, found)
    return [
        list(dict.fromkeys(one.text for one in some))[: asked.alternatives + 1] for some in joined
    ]


def _plain(asked):
    """The texts without tags."""
    if not asked.is_html:
        return "\n".join(asked.texts)
    return "\n".join(sentence.text for sentence in MarkupTexts(asked.texts).sentences)


def _options(options: SearchOptions | None, alternatives: int) -> SearchOptions | None:
    """The options of a search for alternatives; those of a SavedModel are fixed."""
    if options is None:
        return None
    options = options.best_only()
    wanted = max(options.n_best, alternatives + 1)
    return dataclasses.replace(options, n_best=wanted, beam_size=max(options.beam_size, wanted))


def _named(code):
    return {"code": code, "name": NAMES[code]}
