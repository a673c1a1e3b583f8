"""A server from its first to its last moment."""

import logging
from collections.abc import Iterable, Sequence

from keras_transformer.options import ServingOptions
from keras_transformer.serving.app import create_app
from keras_transformer.serving.http import HttpServer, listen
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model, Watcher

_LOG = logging.getLogger("keras_transformer.serving")


def serve(
    models: Iterable[Model],
    options: ServingOptions,
    *,
    host: str = "127.0.0.1",
    port: int = 8501,
    tokens_per_batch: int = 4096,
    workers: int = 1,
    poll_seconds: float = 2.0,
    keys: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
) -> None:
    """Serves models until SIGTERM or SIGINT; what was begun by then is answered.

    Args:
        models: what to serve. They are loaded while the server says that it is not ready.
        options: the limits.
        host: the address to listen at.
        port: 0 for any free one, which is printed.
        tokens_per_batch: the token budget of a batch.
        workers: batches computed at the same time.
        poll_seconds: how often to look for new versions.
        keys: with one of which a request must come; none: it need not.
        cors_origins: of pages in browsers that may ask.

    Raises:
        UserError: the address cannot be listened at, or a model cannot be loaded.
    """
    socket = listen(host, port)
    server = Server(models, options, tokens_per_batch, workers)
    http = HttpServer(create_app(server, keys, cors_origins), options)
    failures: list[Exception] = []

    def fail(error):
        failures.append(error)
        http.stop()

    watcher = Watcher(server.models.values(), poll_seconds, fail)
    address, port = socket.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    print(f"listening at http://{shown}:{port}", flush=True)
    watcher.start()
    try:
        http.run(sockets=[socket])
    finally:
        watcher.stop()
        server.batcher.close()
    if failures:
        raise failures[0]
