"""The HTTP application: its endpoints and the steps that they share.

The protocols differ in how a request is read and an answer is written (`Api`). The way between is
the same: queue, wait for the first news, then stream or collect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Server

from backend.protocol.attachments import images_of
from backend.server import (
    anthropic_messages,
    llama_native,
    ollama,
    openai_chat,
    openai_responses,
    openai_text,
    vectors,
)
from backend.server.ask import (
    Ask,
    Begin,
    Event,
    Fields,
    Finish,
    Fitted,
    Json,
    Part,
    RequestRefused,
    Wait,
    Writer,
    check_text,
    in_line,
    shown,
)
from backend.server.guard import LOCAL, Access, Guard, error_form, listen
from backend.server.model_facts import FileFacts
from backend.server.turns import News, Turns, visible
from backend.system import faults

_QUEUE_HEADER = "x-queue-position"
_FITTED_HEADER = "x-outrider-fitted"
_IGNORED_HEADER = "x-ignored-fields"


@dataclass(frozen=True)
class Api:
    """A protocol: reads a request, writes its answer, given the model's name, and its errors.

    is_lines: a stream is a JSON object in each line, without events and comments.
    """

    read: Callable[[Any], Ask]
    writer: Callable[[Any, Ask, str], Writer]
    error: Callable[[RequestRefused], Json]
    is_lines: bool = False


Serve = Callable[[Request, Any], Awaitable[Response]]
"""Answers a request, given its parsed body."""


def make_application(turns: Turns, key: str, access: Access = LOCAL) -> ASGIApp:
    """Return the server as an ASGI application. REQUIRES: a key that is not empty."""
    assert key
    kept = openai_responses.Kept()
    chat = Api(
        openai_chat.read_chat,
        lambda _, ask, model: openai_chat.ChatWriter(ask, model),
        openai_chat.error_json,
    )
    text = Api(
        openai_text.read_text,
        lambda _, ask, model: openai_text.TextWriter(ask, model),
        openai_chat.error_json,
    )
    responses = Api(
        lambda body: openai_responses.read_response(body, kept),
        lambda body, ask, model: openai_responses.ResponseWriter(ask, model, body, kept),
        openai_chat.error_json,
    )
    messages = Api(
        anthropic_messages.read_message,
        lambda _, ask, model: anthropic_messages.MessageWriter(ask, model),
        anthropic_messages.error_json,
    )

    def of_ollama(read: Callable[[Any], Ask], *, is_chat: bool) -> Api:
        def write(_: Any, ask: Ask, model: str) -> Writer:
            return ollama.OllamaWriter(ask, model, is_chat=is_chat)

        return Api(read, write, ollama.error_json, is_lines=True)

    of_chat = of_ollama(ollama.read_chat, is_chat=True)
    of_text = of_ollama(ollama.read_generate, is_chat=False)
    native = Api(
        llama_native.read_completion,
        lambda body, ask, model: llama_native.CompletionWriter(
            ask, model, body, turns.facts.vocabulary.ending_tokens if turns.facts else ()
        ),
        llama_native.error_json,
    )
    tools = _Tools(turns)

    def post(path: str, api: Api, read: Callable[[Any], Any], serve: Serve) -> Route:
        async def answer(request: Request) -> Response:
            try:
                asked = await request.scope["room"].read(request.stream(), request.headers, read)
                return await serve(request, asked)
            except RequestRefused as error:
                return refuse(error, api.error)
            except ClientDisconnect:
                return Response(status_code=499)

        return Route(path, answer, methods=["POST"])

    def answers(path: str, api: Api) -> Route:
        async def complete(request: Request, asked: tuple[Any, Ask]) -> Response:
            if api.is_lines and not (asked[1].messages or asked[1].prompts):
                return await tools.load(request, asked[1], api)
            return await _complete(request, turns, api, *asked)

        return post(path, api, lambda body: (body, _read(api, body)), complete)

    def counts(path: str, api: Api, serve: Serve) -> Route:
        return post(path, api, lambda body: _read(api, body), serve)

    routes = [
        answers("/v1/completions", text),
        answers("/api/chat", of_chat),
        answers("/api/generate", of_text),
        post("/api/embed", of_text, vectors.read_ollama, tools.vectors),
        post("/api/embeddings", of_text, vectors.read_ollama, tools.vectors),
        post("/api/show", of_text, ollama.read_show, tools.show),
        Route("/", tools.greet),
        Route("/api/tags", tools.tags),
        Route("/api/ps", tools.running),
        Route("/api/version", tools.version),
    ]
    for prefix in ("/v1", ""):  # some programs leave it out, as llama.cpp's server allows
        routes += [
            Route(f"{prefix}/health", tools.health),
            Route(f"{prefix}/models", tools.models),
            Route(f"{prefix}/models/{{name:path}}", tools.model),
            answers(f"{prefix}/chat/completions", chat),
            counts(f"{prefix}/chat/completions/input_tokens", chat, tools.count_response),
            answers(f"{prefix}/responses", responses),
            counts(f"{prefix}/responses/input_tokens", responses, tools.count_response),
            answers(f"{prefix}/messages", messages),
            counts(f"{prefix}/messages/count_tokens", messages, tools.count_tokens),
            post(f"{prefix}/embeddings", text, vectors.read_openai, tools.vectors),
            post(f"{prefix}/rerank", text, vectors.read_rank, tools.vectors),
            post(f"{prefix}/reranking", text, vectors.read_rank, tools.vectors),
        ]
    for path in ("/completion", "/completions"):
        routes.append(answers(path, native))
    server = llama_native.Native(turns)
    routes.append(counts("/apply-template", chat, server.apply_template))
    routes += [post(path, native, Fields, serve) for path, serve in server.posts.items()]
    routes += [Route(path, serve, methods=["GET"]) for path, serve in server.gets.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _on_http, 500: _on_fault})
    return Guard(_Attended(app), key, access)


def make_server(turns: Turns, key: str, access: Access = LOCAL) -> Server:
    """Return a server. run(sockets=…) serves until should_exit is set."""
    return listen(make_application(turns, key, access), turns.stop)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refused = RequestRefused(f"{error.detail}.", status=error.status_code)
    return refuse(refused, error_form(request))


async def _on_fault(request: Request, error: Exception) -> Response:
    return refuse(_unexpected(error), error_form(request))


def _unexpected(error: Exception) -> RequestRefused:
    faults.record("request", error)  # its words may be of another request
    return RequestRefused("Something unexpected failed in the server.", status=500)


def refuse(
    error: RequestRefused, form: Callable[[RequestRefused], Json] = openai_chat.error_json
) -> Response:
    """Return the response for a refusal."""
    headers = {"Retry-After": str(error.retry_s)} if error.retry_s else {}
    if error.status == 501:  # OpenAI's clients would ask again
        headers["x-should-retry"] = "false"
    return JSONResponse(form(error), status_code=error.status, headers=headers)


class _Tools:
    """The endpoints beside those that answer."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._began = int(time.time())

    async def greet(self, _request: Request) -> Response:
        """Tell that the server runs, to clients that ask Ollama so before anything else."""
        return PlainTextResponse("Outrider is running")

    async def health(self, _request: Request) -> Response:
        """Tell that the server runs, as llama.cpp's does."""
        return JSONResponse({"status": "ok"})

    async def models(self, _request: Request) -> Response:
        """List the models."""
        data = [await self._model(name) for name in self._turns.model_names]
        ends = {"has_more": False, "first_id": None, "last_id": None}  # Anthropic's
        if data:
            ends |= {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
        return JSONResponse({"object": "list", "data": data, **ends})

    async def model(self, request: Request) -> Response:
        """Describe one model."""
        name = request.path_params["name"]
        if name not in self._turns.model_names:
            sentence = f"There is no model {shown(name)} here."
            refused = RequestRefused(sentence, status=404, code="model_not_found")
            return refuse(refused, error_form(request))
        return JSONResponse(await self._model(name))

    async def _model(self, name: str) -> Json:
        """Return the model in OpenAI's form and in Anthropic's."""
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began))
        openai = {"id": name, "object": "model", "created": self._began, "owned_by": "local"}
        host = self._turns.host
        facts = await self._turns.known() if name == host.model_name else None
        file = await asyncio.to_thread(FileFacts.of, host.path_of(name) or Path(name))
        meta = llama_native.meta_json(facts, file)
        told = {"meta": meta} if meta else {}
        return {**openai, "type": "model", "display_name": name, "created_at": created, **told}

    async def tags(self, _request: Request) -> Response:
        """List the models as Ollama does."""
        host, names = self._turns.host, self._turns.model_names
        paths = [(name, path) for name in names if (path := host.path_of(name))]
        entries = await asyncio.to_thread(lambda: [ollama.entry(*each) for each in paths])
        return JSONResponse({"models": entries})

    async def running(self, _request: Request) -> Response:
        """List the loaded model as Ollama does."""
        turns, facts = self._turns, await self._turns.known()
        name = turns.host.model_name
        path = turns.host.path_of(name) if name else None
        if name is None or path is None or facts is None:
            return JSONResponse({"models": []})
        told = await asyncio.to_thread(ollama.running, name, path, facts, turns.expires_s)
        return JSONResponse({"models": [told]})

    async def show(self, _request: Request, name: str) -> Response:
        """Describe one model as Ollama does."""
        host = self._turns.host
        path = host.path_of(name)
        if path is None:
            raise ollama.not_found(name)
        facts = await self._turns.known() if name == host.model_name else None
        return JSONResponse(await asyncio.to_thread(ollama.show, path, facts))

    async def version(self, _request: Request) -> Response:
        """Tell which version of Ollama has this API."""
        return JSONResponse({"version": ollama.VERSION})

    async def load(self, request: Request, ask: Ask, api: Api) -> Response:
        """Load the model that a request names and asks nothing of, as Ollama does."""
        loaded, names = self._turns.host.model_name, self._turns.model_names
        if loaded is None or (ask.model != loaded and ask.model in names):
            await self._turns.ask(lambda _: None, ask.model, _client(request))
        writer = api.writer(None, ask, self._turns.host.model_name or ask.model)
        assert isinstance(writer, ollama.OllamaWriter)
        return JSONResponse(writer.loaded())

    async def count_tokens(self, request: Request, ask: Ask) -> Response:
        """Count the tokens of the prompt that a request would give, for Anthropic's clients."""
        n = await self._count(request, ask)
        return JSONResponse({"input_tokens": n}, headers=_ignored(ask))

    async def count_response(self, request: Request, ask: Ask) -> Response:
        """Count the tokens of the prompt that a request would give, for OpenAI's clients."""
        n = await self._count(request, ask)
        counted = {"object": "response.input_tokens", "input_tokens": n}
        return JSONResponse(counted, headers=_ignored(ask))

    async def _count(self, request: Request, ask: Ask) -> int:
        def count(engine: Any) -> int:
            return int(engine.prompts.count(visible(engine, ask.messages), ask.options))

        is_short = not images_of(ask.messages)  # which are decoded for no answer
        client = _client(request)
        return int(await self._turns.ask(count, ask.model, client, is_short=is_short))

    async def vectors(self, _request: Request, asked: vectors.Asked) -> Response:
        """Let the small model compute a request beside answers."""
        found = await self._turns.vectors(asked.compute)
        if found is None:
            raise vectors.no_model()
        return JSONResponse(asked.written(*found))


