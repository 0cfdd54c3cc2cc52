"""The local server and clients without its key."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
from fake_engine import FakeEngine
from served import KEY, Served
from waiting import WAIT_S

from backend.server import guard
from backend.server.engine_host import EngineThread
from backend.server.running import RunningServer, ServerError

HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served(FakeEngine())
    yield made
    made.close()


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S)


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other side closes. False if it does not."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_connections_without_a_request_do_not_block_the_server(served: Served) -> None:
    idle = [connect(served) for _ in range(100)]
    assert httpx.get(served.url + "/health", headers=HEADERS).status_code == 200
    assert is_closed(idle[0])  # the oldest ones were closed
    for connection in idle:
        connection.close()


def ask(connection: socket.socket) -> str:
    """Send a request and return the first line of its answer, or "" if there is none."""
    try:
        head = f"GET /health HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n\r\n"
        connection.sendall(head.encode())
        said = b""
        while not said.endswith(b"}") and (data := connection.recv(4096)):
            said += data
    except ConnectionError:
        return ""
    return said.partition(b"\r\n")[0].decode()


def test_many_that_connect_at_once_are_all_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "GRACE_S", 600.0)
    opened = [connect(served) for _ in range(2 * guard.MAX_IDLE + 20)]
    assert [ask(connection) for connection in opened] == ["HTTP/1.1 200 OK"] * len(opened)
    for connection in opened:
        connection.close()


@pytest.mark.parametrize("resolution_s", [1e-9, 0.1])
def test_only_the_oldest_of_too_many_idle_ones_are_closed(
    monkeypatch: pytest.MonkeyPatch, resolution_s: float
) -> None:
    monkeypatch.setattr(guard, "GRACE_S", 0.2)
    monkeypatch.setattr(guard, "IDLE_S", 600.0)
    monkeypatch.setattr(guard, "MAX_IDLE", 3)
    # asyncio ends timers early by the clock's resolution, which is 16 ms on Windows.
    clock = SimpleNamespace(resolution=resolution_s)
    monkeypatch.setattr(time, "get_clock_info", lambda name: clock)
    served = Served(FakeEngine())
    used = connect(served)
    assert ask(used).endswith("200 OK")  # it is as new as the first one
    opened = [connect(served) for _ in range(5)]
    assert is_closed(used) and all(map(is_closed, opened[:2]))
    assert [ask(connection) for connection in opened[2:]] == ["HTTP/1.1 200 OK"] * 3
    for connection in [used, *opened]:
        connection.close()
    served.close()


def test_one_connection_too_many_is_told_so(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "GRACE_S", 600.0)
    monkeypatch.setattr(guard, "IDLE_S", 600.0)
    monkeypatch.setattr(guard, "MAX_UNUSED", 5)
    used = connect(served)
    assert ask(used).endswith("200 OK")
    opened = [connect(served) for _ in range(6)]
    assert is_closed(used), "its request was answered"
    said = opened[0].recv(4096)
    assert said.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1\r\n" in said
    assert is_closed(opened[0])
    assert [ask(connection) for connection in opened[1:]] == ["HTTP/1.1 200 OK"] * 5
    for connection in [used, *opened]:
        connection.close()


def test_a_header_that_never_ends_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "IDLE_S", 0.2)
    slow = connect(served)
    slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
    assert is_closed(slow)
    slow.close()


def test_the_body_of_a_stranger_is_not_read(served: Served) -> None:
    stranger = connect(served)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    stranger.sendall(head)
    said = stranger.recv(4096)
    assert said.startswith(b"HTTP/1.1 401 ")
    try:
        for _ in range(100):
            stranger.sendall(b"x" * 1_000_000)
    except ConnectionError:
        pass
    else:
        pytest.fail("the whole body was taken")
    stranger.close()


def test_a_client_keeps_its_connection(served: Served) -> None:
    with httpx.Client(headers=HEADERS) as client:
        for _ in range(3):
            assert client.get(served.url + "/health").status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "fd00::5"])
@pytest.mark.parametrize("n_char", [0, 8, guard.KEY_CHARS_MIN - 1])
def test_no_server_for_other_machines_takes_a_short_key(address: str, n_char: int) -> None:
    host = EngineThread(FakeEngine())
    with pytest.raises(ServerError, match=f"at least {guard.KEY_CHARS_MIN} characters"):
        RunningServer(host, 0, "k" * n_char, lambda: None, guard.Access(address))
    host.close()
