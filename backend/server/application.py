"""What listens: three endpoints behind a key, for this machine only.

A key is asked for even though only this machine can connect: any web page that is open in a browser
can, too. For the same reason the Host header must name this machine (a page whose own name was
pointed at 127.0.0.1 would send that), and no answer permits other origins (no CORS).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.server.protocol import (
    Ask,
    Finish,
    RequestRefused,
    Writer,
    list_models,
    model,
    read_chat,
    read_text,
    shown,
)
from backend.server.turns import Turns
from backend.system.kept_file import parse_json

ADDRESS = "127.0.0.1"
MAX_BODY_BYTES = 16 << 20
_POLL_S = 0.2
"""How often it is asked whether the asker is still there."""
_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """Lets through what comes from this machine and knows the key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if refused := self._refusal(Request(scope)):
            await _refuse(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> RequestRefused | None:
        host = request.headers.get("host", "")
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        if name.lower() not in _HOSTS:
            return RequestRefused("This server answers only to this machine.", status=403)
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key):
            return RequestRefused(
                "The key is missing or wrong: send it as 'Authorization: Bearer KEY'.",
                status=401,
                code="invalid_api_key",
            )
        return None


def make_application(turns: Turns, key: str) -> ASGIApp:
    """The server as an ASGI application. REQUIRES: a key that is not empty."""
    assert key
    began = int(time.time())

    def names() -> list[str]:
        return [] if turns.model_name is None else [turns.model_name]

    async def models(_request: Request) -> Response:
        return JSONResponse(list_models(names(), began))

    async def one_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in names():
            return _refuse(
                RequestRefused(
                    f"There is no model {shown(name)} here.", status=404, code="model_not_found"
                )
            )
        return JSONResponse(model(name, began))

    async def chat(request: Request) -> Response:
        return await _complete(request, turns, read_chat, chat=True)

    async def text(request: Request) -> Response:
        return await _complete(request, turns, read_text, chat=False)

    routes = [
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", text, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: _on_http}), key)


async def _on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refuse(RequestRefused(f"{error.detail}.", status=error.status_code))


def _refuse(error: RequestRefused) -> Response:
    return JSONResponse(error.to_json(), status_code=error.status)


async def _complete(
    request: Request, turns: Turns, read: Callable[[Any], Ask], *, chat: bool
) -> Response:
    try:
        ask = read(await _body(request))
        if turns.model_name is None:
            raise RequestRefused("No model is loaded.", status=503)
        writer = Writer(turns.model_name, chat=chat)
        if not ask.stream:
            return await _whole(request, turns, ask, writer)
        said = turns.answer(ask)
        # The first piece is awaited here, so that what cannot be answered gets its own status.
        first = await _next(said, request)
        return StreamingResponse(_stream(said, first, ask, writer), media_type="text/event-stream")
    except RequestRefused as error:
        return _refuse(error)
    except ClientDisconnect:
        return Response(status_code=499)


async def _body(request: Request) -> Any:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise RequestRefused("The request is too large.", status=413)
    try:
        body = parse_json(bytes(data))
        json.dumps(body, ensure_ascii=False).encode("utf-8")  # refuses half characters
    except ValueError:
        raise RequestRefused(
            "The request's body is not valid JSON in UTF-8 with numbers of at most 64 bits."
        ) from None
    return body


async def _whole(request: Request, turns: Turns, ask: Ask, writer: Writer) -> Response:
    text = ""
    async with aclosing(turns.answer(ask)) as said:
        while isinstance(piece := await _next(said, request), str):
            text += piece
    return JSONResponse(writer.whole(text, piece))


async def _next(said: AsyncGenerator[str | Finish], request: Request) -> str | Finish:
    """What is said next. Raises ClientDisconnect, and the answer stops, where nobody waits."""
    task = asyncio.ensure_future(anext(said))
    while not task.done():
        await asyncio.wait({task}, timeout=_POLL_S)
        if not task.done() and await request.is_disconnected():
            task.cancel()
            await asyncio.wait({task})
            raise ClientDisconnect
    return task.result()


async def _stream(
    said: AsyncGenerator[str | Finish], first: str | Finish, ask: Ask, writer: Writer
) -> AsyncIterator[str]:
    async with aclosing(said):
        if opening := writer.opening():
            yield _event(opening)
        try:
            piece = first
            while not isinstance(piece, Finish):
                yield _event(writer.piece(piece))
                piece = await anext(said)
            yield _event(writer.closing(piece))
            if ask.with_usage:
                yield _event(writer.usage(piece))
        except RequestRefused as error:
            yield _event(error.to_json())
        yield "data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def make_server(turns: Turns, key: str, port: int) -> uvicorn.Server:
    """A server for this machine's own programs; run() serves until should_exit is set."""
    config = uvicorn.Config(
        make_application(turns, key),
        host=ADDRESS,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return _Server(config, turns)


class _Server(uvicorn.Server):
    """Ends the answers under way when it is told to end, instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, turns: Turns) -> None:
        super().__init__(config)
        self._turns = turns

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._turns.stop()
        await super().shutdown(sockets)
