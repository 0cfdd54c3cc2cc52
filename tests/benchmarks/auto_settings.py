"""Compare the adaptive method with fixed ones, live, at several cache rates.

    PYTHONPATH=tests python -m factory large large.gguf
    python tests/benchmarks/auto_settings.py large.gguf --rates 0.25,0.5,0.75 --memory-cap 4e9
    python tests/benchmarks/auto_settings.py assets/embedded/outrider-tiny.gguf --text FILE

Every method has its own process and, with --memory-cap (needs root), its own memory cgroup. The
methods take turns of a few tokens, so that a drive of varying speed affects all of them. All decode
the same tokens after the same prompt, and do for each token what the engine does. The second half
of a run counts as settled. Without --text the tokens are random.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backend.bench.turns import drop_page_cache  # noqa: E402  (the folder is known only now)
from backend.bench.workload import random_tokens  # noqa: E402

N_PROMPT, N_UBATCH = 96, 32
METHODS = "lru,lru-overlapped,promoe,auto"


class Runner:
    """A loaded model that decodes given tokens one by one, as the engine does."""

    def __init__(self, path: Path, method: str, rate: float, n_thread: int) -> None:
        from backend.engine.loaded_model import LoadedModel
        from backend.engine.meter import Meter
        from backend.gguf.model_file import read_model
        from backend.protocol.settings import EngineConfig

        config = EngineConfig.of(
            cache_rate=rate,
            method=method,
            context_length=2048,
            n_thread=n_thread,
            n_ubatch=N_UBATCH,
        )
        self.loaded = LoadedModel(read_model(path), config, None)
        self.meter = Meter(self.loaded.patch)
        self.position = 0

    def tokens(self, text: Path | None, n_token: int) -> list[int]:
        """Return the tokens that all methods decode."""
        if text is None:
            return random_tokens(n_token, self.loaded.llama.n_vocab)
        tokens = self.loaded.llama.tokenize(text.read_text(encoding="utf-8"), add_bos=True)
        if len(tokens) < n_token:
            raise SystemExit(f"{text} has only {len(tokens)} tokens.")
        return tokens[:n_token]

    def decode(self, tokens: list[int], *, is_token: bool) -> float:
        """Compute a pass. Return its seconds."""
        from backend import _native

        patch, context = self.loaded.patch, self.loaded.context
        if self.position + len(tokens) > context.n_context:
            context.forget_from(0)
            self.position = 0
        began_s = time.perf_counter()
        if patch is not None:
            phase = _native.Phase.decode if is_token else _native.Phase.prefill
            patch.begin_pass(phase, tokens)
        status = context.decode(tokens, self.position)
        decode_s = time.perf_counter() - began_s
        assert status == 0 and (patch is None or patch.end_pass()), "the pass failed"
        self.position += len(tokens)
        self.meter.add_pass(decode_s, time.perf_counter() - began_s, is_token=is_token)
        if is_token and (line := self.loaded.observe(self.meter.token, self.meter.token_wave_s)):
            self.meter.statistics.decisions.append(line)
        return time.perf_counter() - began_s


def run_child(args: argparse.Namespace) -> None:
    """Decode the number of tokens that each line of stdin gives. Print their seconds."""
    runner = Runner(args.model, args.child, float(args.rates), args.threads)
    tokens = runner.tokens(args.text, N_PROMPT + args.tokens)
    for i in range(0, N_PROMPT, N_UBATCH):
        runner.decode(tokens[i : i + N_UBATCH], is_token=False)
    answer({"cache": runner.loaded.cache.to_json()})
    at = N_PROMPT
    for line in sys.stdin:
        n = int(line)
        times_s = [runner.decode([token], is_token=True) for token in tokens[at : at + n]]
        at += n
        answer({"times_s": times_s})
    stats = runner.meter.statistics
    n_request = stats.hits + stats.late + stats.misses
    answer(
        {
            "decisions": stats.decisions,
            "hit_rate": stats.hits / n_request if n_request else 1.0,
            "megabytes_per_token": stats.bytes_read / 1e6 / args.tokens,
        }
    )
    runner.loaded.close()


def answer(message: dict[str, Any]) -> None:
    """Print a line of JSON."""
    print(json.dumps(message), flush=True)


class Cap:
    """A memory cgroup (version 1 or 2) with a limit."""

    def __init__(self, limit_bytes: int, name: str) -> None:
        v1 = Path("/sys/fs/cgroup/memory")
        self.folder = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"{name}-{os.getpid()}"
        self.folder.mkdir()
        limit = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        (self.folder / limit).write_text(str(limit_bytes))

    def join(self) -> None:
        """Put the calling process into it."""
        (self.folder / "cgroup.procs").write_text("0")


class Child:
    """A method in a process, under a cap of its own."""

    def __init__(self, args: argparse.Namespace, rate: float, method: str) -> None:
        self.cap = Cap(int(args.memory_cap), f"outrider-{method}") if args.memory_cap else None
        command = [
            sys.executable, __file__, str(args.model), "--rates", str(rate), "--child", method,
            "--tokens", str(args.tokens), "--threads", str(args.threads),
            *(["--text", str(args.text)] if args.text else []),
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=self.cap.join if self.cap else None,
        )
        self.times_s: list[float] = []
        self.cache = self._read()["cache"]
        self.rest: dict[str, Any] = {}

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def take_turn(self, n_token: int) -> None:
        """Decode some tokens while all others wait."""
        assert self.process.stdin
        self.process.stdin.write(f"{n_token}\n")
        self.process.stdin.flush()
        self.times_s += self._read()["times_s"]

    def end(self) -> None:
        """End the process. Read its other counters."""
        assert self.process.stdin
        self.process.stdin.close()
        self.rest = self._read()
        self.process.wait()
        if self.cap:
            self.cap.folder.rmdir()

    def speed(self, begin: int = 0) -> float:
        """Return tokens per second."""
        return len(self.times_s[begin:]) / math.fsum(self.times_s[begin:])


def run_setting(args: argparse.Namespace, rate: float) -> None:
    """Run all methods at one rate."""
    children: dict[str, Child] = {}
    for method in args.methods.split(","):
        drop_page_cache(args.model)
        children[method] = Child(args, rate, method)
    cached = [c.cache for c in children.values() if c.cache["mode"] == "cached"]
    rates = {cache["rate"] for cache in cached}
    if len(rates) > 1:
        raise SystemExit(f"Memory is too short for all at once: they got the rates {rates}.")
    order = list(children)
    for begin in range(0, args.tokens, args.turn):
        for method in order:
            children[method].take_turn(min(args.turn, args.tokens - begin))
        order = order[1:] + order[:1]
    for child in children.values():
        child.end()
    half = args.tokens // 2
    print(f"rate {rate} (granted {rates.pop():.3f}), {args.tokens} tokens, token/s:")
    for method, child in children.items():
        print(
            f"{method:>18}: {child.speed():7.2f} whole, {child.speed(half):7.2f} second half, "
            f"{100 * child.rest['hit_rate']:.1f} % hits, "
            f"{child.rest['megabytes_per_token']:.2f} MB per token"
        )
    auto = children.pop("auto")
    for name, begin in (("whole", 0), ("second half", half)):
        best = max(children, key=lambda m: children[m].speed(begin))
        to_lru = auto.speed(begin) / children["lru"].speed(begin) if "lru" in children else 0.0
        print(
            f"    {name}: auto to the best ({best}) "
            f"{auto.speed(begin) / children[best].speed(begin):.3f}, to lru {to_lru:.3f}"
        )
    print(*(f"    {line}" for line in auto.rest["decisions"]), sep="\n", flush=True)
    if args.json:
        with args.json.open("a", encoding="utf-8") as file:
            times_s = {name: child.times_s for name, child in {**children, "auto": auto}.items()}
            row = {"model": args.model.name, "rate": rate, "turn": args.turn, "times_s": times_s}
            file.write(json.dumps(row) + "\n")


def main() -> None:
    """Run every rate. Print speeds, ratios and the decisions of auto."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rates", default="0.25,0.5,0.75")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--turn", type=int, default=20, help="tokens of a method's turn")
    parser.add_argument("--text", type=Path, help="what is decoded; otherwise random tokens")
    parser.add_argument("--memory-cap", type=float, default=0.0, help="bytes; 0: none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="append every token's seconds to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_child(args)
        return
    for rate in map(float, args.rates.split(",")):
        run_setting(args, rate)


if __name__ == "__main__":
    main()
