"""Real sockets: slow, rude and many clients do not keep others from their answers."""

import contextlib
import io
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from helpers import run_python
from serving_world import SOON, Doing, only_version, running

from keras_transformer.errors import UserError
from keras_transformer.options import ServingOptions
from keras_transformer.serving.connections import Connections
from keras_transformer.serving.http import listen
from keras_transformer.serving.run import Access, serve
from keras_transformer.serving.server import Server

PATH = "/v1/models/m:predict"


def serving(servable=None, **limits):
    """The context of a running server of one model; its `HttpServer` and port."""
    options = ServingOptions(**limits)
    server = Server([only_version("m", servable or Doing())], options)
    return running(server, options)


def answers(port):
    """Whether another client gets a correct answer."""
    url = f"http://127.0.0.1:{port}{PATH}"
    body = httpx2.post(url, json={"instances": ["ab"]}, timeout=SOON).json()
    return body["predictions"][0]["translation"] == "ba"


def connected(port):
    made = socket.create_connection(("127.0.0.1", port), SOON)
    made.settimeout(SOON)
    return made


def head(length, *more):
    lines = (f"POST {PATH} HTTP/1.1", "Host: a", f"Content-Length: {length}", *more)
    return "\r\n".join((*lines, "", "")).encode()


def rest(connection):
    """All bytes until the server closes or resets the connection."""
    received = b""
    try:
        while some := connection.recv(65536):
            received += some
    except ConnectionError:
        pass
    return received


def status_of(received):
    return int(received.split()[1]) if received else None


@pytest.fixture(scope="module")
def shared():
    """The port of a server for tests that leave it as it was."""
    with serving(read_timeout=3) as (_, port):
        yield port


@pytest.fixture(scope="module")
def slow_clients():
    """Runs several slow clients of one server at once; gives what each of them received."""
    clients = {
        "silent": rest,
        "headers": lambda connection: trickle(connection, b"P"),
        "body": lambda connection: trickle(connection, head(10_000)),
        "endless": send_without_end,
        "idle": ask_twice,
    }
    with serving(max_body_bytes=20_000, read_timeout=2) as (_, port):
        with ThreadPoolExecutor(len(clients)) as pool, contextlib.ExitStack() as stack:
            made = {name: stack.enter_context(connected(port)) for name in clients}
            found = {name: pool.submit(clients[name], made[name]) for name in clients}
            received = {name: one.result(SOON) for name, one in found.items()}
        assert answers(port)
    return received


def trickle(connection, start):
    """Sends the start and then a byte now and then, until the server closes the connection."""
    connection.sendall(start)
    stop = threading.Event()

    def send():
        with contextlib.suppress(OSError):  # closed, as expected
            while not stop.wait(0.05):
                connection.sendall(b"P")

    thread = threading.Thread(target=send)
    thread.start()
    received = rest(connection)
    stop.set()
    thread.join(SOON)
    return received


