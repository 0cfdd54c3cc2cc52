"""Decoding with less memory than the model: stock llama.cpp against caches of experts.

    PYTHONPATH=tests python -m factory large large.gguf
    python tests/benchmarks/memory_capped.py large.gguf --memory-cap 2.5e9 --rate 0.19

Needs root and memory cgroups (version 1 or 2): the cap holds for the page cache too, as on a
smaller machine. The ways take turns, so that a noisy machine is noisy for all; figures are medians.
With --link the copies are throttled, so that a drive whose speed wanders does not decide; the file
may then lie in memory (/dev/shm) as a faster slow tier. ProMoE's ablation (Figure 13) is
--ways lru,promoe-prefetch,promoe-chunks,promoe-preempt,promoe-reorder. Random tokens are fed, as a
random model's own continuation falls into loops.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from random import Random
from time import perf_counter

N_PROMPT, N_UBATCH = 192, 64
"""Tokens of the prompt, and of one pass of it."""
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def run_stock(path: Path, n_token: int, n_thread: int, _rate: float) -> dict[str, object]:
    """Unpatched llama.cpp, memory-mapped, weights not repacked."""
    from backend.gguf_file import read_model
    from backend.llama import Context
    from backend.loading import load_plain

    model = load_plain(read_model(path), repack=False)
    context = Context(model, n_context=1024, n_ubatch=64, n_thread=n_thread)
    tokens = random_tokens(n_token + 8)
    context.decode(tokens[:8], 0)
    times_s = []
    for i in range(8, len(tokens)):
        began_s = perf_counter()
        context.decode(tokens[i : i + 1], i)
        times_s.append(perf_counter() - began_s)
    return {"tokens_per_s": len(times_s) / sum(times_s)}


def run_cached(
    path: Path, n_token: int, n_thread: int, rate: float, method: str, link_bytes_per_s: float
) -> dict:
    """The same tokens through the cache."""
    from backend import _native
    from backend.compose import composition, layout
    from backend.gguf_file import read_model
    from backend.llama import Context
    from backend.loaded import N_TRANSFER_THREAD
    from backend.loading import CachedModel
    from backend.methods import METHODS

    cached = CachedModel(read_model(path), n_thread=n_thread)
    patch, chosen = cached.patch, METHODS[method]
    patch.configure(
        layout(chosen, patch.shape, rate),
        composition(chosen, patch.shape),
        _native.PatchOptions(
            n_thread=n_thread,
            n_transfer_thread=N_TRANSFER_THREAD,
            max_token=N_UBATCH,
            link_bytes_per_s=link_bytes_per_s,
        ),
    )
    context = Context(
        cached.model,
        n_context=1024,
        n_ubatch=N_UBATCH,
        n_thread=n_thread,
        callback=patch.callback,
        user_data=patch.user_data,
    )

    def decode(tokens: list[int], position: int) -> float:
        began_s = perf_counter()
        phase = _native.Phase.decode if len(tokens) == 1 else _native.Phase.prefill
        patch.begin_pass(phase, tokens)
        status = context.decode(tokens, position)
        assert patch.end_pass() and status == 0, patch.error
        return perf_counter() - began_s

    patch.request_began()
    tokens = random_tokens(n_token + N_PROMPT)
    began_s = perf_counter()
    for i in range(0, N_PROMPT, N_UBATCH):
        decode(tokens[i : i + N_UBATCH], i)
    prefill_s = perf_counter() - began_s
    before, before_times = sum_counts(patch), patch.times()
    times_s = [decode(tokens[i : i + 1], i) for i in range(N_PROMPT, len(tokens))]
    counts = {k: v - before[k] for k, v in sum_counts(patch).items()}
    times = patch.times()
    slab_bytes = patch.slab_bytes
    context.close()
    cached.close()
    return {
        "tokens_per_s": len(times_s) / sum(times_s),
        "prefill_tokens_per_s": N_PROMPT / prefill_s,
        "token_ms": 1e3 * sum(times_s) / len(times_s),
        "stall_ms": (times.stall_us - before_times.stall_us) / 1e3 / len(times_s),
        "wave_ms": (times.wave_us - before_times.wave_us) / 1e3 / len(times_s),
        "callback_ms": (times.callback_us - before_times.callback_us) / 1e3 / len(times_s),
        "megabytes_per_token": counts["bytes_read"] / 1e6 / len(times_s),
        **{k: counts[k] / len(times_s) for k in ("hits", "late", "misses")},
        "slab_bytes": slab_bytes,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def random_tokens(n: int) -> list[int]:
    """The same random token ids every time."""
    random = Random(1)
    return [random.randrange(5, 250) for _ in range(n)]


def sum_counts(patch: object) -> dict[str, int]:
    """The patch's counters over all layers."""
    names = ("hits", "late", "misses", "bytes_read")
    return {n: sum(getattr(c, n) for c in patch.counts()) for n in names}


