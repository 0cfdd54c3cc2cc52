"""The requests that the local server must refuse, as one table, for every path."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from served import Served
from starlette.applications import Starlette
from starlette.routing import Route

from backend.server import application
from backend.server.application import make_application
from backend.server.engine_host import EngineThread
from backend.server.guard import PUBLIC, Access
from backend.server.turns import Turns

KEY = "correct-horse-battery"
PATHS = {
    "/": "GET",
    "/health": "GET",
    "/v1/health": "GET",
    "/models": "GET",
    "/props": "GET",
    "/slots": "GET",
    "/metrics": "GET",
    "/version": "GET",
    "/completion": "POST",
    "/completions": "POST",
    "/chat/completions": "POST",
    "/chat/completions/input_tokens": "POST",
    "/v1/responses/input_tokens": "POST",
    "/responses": "POST",
    "/messages": "POST",
    "/embeddings": "POST",
    "/rerank": "POST",
    "/infill": "POST",
    "/apply-template": "POST",
    "/v1/models": "GET",
    "/v1/models/fake": "GET",
    "/v1/chat/completions": "POST",
    "/v1/completions": "POST",
    "/v1/responses": "POST",
    "/v1/messages": "POST",
    "/v1/messages/count_tokens": "POST",
    "/v1/embeddings": "POST",
    "/v1/rerank": "POST",
    "/tokenize": "POST",
    "/detokenize": "POST",
    "/api/chat": "POST",
    "/api/generate": "POST",
    "/api/embed": "POST",
    "/api/embeddings": "POST",
    "/api/show": "POST",
    "/api/tags": "GET",
    "/api/ps": "GET",
    "/api/version": "GET",
}
ELSEWHERE = ("/v1", "/nowhere", "/v1/messages/batches", "//health", "/health/..", "*")
BODY = b'{"prompt": "a", "max_tokens": 1}'
BEARER = f"Authorization: Bearer {KEY}"
HOST = "Host: localhost:PORT"
BASIC = base64.b64encode(f"user:{KEY}".encode()).decode()


@dataclass(frozen=True)
class Refused:
    """A request that must be refused, on whatever path. status: one of these."""

    name: str
    headers: tuple[str, ...]
    status: tuple[int, ...] = (401,)
    query: str = ""
    version: str = "1.1"


def key(name: str, *headers: str, query: str = "") -> Refused:
    return Refused(f"key: {name}", (HOST, *headers), query=query)


def host(name: str, *headers: str, version: str = "1.1") -> Refused:
    # 400: what is no Host at all is not HTTP, and is refused before the server's own rule.
    return Refused(f"host: {name}", (*headers, BEARER), (403, 400), version=version)


def origin(*origins: str) -> Refused:
    headers = tuple(f"Origin: {value}" for value in origins)
    return Refused(f"origin: {', '.join(origins)}", (HOST, BEARER, *headers), (403,))


TABLE = [
    key("missing"),
    key("empty", "Authorization: "),
    key("empty bearer", "Authorization: Bearer"),
    key("blank bearer", "Authorization: Bearer  "),
    key("empty of Anthropic", "x-api-key: "),
    key("wrong", "Authorization: Bearer wrong"),
    key("its first character", f"Authorization: Bearer {KEY[:1]}"),
    key("its first eight characters", f"Authorization: Bearer {KEY[:8]}"),
    key("its first eight, then others", f"Authorization: Bearer {KEY[:8]}{'x' * len(KEY[8:])}"),
    key("all but the last character", f"Authorization: Bearer {KEY[:-1]}"),
    key("all but the first character", f"Authorization: Bearer {KEY[1:]}"),
    key("another last character", f"Authorization: Bearer {KEY[:-1]}x"),
    key("longer", f"Authorization: Bearer {KEY}x"),
    key("twice", f"Authorization: Bearer {KEY}{KEY}"),
    key("with a word before", f"Authorization: Bearer x {KEY}"),
    key("with a word behind", f"Authorization: Bearer {KEY} x"),
    key("in capitals", f"Authorization: Bearer {KEY.upper()}"),
    key("in quotes", f'Authorization: Bearer "{KEY}"'),
    key("of Anthropic by its beginning", f"x-api-key: {KEY[:8]}"),
    key("of Anthropic, longer", f"x-api-key: {KEY}x"),
    key("of Anthropic as a bearer", f"x-api-key: Bearer {KEY}"),
    key("without a scheme", f"Authorization: {KEY}"),
    key("of another scheme", f"Authorization: Token {KEY}"),
    key("basic", f"Authorization: Basic {KEY}"),
    key("basic in Base64", f"Authorization: Basic {BASIC}"),
    key("in a list", f"Authorization: Bearer wrong, Bearer {KEY}"),
    key("behind a wrong one", "Authorization: Bearer wrong", f"Authorization: Bearer {KEY}"),
    key("in Proxy-Authorization", f"Proxy-Authorization: Bearer {KEY}"),
    key("in api-key", f"api-key: {KEY}"),
    key("in a cookie", f"Cookie: key={KEY}; Authorization=Bearer {KEY}"),
    key("in the query", query=f"?key={KEY}&api_key={KEY}&access_token={KEY}"),
    host("another", "Host: evil.example"),
    host("another with a port", "Host: evil.example:PORT"),
    host("the same end", "Host: evil-localhost"),
    host("the same end with a port", "Host: evil-localhost:PORT"),
    host("a domain of this name", "Host: evil.localhost"),
    host("the same beginning", "Host: localhost.evil"),
    host("the same beginning with a port", "Host: localhost.evil:PORT"),
    host("in capitals", "Host: LOCALHOST.EVIL"),
    host("the end of the address", "Host: evil127.0.0.1"),
    host("the beginning of the address", "Host: 127.0.0.1.evil.example"),
    host("the end of IPv6", "Host: evil[::1]"),
    host("the beginning of IPv6", "Host: [::1].evil"),
    host("the beginning of IPv6 with a port", "Host: [::1]evil:PORT"),
    host("IPv6 without brackets", "Host: ::1"),
    host("another of IPv6", "Host: [::2]:PORT"),
    host("a trailing dot", "Host: localhost."),
    host("a trailing dot with a port", "Host: localhost.:PORT"),
    host("no port behind the colon", "Host: localhost:"),
    host("two ports", "Host: localhost:80:PORT"),
    host("no number as port", "Host: localhost:evil"),
    host("only a port", "Host: :PORT"),
    host("a user", "Host: localhost@evil.example"),
    host("this machine as a user's", "Host: evil@localhost"),
    host("a path", "Host: localhost/evil"),
    host("a list", "Host: localhost, evil.example"),
    host("a list that ends well", "Host: evil.example, localhost"),
    host("a blank", "Host: localhost evil.example"),
    host("all addresses", "Host: 0.0.0.0:PORT"),
    host("another loopback address", "Host: 127.0.0.2"),
    host("a short address", "Host: 127.1"),
    host("an address as a number", "Host: 2130706433"),
    host("empty", "Host: "),
    host("missing"),
    host("missing in HTTP/1.0", version="1.0"),
    host("empty in HTTP/1.0", "Host: ", version="1.0"),
    host("two, the first one wrong", "Host: evil.example", HOST),
    host("two, the last one wrong", HOST, "Host: evil.example"),
    host("in X-Forwarded-Host only", "Host: evil.example", "X-Forwarded-Host: localhost"),
    origin("null"),
    origin(""),
    origin("http://evil.example"),
    origin("https://evil.example"),
    origin("http://evil-localhost"),
    origin("http://localhost.evil:PORT"),
    origin("http://localhost@evil.example"),
    origin("http://127.0.0.1.evil.example"),
    origin("http://localhost/evil"),
    origin("localhost"),
    origin("//localhost"),
    origin("file://"),
    origin("ftp://localhost"),
    origin("chrome-extension://localhost"),
    origin("http://localhost, http://evil.example"),
    origin("http://localhost", "http://evil.example"),
]
PREFLIGHT = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served(FakeEngine(), key=KEY)
    yield made
    made.close()


PAGE = "https://chat.example"
NAMED = Access(
    names=frozenset({"my-pc.local"}), origins=frozenset({PAGE, "app://notes", "http://pc:3000"})
)
ALSO_REFUSED = [
    *TABLE,
    host("the same end as a name's", "Host: evil-my-pc.local"),
    host("a domain of a name", "Host: evil.my-pc.local"),
    host("the same beginning as a name's", "Host: my-pc.local.evil"),
    host("a name without its end", "Host: my-pc"),
    host("a page's", "Host: chat.example"),
    origin("http://chat.example"),
    origin(f"{PAGE}:8443"),
    origin(f"{PAGE}.evil"),
    origin(f"{PAGE}/"),
    origin("https://evil.chat.example"),
    origin("https://chat.example@evil.example"),
    origin("http://pc"),
    origin("http://pc:30000"),
    origin("app://notes.evil"),
    origin("http://my-pc.local"),
    origin("*"),
    origin(PAGE, "http://evil.example"),
    origin(f"{PAGE}, http://evil.example"),
    Refused("page without a key", (HOST, f"Origin: {PAGE}")),
    Refused("page with a wrong key", (HOST, f"Origin: {PAGE}", "Authorization: Bearer x")),
    Refused("page of a wrong host", ("Host: evil.example", f"Origin: {PAGE}", BEARER), (403,)),
]
"""What is refused where names and pages are admitted, too. A page is told nothing either."""


@pytest.fixture(scope="module")
def named() -> Iterator[Served]:
    made = Served(FakeEngine(), key=KEY, access=NAMED)
    yield made
    made.close()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    served: Served, method: str, path: str, headers: tuple[str, ...], version: str = "1.1"
) -> Answer:
    """Send a request as it is written. PORT stands for the server's."""
    lines = [f"{method} {path} HTTP/{version}", *headers, "Connection: close"]
    if method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(BODY)}")
    head = "".join(f"{line}\r\n" for line in lines).replace("PORT", str(served.port))
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(head.encode("latin-1") + b"\r\n")
        if method not in ("GET", "HEAD"):
            connection.sendall(BODY)
        said = b""
        try:
            while data := connection.recv(1 << 16):
                said += data
        except ConnectionError:
            pass  # the body was not read, and the answer was
    first, _, rest = said.partition(b"\r\n")
    fields, _, body = rest.partition(b"\r\n\r\n")
    pairs = [line.split(":", 1) for line in fields.decode("latin-1").split("\r\n") if line]
    named = {name.strip().lower(): value.strip() for name, value in pairs}
    return Answer(int(first.split()[1]), named, body)