def send_without_end(connection):
    """Sends a body for as long as the server takes it; returns whether it has closed."""
    connection.sendall(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
    with contextlib.suppress(OSError):
        for _ in range(10**9):
            connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        return False
    return True


def ask_twice(connection):
    """Has two requests answered in turns; returns what comes after them."""
    body = json.dumps({"instances": ["ab"]}).encode()
    for _ in range(2):
        connection.sendall(head(len(body)) + body)
        received = b""
        while b'"ba"' not in received:
            received += connection.recv(65536)
    return rest(connection)


def test_a_connection_that_asks_nothing_is_closed(slow_clients):
    assert slow_clients["silent"] == b""


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_client_that_sends_a_byte_now_and_then_is_not_waited_for(part, slow_clients):
    assert status_of(slow_clients[part]) == {"headers": None, "body": 408}[part]


@pytest.mark.parametrize("host", ["http://a", "HTTP://user@a:80"])
def test_a_request_may_name_the_whole_url(host, shared):
    """As clients send it to a proxy; RFC 9112, section 3.2.2."""
    with connected(shared) as client:
        body = json.dumps({"instances": ["ab"]}).encode()
        whole = head(len(body), "Connection: close").replace(b"POST ", b"POST " + host.encode())
        client.sendall(whole + body)
        received = rest(client)
        assert status_of(received) == 200 and b'"ba"' in received


def test_an_idle_connection_is_kept_for_a_while_and_then_closed(slow_clients):
    assert b"ba" not in slow_clients["idle"]


def test_too_large_a_body_is_answered_though_the_client_goes_on_sending():
    with serving(max_body_bytes=1000) as (_, port):
        for chunks in (False, True):
            body = b"x" * 3_000_000
            content = (body[start : start + 65536] for start in range(0, len(body), 65536))
            url = f"http://127.0.0.1:{port}{PATH}"
            response = httpx2.post(url, content=content if chunks else body, timeout=SOON)
            assert response.status_code == 413
        assert answers(port)


def test_a_body_without_an_end_is_not_read_for_ever(slow_clients):
    assert slow_clients["endless"]


def test_a_client_that_does_not_read_does_not_keep_its_connection():
    with serving(read_timeout=2) as (http, port), connected(port) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(0.1)
        body = json.dumps({"instances": ["x" * 9000] * 10}).encode()  # its answer is as long
        try:
            while True:
                deaf.sendall(head(len(body)) + body)
        except OSError:
            pass  # the server reads no more
        wait_until(lambda: not http.server_state.connections)
        assert answers(port)


def wait_until(holds):
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        b"GET /x HTTP/9.9\r\n\r\n",
        b"GET " + b"x" * 100_000,
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",  # a proxy may read 5 bytes as its body
        b"GET /x HTTP/1.1\r\n" + b"a: b\r\n" * 10_000,
        b"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(sent, shared):
    with connected(shared) as client:
        client.sendall(sent)
        received = rest(client)
        assert status_of(received) in (None, 400, 404, 431, 505)
        if received:
            assert json.loads(received.partition(b"\r\n\r\n")[2]).keys() == {"error"}
        assert answers(shared)


@pytest.mark.parametrize("answered_first", [False, True])
def test_a_body_that_turns_into_nonsense_closes_its_connection_in_silence(
    answered_first, shared, caplog
):
    start = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    nonsense = b"zz\r\n"
    with connected(shared) as client:
        client.sendall(start if answered_first else start + nonsense)
        received = client.recv(65536)
        if answered_first:
            client.sendall(nonsense)
        received += rest(client)
        assert status_of(received) == (404 if answered_first else 400)
        assert answers(shared)
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_an_upgrade_that_is_not_offered_is_ignored_in_silence(caplog):
    upgrade = (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n"
    )
    with serving() as (_, port), connected(port) as client:
        client.sendall(upgrade)
        assert status_of(rest(client)) == 200
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_a_connection_closed_in_the_middle_harms_none():
    servable = Doing()
    with serving(servable) as (http, port):
        body = json.dumps({"instances": ["ab"]}).encode()
        for part in (head(len(body))[:20], head(len(body)), head(len(body)) + body[:5]):
            with connected(port) as client:
                client.sendall(part)
        servable.hold()
        with connected(port) as client:  # disconnects while its answer is computed
            client.sendall(head(len(body)) + body)
            servable.wait_until_begun()
        servable.go_on()
        assert answers(port)
        wait_until(lambda: not http.server_state.tasks)


def test_a_client_that_has_gone_is_computed_no_further(caplog):
    servable = Doing()
    caplog.set_level(logging.INFO, logger="keras_transformer.serving.access")
    with serving(servable) as (http, port):
        servable.hold()
        body = json.dumps({"instances": ["ab"]}).encode()
        with connected(port) as first:
            first.sendall(head(len(body)) + body)
            servable.wait_until_begun()
            with connected(port) as second:
                second.sendall(head(len(body)) + body)
                wait_until(lambda: len(http.server_state.tasks) == 2)
            wait_until(lambda: len(http.server_state.tasks) == 1)  # while the first is computed
        assert [one.fields["status"] for one in caplog.records] == [499]
        wait_until(lambda: not http.server_state.tasks)
        servable.go_on()


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_a_client_that_closes_its_sending_side_is_answered(version):
    servable = Doing()
    body = json.dumps({"instances": ["ab"]}).encode()
    with serving(servable) as (_, port), connected(port) as client:
        servable.hold()
        client.sendall(head(len(body)).replace(b"HTTP/1.1", version) + body)
        servable.wait_until_begun()
        client.shutdown(socket.SHUT_WR)
        time.sleep(0.3)  # a client that has gone would be noticed
        servable.go_on()
        received = rest(client)
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert received.startswith(interim) == (version == b"HTTP/1.1")
        assert status_of(received.removeprefix(interim)) == 200 and received.count(b'"ba"') == 1


def test_requests_before_the_end_of_what_a_client_sends_are_all_answered():
    body = json.dumps({"instances": ["ab"]}).encode()
    with serving() as (http, port), connected(port) as client:
        client.sendall(3 * (head(len(body)) + body))
        client.shutdown(socket.SHUT_WR)
        assert rest(client).count(b'"ba"') == 3
        wait_until(lambda: not http.server_state.connections)


def test_half_a_request_before_the_end_is_not_answered():
    with serving(read_timeout=SOON) as (_, port), connected(port) as client:
        client.sendall(head(10) + b"half")
        client.shutdown(socket.SHUT_WR)
        assert rest(client) == b""


@pytest.mark.parametrize("split", [0, 1, 2, 3])
def test_an_empty_line_before_a_request_is_skipped(split, shared):
    """As some clients send it after a body; RFC 9112, section 2.2."""
    get = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    whole = b"\r\n" + get + b"\r\n" + get.replace(b"Host: a", b"Host: a\r\nConnection: close")
    with connected(shared) as client:
        client.sendall(whole[:split])
        time.sleep(0.1)
        client.sendall(whole[split:])
        assert rest(client).count(b'{"status": "ok"}') == 2


@pytest.mark.parametrize("line", [b"GET / HTTP/2.0", b"PRI * HTTP/2.0", b"GET / HTTP/0.9"])
def test_another_version_of_http_is_named(line, shared):
    with connected(shared) as client:
        client.sendall(line + b"\r\nHost: a\r\n\r\n")
        received = rest(client)
        assert status_of(received) == 505 and b"HTTP/1.1 or HTTP/1.0" in received


def test_the_last_answers_say_that_the_connection_ends():
    servable = Doing()
    body = json.dumps({"instances": ["ab"]}).encode()
    with serving(servable) as (http, port), connected(port) as client:
        servable.hold()
        client.sendall(head(len(body)) + body)
        servable.wait_until_begun()
        http.stop()
        wait_until(lambda: refused(port))
        servable.go_on()
        received = rest(client)
        assert b'"ba"' in received and b"\r\nconnection: close\r\n" in received


def test_at_the_end_only_current_requests_are_answered():
    servable = Doing()
    with serving(servable) as (http, port), ThreadPoolExecutor() as pool:
        servable.hold()
        begun = pool.submit(answers, port)
        servable.wait_until_begun()
        http.stop()
        wait_until(lambda: refused(port))
        servable.go_on()
        assert begun.result(SOON)


def test_the_end_waits_for_a_model_as_long_as_a_request_may_take():
    servable = Doing()
    url = f"http://127.0.0.1:%d{PATH}"
    with serving(servable, request_timeout=0.5) as (http, port), ThreadPoolExecutor() as pool:
        servable.hold()
        asked = pool.submit(httpx2.post, url % port, json={"instances": ["a"]}, timeout=SOON)
        servable.wait_until_begun()
        http.stop()
        assert asked.result(SOON).status_code == 504
        wait_until(lambda: not http.server_state.connections)
    servable.go_on()


def refused(port):
    try:
        with socket.create_connection(("127.0.0.1", port), SOON):
            return False
    except ConnectionRefusedError:
        return True


def opened(http, port, number, sent=b""):
    """Connections that have sent something, once the server has read it."""
    made = [connected(port) for _ in range(number)]
    for one in made:
        one.sendall(sent)
    wait_until(lambda: len(http.server_state.connections) >= number)
    if sent:
        wait_until(lambda: len(http.server_state.tasks) >= number)
    return made


def close_all(connections):
    for one in connections:
        one.close()


def test_an_idle_connection_makes_room_for_a_new_one():
    with serving(max_connections=3, read_timeout=SOON) as (http, port):
        idle = opened(http, port, 3)
        assert answers(port)
        assert rest(idle[0]) == b""  # the one that was idle for longest
        idle[1].sendall(head(0, "Connection: close"))
        assert status_of(rest(idle[1])) == 400
        close_all(idle)
        assert refusals(port) == {"made_room": 1}


def test_while_all_connections_are_used_others_wait_and_probes_are_answered():
    with serving(max_connections=3, read_timeout=SOON) as (http, port):
        used = opened(http, port, 3, head(10))  # the body is yet to come
        url = f"http://127.0.0.1:{port}"
        for _ in range(2):
            for probe in ("/healthz", "/readyz"):
                assert httpx2.get(url + probe, timeout=SOON).status_code == 200
            response = httpx2.get(f"{url}/metrics", timeout=SOON)
            assert response.status_code == 503 and response.headers["Retry-After"] == "1"
            assert response.json() == {"error": "too many connections: try again later"}
        with connected(port) as waiting:
            used.pop().close()
            wait_until(lambda: len(http.server_state.tasks) == 2)
            waiting.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert status_of(rest(waiting)) == 200
        assert refusals(port) == {"too_many": 2}
        close_all(used)


def test_many_connections_without_room_are_refused_but_for_the_newest():
    with serving(max_connections=1, read_timeout=SOON) as (http, port):
        used = opened(http, port, 1, head(10))
        without_room = [connected(port) for _ in range(70)]
        for one in without_room[:6]:
            received = rest(one)
            assert status_of(received) == 503 and b"Retry-After: 1" in received
        without_room[6].sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert status_of(rest(without_room[6])) == 200
        close_all(used + without_room)


def test_an_address_leaves_room_for_others():
    limits = {"max_connections": 10, "max_connections_per_address": 2}
    with serving(**limits, read_timeout=SOON) as (http, port):
        used = opened(http, port, 2, head(10))
        assert httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=SOON).status_code == 503
        with socket.create_connection(("127.0.0.1", port), SOON, ("127.0.0.2", 0)) as other:
            other.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert status_of(rest(other)) == 200
        close_all(used)


