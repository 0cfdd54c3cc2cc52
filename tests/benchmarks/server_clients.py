"""Measure the tokens of several clients of `outrider serve` at once against those of one.

    python tests/benchmarks/server_clients.py [MODEL] [--clients 4] [--rounds 5] [OPTIONS OF SERVE]

Rounds of one client and of several alternate. Each client sends chats one after the other, which
end at a number of tokens. Shown: medians of token/s and of the seconds to the first token, and its
99th percentile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from backend.system.paths import embedded_model

KEY = "measured"
QUESTIONS = [
    "Tell me a story about a crow and a well.",
    "Why is the sky blue in the day?",
    "Explain how bread is made at home.",
    "What do bees do in the winter?",
    "Write about a small town by the sea.",
    "How does a bicycle stay upright?",
    "Describe a market in the morning.",
    "What is a glacier, and why does it move?",
]


def ask(client: httpx.Client, question: str, n_token: int) -> tuple[int, float]:
    """Return the tokens of an answer and the seconds to its first text."""
    body = {
        "model": "any", "temperature": 0, "max_tokens": n_token, "stream": True,
        "stream_options": {"include_usage": True}, "logit_bias": {},
        "messages": [{"role": "user", "content": question}],
    }  # fmt: skip
    began_s, first_s, n = time.perf_counter(), 0.0, 0
    with client.stream("POST", "chat/completions", json=body) as reply:
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            data = json.loads(line[6:])
            if not first_s and data["choices"]:
                first_s = time.perf_counter() - began_s
            n = (data.get("usage") or {}).get("completion_tokens", n)
    return n, first_s


def measure(
    client: httpx.Client, n_client: int, n_token: int, i_round: int
) -> tuple[float, list[float]]:
    """Return token/s of all clients together, and the waits for the first tokens."""
    # Every round has other prompts, so that none is in the context.
    asked = [f"{i_round}. {QUESTIONS[i % len(QUESTIONS)]}" for i in range(2 * n_client)]
    began_s = time.perf_counter()
    with ThreadPoolExecutor(n_client) as pool:
        found = list(pool.map(lambda question: ask(client, question, n_token), asked))
    took_s = time.perf_counter() - began_s
    return sum(n for n, _ in found) / took_s, [first_s for _, first_s in found]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(embedded_model()))
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    args, options = parser.parse_known_args()
    command = [sys.executable, "-m", "backend.cli", "serve", args.model, "--port", "0"]
    command += ["--parallel", str(args.clients), *options]
    env = {**os.environ, "OUTRIDER_API_KEY": KEY}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().split()[-1]
            # One for all: to make one takes a tenth of a second of the processor.
            headers = {"Authorization": f"Bearer {KEY}"}
            client = httpx.Client(base_url=url, headers=headers, timeout=600)
            measure(client, args.clients, 8, -1)
            speeds: dict[int, list[float]] = {1: [], args.clients: []}
            waits: dict[int, list[float]] = {1: [], args.clients: []}
            for i in range(args.rounds):
                for n_client in speeds:
                    speed, first_s = measure(client, n_client, args.tokens, i)
                    speeds[n_client].append(speed)
                    waits[n_client] += first_s
        finally:
            server.terminate()
    for n_client, found in speeds.items():
        first_s = sorted(waits[n_client])
        print(
            f"{n_client} clients: {statistics.median(found):.1f} token/s "
            f"({min(found):.1f} to {max(found):.1f}); first token after "
            f"{statistics.median(first_s):.2f} s, p99 of {len(first_s)} "
            f"{first_s[-(-99 * len(first_s) // 100) - 1]:.2f} s"
        )
    one, several = (statistics.median(found) for found in speeds.values())
    print(f"{several / one:.2f} times the tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
