"""Steps around every request: names and origins, API key, log, metrics."""

import ipaddress
import logging
import re
import time
from collections.abc import Collection, Iterable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from keras_transformer.errors import UserError
from keras_transformer.serving import libretranslate, page_routes
from keras_transformer.serving.http import PROBES
from keras_transformer.serving.keys import Keys, bearer_key
from keras_transformer.serving.server import Server, json_response

# Paths that need no key (probes, the page that asks for the key, LibreTranslate's settings), and
# those that take it in another way too.
_OPEN = {*PROBES, *page_routes.FILES, *libretranslate.PATHS}
_LOG = logging.getLogger("keras_transformer.serving.access")


class RefuseOtherSites:
    """Refuses what pages of other sites can make a browser send without the server's consent.

    A page may rebind its own name to this server's address, and then read the answers: its requests
    name another host. Any page may send a form or plain text, whose answer it cannot read: its
    origin is another than the host, and the body is not JSON.

    Args:
        app: the application.
        hosts: the names that requests may have in `Host`; empty: any.
        origins: the origins whose pages may send any body; "*": all.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], origins: Collection[str]):
        self._app, self._hosts, self._origins = app, hosts, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and scope["path"] not in PROBES:
            refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, method, headers):
        host = headers.get("host")  # HTTP/1.0 needs none
        name = re.sub(r":\d*$", "", (host or "").lower())
        if self._hosts and host is not None and name not in self._hosts:
            message = f"Host {name[:80]!r} is not a name of this server: --allowed_hosts adds names"
            return json_response({"error": message}, 421)
        origin = headers.get("origin")
        is_other = origin is not None and origin.lower().partition("://")[2] != (host or "").lower()
        is_known = origin in self._origins or "*" in self._origins
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and is_other and not is_known and kind != "application/json":
            message = "a page of another site must send Content-Type: application/json"
            return json_response({"error": message}, 415)
        return None


def host_names(allowed: Iterable[str], host: str, address: str) -> set[str]:
    """The names that requests may have in `Host`; empty: any.

    Without `allowed`, a server that only this machine reaches has the names of this machine.

    Args:
        allowed: the names that the user allows; "*": any.
        host: the host that the user lets the server listen at.
        address: the address of this host.

    Raises:
        UserError: a name is not a host's.

    Example:
        >>> sorted(host_names([], "localhost", "127.0.0.1"))
        ['127.0.0.1', '[::1]', 'localhost']
        >>> "a.example" in host_names(["a.example"], "0.0.0.0", "0.0.0.0")
        True
        >>> host_names([], "0.0.0.0", "0.0.0.0")
        set()
    """
    allowed = [name.lower() for name in allowed]
    for name in allowed:
        if not re.fullmatch(r"\*|\[[0-9a-f:.]+\]|[^][/:@*\s]+", name):
            raise UserError(
                f"--allowed_hosts must be names such as translate.example: found {name!r}"
            )
    if "*" in allowed or not (allowed or ipaddress.ip_address(address).is_loopback):
        return set()
    own = (f"[{one}]" if ":" in one else one.lower() for one in (host, address))
    return {"localhost", "127.0.0.1", "[::1]", *own, *allowed}


def check_origins(origins: Iterable[str]) -> None:
    """Raises `UserError` for an origin that no browser sends: it would allow no page.

    Example:
        >>> check_origins(["*", "https://a.org", "http://localhost:3000"])
    """
    for origin in origins:
        scheme, _, rest = origin.lower().rpartition("://")
        right = f"{scheme or 'https'}://{re.split('[/?#]', rest)[0]}"
        right = re.sub(r"^(http://.*):80$|^(https://.*):443$", r"\1\2", right)
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d+)?", right):
            right = "https://a.org"
        if origin not in ("*", "null", right):  # null is that of a page opened as a file
            raise UserError(
                f"--cors_origin must be * or an origin as browsers send it, such as {right}: "
                f"found {origin!r}"
            )


class AllowOrigins(CORSMiddleware):
    """Lets web pages of some origins use the server, with any header; "*": those of all.

    Headers need no list: what a page may do is decided by its origin and its key.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]):
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answers a browser that asks what a page may send; a refusal is an error like others."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        message = f"{bytes(response.body).decode()}: --cors_origin adds origins, for GET and POST"
        return json_response({"error": message}, 400, {"Vary": "Origin"})


class RequireKey:
    """Refuses requests that do not send one of the keys, as `Authorization: Bearer KEY`."""

    def __init__(self, app: ASGIApp, keys: Keys):
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        message = "the request has no known key: send the header Authorization: Bearer KEY"
        headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
        await json_response({"error": message}, 401, headers)(scope, receive, send)

    def _is_known(self, scope):
        key = bearer_key(Headers(scope=scope))
        return key is not None and self._keys.knows(key)


class Observe:
    """Logs each request as a line of JSON, and counts it."""

    def __init__(self, app: ASGIApp, server: Server):
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 500, time.monotonic()

        async def send_and_note(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._note(scope, status, time.monotonic() - start)

    def _note(self, scope, status, seconds):
        model = scope.get("path_params", {}).get("name", "")
        model = model if model in self._server.models else ""
        method = getattr(scope.get("endpoint"), "__name__", "")
        self._server.metrics.observe_request(model, method, status, seconds)
        client, _ = scope.get("client") or ("", 0)
        about = {
            "client": client,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "seconds": round(seconds, 6),
        }
        counts = {
            name: scope["state"][name] for name in ("sentences", "tokens") if name in scope["state"]
        }
        _LOG.info("request", extra={"fields": about | counts})