def _client(request: Request) -> str:
    return request.headers.get("user-agent", "")[:200]


def _read(api: Api, body: Any) -> Ask:
    ask = api.read(body)
    check_text(ask.prompts, ask.messages, ask.options.tools)
    return ask


def _ignored(ask: Ask) -> dict[str, str]:
    """Return the header with the fields that were ignored, or nothing."""
    names = ", ".join(ask.ignored).encode("ascii", "replace").decode()
    return {_IGNORED_HEADER: names} if names else {}


async def _complete(request: Request, turns: Turns, api: Api, body: Any, ask: Ask) -> Response:
    news = turns.answer(ask, _client(request))
    headers = {_QUEUE_HEADER: "0", **_ignored(ask)}
    # Await the first news here, so that a request that is refused at once gets its own status.
    first = await anext(news, None)
    if isinstance(first, Wait) and first.n_before:
        headers[_QUEUE_HEADER] = str(first.n_before)
    if isinstance(first, Fitted):
        headers[_FITTED_HEADER] = ", ".join(first.changes)
    if ask.stream:
        stream = _Stream(api, body, ask, turns.host.model_name or ask.model)
        lines = stream.lines(news, first)
        kind = "application/x-ndjson" if api.is_lines else "text/event-stream"
        return _Streamed(lines, news, media_type=kind, headers=headers)
    async with aclosing(news):
        parts, finishes, begin = [], [], None
        while first is not None:
            if isinstance(first, Part):
                parts.append(first)
            elif isinstance(first, Finish):
                finishes.append(first)
            elif isinstance(first, Begin):
                begin = first
            elif isinstance(first, Fitted):
                headers[_FITTED_HEADER] = ", ".join(first.changes)
            first = await anext(news, None)
    assert begin is not None
    whole = api.writer(body, ask, begin.model).whole(parts, finishes)
    return JSONResponse(whole, headers=headers)


