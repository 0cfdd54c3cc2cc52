"""Throughput of joint decoding in the simulator, from the embedded model's routing of real prompts.

    python tests/benchmarks/groups_simulated.py MODEL PROMPTS [--scale 100] [--machine laptop-ssd]

PROMPTS has a prompt per line. For each number of sequences, the first prompts are answered jointly
and their routing is recorded. The simulator then replays it with every method. `--scale` multiplies
the bytes of the model, so that an expert takes as long as that of a larger model. A cell is the
decoded tokens per second.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from asking import jointly

from backend.engine.engine import Engine
from backend.engine.recording import Recording
from backend.machines import load
from backend.methods.catalogue import METHODS
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.simulation.run import Setting, run
from backend.traces.trace import Trace

METHODS_SHOWN = (
    "klotski-layers", "klotski-hot", "klotski", "lru", "lru-overlapped", "lfu", "duoserve",
    "moe-infinity",
)  # fmt: skip


def record(model: Path, prompts: list[str], n: int, n_token: int) -> Trace:
    """Return the routing of n requests that are answered jointly."""
    config = EngineConfig.of(
        cache_rate=0.5, method="lru", device="cpu", n_sequence=n, context_length=n * 256
    )
    engine = Engine.open(model, config)
    try:
        recording = Recording(engine, engine.file)
        greedy = Sampling(temperature=0, logit_bias=_no_end(engine))
        requests = [
            Request(i, greedy, n_token, [{"role": "user", "content": prompts[i][:300]}])
            for i in range(n)
        ]
        errors = [a.error for a in jointly(engine, requests) if a.error]
        assert not errors, errors
        return recording.trace({"sequences": n})
    finally:
        engine.close()


def _no_end(engine: Engine) -> tuple[tuple[int, float], ...]:
    """Exclude the tokens that end an answer, so that all answers are of equal length."""
    llama = engine.loaded.llama
    return tuple((t, -100.0) for t in range(llama.n_vocab) if llama.ends_answer(t))


def main() -> int:
    """Record, simulate, and print a table for each rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--machine", default="laptop-ssd")
    parser.add_argument("--scale", type=int, default=100)
    parser.add_argument("--rates", default="0.15,0.25,0.5,0.9")
    parser.add_argument("--sequences", default="1,2,4,8,16,32,64")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--methods", default=",".join(METHODS_SHOWN))
    args = parser.parse_args()
    lines = [line for line in args.prompts.read_text(encoding="utf-8").splitlines() if line]
    sizes = [int(n) for n in args.sequences.split(",")]
    names = args.methods.split(",")
    traces = {}
    for n in sizes:
        trace = record(args.model, lines, n, args.tokens)
        about = dict(trace.about)
        for name in ("layer_dense_bytes", "output_bytes"):
            about[name] = about[name] * args.scale
        bytes_ = tuple(tuple(c * args.scale for c in layer) for layer in trace.chunk_bytes)
        traces[n] = replace(trace, chunk_bytes=bytes_, about=about)
    for rate in map(float, args.rates.split(",")):
        print(f"\nrate {rate:g}, {args.machine}\n{'method':<16}", *(f"{n:>9}" for n in sizes))
        cells = {
            n: list(run(Setting(trace, load(args.machine)), [METHODS[m] for m in names], [rate]))
            for n, trace in traces.items()
        }
        for i, name in enumerate(names):
            speeds = []
            for n in sizes:
                phase = cells[n][i].decode
                hits = phase.hits / max(phase.requests, 1) if phase else 0
                speeds.append(f"{phase.n_token / phase.time_s:>5.1f} {hits:.2f}" if phase else "-")
            print(f"{name:<16}", *(f"{s:>10}" for s in speeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