def peak_rss_bytes() -> int:
    """The largest resident set so far."""
    from backend.system.memory import peak_rss_bytes

    return peak_rss_bytes()


def drop_page_cache(path: Path) -> None:
    """Forget the file's pages: those that another group reads are not charged to the cap."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class Cap:
    """A memory cgroup with a limit, for child processes."""

    def __init__(self, limit_bytes: int) -> None:
        name = f"outrider-{os.getpid()}"
        v1 = Path("/sys/fs/cgroup/memory")
        self.folder = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / name
        self.folder.mkdir()
        limit = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        (self.folder / limit).write_text(str(limit_bytes))

    def run(self, command: list[str], timeout_s: float) -> str:
        """Run a command under the cap and return its output."""

        def join() -> None:
            (self.folder / "cgroup.procs").write_text("0")

        done = subprocess.run(
            command, preexec_fn=join, capture_output=True, text=True, timeout=timeout_s
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")
        return done.stdout

    def close(self) -> None:
        """Remove the group."""
        self.folder.rmdir()


def main() -> None:
    """Run the ways in turn under the cap and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--memory-cap", type=float, default=2.5e9, help="bytes; 0: none")
    parser.add_argument("--rate", type=float, default=0.19)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--stock-tokens", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ways", default="stock,lru,lru-overlapped,promoe")
    parser.add_argument("--link", type=float, default=0.0, help="throttle to GB/s; 0: not at all")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        if args.child == "stock":
            result = run_stock(args.model, args.stock_tokens, args.threads, args.rate)
        else:
            result = run_cached(
                args.model, args.tokens, args.threads, args.rate, args.child, args.link * 1e9
            )
        print(json.dumps(result))
        return
    ways = args.ways.split(",")
    results: dict[str, list[dict]] = {w: [] for w in ways}
    for _ in range(args.rounds):
        for way in ways:
            # A group of its own for each: page cache stays charged to the group that read it.
            drop_page_cache(args.model)
            cap = Cap(int(args.memory_cap) or 1 << 60)
            try:
                out = cap.run([sys.executable, __file__, *sys.argv[1:], "--child", way], 600)
            finally:
                cap.close()
            results[way].append(json.loads(out))
            print(way, {k: round(v, 2) for k, v in results[way][-1].items()}, flush=True)
    rates = {w: statistics.median(r["tokens_per_s"] for r in results[w]) for w in ways}
    for way in ways:
        ratio = rates[way] / rates[ways[0]]
        prefills = [r.get("prefill_tokens_per_s", 0.0) for r in results[way]]
        print(
            f"{way:>16}: {rates[way]:8.2f} token/s, {ratio:6.2f} x {ways[0]}; "
            f"prefill {statistics.median(prefills):8.2f} token/s"
        )
    if "lru" in rates and "promoe" in rates:
        print(f"prefetch against reactive: {rates['promoe'] / rates['lru']:.2f} x")


if __name__ == "__main__":
    main()
