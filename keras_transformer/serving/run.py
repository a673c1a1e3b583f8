"""Runs a server from start to shutdown."""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_transformer.options import ServingOptions
from keras_transformer.serving.app import create_app
from keras_transformer.serving.http import HttpServer, listen
from keras_transformer.serving.middleware import check_origins, host_names
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model, Watcher

_LOG = logging.getLogger("keras_transformer.serving")


class Access(NamedTuple):
    """Who may use a server.

    Attributes:
        keys: API keys, one of which each request must send; empty: none is needed.
        cors_origins: origins of web pages that may use the server.
        allowed_hosts: names that requests may have in `Host`, besides those of this machine; empty:
            none if only this machine reaches the server, else any; "*": any.
    """

    keys: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()


def serve(
    models: Iterable[Model],
    options: ServingOptions,
    access: Access,
    *,
    host: str = "127.0.0.1",
    port: int = 8501,
    tokens_per_batch: int = 4096,
    workers: int = 1,
) -> bool:
    """Serves models until SIGTERM, SIGINT or SIGHUP, and then still answers the current requests.

    Args:
        models: the models to serve. While they are loaded, the server reports that it is not ready.
        options: the limits and waiting times.
        access: who may use the server.
        host: the address to listen on.
        port: the port to listen on; 0 for any free one, which is printed.
        tokens_per_batch: the token budget of a batch.
        workers: number of batches computed in parallel.

    Returns:
        Whether a thread is still loading a version. TensorFlow would then abort the process if
        Python ended as usual.

    Raises:
        UserError: the server cannot listen on the address, a name is not a host's, an origin is
            none, or no version of a model can be loaded.
    """
    check_origins(access.cors_origins)
    socket = listen(host, port)
    address, port = socket.getsockname()[:2]
    hosts = host_names(access.allowed_hosts, host, address)
    server = Server(models, options, tokens_per_batch, workers)
    app = create_app(server, access.keys, access.cors_origins, hosts)
    http = HttpServer(app, options, server.note_refused)
    failures: list[Exception] = []

    def fail(error):
        failures.append(error)
        http.stop()

    watcher = Watcher(server.models.values(), options.poll_seconds, fail)
    shown = f"[{address}]" if ":" in address else address
    with http.capture_signals():  # who reads the line may send one
        print(f"listening at http://{shown}:{port}", flush=True)
        watcher.start()
        try:
            http.run(sockets=[socket])
        finally:
            is_loading = watcher.stop()
            server.batcher.close()
    if failures:
        raise failures[0]
    return is_loading