def refusals(port):
    """The number of refused connections, by reason."""
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=SOON).text
    found = re.findall(r'refused_connections_total{reason="(.*)"} (.*)', text)
    return {reason: float(number) for reason, number in found}


def test_refusals_are_counted_and_logged_at_most_once_a_second(caplog):
    with serving(read_timeout=1) as (_, port):
        for _ in range(5):
            with connected(port) as client:
                client.sendall(b"nonsense\r\n\r\n")
                assert status_of(rest(client)) == 400
        with connected(port) as slow, connected(port) as silent:
            slow.sendall(b"GET ")
            assert rest(slow) == rest(silent) == b""
        assert refusals(port) == {"malformed": 5, "slow_request": 1}
        text = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=SOON).text
        assert 'requests_total{code="400",method="",model=""} 5.0' in text
    ours = [one for one in caplog.records if one.name == "keras_transformer.serving"]
    first, *others = [one.fields for one in ours]
    assert first.pop("details").startswith("illegal request line")
    malformed = {"client": "127.0.0.1", "reason": "malformed", "status": 400, "not_logged": 0}
    assert first == malformed
    assert sum(1 + one["not_logged"] for one in [first, *others]) == 6


def test_no_line_of_the_log_but_ours_is_about_a_malformed_request():
    script = """
import logging
from keras_transformer.serving.logs import log_to_stderr
log_to_stderr()
print(logging.getLogger("uvicorn.error").isEnabledFor(logging.WARNING))
"""
    assert run_python(script).strip() == "False"