def check_refusal(answer: Answer) -> None:
    """A refusal lets no other origin read it, and says nothing of the model and the key."""
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert KEY.encode() not in answer.body and b"fake" not in answer.body


def check_form(answer: Answer, path: str) -> None:
    """A refusal closes the connection, and has the form of the path's clients."""
    assert answer.headers["connection"] == "close"
    error = json.loads(answer.body)["error"]
    if path.startswith("/api/"):
        assert error.endswith(".")
    else:
        is_of_openai = not path.removeprefix("/v1").startswith("/messages")
        assert error["message"] and ("code" in error) == is_of_openai


@pytest.mark.parametrize(
    ("number", "row"), [pytest.param(i, row, id=row.name) for i, row in enumerate(TABLE)]
)
def test_it_is_refused(served: Served, number: int, row: Refused) -> None:
    """As it is written, on two paths; that no path differs, the next test shows."""
    n_before = served.turns.n_request
    guarded = [path for path in PATHS if path not in PUBLIC]
    for path in (guarded[number % len(guarded)], ELSEWHERE[number % len(ELSEWHERE)]):
        answer = ask(served, PATHS.get(path, "POST"), path + row.query, row.headers, row.version)
        assert answer.status in row.status, (path, answer)
        check_refusal(answer)
        if answer.status != 400:
            check_form(answer, path)
    path = PUBLIC[number % len(PUBLIC)]
    answer = ask(served, "GET", path, row.headers, row.version)
    assert answer.status in ((200,) if row.name.startswith("key: ") else row.status)
    assert served.turns.n_request == n_before


