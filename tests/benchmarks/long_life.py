"""Use one worker for long: models switched, cache rates changed, answers stopped. Does it grow?

    python tests/benchmarks/long_life.py [--seconds 600] [--seed 1]

Print the resident memory, descriptors and threads of the worker and of this client after each
tenth of the time. The exit status is 1 if the worker's memory grew by more than 5 % after the first
half, or if descriptors or threads grew.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from factory import make_tiny

from backend.protocol.client import WorkerClient

ARCHITECTURES = ("qwen3moe", "gpt-oss", "deepseek2", "dense")
METHODS = ("auto", "lru", "promoe", "klotski")


def act(client: WorkerClient, path: Path, chance: random.Random) -> None:
    """Load a model and answer some times, at changing rates, with stops."""
    settings = {"context_length": 256, "n_thread": 1, "device": "cpu"}
    settings |= {"cache_rate": chance.random(), "method": chance.choice(METHODS)}
    client.request("load", path=str(path), **settings).final()
    for _ in range(5):
        prompt = "the of and " * chance.randrange(1, 40)
        ask: dict[str, Any] = {"prompt": prompt, "sampling": {"temperature": 0}, "max_tokens": 20}
        reply = client.request("generate", **ask)
        if chance.random() < 0.3:
            client.stop(reply)
        reply.final()
        if chance.random() < 0.5:
            client.request("set_cache_rate", cache_rate=chance.random()).final()


def size_of(pid: int) -> tuple[int, int, int]:
    """Return resident bytes, descriptors and threads of a process."""
    process = psutil.Process(pid)
    return process.memory_info().rss, process.num_fds(), process.num_threads()


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance, n_load = random.Random(args.seed), 0
    sizes: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory() as name, WorkerClient() as client:
        paths = [make_tiny(arch, "Q8_0", Path(name) / f"{arch}.gguf") for arch in ARCHITECTURES]
        began_s = time.monotonic()
        while len(sizes) < 10:
            act(client, chance.choice(paths), chance)
            n_load += 1
            if time.monotonic() - began_s > args.seconds / 10 * (len(sizes) + 1):
                sizes.append(size_of(client.pid))
                mine = size_of(psutil.Process().pid)
                rss, n_fd, n_thread = sizes[-1]
                print(
                    f"{n_load:>6} loads: worker {rss / 2**20:.1f} MiB, {n_fd} descriptors, "
                    f"{n_thread} threads; client {mine[0] / 2**20:.1f} MiB, {mine[1]} descriptors",
                    flush=True,
                )
    rss, n_fd, n_thread = (max(column) for column in zip(*sizes[:5], strict=True))
    end = sizes[-1]
    grew = end[0] > 1.05 * rss or end[1] > n_fd or end[2] > n_thread
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
