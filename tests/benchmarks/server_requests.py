"""Send mutated requests to the local server: no status of 5xx, no hang, no traceback.

A seeded generator mutates the requests of common clients (tests/data/clients). They go to the
application in this process, and a sample of them to a real server. The engine is a fake. If a
request fails, the program shows it and exits with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import io
import json
import logging
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine
from served import KEY, Served

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig
from backend.server.application import make_application
from backend.server.engine_host import EngineThread
from backend.server.turns import Turns
from backend.system.paths import embedded_model

CLIENTS = Path(__file__).resolve().parents[1] / "data" / "clients"
LONGEST_S = 20.0
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63 - 1, -(2**63), 0.5, -0.0, 1e308, 5e-324,
    "", "a", "auto", "none", "required", "function", "json_schema", "\x00", "\u202e", "\U0001f600",
    "x" * 5000, "data:image/png;base64,AAAA", "data:,", "http://127.0.0.1/", "resp_0",
    [], {}, [None], [[]], [{}], {"": ""}, {"type": "text"}, {"type": "object"}, ["a", 1],
    {"role": "user", "content": "a"}, {"type": "function", "function": {}},
]  # fmt: skip
FIELDS = (
    "model messages input prompt max_tokens max_completion_tokens max_output_tokens n seed stop "
    "stop_sequences stream stream_options tools tool_choice parallel_tool_calls response_format "
    "logprobs top_logprobs logit_bias temperature top_p top_k min_p presence_penalty echo suffix "
    "frequency_penalty repeat_penalty reasoning reasoning_effort thinking chat_template_kwargs "
    "grammar json_schema system instructions text include previous_response_id store background "
    "output_config conversation content tokens add_special role type name id call_id arguments "
    "function tool_calls tool_call_id images think format options keep_alive raw suffix template "
    "num_predict num_ctx context tool_name thinking unheard_of"
).split()
DEEP = "a deeply nested object"
PATHS = (
    "/v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/messages/count_tokens "
    "/v1/embeddings /v1/rerank /rerank /tokenize /detokenize /v1/models /v1/models/fake "
    "/health /nowhere /api/chat /api/generate /api/embed /api/embeddings /api/show /api/tags "
    "/api/ps /api/version /api/pull"
).split()
_CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
_RAW = {
    "prompt": ["a", [1, 2, "b"], {"prompt_string": "c"}], "n_predict": 3, "n_probs": 2,
    "samplers": ["top_k", "temperature"], "dry_multiplier": 0.5, "logit_bias": [["a", False]],
    "response_fields": ["content", "timings/prompt_n"], "return_tokens": True, "mirostat": 0,
    "dry_sequence_breakers": ["a"], "stream": False, "return_progress": True,
}  # fmt: skip
NATIVE: dict[str, Any] = {
    "/completion": _RAW, "/completions": _RAW, "/apply-template": _CHAT,
    "/chat/completions": _CHAT, "/chat/completions/input_tokens": _CHAT,
    "/v1/responses/input_tokens": {"input": "a"}, "/responses": {"input": "a"},
    "/messages": _CHAT, "/messages/count_tokens": _CHAT, "/models": {}, "/props": {}, "/slots": {},
    "/metrics": {}, "/version": {}, "/lora-adapters": [{"id": 0}], "/slots/0": {"filename": "a"},
    "/infill": {"input_prefix": "a"}, "/rerank": {"query": "a"}, "/embedding": {"content": "a"},
    "/embeddings": {"input": "a"}, "/v1/health": {},
    "/tokenize": {"content": "a", "with_pieces": True},
}  # fmt: skip
"""The paths of llama.cpp's server, with a body each."""
ENDS = (
    '"stop": true',
    "[DONE]",
    '"message_stop"',
    '"response.completed"',
    '"response.incomplete"',
    '"error"',
)


