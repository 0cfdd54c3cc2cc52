"""Serve light mixed requests for an hour. Does the engine's process grow?

    python tests/benchmarks/server_hour.py [--minutes 60] [--seed 64]

`outrider serve` answers with the embedded model. Every two seconds it gets a request: half of them
mutated ones of common clients (server_requests.py), the others conversations of up to nine
messages, JSON schemas, tools, texts to split, and streams that are left early. Each line has the
resident memory of the engine's process and of the template's, in MiB, and the statuses so far. The
exit status is 1 where the engine's process grew by more than 10 % in the second half.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import httpx
import psutil
from server_requests import Mutator

KEY = "a-key-for-an-hour"
PORT = 8264
EVERY_S = 2.0
MAY_GROW = 0.10
WORDS = "tell me of the sea and a tin soldier once more".split()
CHAT = "/v1/chat/completions"


class Client:
    """Sends one request after the other."""

    def __init__(self, seed: int) -> None:
        self._mutator, self._chance = Mutator(seed), random.Random(seed)
        head = {"Authorization": f"Bearer {KEY}"}
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", headers=head, timeout=120)
        self._turns: list[Any] = []

    def wait(self) -> None:
        """Wait until the server listens."""
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                self._http.get("/health")
                return
            time.sleep(0.1)
        raise SystemExit("The server does not begin.")

    def send(self) -> int:
        """Send the next request. Return its status."""
        chance = self._chance
        if chance.random() < 0.5:
            method, path, _, data = self._mutator.request()
            return self._http.request(method, path, content=data).status_code
        kind = chance.choice(("chat", "chat", "schema", "tools", "split", "left"))
        return int(getattr(self, f"_{kind}")(chance))

    def _chat(self, chance: random.Random) -> int:
        said = " ".join(chance.choices(WORDS, k=chance.randrange(3, 60)))
        self._turns = [*self._turns[-8:], {"role": "user", "content": said}]
        more = {"max_tokens": chance.randrange(1, 64), "n": chance.choice((1, 1, 2))}
        answer = self._http.post(CHAT, json={"messages": self._turns, **more})
        if answer.status_code == 200:
            self._turns.append(answer.json()["choices"][0]["message"])
        return answer.status_code

    def _schema(self, chance: random.Random) -> int:
        fields = {f"p{chance.randrange(1000)}": {"type": "string", "maxLength": 9} for _ in "abcd"}
        schema = {"name": "a", "schema": {"type": "object", "properties": fields}}
        body = {"response_format": {"type": "json_schema", "json_schema": schema}}
        hi = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30}
        return self._http.post(CHAT, json={**hi, **body}).status_code

    def _tools(self, chance: random.Random) -> int:
        fields = {"type": "object", "properties": {"a": {"type": "string"}}}
        tools = [
            {"type": "function", "name": f"t{chance.randrange(99)}", "parameters": fields}
            for _ in range(chance.randrange(1, 9))
        ]
        body = {"input": "tell me", "max_output_tokens": 20, "tools": tools}
        return self._http.post("/v1/responses", json=body).status_code

    def _split(self, chance: random.Random) -> int:
        text = "a tin soldier " * chance.randrange(3000)
        return self._http.post("/tokenize", json={"content": text}).status_code

    def _left(self, chance: random.Random) -> int:
        said = [{"role": "user", "content": "tell " * chance.randrange(900)}]
        body = {"model": "a", "messages": said, "max_tokens": 40, "stream": True}
        with self._http.stream("POST", "/v1/messages", json=body) as answer:
            for _ in zip(answer.iter_lines(), range(chance.randrange(60)), strict=False):
                pass
            return answer.status_code


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=64)
    args = parser.parse_args()
    command = [sys.executable, "-m", "backend.cli", "serve", "--port", str(PORT)]
    environment = {**os.environ, "OUTRIDER_API_KEY": KEY}
    server = subprocess.Popen([*command, "--device", "cpu", "--threads", "1"], env=environment)
    client, statuses, sizes = Client(args.seed), Counter[int](), list[float]()
    try:
        client.wait()
        began_s = time.monotonic()
        while len(sizes) <= args.minutes:
            statuses[client.send()] += 1
            passed_s = time.monotonic() - began_s
            if passed_s >= 30 + 60 * len(sizes):
                found = psutil.Process(server.pid).children(recursive=True)
                mib = [each.memory_info().rss / 2**20 for each in found]
                sizes.append(mib[0])
                said = ", ".join(f"{size:.0f}" for size in mib)
                print(f"{passed_s / 60:5.1f} min: {said} MiB; {dict(statuses)}", flush=True)
            time.sleep(max(0.0, EVERY_S * statuses.total() - passed_s))
    finally:
        server.terminate()
        server.wait()
    half = len(sizes) // 2
    grew = max(sizes[half:]) / max(sizes[: half + 1]) - 1
    print(f"most {max(sizes):.0f} MiB; {100 * grew:.1f} % more in the second half")
    return 1 if grew > MAY_GROW else 0


if __name__ == "__main__":
    sys.exit(main())
