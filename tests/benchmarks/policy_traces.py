"""Compare this project's evictions with LRU and Belady's on traces, by hits of decoded tokens.

    python tests/benchmarks/policy_traces.py TRACE... [--evictions decayed,recall] [--rates R,R]

Every eviction has the shipped schedule and no prediction, and starts cold. "closed" is the share of
the distance between LRU and Belady's that an eviction closes. A TRACE may also be a routing that is
hard for policies with a memory: "drift", "stay50", "stay80", "even".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend.methods.catalogue import Method  # noqa: E402
from backend.methods.part import part  # noqa: E402
from backend.simulation.run import Setting, run  # noqa: E402
from backend.traces.reading import read_trace  # noqa: E402
from backend.traces.trace import DECODE, Trace  # noqa: E402

N_TOKEN, N_LAYER = 400, 6
Draw = Callable[[np.random.Generator, NDArray[np.int64], int, int], NDArray[np.int64]]


def _stay(share: float) -> Draw:
    def draw(
        random: np.random.Generator, last: NDArray[np.int64], _token: int, n_expert: int
    ) -> NDArray[np.int64]:
        kept = last[random.random(len(last)) < share]
        drawn = random.permutation(n_expert)
        return np.concatenate([kept, drawn[~np.isin(drawn, kept)]])

    return draw


def _drift(
    random: np.random.Generator, last: NDArray[np.int64], token: int, n_expert: int
) -> NDArray[np.int64]:
    """Draw from a set of three times the used experts, which moves by one every four tokens."""
    return random.permutation((np.arange(3 * len(last)) + token // 4) % n_expert)


HARD: dict[str, tuple[int, int, Draw]] = {
    "drift": (32, 4, _drift),
    "stay50": (32, 4, _stay(0.5)),
    "stay80": (64, 6, _stay(0.8)),
    "even": (8, 2, _stay(0.3)),
}
"""Experts, used ones, and how a token's are drawn from those of the token before."""


def hard(name: str) -> Trace:
    """Return a trace of one of HARD."""
    n_expert, n_used, draw = HARD[name]
    random = np.random.default_rng(1)
    ids = np.zeros((N_TOKEN, N_LAYER, n_used), np.uint8)
    for layer in range(N_LAYER):
        last = np.arange(n_used)
        for token in range(N_TOKEN):
            last = draw(random, last, token, n_expert)[:n_used].astype(np.int64)
            ids[token, layer] = last
    n_token = np.ones(N_TOKEN, np.int32)
    return Trace(
        architecture="",
        layers=tuple(range(N_LAYER)),
        n_expert=n_expert,
        n_expert_used=n_used,
        chunk_bytes=((1000,) * 3,) * N_LAYER,
        phases=np.full(N_TOKEN, DECODE, np.uint8),
        requests=np.zeros(N_TOKEN, np.int32),
        n_token=n_token,
        n_routed=np.repeat(n_token[:, None], N_LAYER, axis=1),
        tokens=np.full(N_TOKEN, -1, np.int32),
        ids=ids,
    )


def hits(trace: Trace, eviction: str, rates: list[float]) -> list[tuple[int, int]]:
    """Return (hits, requests) of decoded tokens at every rate."""
    method = Method(eviction, eviction, "", evictions=(part(eviction),))
    found = list(run(Setting(trace), [method], rates))
    return [(result.decode.hits, result.decode.requests) for result in found if result.decode]


def main() -> None:
    """Print a table, and the mean of each eviction."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--evictions", default="decayed,recall")
    parser.add_argument("--rates", default="0.17,0.33,0.5")
    arguments = parser.parse_args()
    evictions = arguments.evictions.split(",")
    rates = [float(rate) for rate in arguments.rates.split(",")]
    closed: dict[str, list[float]] = {name: [] for name in evictions}
    print("| trace | rate | LRU | Belady | " + " | ".join(f"{e}, closed" for e in evictions) + " |")
    print("|---" * (4 + len(evictions)) + "|")
    for given in arguments.traces:
        trace = hard(given) if given in HARD else read_trace(Path(given))
        of = {name: hits(trace, name, rates) for name in ("lru", "belady", *evictions)}
        for i, rate in enumerate(rates):
            (lru, n), (best, _) = of["lru"][i], of["belady"][i]
            cells = []
            for name in evictions:
                own = of[name][i][0]
                share = (own - lru) / max(best - lru, 1)
                closed[name] += [share] if best > lru else []
                cells.append(f"{own / n:.1%}, {share:+.0%}")
            row = f"| {Path(given).stem} | {rate:.0%} | {lru / n:.1%} | {best / n:.1%} | "
            print(row + " | ".join(cells) + " |", flush=True)
    for name, shares in closed.items():
        print(f"{name}: closes {np.mean(shares):.0%} in the mean")


if __name__ == "__main__":
    main()