class Mutator:
    """Makes requests (method, path, headers, body) from a seed."""

    def __init__(self, seed: int, paths: Sequence[str] = ()) -> None:
        self._random = random.Random(seed)
        self._bases = [
            (request["path"].partition("?")[0], request.get("body", {}))
            for path in sorted(CLIENTS.glob("*.json"))
            for request in json.loads(path.read_text(encoding="utf-8"))["requests"]
        ]
        self._bases.append(("/tokenize", {"content": "a bb", "add_special": True}))
        self._bases.append(("/detokenize", {"tokens": [1, 2, 3]}))
        if paths:
            self._bases = [(path, NATIVE[path]) for path in paths]

    def request(self) -> tuple[str, str, dict[str, str], bytes]:
        """Return the next request."""
        chance = self._random
        path, base = chance.choice(self._bases)
        body: Any = copy.deepcopy(base)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5, 8))):
            body = self._changed(body)
        if chance.random() < 0.05:
            path = chance.choice(PATHS)
        n = chance.choice((10, 100, 300, 480, 900, 3000, 100_000))
        deep = '{"properties":' * n + "1" + "}" * n
        data = json.dumps(body).replace(f'"{DEEP}"', deep).encode()
        if chance.random() < 0.05:
            data = self._damaged(data)
        headers = {"host": "127.0.0.1", "authorization": f"Bearer {KEY}"}
        headers["user-agent"] = chance.choice(("a", "b", "c" * 300, ""))
        if chance.random() < 0.02:
            headers[chance.choice(list(headers))] = chance.choice(("", "x", "Bearer", "\xff"))
        method = "POST" if chance.random() < 0.98 else chance.choice(("GET", "PUT", "HEAD", "X"))
        return method, path, headers, data

    def _changed(self, body: Any) -> Any:
        """Return a body with one change somewhere."""
        places = list(_places(body))
        chance = self._random
        if not places:
            return chance.choice(VALUES)
        holder, key = chance.choice(places)
        kind = chance.randrange(7)
        if kind == 0:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
        elif kind == 1:
            del holder[key]
        elif kind == 2 and isinstance(holder, dict):
            holder[chance.choice(FIELDS)] = copy.deepcopy(chance.choice(VALUES))
        elif kind == 3:
            other, from_key = chance.choice(places)
            holder[key] = copy.deepcopy(other[from_key])
        elif kind == 4 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(chance.choice(holder)))
        elif kind == 5:
            holder[key] = [holder[key]]
        elif kind == 6 and chance.random() < 0.2:
            holder[key] = DEEP
        return body

    def _damaged(self, data: bytes) -> bytes:
        """Return JSON with some bytes changed."""
        damaged = bytearray(data)
        for _ in range(self._random.randrange(1, 4)):
            at = self._random.randrange(len(damaged) + 1)
            damaged[at : at + self._random.randrange(3)] = self._random.choice(
                (b"", b"\xff", b"\x00", b"{", b"]", b"\\ud800", b"1e999", b"9" * 400, b",", b"NaN")
            )
        return bytes(damaged)


def _places(body: Any) -> Any:
    """Yield (holder, key) of each value within a body."""
    todo = [body]
    while todo:
        holder = todo.pop()
        if isinstance(holder, dict | list):
            for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
                yield holder, key
                todo.append(holder[key])


async def call(app: Any, request: tuple[str, str, dict[str, str], bytes]) -> tuple[int, bytes]:
    """Give one request to an ASGI application. Return the status and the body."""
    method, path, headers, data = request
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "server": ("127.0.0.1", 1), "client": ("1", 1),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers.items()],
    }  # fmt: skip
    status, body, sent = 0, bytearray(), False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            body.extend(message.get("body", b""))

    await asyncio.wait_for(app(scope, receive, send), LONGEST_S)
    return status, bytes(body)


