"""The HTTP server below the application: sockets, slow clients, orderly shutdown."""

import asyncio
import contextlib
import dataclasses
import functools
import http
import json
import math
import os
import re
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_transformer.errors import UserError
from keras_transformer.options import ServingOptions
from keras_transformer.serving.connections import Connections

PROBES = {"/healthz", "/readyz"}
"""Paths by which others ask whether the server works; they are never refused."""
_TOO_MANY = "too many connections: try again later"
# The answers to malformed requests, by the status that h11 suggests.
_MALFORMED = {
    400: "the request is malformed: send HTTP/1.1",
    431: "the headers are larger than 64 KiB: send fewer",
    501: "Transfer-Encoding must be chunked, or left out",
    505: "the request must use HTTP/1.1 or HTTP/1.0",
}
# Called for a connection that is refused, or closed before its answer: with the client's address,
# a word for the reason, the status of the answer or None without one, and details for the log.
Refused = Callable[[str, str, int | None, str], None]


def _refusal(status: int, reason: str, *headers: str) -> bytes:
    """The answer of a connection that is then closed, and never reaches the application."""
    body = json.dumps({"error": reason})
    lines = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join([*lines, "", body]).encode()


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket; connections wait until a server accepts them.

    The host "::" stands for all addresses, those of IPv4 too.

    Raises:
        UserError: the address is unknown or in use.
    """
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        is_dual = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=is_dual)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number and number > 0 else error
        raise UserError(f"--host={host} --port={port}: cannot listen there: {why}") from None


class HttpServer(uvicorn.Server):
    """Uvicorn that exits successfully on a signal, and whose connections have deadlines.

    Args:
        app: the application that answers requests.
        options: the limits.
        refused: called for each connection that is refused, or closed before its answer.
    """

    def __init__(self, app: ASGIApp, options: ServingOptions, refused: Refused):
        connections = Connections(options.max_connections, options.most_of_address())
        # Each request has ended by then, unless its client has stopped reading.
        seconds = math.ceil(options.request_timeout + 3 * options.read_timeout)
        config = uvicorn.Config(
            app,
            http=functools.partial(_Connection, connections, refused),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=2048,
            timeout_graceful_shutdown=seconds,
        )
        super().__init__(config)
        self.config.timeout_keep_alive = options.read_timeout  # type: ignore[assignment]
        _allow_open_files(options.max_connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Makes signals end the server once it has answered its current requests.

        They are SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal was closed); one that the server
        was started to ignore, as by `nohup`, stays ignored. Uvicorn calls it too; a caller of `run`
        may do so earlier.
        """
        before = {}
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, lambda *_: self.stop())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

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

    It refuses one with two lengths, since a proxy may have read the other one (section 6.1), and
    one of another version than HTTP/1 (RFC 9110, section 2.5). It accepts one for a whole URL, as
    clients send it to a proxy (section 3.2.2). It drops the offer to upgrade to another protocol,
    as a server may (RFC 9110, section 7.8): uvicorn would log how to install WebSockets.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self.fault: h11.RemoteProtocolError | None = None  # uvicorn does not pass it on

    def next_event(self):
        try:
            return self._next_event()
        except h11.RemoteProtocolError as error:
            self.fault = error
            raise

    def _next_event(self):
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        if not event.http_version.startswith(b"1."):
            raise h11.RemoteProtocolError("another version than HTTP/1", 505)
        names = {name for name, _ in event.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        target = re.sub(rb"^https?://[^/?]*/?", b"/", event.target, flags=re.IGNORECASE)
        headers = [(name, value) for name, value in event.headers if name != b"upgrade"]
        return dataclasses.replace(event, target=target, headers=headers)


class _Connection(H11Protocol):
    """A connection that a slow client cannot hold open.

    Uvicorn starts a timer when an answer is complete, and stops it at the next byte. Here the timer
    runs from the start until the headers of a request are complete. Another one limits the time to
    read the answer.

    A client that has sent its request may close its own side, and is still answered.
    """

    def __init__(self, connections: Connections, refused: Refused, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.conn: _Requests = _Requests()
        self._room, self._refused = connections, refused
        self._whole_app, self.app = self.app, self._app_within_limits
        self._has_begun = False  # whether a part of the next request has arrived
        self._is_half_closed = False

    @property
    def address(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""

    # Events of the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._room.admit(self):
            self._room.note(self, is_idle=True)
        else:
            self._room.keep_in_reserve(self)
        self._start_clock()

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self._skip_empty_line()
        if self._unread_request() and not self._has_begun:
            self._has_begun = True
            self._start_clock()
        self.handle_events()  # stops the timer when it finds a request

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more; returns whether the connection stays open to be answered."""
        if not self._is_answering() or self.cycle.more_body:
            return False
        if not self._is_half_closed:
            self._is_half_closed = True
            # A client that has gone looks the same until we send something: then it resets the
            # connection. HTTP/1.1 lets a server send this at any time before the answer.
            if self.scope["http_version"] == "1.1" and not self.cycle.response_started:
                event = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
                self.transport.write(self.conn.send(event))
                self._close_if_reset()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.forget(self)
        super().connection_lost(exc)

    def make_room(self, is_refused: bool) -> None:
        if is_refused:
            self._refuse("too_many", 503, _TOO_MANY, "Retry-After: 1")
        else:
            self._refused(self.address, "made_room", None, "")
            self._close()

    # Methods that uvicorn calls

    def handle_events(self) -> None:
        self._skip_empty_line()
        if self._unread_request() == b"\r":
            return  # it may begin an empty line, which h11 would refuse
        super().handle_events()
        self._room.note(self, is_idle=not self._is_answering())

    def on_response_complete(self) -> None:
        self._has_begun = False
        super().on_response_complete()
        self._room.note(self, is_idle=not self._is_answering())
        if self.transport.is_closing() or (self._is_half_closed and not self._is_answering()):
            self._close()

    def send_400_response(self, msg: str) -> None:
        # Uvicorn would answer as plain text, and fail if the application has answered already.
        fault = self.conn.fault
        status = fault.error_status_hint if fault else 400
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse("malformed", status, _MALFORMED.get(status, _MALFORMED[400]))
        else:
            self._refused(self.address, "malformed", None, str(fault))
            self._close()

    def shutdown(self) -> None:
        if self._is_answering():
            headers = self.cycle.default_headers
            self.cycle.default_headers = [*headers, (b"connection", b"close")]
        super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        self._abort("slow_request" if self._has_begun else None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.timeout_keep_alive, self._abort, "unread_answer")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.cancel()

    # Helpers of these

    def _is_answering(self):
        return self.cycle is not None and not self.cycle.response_complete

    def _skip_empty_line(self):
        """Removes an empty line before a request, as RFC 9112, section 2.2, asks for."""
        received = self._unread_request()
        if received.startswith(b"\r\n"):
            self.conn = _Requests()
            if len(received) > 2:  # empty data would mean the end
                self.conn.receive_data(received[2:])

    def _unread_request(self):
        """The bytes of the next request so far; empty while the current one is not complete."""
        return self.conn.trailing_data[0] if self.conn.their_state is h11.IDLE else b""

    def _start_clock(self):
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    async def _app_within_limits(self, scope, receive, send):
        if scope["path"] in PROBES or self._room.admit(self):
            await self._whole_app(scope, receive, send)
            return
        self._refused(self.address, "too_many", 503, "")
        headers = {"Retry-After": "1", "Connection": "close"}
        await JSONResponse({"error": _TOO_MANY}, 503, headers)(scope, receive, send)

    def _close_if_reset(self):
        if not self._is_answering() or self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(0.1, self._close_if_reset)

    def _refuse(self, reason, status, message, *headers):
        details = str(self.conn.fault or "")
        self._refused(self.address, reason, status, details)
        self.transport.write(_refusal(status, message, *headers))
        self._close()

    def _close(self):
        """Closes the connection once the client has read what was written, or soon without that."""
        self.transport.close()
        self.loop.call_later(self.timeout_keep_alive, self._abort, "unread_answer")

    def _abort(self, reason):
        """Ends the connection, which `close` would do when the client has read its answers."""
        if self in self.connections:  # it has not ended yet
            if reason:
                self._refused(self.address, reason, None, "")
            self.transport.abort()