class Idle:
    """A connection of an address, which may be told to make room."""

    def __init__(self, address, told):
        self.address, self.told = address, told

    def make_room(self, is_refused):
        self.told.append((self, is_refused))


def test_the_address_with_most_connections_makes_room():
    told = []
    connections = Connections(4, 4)
    many, [one_of_few] = (
        [Idle(name, told) for _ in range(n)] for name, n in {"many": 3, "few": 1}.items()
    )
    for one in [one_of_few, *many]:
        assert connections.admit(one)
        connections.note(one, is_idle=True)
    connections.note(many[0], is_idle=False)  # is answered
    for _ in range(2):
        assert connections.admit(Idle("new", told))
    assert told == [(many[1], False), (many[2], False)]
    connections.note(one_of_few, is_idle=False)
    newest = Idle("new", told)
    assert not connections.admit(newest)
    connections.forget(many[0])
    assert connections.admit(newest)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_all_addresses_are_those_of_ipv4_and_ipv6():
    with listen("::", 0) as listening:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listening.getsockname()[1])).close()


def test_an_address_that_cannot_be_listened_at_is_one_line():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        for host, why in {"127.0.0.1": "in use", "no.such.host.invalid": "", "x" * 300: ""}.items():
            with pytest.raises(UserError, match=f"--port={port}: cannot listen there: .*{why}"):
                listen(host, port)


def test_a_signal_as_soon_as_the_address_is_printed_ends_the_server_well(monkeypatch):
    class Printed(io.StringIO):
        def write(self, text):
            if "listening at" in text:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().write(text)

    def fail(number, frame):
        raise InterruptedError

    before = signal.signal(signal.SIGTERM, fail)
    try:
        monkeypatch.setattr(sys, "stdout", Printed())
        serve([only_version("m", Doing())], ServingOptions(), Access(), port=0)  # ends
        with pytest.raises(InterruptedError):  # the handler is back
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_a_thousand_connections_at_once_are_all_answered():
    with serving(max_queue=2000) as (_, port):
        body = json.dumps({"instances": ["ab"]}).encode()
        clients = [connected(port) for _ in range(1000)]
        for client in clients:
            client.sendall(head(len(body), "Connection: close") + body)
        received = [rest(client) for client in clients]
        assert all(b'"ba"' in one for one in received)
        for client in clients:
            client.close()
        assert answers(port)


@pytest.mark.slow
def test_a_body_of_100_mb_and_a_line_of_a_million_characters_are_refused():
    with serving() as (_, port):
        url = f"http://127.0.0.1:{port}{PATH}"
        assert httpx2.post(url, content=b"x" * 100_000_000, timeout=SOON).status_code == 413
        response = httpx2.post(url, json={"instances": ["x" * 1_000_000]}, timeout=SOON)
        assert response.status_code == 400 and "10000 characters" in response.json()["error"]
        assert answers(port)
