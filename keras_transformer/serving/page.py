"""The page at `/`, on which people try a model, and the requests that only the page makes."""

import asyncio
import dataclasses
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.analysis.attention_page import attention_data
from keras_transformer.analysis.pair_attention import WordAttention, word_numbers
from keras_transformer.decoding import SearchOptions
from keras_transformer.errors import UserError
from keras_transformer.serving.server import Attention, Server, Translate, json_response

# The largest value that a request may choose, so that none takes the server for long. A model that
# is served with a larger one may be asked for as much.
LARGEST_OPTIONS = {
    "beam_size": 32,
    "n_best": 32,
    "alpha": 10,
    "min_length": 1024,
    "max_length": 1024,
    "extra_length": 1024,
    "no_repeat_ngram": 100,
}
FILES = {
    "/": ("keras_transformer.serving", "page/index.html", "text/html"),
    "/page.css": ("keras_transformer.serving", "page/page.css", "text/css"),
    "/page.js": ("keras_transformer.serving", "page/page.js", "text/javascript"),
    "/tree.js": ("keras_transformer.serving", "page/tree.js", "text/javascript"),
    "/icon.svg": ("keras_transformer.serving", "page/icon.svg", "image/svg+xml"),
    "/attention.css": ("keras_transformer.analysis", "attention_drawing.css", "text/css"),
    "/attention.js": ("keras_transformer.analysis", "attention_drawing.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a new release of the server brings its own page
}


def page_routes(server: Server) -> list[Route]:
    """The routes of the page and of what it asks for."""

    async def models(request: Request) -> Response:
        return json_response([_described(model) for model in server.models.values()])

    async def translate(request: Request) -> Response:
        _, _, servable = server.model(request)
        body = await server.read_json(request)
        texts, options = parse_translate(body, servable.options)
        found = await server.compute(request, Translate(servable, options), texts, texts)
        return json_response({"translations": [[one._asdict() for one in some] for some in found]})

    async def attention(request: Request) -> Response:
        _, _, servable = server.model(request)
        text, translation = parse_attention(await server.read_json(request))
        pair = text, translation
        [maps] = await server.compute(request, Attention(servable), [pair], pair)
        return json_response(await asyncio.to_thread(_drawn, maps))

    return [
        *(Route(path, _file(*file), methods=["GET"]) for path, file in FILES.items()),
        Route("/api/models", models, methods=["GET"]),
        Route("/api/models/{name}:translate", translate, methods=["POST"]),
        Route("/api/models/{name}:attention", attention, methods=["POST"]),
    ]


def parse_translate(
    body: Any, defaults: SearchOptions | None
) -> tuple[list[str], SearchOptions | None]:
    """The texts and the options of a request such as `{"text": ["Two dogs."], "options": {}}`.

    Args:
        body: as JSON has it.
        defaults: the options that the request may change some of; None: they are fixed.

    Raises:
        UserError: it asks for something else.
    """
    body = _object(body, "a body", {"text", "options"})
    texts = body.get("text")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError("text: expected a list of strings")
    chosen = _object(body.get("options", {}), "options", set(LARGEST_OPTIONS))
    if not chosen:
        return texts, defaults
    if defaults is None:
        raise UserError("options: expected none, since those of a SavedModel are fixed")
    options = dataclasses.replace(defaults, **chosen)
    for name in chosen:
        default, value = getattr(defaults, name), getattr(options, name)
        largest = max(LARGEST_OPTIONS[name], default or 0)
        options.expect(name, value is None or value <= largest, f"at most {largest}")
    return texts, options


def parse_attention(body: Any) -> tuple[str, str]:
    """The two texts of a request such as `{"text": "Two dogs.", "translation": "Zwei Hunde."}`.

    Raises:
        UserError: it asks for something else.
    """
    body = _object(body, "a body", {"text", "translation"})
    text, translation = body.get("text"), body.get("translation")
    if not isinstance(text, str) or not isinstance(translation, str):
        raise UserError("expected text and translation, a string each")
    return text, translation


def _object(value, what, keys):
    if not isinstance(value, dict):
        raise UserError(f"expected {what} that is an object of JSON")
    for key in value:
        if key not in keys:
            raise UserError(f"expected {what} of {', '.join(sorted(keys))}, found {key!r}")
    return value


def _described(model):
    version, servable = model.current
    options = servable.options
    return {
        "name": model.name,
        "task": servable.task,
        "engine": servable.engine,
        "versions": [version],
        "options": options and {name: getattr(options, name) for name in LARGEST_OPTIONS},
        "attention": servable.has_attention,
    }


def _drawn(maps: dict[str, WordAttention]) -> dict[str, Any]:
    """What the drawing of attention needs, and which word of its text each subword belongs to."""
    cross = maps["memory"]
    # The end symbol belongs to no word.
    source, target = (word_numbers(pieces[:-1]) for pieces in (cross.key_pieces, cross.pieces))
    return attention_data(maps) | {"words": {"source": source, "target": target}}


def _file(package, name, media_type):
    path = resources.files(package).joinpath(name)

    async def respond(request: Request) -> Response:
        return Response(path.read_bytes(), media_type=media_type, headers=HEADERS)

    return respond