def fault(method: str, path: str, status: int, body: bytes) -> str:
    """Return what is wrong with an answer, or ""."""
    if status >= 500 and status != 501:
        return f"status {status}"
    if b"Traceback" in body:
        return "a traceback"
    if method == "HEAD" or status == 0:
        return "" if status else "no answer"
    text = body.decode("utf-8")
    if status == 200 and text.startswith(("data:", "event:", ":")):
        last = [line for line in text.split("\n\n") if line.strip()][-1]
        return "" if any(end in last for end in ENDS) else f"a stream ends with {last[:200]}"
    if status == 200 and text.startswith("# HELP"):
        return ""
    if is_of_ollama := path.startswith("/api/"):
        *whole, last = [json.loads(line) for line in text.splitlines()]
        if any(line["done"] for line in whole):
            return "a stream goes on behind its end"
        data = last
    else:
        data = json.loads(text)
    if status >= 400:
        sentence = data["error"] if is_of_ollama else data["error"]["message"]
        return "" if sentence.endswith(".") else f"no sentence: {sentence!r}"
    if path in ("/api/chat", "/api/generate") and not (data.get("done") or "error" in data):
        return f"a stream ends with {data}"
    return ""


def embedded_engine() -> Engine:
    """Return the embedded model with a short context, so that answers are short."""
    return Engine.open(embedded_model(), EngineConfig(cache_rate=0.5, context_length=256))


async def attack(n: int, seed: int, engine: Any = None, paths: Sequence[str] = ()) -> Counter[int]:
    """Send n requests to the application. Return the count of each status.

    engine: a made-up one by default. paths: of NATIVE, in place of the clients' requests.

    Raises AssertionError with the request where an answer is wrong.
    """
    host = EngineThread(engine or FakeEngine())
    app = make_application(Turns(host), KEY)
    mutator, found = Mutator(seed, paths), Counter[int]()
    errors = io.StringIO()
    try:
        for i in range(n):
            request = mutator.request()
            with contextlib.redirect_stderr(errors):
                status, body = await call(app, request)
            trouble = fault(*request[:2], status, body) or errors.getvalue()
            assert not trouble, f"request {i} of seed {seed}: {trouble}\n{request}"
            found[status] += 1
    finally:
        host.close()
    return found


def sample(n: int, seed: int) -> Counter[int]:
    """Send n requests to a real server, some in pieces or cut off. Return the statuses.

    0: the request was cut off and got no answer.
    """
    served = Served(FakeEngine())
    mutator, chance, found = Mutator(seed), random.Random(seed), Counter[int]()
    try:
        for i in range(n):
            method, path, headers, data = mutator.request()
            cut = chance.random() < 0.1
            lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            lines.append(f"Content-Length: {len(data)}")
            whole = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data
            whole = whole[: chance.randrange(len(whole))] if cut else whole
            with socket.create_connection(("127.0.0.1", served.port), LONGEST_S) as connection:
                with contextlib.suppress(ConnectionError):
                    at = chance.randrange(len(whole) + 1)
                    connection.sendall(whole[:at])
                    connection.sendall(whole[at:])
                    if cut:
                        with contextlib.suppress(OSError):  # the server has closed it already
                            connection.shutdown(socket.SHUT_WR)
                answer = b""
                with contextlib.suppress(ConnectionError):
                    while part := connection.recv(1 << 16):
                        answer += part
            status = int(answer.split(b" ", 2)[1]) if answer else 0
            assert (status < 500 or status == 501) and (status or cut), (
                f"request {i}: {status}\n{whole!r}"
            )
            found[status] += 1
    finally:
        served.close()
    return found


def main() -> int:
    """Run the attack and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100_000, help="requests in this process")
    parser.add_argument("--sockets", type=int, default=1000, help="requests to a real server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--native", type=int, default=1000, help="requests to each path of llama.cpp's server"
    )
    parser.add_argument("--embedded", action="store_true", help="with the embedded model")
    args = parser.parse_args()
    logging.disable()
    began_s = time.monotonic()
    try:
        engine = embedded_engine() if args.embedded else None
        found = asyncio.run(attack(args.n, args.seed, engine))
        print(f"{args.n} requests:", dict(sorted(found.items())))
        for path in NATIVE if args.native else ():
            found = asyncio.run(attack(args.native, args.seed, engine, [path]))
            print(f"{args.native} to {path}:", dict(sorted(found.items())), flush=True)
        print(f"{args.sockets} by sockets:", dict(sorted(sample(args.sockets, args.seed).items())))
    except (AssertionError, TimeoutError) as error:
        print(str(error)[:5000] or "a request hangs", file=sys.stderr)
        return 1
    print(f"{time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
