"""The look for a newer version, against a server of our own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from backend import __version__
from backend.downloads import newer
from backend.downloads.errors import DownloadError

PAGE = "https://example.org/outrider"


@contextlib.contextmanager
def publisher(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve `body` to every request. Yield the address and the requested paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/releases/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def look(monkeypatch: pytest.MonkeyPatch, body: bytes, status: int = 200) -> newer.Release:
    with publisher(body, status) as (address, asked):
        monkeypatch.setenv("OUTRIDER_RELEASES", address)
        try:
            return newer.latest()
        finally:
            assert asked == ["/releases/latest.json"]


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("99.0", True), ("0.99.1", True), (__version__, False), ("0.0.9", False), ("0.1.0.1", True)],
)
def test_a_version_is_compared_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch, version: str, is_newer: bool
) -> None:
    body = f'{{"version": "{version}", "page": "{PAGE}"}}'.encode()
    found = look(monkeypatch, body)
    assert (found.version, found.page, found.is_newer) == (version, PAGE, is_newer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"version": "2"}',
        b'{"version": "two", "page": "https://x"}',
        b'{"version": "2", "page": "file:///etc/passwd"}',
        b'{"version": "2", "page": "http://x"}',
        b'{"version": "2", "page": "https://x", "more": "' + bytes(100_000) + b'"}',
    ],
)
def test_what_is_no_release_is_refused(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    with pytest.raises(DownloadError, match="127.0.0.1 does not say in a known form"):
        look(monkeypatch, body)


def test_a_server_without_the_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownloadError, match="127.0.0.1"):
        look(monkeypatch, b"", 404)


def test_without_an_address_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_RELEASES", "")
    with pytest.raises(DownloadError, match="was made without an address"):
        newer.latest()
