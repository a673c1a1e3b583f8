"""The HTTP server below the application: sockets, slow clients, orderly shutdown."""

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import resource
import signal
import socket
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_transformer.errors import UserError
from keras_transformer.options import ServingOptions


def _refusal(status: str, reason: str) -> bytes:
    """The answer of a connection that is then closed, and never reaches the application."""
    body = json.dumps({"error": reason})
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode()


_TOO_MANY = _refusal("503 Service Unavailable", "too many connections")
_MALFORMED = _refusal("400 Bad Request", "expected an HTTP/1.1 request, found a malformed one")


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket; connections wait until a server accepts them.

    Raises:
        UserError: the address is unknown or in use.
    """
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(address, family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number and number > 0 else error
        raise UserError(f"--host={host} --port={port}: cannot listen there: {why}") from None


class HttpServer(uvicorn.Server):
    """Uvicorn that exits successfully on a signal, and whose connections have deadlines.

    Args:
        app: the application that answers requests.
        options: the limits.
    """

    def __init__(self, app: ASGIApp, options: ServingOptions):
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=2048,
            limit_concurrency=options.max_connections,
        )
        super().__init__(config)
        self.config.timeout_keep_alive = options.read_timeout  # type: ignore[assignment]
        _allow_open_files(options.max_connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Makes signals end the server once it has answered its current requests.

        They are SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal was closed); one that the server
        was started to ignore, as by `nohup`, stays ignored.
        """
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self.stop)
        yield

    def stop(self) -> None:
        """Ends the server once it has answered its current requests; a second call, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _allow_open_files(connections):
    """Raises the limit of open files, as far as allowed, to what the connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Requests(h11.Connection):
    """Reads requests as RFC 9112 asks for, where uvicorn does not.

    It refuses one with two lengths, since a proxy may have read the other one (section 6.1). It
    accepts one for a whole URL, as clients send it to a proxy (section 3.2.2).
    """

    def next_event(self):
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        names = {name for name, _ in event.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        target = re.sub(rb"^https?://[^/?]*/?", b"/", event.target, flags=re.IGNORECASE)
        return dataclasses.replace(event, target=target)


class _Connection(H11Protocol):
    """A connection that a slow client cannot hold open.

    Uvicorn starts a timer when an answer is complete, and stops it at the next byte. Here the timer
    runs from the start until the headers of a request are complete. Another one limits the time to
    read the answer.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.conn = _Requests(h11.SERVER)
        self._max_connections = self.limit_concurrency or 0
        self.limit_concurrency = None  # else uvicorn would check it too, its own way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            transport.write(_TOO_MANY)
            transport.close()
        else:
            self._start_clock()

    def data_received(self, data: bytes) -> None:
        is_first = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if is_first:
            self._start_clock()
        self.conn.receive_data(data)
        self.handle_events()  # stops the timer when it finds a request

    def _should_upgrade(self) -> bool:
        return False  # uvicorn would log how to install WebSockets, which this server has not

    def send_400_response(self, msg: str) -> None:
        # Uvicorn would answer as plain text, and fail if the application has answered already.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_MALFORMED)
        self.transport.close()

    def _start_clock(self):
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # `close` would wait until the client has read the answer

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.cancel()
