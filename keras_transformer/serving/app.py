"""The routes of a server: TensorFlow Serving's REST interface."""

import re

from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec

from keras_transformer.errors import UserError
from keras_transformer.serving.page import page_routes
from keras_transformer.serving.server import Predict, Server, json_response
from keras_transformer.serving.tensor_json import parse_predict, predict_response


def create_app(server: Server) -> Starlette:
    """The application of a server."""

    async def predict(request: Request) -> Response:
        _, _, servable = server.model(request)
        asked = parse_predict(await server.read_json(request), servable.signatures)
        signature = servable.signatures[asked.signature]
        texts = [text for row in asked.rows for text in row if isinstance(text, str | bytes)]
        task = Predict(servable, asked.signature)
        outputs = await server.compute(request, task, asked.rows, texts)
        return json_response(predict_response(asked, signature, outputs))

    async def status(request: Request) -> Response:
        name, asked = request.path_params["name"], request.path_params.get("version")
        if name not in server.models:
            raise HTTPException(404, f"Could not find any versions of model {name}")
        versions = server.models[name].status().model_version_status
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

    async def malformed(request: Request) -> Response:
        raise UserError(f"Malformed request: {request.method} {request.url.path}")

    model = "/v1/models/{name}"
    routes = page_routes(server)
    for prefix in (model, model + "/versions/{version:int}"):
        routes += [
            Route(f"{prefix}:predict", predict, methods=["POST"]),
            Route(prefix, status, methods=["GET"]),
            Route(f"{prefix}/metadata", metadata, methods=["GET"]),
        ]
    routes.append(Route("/v1/{rest:path}", malformed, methods=["GET", "POST"]))
    handlers = {UserError: _user_error, HTTPException: _http_error}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.server = server
    return app


async def _user_error(request, error):
    return json_response({"error": _one_sentence(str(error))}, 400)


async def _http_error(request, error):
    return json_response({"error": error.detail}, error.status_code, error.headers)


def _one_sentence(text):
    return re.sub(r"\s+", " ", text)
