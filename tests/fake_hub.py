"""Serve the part of the hub's protocol that downloads need, with faults on demand.

Like the real hub it has two servers: the hub answers the API and redirects requests for files to
the file server. So tests can check which of the two receives the token.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from waiting import WAIT_S

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Fault:
    """A fault in the answer to one request for bytes.

    kind: "cut" closes after n_byte, and "short" does without having said a length; "hold" waits
    there until `release`; "status" answers with the status only; "wrong" flips a bit; "whole"
    ignores the range; "longer" sends one byte more; "headers" sends `headers` in place of its own.
    """

    kind: str
    n_byte: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Request:
    """A received request. where: "hub" or "files"."""

    where: str
    path: str
    range: str
    token: str
    agent: str


class FakeHub:
    """Run both servers in a context. `repositories`: contents by repository and path."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.commit = COMMIT
        self.gated: set[str] = set()
        self.bad_tokens: set[str] = set()  # refused by the hub, whatever is asked
        self.owners: dict[str, str] = {}  # of tokens
        self.cards: dict[str, dict[str, Any]] = {}  # what the API says beside, by repository
        self.api_status = 0
        self.api_headers: dict[str, str] = {}
        self.api_body = b"{}"  # sent with api_status
        self.api_text: str | None = None
        self.sha256: dict[str, str] = {}  # sent instead of the true one, by path
        self.tag = ""  # sent instead of the true one
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.release = threading.Event()
        self._scheme = "http"
        self._servers = [self._server("hub"), self._server("files")]

    def __enter__(self) -> FakeHub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._scheme = "https"
        for server in self._servers:
            server.socket = context.wrap_socket(server.socket, server_side=True)

    def __exit__(self, *_: object) -> None:
        self.release.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._servers[0].server_port}"

    @property
    def files_url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._servers[1].server_port}"

    def ranges(self) -> list[str]:
        """Return the ranges that the server of files was asked for, in order."""
        return [request.range for request in self.requests if request.where == "files"]

    def _server(self, where: str) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path).lstrip("/")
                values = [
                    self.headers.get(name, "") for name in ("range", "authorization", "user-agent")
                ]
                hub.requests.append(Request(where, path, *values))
                try:
                    (hub._answer if where == "hub" else hub._send)(self, path)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionResetError):  # the client is gone
                    super().handle_one_request()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        return server

    # The hub

    def _answer(self, to: BaseHTTPRequestHandler, path: str) -> None:
        if to.headers.get("authorization", "").removeprefix("Bearer ") in self.bad_tokens:
            reply(to, 401, {}, b'{"error":"Invalid username or password."}')
            return
        if path == "api/models":
            self._search(to)
            return
        if path == "api/whoami-v2":
            name = self.owners.get(to.headers.get("authorization", "").removeprefix("Bearer "))
            about = {"type": "user", "name": name, "auth": {"type": "access_token"}}
            reply(to, 200 if name else 401, {}, json.dumps(about).encode())
            return
        if path.startswith("api/models/"):
            repository = "/".join(path.split("/")[2:4])
            if self.api_status:
                reply(to, self.api_status, self.api_headers, self.api_body)
            elif self.api_text is not None:
                reply(to, 200, {}, self.api_text.encode())
            elif repository not in self.repositories:
                reply(to, 401, {"X-Error-Code": "RepoNotFound"}, b"{}")
            else:
                reply(to, 200, {}, json.dumps(self._about(repository)).encode())
            return
        owner, name, _, commit, inside = [*path.split("/", 4), "", "", "", ""][:5]
        repository = f"{owner}/{name}"
        if repository in self.gated and not to.headers.get("authorization"):
            reply(to, 401, {"X-Error-Code": "GatedRepo"}, b"")
        elif commit != self.commit or inside not in self.repositories.get(repository, {}):
            reply(to, 404, {"X-Error-Code": "EntryNotFound"}, b"")
        else:
            place = f"{self.files_url}/{repository}/{inside}"
            reply(to, 302, {"Location": place, "X-Repo-Commit": commit}, b"")

    def _search(self, to: BaseHTTPRequestHandler) -> None:
        """Answer with the repositories whose names have the words, as the hub does."""
        asked = parse_qs(urlsplit(to.path).query)
        words = "".join(asked.get("search", [])).casefold()
        found = [name for name in self.repositories if words in name.casefold()]
        about = [{**self._about(name), "tags": ["gguf", "license:mit"]} for name in found]
        text = json.dumps(about) if self.api_text is None else self.api_text
        reply(to, self.api_status or 200, {}, text.encode())

    def _about(self, repository: str) -> dict[str, Any]:
        siblings = []
        for path, data in self.repositories[repository].items():
            sha256 = self.sha256.get(path, hashlib.sha256(data).hexdigest())
            lfs = {"size": len(data), "sha256": sha256, "pointerSize": 135}
            siblings.append({"rfilename": path, "size": len(data), "blobId": "0", "lfs": lfs})
        gated = "manual" if repository in self.gated else False
        return {"id": repository, "sha": self.commit, "gated": gated, "siblings": siblings,
                "private": False, "tags": [], "downloads": 0, "likes": 0,
                **self.cards.get(repository, {})}  # fmt: skip

    # The files

    def _send(self, to: BaseHTTPRequestHandler, path: str) -> None:
        owner, name, inside = path.split("/", 2)
        data = self.repositories.get(f"{owner}/{name}", {}).get(inside)
        fault = self.faults.pop(0) if self.faults else Fault("")
        if fault.kind == "status":
            reply(to, fault.status, fault.headers, b"")
            return
        if data is None:
            reply(to, 404, {}, b"")
            return
        tag = self.tag or f'"{hashlib.sha256(data).hexdigest()}"'
        start, end, status = 0, len(data), 200
        wanted = to.headers.get("range", "")
        is_other = to.headers.get("if-range", tag) != tag
        if wanted and fault.kind != "whole" and not is_other:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last or len(data) - 1) + 1, len(data)), 206
            if start >= len(data):
                reply(to, 416, {"Content-Range": f"bytes */{len(data)}"}, b"")
                return
        body = data[start:end]
        if fault.kind == "wrong":
            body = bytes([body[0] ^ 1]) + body[1:]
        to.send_response(status)
        about = {"ETag": tag}
        if status == 206:
            about["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        for name, value in (about | fault.headers).items():
            to.send_header(name, value)
        if fault.kind == "longer":
            to.close_connection = True
            body += b"!"
        elif fault.kind != "short":
            to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        if fault.kind in ("cut", "short", "hold"):
            to.wfile.write(body[: fault.n_byte])
            to.wfile.flush()
            if fault.kind != "hold":
                to.close_connection = True
                return
            self.release.wait(WAIT_S)
            body = body[fault.n_byte :]
        to.wfile.write(body)


def reply(to: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name, value)
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    to.wfile.write(body)
