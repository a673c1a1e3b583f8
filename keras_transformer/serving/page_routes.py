"""The page at `/`, where people try a model, and the requests that only this page makes."""

import asyncio
from importlib import resources
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.documents.linked_texts import word_numbers
from keras_transformer.errors import UserError
from keras_transformer.report.attention_page import attention_data
from keras_transformer.report.word_attention import WordAttention
from keras_transformer.serving.server import (
    Attention,
    Server,
    asks_for_split,
    json_response,
)
from keras_transformer.text.languages import Languages

# The search options that people can choose on the page.
OPTIONS = (
    "beam_size",
    "n_best",
    "alpha",
    "min_length",
    "max_length",
    "extra_length",
    "no_repeat_ngram",
)
FILES = {
    "/": ("keras_transformer.serving", "page/index.html", "text/html"),
    "/page.css": ("keras_transformer.serving", "page/page.css", "text/css"),
    "/page.js": ("keras_transformer.serving", "page/page.js", "text/javascript"),
    "/tree.js": ("keras_transformer.serving", "page/tree.js", "text/javascript"),
    "/icon.svg": ("keras_transformer.serving", "page/icon.svg", "image/svg+xml"),
    "/attention.css": ("keras_transformer.report", "attention_drawing.css", "text/css"),
    "/attention.js": ("keras_transformer.report", "attention_drawing.js", "text/javascript"),
}
_LANGUAGES = ("target_lang", "source_lang")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a new release of the server has a new page
}


def page_routes(server: Server) -> list[Route]:
    """The routes of the page and of its requests."""

    async def models(request: Request) -> Response:
        loaded = [model for model in server.models.values() if model.current]
        if not loaded:
            raise HTTPException(503, "models are loading", {"Retry-After": "1"})
        return json_response([_described(model) for model in loaded])

    async def translate(request: Request) -> Response:
        _, _, servable = server.model(request)
        body = await server.read_json(request)
        texts, changes, is_split = parse_translate(body)
        servable = await server.in_languages(servable, body)
        options = server.search_options(servable, changes)
        if not is_split:
            return _translations(await server.translate(request, servable, options, texts))
        paragraphs = await server.split(servable, texts)
        found = await server.translate(request, servable, options, paragraphs.sentences)
        split = [{"sentences": of_text, "gaps": gaps} for of_text, gaps in paragraphs.split]
        joined = await asyncio.to_thread(paragraphs.join, found)
        return _translations(joined, sources=split)

    async def attention(request: Request) -> Response:
        _, _, servable = server.model(request)
        body = await server.read_json(request)
        text, translation = parse_attention(body)
        servable = await server.in_languages(servable, body)
        pair = text, translation
        [maps] = await server.compute(request, Attention(servable), [pair], pair)
        return json_response(await asyncio.to_thread(_drawn, maps, servable.languages, pair))

    return [
        *(Route(path, _file(*file)) for path, file in FILES.items()),
        Route("/api/models", models),
        Route("/api/models/{name:model}:translate", translate, methods=["POST"]),
        Route("/api/models/{name:model}:attention", attention, methods=["POST"]),
    ]


def parse_translate(body: Any) -> tuple[list[str], dict[str, Any], bool]:
    """The texts and the options of a request such as `{"text": ["Two dogs."], "options": {}}`.

    Returns:
        Texts, options, and whether `"split": "sentences"` asks to split the texts.

    Raises:
        UserError: the body has another form.
    """
    texts, options, *_ = _values(body, "text", "options", "split", *_LANGUAGES)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError("text must be a list of strings")
    if not isinstance(options, dict | None):
        raise UserError("options must be an object")
    return texts, options or {}, asks_for_split(body)


def parse_attention(body: Any) -> tuple[str, str]:
    """The two texts of a request such as `{"text": "Two dogs.", "translation": "Zwei Hunde."}`.

    Raises:
        UserError: the body has another form.
    """
    text, translation, *_ = _values(body, "text", "translation", *_LANGUAGES)
    if not isinstance(text, str) or not isinstance(translation, str):
        raise UserError("text and translation must be strings")
    return text, translation


def _values(body, *names):
    """The values of an object for these names, and no others; None for a missing name."""
    if not isinstance(body, dict) or not set(body) <= set(names):
        *others, last = names
        raise UserError(f"the body must be an object of {', '.join(others)} and {last}")
    return [body.get(name) for name in names]


def _translations(found, **more):
    """The answer with all translations of each text."""
    translations = [[one._asdict() for one in some] for some in found]
    return json_response({"translations": translations, **more})


def _described(model):
    version, servable = model.current
    options = servable.options
    return {
        "name": model.name,
        "task": servable.task,
        "engine": servable.engine,
        "versions": [version],
        "options": options and {name: getattr(options, name) for name in OPTIONS},
        "attention": servable.attention is not None,
        "languages": servable.languages
        and {
            "codes": list(servable.languages.symbols),
            "has_source": servable.languages.in_target,
        },
    }


def _drawn(
    maps: dict[str, WordAttention], languages: Languages | None, pair: tuple[str, str]
) -> dict[str, Any]:
    """The data of the attention drawing, and the word that each subword belongs to."""
    cross = maps["memory"]
    # The end symbol belongs to no word.
    symbols = languages.symbols.values() if languages else ()
    source, target = (
        _numbers(pieces[:-1], symbols, text)
        for pieces, text in zip((cross.key_pieces, cross.pieces), pair, strict=True)
    )
    return attention_data(maps) | {"words": {"source": source, "target": target}}


def _numbers(pieces, symbols, text):
    """The word of each subword; None for the symbol of a language, with which a side may begin."""
    added = int(bool(pieces) and pieces[0] in symbols)
    return [*[None] * added, *word_numbers(pieces[added:], text)]


def _file(package, name, media_type):
    content = resources.files(package).joinpath(name).read_bytes()

    async def respond(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return respond
