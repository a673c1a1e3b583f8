"""What all routes share: the models, and how a request is computed within the server's limits."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keras_transformer.decoding import SearchOptions
from keras_transformer.serving.batching import Batcher, QueueFull, Task
from keras_transformer.serving.servable import Row, Servable
from keras_transformer.serving.tensor_json import parse_json, write_json
from keras_transformer.serving.versions import Model


@dataclasses.dataclass(frozen=True)
class Predict:
    """The task of a signature."""

    servable: Servable
    signature: str

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        return self.servable.predict(self.signature, rows)

    def joins(self) -> bool:
        return self.servable.joins(self.signature)


@dataclasses.dataclass(frozen=True)
class Translate:
    """The task of translating by options of the request; a row is a text."""

    servable: Servable
    options: SearchOptions | None

    def __call__(self, rows: Sequence[str]) -> list:
        return self.servable.translate_n(rows, self.options)

    def joins(self) -> bool:
        return self.servable.joins("nbest")


@dataclasses.dataclass(frozen=True)
class Attention:
    """The task of attention maps; a row is a text and its translation."""

    servable: Servable

    def __call__(self, rows: Sequence[tuple[str, str]]) -> list:
        return [self.servable.attention(*row) for row in rows]

    def joins(self) -> bool:
        return False


class Server:
    """What the routes share: the models, and how a request is computed.

    Args:
        models: by name.
        batcher: computes.
    """

    def __init__(self, models: Mapping[str, Model], batcher: Batcher):
        self.models, self.batcher = models, batcher

    def model(self, request: Request) -> tuple[Model, int, Servable]:
        """The model of the path's {name}, the version that answers and its number.

        Raises:
            HTTPException: 404, no such model, or not in the path's {version}.
        """
        name, asked = request.path_params["name"], request.path_params.get("version")
        if model := self.models.get(name):
            version, servable = model.current
            if asked in (None, version):
                return model, version, servable
        wanted = f"Latest({name})" if asked is None else f"Specific({name}, {asked})"
        raise HTTPException(404, f"Servable not found for request: {wanted}")

    async def read_json(self, request: Request) -> Any:
        """The body, as strict JSON."""
        return parse_json(await request.body())

    async def compute(
        self, request: Request, task: Task, rows: Sequence[Any], texts: Sequence[str | bytes]
    ) -> list[Any]:
        """The result of each row, computed together with rows of other requests.

        Args:
            request: whose client waits.
            task: computes the rows.
            rows: what to compute; at most so many as a request may have.
            texts: what of the rows counts for the limits of sentences and tokens.
        """
        if not rows:
            return []
        tokens = await asyncio.to_thread(task.servable.count_tokens, texts)
        try:
            future = self.batcher.submit(task, rows, sum(tokens))
        except QueueFull:
            raise HTTPException(429, "too many requests wait", {"Retry-After": "1"}) from None
        return await asyncio.wrap_future(future)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None):
    """A response of strict JSON."""
    return Response(write_json(value), status, headers, "application/json")