class _Attended:
    """Cancels a request as soon as its client leaves, wherever the request is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        serving, has_body, has_left = asyncio.current_task(), asyncio.Event(), False
        assert serving is not None

        async def watch() -> None:
            nonlocal has_left
            await has_body.wait()
            while (await receive())["type"] != "http.disconnect":
                pass
            has_left = True
            serving.cancel()

        async def receive_body() -> Message:
            if has_body.is_set():
                await asyncio.Future()  # the watcher above receives later messages
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                has_body.set()
            return message

        async def send_until_end(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                watcher.cancel()  # the end of an answer is a disconnection, too
            await send(message)

        # Without the watcher nobody would notice that the client leaves.
        watcher = faults.task("client", watch(), lambda _: serving.cancel())
        try:
            await self._app(scope, receive_body, send_until_end)
        except asyncio.CancelledError:
            if not has_left or serving.uncancel():
                raise
        finally:
            watcher.cancel()


class _Streamed(StreamingResponse):
    """Sends a stream. Ends the answer, too, when its client leaves."""

    def __init__(self, lines: AsyncGenerator[str], news: AsyncGenerator[News], **more: Any) -> None:
        super().__init__(lines, **more)
        self._lines, self._news = lines, news

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with aclosing(self._news), aclosing(self._lines):
            await self.stream_response(send)


class _Stream:
    """Writes the news of an answer as server-sent events, or as lines."""

    def __init__(self, api: Api, body: Any, ask: Ask, model: str) -> None:
        self._api, self._body, self._ask = api, body, ask
        self._model, self._writer = model, api.writer(body, ask, model)
        self._finishes: list[Finish] = []
        self._comment = self._said("")

    async def lines(self, news: AsyncGenerator[News], first: News | None) -> AsyncGenerator[str]:
        """Yield the text of the stream; `first` is the first of the news."""
        try:
            yield self._write(first)
            task = asyncio.ensure_future(anext(news, None))
            try:
                while True:
                    await asyncio.wait({task}, timeout=self._ask.ping_s or None)
                    if not task.done():
                        yield self._comment
                    elif (item := task.result()) is None:
                        break
                    else:
                        yield self._write(item)
                        task = asyncio.ensure_future(anext(news, None))
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
            events = self._writer.closing(self._finishes)
        except RequestRefused as error:
            events = self._writer.failed(error, self._api.error(error))
        except Exception as error:
            refused = _unexpected(error)
            events = self._writer.failed(refused, self._api.error(refused))
        yield self._lines(events) + self._writer.end

    def _write(self, news: News | None) -> str:
        if isinstance(news, Wait):
            if news.words:
                self._comment = self._said(news.words)
            comment = self._comment if news.words else ""
            progress = self._writer.progress(news.progress) if news.progress else []
            return comment + self._lines(progress)
        if isinstance(news, Fitted):
            return self._said(f"fitted to the template: {', '.join(news.changes)}")
        if isinstance(news, Begin):
            self._comment = self._said("answering")
            if news.model != self._model:  # it was loaded for this answer
                self._writer = self._api.writer(self._body, self._ask, news.model)
            return self._lines(self._writer.opening(news))
        if isinstance(news, Finish):
            self._finishes.append(news)
            return ""
        assert isinstance(news, Part)
        return self._lines(self._writer.part(news))

    def _said(self, words: str) -> str:
        return "" if self._api.is_lines or not self._ask.ping_s else f": {words}\n\n"

    def _lines(self, events: list[Event]) -> str:
        found = []
        for name, data in events:
            if self._api.is_lines:
                found.append(f"{in_line(data)}\n")
            else:
                head = f"event: {name}\n" if name else ""
                found.append(f"{head}data: {in_line(data)}\n\n")
        return "".join(found)
