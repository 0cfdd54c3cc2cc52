"""Compare three ways to serve a device's missing experts behind slow links.

    PYTHONPATH=.:tests python tests/benchmarks/hybrid.py [--rounds N] [--json OUT.json]

Missing experts are copied, computed by the processor, or both. The device is llama.cpp's rpc server
in another process (tests/loopback.py) with one thread; the processor computes with one thread, too.
First the program measures the bytes of experts that this thread computes per second. The link is
then throttled to this rate, to a fourth and to a sixteenth of it. The last link is the one at which
copying alone should take as long as computing alone, extrapolated from the slowest link. The three
ways take turns within every round. A figure is the median of its rounds.

A pass computes many tokens, like a piece of a prompt. The experts are in MXFP4, whose kernels are
the slowest per byte here. So a socket, which moves 1 GB/s, can supply the computation, and copying,
which uses the same two cores, costs little beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from factory import make_tiny
from loopback import server

from backend import _native
from backend.engine import loading
from backend.gguf.model_file import read_model
from backend.llama import api as llama
from backend.memory import devices
from backend.memory.placement import Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of

WAYS = ("off", "cpu-only", "auto")
RATIOS = (1.0, 4.0, 16.0)
SIZES = {
    "n_layer": 3, "n_embd": 1024, "n_head": 1, "n_head_kv": 1, "head_dim": 64, "n_ff_exp": 1536,
    "n_expert": 32, "n_expert_used": 4, "embedding_std": 3.0,
}  # fmt: skip
"""Experts of as many weights as those of Qwen3-30B-A3B; fewer: a pass uses most of them, and has
little to do beside them."""
METHOD = "lru-overlapped"
SLOW = 4.0
"""From this ratio on copying alone gets a single pass: it takes seconds, and nothing varies."""


@dataclass(frozen=True)
class Figure:
    """One way behind one link: the medians of its rounds."""

    ratio: float
    link_bytes_per_s: float
    way: str
    tokens_per_s: float
    on_host: float
    """Share of the missing experts that the processor computed."""
    stall_s: float
    """Times of a pass, like the others."""
    host_s: float
    host_wait_s: float
    link_busy_s: float


class Bench:
    """A model on the device. Every turn rebuilds its cache."""

    def __init__(self, path: Path, placement: Placement, rate: float, n_token: int) -> None:
        self._rate, self.n_token = rate, n_token
        self._cached = loading.CachedModel(read_model(path), n_thread=1, placement=placement)
        self.patch = self._cached.patch
        self._context: Any = None
        self._chance = np.random.default_rng(1)

    def turn(self, way: str, link_bytes_per_s: float, n_warm: int, n_pass: int) -> Figure:
        """Run passes, after some that warm up the cache."""
        method, shape = METHODS[METHOD], self.patch.shape
        self.patch.configure(
            layout(method, shape, slots_of(self._rate, shape.n_expert)),
            composition(method, shape, hybrid=way),
            _native.PatchOptions(
                n_thread=1,
                n_transfer_thread=2,
                max_token=self.n_token,
                link_bytes_per_s=link_bytes_per_s,
            ),
        )
        if self._context is None:
            self._context = llama.Context(
                self._cached.model,
                n_context=max(self.n_token, 256),
                n_ubatch=self.n_token,
                n_thread=1,
                callback=self.patch.callback,
                user_data=self.patch.user_data,
            )
        self._go(n_warm)
        before, counts = self.patch.times(), self._counts()
        began_s = time.perf_counter()
        self._go(n_pass)
        took_s = time.perf_counter() - began_s
        after = self.patch.times()
        missing, on_host = (b - a for a, b in zip(counts, self._counts(), strict=True))
        return Figure(
            0.0,
            link_bytes_per_s,
            way,
            n_pass * self.n_token / took_s,
            on_host / missing if missing else 0.0,
            *(
                (getattr(after, name) - getattr(before, name)) / n_pass / 1e6
                for name in ("stall_us", "host_us", "host_wait_us", "link_busy_us")
            ),
        )

    def need(self) -> tuple[float, float]:
        """Return the bytes of experts that the processor computes per second, and their rows."""
        self.turn("cpu-only", 0, 2, 4)
        counts, shape = self.patch.counts(), self.patch.shape
        n_byte = sum(c.on_host * shape.expert_bytes(la) for la, c in enumerate(counts))
        n_row = sum(c.host_rows for c in counts) / sum(c.on_host for c in counts)
        return n_byte / self.patch.times().host_us * 1e6, n_row

    def _counts(self) -> tuple[int, int]:
        counts = self.patch.counts()
        return sum(c.late + c.misses for c in counts), sum(c.on_host for c in counts)

    def _go(self, n_pass: int) -> None:
        for _ in range(n_pass):
            self._context.forget_from(0)
            tokens = [int(t) for t in self._chance.integers(0, 90, self.n_token)]
            self.patch.begin_pass(
                _native.Phase.prefill if self.n_token > 1 else _native.Phase.decode, tokens
            )
            assert self._context.decode(tokens, 0, all_logits=False) == 0
            assert self.patch.end_pass(), self.patch.error

    def close(self) -> None:
        """Free the model."""
        if self._context is not None:
            self._context.close()
        self._cached.close()


def medians(figures: Sequence[Figure], ratio: float) -> Figure:
    """Return the medians of the rounds of one way behind one link."""
    rows = [asdict(f) for f in figures]
    middle = {
        key: statistics.median(row[key] for row in rows)
        for key in rows[0]
        if key not in ("way", "ratio")
    }
    return Figure(ratio=ratio, way=figures[0].way, **middle)


def compare(
    bench: Bench, links: Sequence[tuple[float, float]], n_round: int, n_pass: int
) -> Iterator[Figure]:
    """Measure the three ways in turn behind each link, (ratio, bytes per second)."""
    found: dict[tuple[float, str], list[Figure]] = {}
    for i in range(n_round):
        for ratio, link in links:
            for j in range(len(WAYS)):
                way = WAYS[(i + j) % len(WAYS)]
                slow = way == "off" and ratio >= SLOW
                turn = bench.turn(way, link, 1, 1) if slow else bench.turn(way, link, 2, n_pass)
                found.setdefault((ratio, way), []).append(turn)
    for (ratio, _), figures in found.items():
        yield medians(figures, ratio)


def equal_link(figures: Sequence[Figure]) -> float:
    """Return the link at which copying alone takes as long as computing alone, in bytes/s.

    Behind the slowest link, copying takes all the time of a pass.
    """
    slowest = min((f for f in figures if f.way == "off"), key=lambda f: f.link_bytes_per_s)
    computing = statistics.median(f.tokens_per_s for f in figures if f.way == "cpu-only")
    return slowest.link_bytes_per_s * computing / slowest.tokens_per_s


def table(figures: Sequence[Figure]) -> list[str]:
    """Return a line for each way, and the speed-up of hybrid over the better of the others."""
    lines = [
        f"{'link':>10} {'times less':>10} {'way':<9} {'token/s':>8} {'on CPU':>7} {'stall':>7} "
        f"{'CPU':>7} {'wait':>7} {'link busy':>9}"
    ]
    for link in dict.fromkeys(f.link_bytes_per_s for f in figures):
        rows = {f.way: f for f in figures if f.link_bytes_per_s == link}
        for f in rows.values():
            lines.append(
                f"{link / 1e6:>7.0f} MB {f.ratio:>10.2f} {f.way:<9} {f.tokens_per_s:>8.1f} "
                f"{100 * f.on_host:>5.0f} % {f.stall_s:>6.3f}s {f.host_s:>6.3f}s "
                f"{f.host_wait_s:>6.3f}s {f.link_busy_s:>8.3f}s"
            )
        better = max(rows["off"].tokens_per_s, rows["cpu-only"].tokens_per_s)
        lines.append(f"  hybrid / better of both: {rows['auto'].tokens_per_s / better:.3f}")
    return lines


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128, help="of a pass")
    parser.add_argument("--rate", type=float, default=0.125, help="cache rate")
    parser.add_argument("--model", type=Path, help="instead of one made for this")
    parser.add_argument("--quant", default="MXFP4")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server() as running:
        path = arguments.model or make_tiny(
            "qwen3moe", arguments.quant, Path(folder) / "m.gguf", **SIZES
        )
        placement = Placement(tuple(d.pointer for d in devices.resolve(running.option)), 999)
        bench = Bench(path, placement, arguments.rate, arguments.tokens)
        try:
            need, n_row = bench.need()
            print(f"Computing takes {need / 1e6:.0f} MB/s of experts, with {n_row:.0f} rows each.")
            links = [(ratio, need / ratio) for ratio in RATIOS]
            figures = list(compare(bench, links, arguments.rounds, arguments.passes))
            equal = equal_link(figures)
            links = [(need / equal, equal)]
            figures += compare(bench, links, arguments.rounds, arguments.passes)
        finally:
            bench.close()
    print("\n".join(table(figures)))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(f) for f in figures], indent=1))


if __name__ == "__main__":
    main()
