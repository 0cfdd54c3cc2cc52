"""Stop a worker at random moments. How long until it is silent?

    python tests/benchmarks/stop_silence.py [--stops 1000] [--seed 1]

A quarter of the stops come while a model loads, the others while a prompt is read or an answer is
written. The time is from the call of stop() to the final message, in this process. Requests that
ended before the stop do not count. The goal is a p99 of 250 ms.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from typing import Any

from backend.protocol.client import Reply, RequestFailed, WorkerClient
from backend.system.paths import embedded_model

GOAL_MS = 250.0
MOST_S = 0.5
"""A stop comes within this time of its request."""
_LOAD: dict[str, Any] = {"method": "auto", "context_length": 2048, "n_thread": 2, "device": "cpu"}


def silence_ms(client: WorkerClient, reply: Reply, chance: random.Random) -> float:
    """Stop a request at a random moment. Return the milliseconds, or -1 if it had ended."""
    time.sleep(chance.uniform(0, MOST_S))
    began_s = time.perf_counter()
    client.stop(reply)
    try:
        final = reply.final()
    except RequestFailed:
        final = {}
    is_stopped = final.get("type") != "loaded" and final.get("reason", "cancelled") == "cancelled"
    return (time.perf_counter() - began_s) * 1e3 if is_stopped else -1.0


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance, path = random.Random(args.seed), str(embedded_model())
    found: dict[str, list[float]] = {"load": [], "answer": []}
    with WorkerClient() as client:
        while sum(map(len, found.values())) < args.stops:
            rate = chance.choice((0.25, 0.5, 1.0))
            client.request("load", path=path, cache_rate=rate, **_LOAD).final()
            for i in range(45):
                words = "it was one of the words that they had not said " * chance.randrange(1, 60)
                ask: dict[str, Any] = {"prompt": f"{i} {words}", "sampling": {"temperature": 0}}
                reply = client.request("generate", **ask, max_tokens=100)
                if (ms := silence_ms(client, reply, chance)) >= 0:
                    found["answer"].append(ms)
            for _ in range(15):
                rate = chance.choice((0.25, 0.5, 1.0))
                reply = client.request("load", path=path, cache_rate=rate, **_LOAD)
                if (ms := silence_ms(client, reply, chance)) >= 0:
                    found["load"].append(ms)
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name, times in {**found, "all": [*found["load"], *found["answer"]]}.items():
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        print(f"{name:<7} {len(times):>5} stops: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, "
              f"most {max(times):.1f} ms")  # fmt: skip
    return 0 if cuts[98] <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
