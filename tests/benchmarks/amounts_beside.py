"""How long does "Hi" of one client wait while another sends each amount at its limit?

    python tests/benchmarks/amounts_beside.py [MODEL.gguf] [--rounds 3]

For each amount of the table in docs/server.md one client sends a request at the limit, and another
asks "Hi" again and again meanwhile. Before and after, "Hi" is asked alone. "wait" is the longest
answer to "Hi" beside the request less the median alone, in seconds. On a busy machine this says
little, so "processor" has the time that the server, its thread of the engine and its children
computed within that answer, less the median alone: no wait is longer where nobody else computes.
The exit status is 1 where that exceeds 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from served import KEY, Served

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig
from backend.server import ask, bodies, llama_native, tools
from backend.system.paths import embedded_model

MOST_S = 2.0
CHAT = "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
_RARE = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(20000))


def _tool(i: int) -> dict[str, Any]:
    fields = {f"field{k}": {"type": "string"} for k in range(4)}
    of = {"name": f"tool_{i}", "parameters": {"type": "object", "properties": fields}}
    return {"type": "function", "function": of}


def requests() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a path and a body for each amount."""
    zeros = bodies.MAX_VALUES - 16
    deep: Any = 0
    for _ in range(bodies.MAX_DEPTH - 2):
        deep = [deep]
    image = "data:image/png;base64," + "A" * (bodies.MAX_BODY_BYTES - 400)
    parts = [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": image}}]
    many = [{"role": "user", "content": "Hi"}] * (bodies.MAX_VALUES // 2 - 16)
    spaces = [
        {"type": "namespace", "name": f"space{k}", "tools": [
            {"type": "function", **_tool(512 * k + i)["function"]} for i in range(512)]}
        for k in range(tools.MAX_ALL_TOOLS // 512)
    ]  # fmt: skip
    schema = {"enum": [f"a{i}" for i in range(ask.MAX_SCHEMA_VALUES - 8)]}
    answer = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    ways = " | ".join(f'"w{i} x"' for i in range(ask.MAX_ALTERNATIVES))
    few = ask.MAX_BREAKERS
    bias = [[f"word {i}", 1] for i in range(ask.MAX_TEXTS)]
    text = "a " * (ask.MAX_TEXT_CHARS // 2 - 8)
    marks = "<|im_start|>a" * 60_000
    return {
        "bytes of a body": (CHAT, {"messages": [{"role": "user", "content": parts}]}),
        "values in a body": (CHAT, {**HI, "x": [0] * zeros}),
        "levels in a body": (CHAT, {**HI, "x": deep}),
        "messages": (CHAT, {"messages": many, "max_tokens": 8}),
        "characters of text": ("/v1/completions", {"prompt": text, "max_tokens": 8}),
        "rare letters": (CHAT, {"messages": [{"role": "user", "content": _RARE * 50}]}),
        "control marks": ("/v1/completions", {"prompt": marks, "max_tokens": 8}),
        "tools": (CHAT, {**HI, "tools": [_tool(i) for i in range(tools.MAX_TOOLS)]}),
        "a demanded one of the tools": (CHAT, {**HI, "tool_choice": "required",
            "tools": [_tool(i) for i in range(tools.MAX_TOOLS)]}),
        "tools of all namespaces": ("/v1/responses",
            {"input": "Hi", "max_output_tokens": 8, "tools": spaces}),
        "choices": (CHAT, {**HI, "n": ask.MAX_CHOICES}),
        "prompts": ("/v1/completions", {"prompt": ["Hi"] * ask.MAX_CHOICES, "max_tokens": 8}),
        "alternatives in a grammar": (CHAT, {**HI, "grammar": f"root ::= {ways}"}),
        "values in a schema": (CHAT, {**HI, "response_format": answer}),
        "dry_sequence_breakers": (CHAT, {**HI, "dry_multiplier": 1,
            "dry_sequence_breakers": [_RARE[64 * i : 64 * i + 64] for i in range(few)]}),
        "samplers": (CHAT, {**HI, "samplers": ["top_k"] * ask.MAX_SAMPLERS}),
        "texts in stop": (CHAT, {**HI, "stop": [f"word {i}" for i in range(ask.MAX_TEXTS)]}),
        "texts in logit_bias": (CHAT, {**HI, "logit_bias": bias}),
        "bytes of /tokenize": ("/tokenize",
            {"content": (_RARE * 9)[: llama_native.MAX_SPLIT_BYTES // 3]}),
    }  # fmt: skip


def serve(path: Path) -> None:
    """Serve a model until standard input ends."""
    config = EngineConfig(cache_rate=1.0, n_thread=1, context_length=8192)
    served = Served(Engine.open(path, config))
    print(served.port, flush=True)
    sys.stdin.read()
    os._exit(0)


def computed_s(process: psutil.Process) -> float:
    """Return the processor time of a process and of all its children."""
    found = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system
    return found


class Asker:
    """A client that asks for "Hi", with the answer's time and the server's processor time."""

    def __init__(self, url: str, process: psutil.Process) -> None:
        self._process = process
        head = {"Authorization": f"Bearer {KEY}", "User-Agent": "one who says Hi"}
        self._client = httpx.Client(base_url=url, headers=head, timeout=600)

    def hi(self) -> tuple[float, float]:
        began_s, computed = time.monotonic(), computed_s(self._process)
        self._client.post(CHAT, json=HI).raise_for_status()
        return time.monotonic() - began_s, computed_s(self._process) - computed


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=embedded_model())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help="be the server")
    parser.add_argument("-k", default="", help="amounts with this in their names")
    args = parser.parse_args()
    if args.serve:
        serve(args.model)
    command = [sys.executable, __file__, "--serve", str(args.model)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert child.stdout is not None
    url = f"http://127.0.0.1:{child.stdout.readline().strip()}"
    asker, process, worst_s = Asker(url, psutil.Process(child.pid)), psutil.Process(child.pid), 0.0
    asker.hi()
    print("| amount | status | wait | processor | Hi alone |\n|---|--:|--:|--:|--:|")
    for name, (path, body) in requests().items():
        if args.k not in name:
            continue
        data, found, alone, status = json.dumps(body).encode(), [], [asker.hi()], 0
        for _ in range(args.rounds):
            status = 0

            def heavy(path: str = path, data: bytes = data) -> None:
                nonlocal status
                head = {"x-api-key": KEY, "Content-Type": "application/json"}
                status = httpx.post(url + path, content=data, headers=head, timeout=600).status_code

            thread = threading.Thread(target=heavy)
            thread.start()
            time.sleep(0.02)
            while thread.is_alive():
                found.append(asker.hi())
            alone.append(asker.hi())
        alone_s, alone_cpu_s = (statistics.median(column) for column in zip(*alone, strict=True))
        wait_s, cpu_s = (max(column) for column in zip(*(found or alone), strict=True))
        worst_s = max(worst_s, cpu_s - alone_cpu_s)
        row = f"{wait_s - alone_s:.2f} | {cpu_s - alone_cpu_s:.2f} | {alone_s:.2f}"
        print(f"| {name} | {status} | {row} |", flush=True)
    print(f"resident: {process.memory_info().rss / 2**20:.0f} MiB; load {os.getloadavg()[0]:.1f}")
    child.kill()
    return 1 if worst_s > MOST_S else 0


if __name__ == "__main__":
    sys.exit(main())
