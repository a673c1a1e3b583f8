"""The application of a server: all routes, among them TensorFlow Serving's REST interface."""

import asyncio
from collections.abc import Collection, Sequence

from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec

from keras_transformer.errors import UserError
from keras_transformer.serving.keys import Keys
from keras_transformer.serving.libretranslate import libretranslate_routes
from keras_transformer.serving.middleware import AllowOrigins, Observe, RefuseOtherSites, RequireKey
from keras_transformer.serving.page_routes import page_routes
from keras_transformer.serving.server import (
    Predict,
    Server,
    TranslateMarked,
    asks_for_split,
    format_of,
    json_response,
)
from keras_transformer.serving.tensor_json import parse_predict, predict_response
from keras_transformer.translation import Translation


class _ModelName(Convertor[str]):
    """A model name, which `:predict` may follow."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    to_string = convert


class _Version(Convertor[int]):
    """A version number, of at most as many digits as 64 bits have."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("model", _ModelName())
register_url_convertor("version", _Version())


def create_app(
    server: Server,
    keys: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
    hosts: Collection[str] = (),
) -> Starlette:
    """The ASGI application of a server.

    Args:
        server: the models and limits.
        keys: API keys, one of which each request must send; empty: none is needed.
        cors_origins: origins of web pages that may use the server; "*": all.
        hosts: the names that requests may have in `Host`; empty: any.
    """
    known = Keys(keys)
    routes = [
        *page_routes(server),
        *_model_routes(server),
        *libretranslate_routes(server, known),
        *_other_routes(server),
    ]
    middleware = [Middleware(Observe, server), Middleware(RefuseOtherSites, hosts, cors_origins)]
    if cors_origins:
        middleware.append(Middleware(AllowOrigins, cors_origins))
    if known:
        middleware.append(Middleware(RequireKey, known))
    handlers = {UserError: _user_error, HTTPException: _http_error, Exception: _internal_error}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
    app.router.redirect_slashes = False  # a redirect would repeat what the client sent
    return app


def _model_routes(server: Server) -> list[Route]:
    """The routes of TensorFlow Serving, each for the newest version and for a given one."""

    async def predict(request: Request) -> Response:
        _, _, servable = server.model(request)
        body = await server.read_json(request)
        asked = await asyncio.to_thread(parse_predict, body, servable.signatures)
        servable = await server.in_languages(servable, body)
        signature = servable.signatures[asked.signature]
        if (format_ := format_of(body)) != "text":
            split = asks_for_split(body)
            outputs = await predict_markup(request, servable, asked, split, format_)
        elif asks_for_split(body):
            outputs = await predict_paragraphs(request, servable, asked)
        else:
            texts = [text for row in asked.rows for text in row if isinstance(text, str | bytes)]
            task = Predict(servable, asked.signature)
            outputs = await server.compute(request, task, asked.rows, texts)
        return json_response(predict_response(asked, signature, outputs))

    async def predict_markup(request, servable, asked, split, format_):
        expect_default(asked, f"format={format_}")
        texts = [text for (text,) in asked.rows]
        read = await server.read_markup(servable, texts, servable.source_lang, split, format_)
        task = TranslateMarked(servable, servable.options.best_only())
        sentences = [sentence.text for sentence in read.sentences]
        found = await server.compute(request, task, read.sentences, sentences)
        joined = await asyncio.to_thread(read.join, found)
        return [{"translation": best.text, "score": best.score} for [best] in joined]

    def expect_default(asked, what):
        if asked.signature != "serving_default":
            raise UserError(f"{what} is for the signature serving_default: leave out one of them")

    async def predict_paragraphs(request, servable, asked):
        expect_default(asked, "split=sentences")
        paragraphs = await server.split(servable, [text for (text,) in asked.rows])
        rows = [(sentence,) for sentence in paragraphs.sentences]
        task = Predict(servable, asked.signature)
        outputs = await server.compute(request, task, rows, paragraphs.sentences)
        found = [[Translation(one["translation"], one["score"])] for one in outputs]
        return [
            {"translation": best.text, "score": best.score} for [best] in paragraphs.join(found)
        ]

    async def status(request: Request) -> Response:
        name, asked = request.path_params["name"], request.path_params.get("version")
        model = server.models.get(name)
        versions = model.status().model_version_status if model else []
        if not versions:  # there is no such model, or it is still to be loaded
            raise HTTPException(404, f"Could not find any versions of model {name}")
        chosen = [one for one in versions if asked in (None, one.version)]
        if not chosen:
            raise HTTPException(404, f"Could not find version {asked} of model {name}")
        found = GetModelStatusResponse(model_version_status=chosen)
        return json_response(MessageToDict(found, always_print_fields_with_no_presence=True))

    async def metadata(request: Request) -> Response:
        model, version, servable = server.model(request)
        spec = ModelSpec(name=model.name)
        spec.version.value = version
        options = {"preserving_proto_field_name": True}
        options["always_print_fields_with_no_presence"] = True
        signatures = SignatureDefMap(signature_def=servable.signatures)
        return json_response(
            {
                "model_spec": MessageToDict(spec, **options),
                "metadata": {"signature_def": MessageToDict(signatures, **options)},
            }
        )

    newest = "/v1/models/{name:model}"
    return [
        route
        for prefix in (newest, f"{newest}/versions/{{version:version}}")
        for route in (
            Route(f"{prefix}:predict", predict, methods=["POST"]),
            Route(f"{prefix}/metadata", metadata),
            Route(prefix, status),
        )
    ]


def _other_routes(server: Server) -> list[Route]:
    """The routes of probes and metrics, and of malformed requests under /v1."""

    async def malformed(request: Request) -> Response:
        raise UserError(f"Malformed request: {request.method} {request.url.path}")

    async def metrics(request: Request) -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")

    async def health(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readiness(request: Request) -> Response:
        if server.is_ready():
            return json_response({"status": "ready"})
        return json_response({"error": "models are loading"}, 503, {"Retry-After": "5"})

    return [
        Route("/v1/{rest:path}", malformed, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        Route("/metrics", metrics),
        Route("/healthz", health),
        Route("/readyz", readiness),
    ]


async def _user_error(request, error):
    return json_response({"error": " ".join(str(error).split())}, 400)


async def _http_error(request, error):
    return json_response({"error": error.detail}, error.status_code, error.headers)


async def _internal_error(request, error):
    """Answers without the traceback, which is in the log."""
    return json_response({"error": "the server failed to answer this request"}, 500)