def test_every_route_is_behind_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a socket: each route with each method, for a stranger of each kind."""
    made: list[Starlette] = []

    def record(**parts: Any) -> Starlette:
        made.append(Starlette(**parts))
        return made[-1]

    monkeypatch.setattr(application, "Starlette", record)
    host = EngineThread(FakeEngine())
    turns = Turns(host)
    app = make_application(turns, KEY)
    routes = [route for one in made for route in one.routes if isinstance(route, Route)]
    asked = [
        (route.path.replace("{name:path}", "x"), method)
        for route in routes
        for method in sorted({*(route.methods or ()), "OPTIONS"})
    ]
    assert {path for path, _ in asked} >= PATHS.keys() - {"/v1/models/fake"}
    good = {"Host": "localhost", "Authorization": f"Bearer {KEY}"}
    preflight = dict(line.split(": ") for line in PREFLIGHT)
    strangers: dict[str, tuple[int, Any]] = {
        "no key": (401, {"Host": "localhost"}),
        "a wrong key": (401, {**good, "Authorization": "Bearer x"}),
        "another host": (403, {**good, "Host": "evil.example"}),
        "two hosts": (403, [*good.items(), ("Host", "evil.example")]),
        "a page": (403, {**good, "Origin": "http://evil.example"}),
        "a page that asks whether it may": (
            403,
            {**preflight, "Host": "localhost", "Origin": "http://evil.example"},
        ),
    }

    async def check() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for name, (status, headers) in strangers.items():
                for path, method in asked:
                    is_public = path in PUBLIC and method in ("GET", "HEAD") and status == 401
                    body = None if is_public else b"{}"
                    said = await client.request(method, path, headers=headers, content=body)
                    assert said.status_code == (200 if is_public else status), (name, method, path)
                    if not is_public:
                        answer = Answer(said.status_code, dict(said.headers), said.content)
                        check_refusal(answer)
                        if method != "HEAD":
                            check_form(answer, path)

    try:
        asyncio.run(check())
        assert turns.n_request == 0
    finally:
        host.close()


@pytest.mark.parametrize("row", ALSO_REFUSED, ids=lambda row: row.name)
def test_it_is_refused_where_others_are_admitted(named: Served, row: Refused) -> None:
    n_before = named.turns.n_request
    for path in ("/v1/completions", "/api/tags"):
        answer = ask(named, PATHS[path], path + row.query, row.headers, row.version)
        assert answer.status in row.status, (path, answer)
        check_refusal(answer)
    if row.status != (401,):  # whether a page may ask is told without the key
        answer = ask(named, "OPTIONS", "/v1/models", (*row.headers, *PREFLIGHT), row.version)
        assert answer.status in row.status
        check_refusal(answer)
    assert named.turns.n_request == n_before


@pytest.mark.parametrize("page", [PAGE, "app://notes", "http://pc:3000", "HTTPS://Chat.example"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/show", "/nowhere"])
def test_a_page_that_the_user_named_may_ask_and_read(named: Served, page: str, path: str) -> None:
    may = ask(named, "OPTIONS", path, (HOST, f"Origin: {page}", *PREFLIGHT))
    assert may.status == 200 and may.body == b""
    assert may.headers["access-control-allow-origin"] == page
    assert may.headers["access-control-allow-headers"] == "authorization"
    assert "POST" in may.headers["access-control-allow-methods"]
    assert may.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in may.headers
    answer = ask(named, "POST", path, (HOST, f"Origin: {page}", BEARER))
    assert answer.status == (400 if path.startswith("/v1/") else 404)  # it may read why
    assert answer.headers["access-control-allow-origin"] == page
    assert answer.headers["vary"] == "Origin"


def test_a_page_reads_a_stream(named: Served) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True}
    headers = {"Authorization": f"Bearer {KEY}", "Origin": PAGE}
    url = named.url + "/v1/chat/completions"
    answer = httpx.post(url, json=body, headers=headers, timeout=30)
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "sunny." in answer.text and answer.text.endswith("data: [DONE]\n\n")


def test_all_pages_may_ask_only_where_the_user_says_so(served: Served) -> None:
    every = Served(FakeEngine(), key=KEY, access=Access(origins=frozenset({"*"})))
    try:
        for page in ("null", "https://evil.example", "file://"):
            headers = (HOST, f"Origin: {page}")
            may = ask(every, "OPTIONS", "/v1/models", (*headers, *PREFLIGHT))
            assert may.status == 200 and may.headers["access-control-allow-origin"] == page
            assert ask(every, "GET", "/v1/models", (*headers, BEARER)).status == 200
            check_refusal(refused := ask(every, "GET", "/v1/models", headers))
            assert refused.status == 401
            assert ask(served, "OPTIONS", "/v1/models", (*headers, *PREFLIGHT)).status == 403
    finally:
        every.close()


def test_pages_of_this_machine_may_ask_where_the_user_says_so(served: Served) -> None:
    near = Served(FakeEngine(), key=KEY, access=Access(origins=frozenset({"localhost"})))
    try:
        for page in ("http://localhost", "http://localhost:5173", "https://[::1]:1"):
            headers = (HOST, f"Origin: {page}", *PREFLIGHT)
            may = ask(near, "OPTIONS", "/v1/models", headers)
            assert may.status == 200 and may.headers["access-control-allow-origin"] == page
            closed = ask(served, "OPTIONS", "/v1/models", headers)
            assert "access-control-allow-origin" not in closed.headers
        for page in ("http://localhost.evil.example", "http://evil.example", "null"):
            headers = (HOST, f"Origin: {page}", *PREFLIGHT)
            assert ask(near, "OPTIONS", "/v1/models", headers).status == 403
    finally:
        near.close()


@pytest.mark.parametrize(
    ("url", "host_header", "status"),
    [
        ("http://192.168.1.5:8088", "192.168.1.5:8088", 200),
        ("http://192.168.1.5:8088", "192.168.1.5", 200),
        ("http://192.168.1.5:8088", "my-pc.local:8088", 200),
        ("http://192.168.1.5:8088", "MY-PC.local", 200),
        ("http://192.168.1.5:8088", "192.168.1.6", 403),
        ("http://192.168.1.5:8088", "192.168.1.5.evil.example", 403),
        ("http://192.168.1.5:8088", "evil.example", 403),
        ("http://[fd00::5]:8088", "[fd00::5]:8088", 200),
        ("http://[fd00::5]:8088", "[fd00::6]", 403),
        ("http://[::ffff:10.0.0.2]:8088", "10.0.0.2:8088", 200),
    ],
)
def test_a_request_of_another_machine_names_this_one(
    url: str, host_header: str, status: int
) -> None:
    """By the address at which it has arrived, or by a name that the user gave."""
    host = EngineThread(FakeEngine())
    app = make_application(Turns(host), KEY, replace(NAMED, address="0.0.0.0"))

    async def get(**headers: str) -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            return (await client.get("/v1/models", headers=headers)).status_code

    try:
        assert asyncio.run(get(Host=host_header, Authorization=f"Bearer {KEY}")) == status
        assert asyncio.run(get(Host=host_header)) == (401 if status == 200 else 403)
    finally:
        host.close()


@pytest.mark.parametrize("path", ["/v1/models/health", "/x/health", "/health/", "//health"])
def test_only_whether_it_runs_is_told_without_the_key(served: Served, path: str) -> None:
    """Not whether there is a model with such a name, for one."""
    assert ask(served, "GET", path, (HOST,)).status == 401


@pytest.mark.parametrize(("number", "path"), list(enumerate(PATHS)))
def test_other_methods_are_refused(served: Served, number: int, path: str) -> None:
    """A page of this machine is told no more: every other request is one's, in turns."""
    allowed = {PATHS[path], "HEAD" if PATHS[path] == "GET" else PATHS[path]}
    allowed |= {"POST"} if path == "/props" else set()  # which is refused, too
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
    for i, method in enumerate(m for m in methods if m not in allowed):
        page = ("Origin: http://localhost", *PREFLIGHT) if (i + number) % 2 else ()
        answer = ask(served, method, path, (HOST, BEARER, *page))
        assert answer.status == 405, (method, path)
        check_refusal(answer)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_other_paths_are_refused(served: Served, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = ask(served, method, path, (HOST, BEARER))
        assert answer.status in (400, 404, 405), method
        check_refusal(answer)


@pytest.mark.parametrize(
    "headers",
    [
        (HOST, BEARER),
        ("Host: localhost", f"authorization: bearer {KEY}"),
        ("Host: LOCALHOST:PORT", f"Authorization: BEARER  {KEY} "),
        ("Host: 127.0.0.1", f"x-api-key: {KEY}"),
        ("Host: 127.0.0.1:PORT", f"X-API-Key:   {KEY} "),
        ("Host: [::1]", BEARER),
        ("Host: [::1]:PORT", BEARER),
        (HOST, "Authorization: Bearer wrong", f"x-api-key: {KEY}"),
        (HOST, f"Authorization: Bearer {KEY}", "x-api-key: wrong"),
        (HOST, BEARER, "Origin: http://localhost:3000"),
        (HOST, BEARER, "Origin: https://127.0.0.1"),
        (HOST, BEARER, "Origin: http://[::1]:PORT"),
    ],
)
def test_who_names_this_machine_and_has_the_key_is_served(
    served: Served, headers: tuple[str, ...]
) -> None:
    for path in ("/health", "/v1/models", "/v1/models/fake"):
        answer = ask(served, "GET", path, headers)
        assert answer.status == 200
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    answer = ask(served, "POST", "/v1/completions", headers)
    assert answer.status == 200 and b"Easy." in answer.body
