"""Measure a person's answer beside programs that use the local server of the same window.

    python tests/benchmarks/answer_beside.py [MODEL] [--rate 0.25] [--rounds 7] [--tokens 96]
        [--images]

Rounds alternate: the answer alone with the server off, beside one program, beside three. Each
program asks one question after the other, with --images about another image each time. Shown:
medians of the answer's token/s, of its share of the speed alone in the same round, of the wait for
its first token, and of the programs' token/s meanwhile.
"""

from __future__ import annotations

import argparse
import base64
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from factory import make_png
from server_clients import QUESTIONS

from backend.protocol.client import WorkerClient
from backend.system.paths import embedded_model

GREEDY = {"temperature": 0.0}
N_PROGRAM = (0, 1, 3)


@dataclass
class Programs:
    """Programs that ask until they are told to stop. times_s: of their pieces, perf_counter()."""

    url: str
    has_images: bool = False
    times_s: list[float] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(self, number: int) -> None:
        headers = {"Authorization": "Bearer measured", "User-Agent": f"program {number}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=600) as client:
            for i in range(1_000_000):
                question = f"{number}, {i}. {QUESTIONS[(number + i) % len(QUESTIONS)]}"
                content = [{"type": "text", "text": question}]
                if self.has_images:
                    content += [_image(100 * number + i)]
                body = {
                    "messages": [{"role": "user", "content": content}], "max_tokens": 64,
                    "temperature": 0.7, "stream": True, "logprobs": True,
                }  # fmt: skip
                with client.stream("POST", "chat/completions", json=body) as reply:
                    for line in reply.iter_lines():
                        if self.stop.is_set():
                            return
                        now_s = time.perf_counter()
                        self.times_s += [now_s] * line.count('"token":')


def _image(seed: int) -> dict[str, Any]:
    """Return an image of random pixels, as a part of a message."""
    pixels = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)
    data = base64.b64encode(make_png(pixels)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


@contextmanager
def asking(client: WorkerClient, n: int, *, has_images: bool) -> Iterator[Programs]:
    """Let n programs ask; with none, the server is off."""
    reply = client.request("serve", on=n > 0, port=0, key="measured").final()
    programs = Programs(reply["address"], has_images)
    threads = [threading.Thread(target=programs.ask, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    while len(programs.times_s) < 8 * n:
        time.sleep(0.01)
    try:
        yield programs
    finally:
        programs.stop.set()
        client.request("serve", on=False, port=0, key="").final()
        for thread in threads:
            thread.join()


def measure(
    client: WorkerClient, n: int, question: str, n_token: int, *, has_images: bool
) -> tuple[float, ...]:
    """Return the answer's token/s, the seconds to its first token, and the programs' token/s."""
    messages = [{"role": "user", "content": question}]
    with asking(client, n, has_images=has_images) as programs:
        sent_s = time.perf_counter()
        reply = client.request("generate", messages=messages, sampling=GREEDY, max_tokens=n_token)
        first_s, done = 0.0, {}
        for message in reply:
            if message["type"] == "text" and not first_s:
                first_s = time.perf_counter()
            done = message
        ended_s = time.perf_counter()
        n_other = sum(first_s < at_s <= ended_s for at_s in programs.times_s)
    assert done["reason"] == "length", done
    speed = done["stats"]["tokens_per_s"]
    return speed, first_s - sent_s, n_other / (ended_s - first_s)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(embedded_model()))
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--method", default="outrider")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--images", action="store_true")
    args = parser.parse_args()
    settings: dict[str, Any] = {"cache_rate": args.rate, "method": args.method, "n_thread": 0}
    found: dict[int, list[tuple[float, ...]]] = {n: [] for n in N_PROGRAM}
    with WorkerClient() as client:
        client.request("load", path=args.model, context_length=4096, **settings).final()
        for i in range(-1, args.rounds):
            for n in N_PROGRAM:
                question = f"{i}. Write a long story about a crow, a fox and a well."
                figures = measure(client, n, question, args.tokens, has_images=args.images)
                if i >= 0:
                    found[n].append(figures)
    alone = [speed for speed, *_ in found[0]]
    for n, rounds in found.items():
        speeds, firsts_s, others = zip(*rounds, strict=True)
        shares = [speed / of for speed, of in zip(speeds, alone, strict=True)]
        print(
            f"{n} programs: {statistics.median(speeds):.1f} token/s, "
            f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}) of alone; "
            f"first token after {statistics.median(firsts_s):.2f} s; "
            f"programs {statistics.median(others):.1f} token/s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
