"""Measure the cost of a wave beside the kernels' time: few slots, so many waves.

    python tests/benchmarks/wave_overhead.py assets/embedded/outrider-tiny.gguf --rate 0.2

Print, for each graph computed in waves, the total time, the time in ggml, and the difference, which
is ours. Each figure is the smallest of some rounds, because other programs only add time. There is
one thread, because several threads wait for each other within ggml.

    python tests/benchmarks/wave_overhead.py MODEL --predicting promoe --rate 0.5

prints what a method's predictor takes of the decoding thread: the medians for a token, and the part
in which no copy was awaited, so that the computation waited for the predictor.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def predicting(path: Path, method: str, rate: float, n_token: int, n_round: int) -> None:
    """Print what the predictor of a method takes."""
    from backend.engine.engine import Engine
    from backend.protocol.request import Request
    from backend.protocol.settings import EngineConfig, Sampling

    config = EngineConfig(
        cache_rate=rate, method=method, device="cpu", n_thread=1, context_length=512
    )
    engine = Engine.open(path, config)
    rows = []
    for i in range(n_round + 1):
        before = engine.loaded.patch.times()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for _ in engine.answer(
            Request(None, Sampling(temperature=0), n_token, prompt=f"{i}. Write a story.")
        ):
            pass
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        after, n = engine.loaded.patch.times(), max(engine.statistics().n_token, 1)
        took_us, delay_us = after.predict_us - before.predict_us, after.delay_us - before.delay_us
        rows.append([took_us / n, delay_us / n, 1e6 * wall_s / n, 1e6 * cpu_s / n])
    took_us, delay_us, wall_us, cpu_us = (statistics.median(c) for c in zip(*rows[1:], strict=True))
    print(
        f"{method}, {engine.cache.predictor}, rate {rate:g}: {took_us:.0f} us a token, "
        f"{delay_us:.0f} with nothing awaited; a token takes {wall_us:.0f}, "
        f"{cpu_us:.0f} of the processor"
    )
    engine.close()


def main() -> None:
    """Decode the same tokens again and again and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--predicting", metavar="METHOD", help="measure this method's predictor")
    args = parser.parse_args()
    if args.predicting:
        predicting(args.model, args.predicting, args.rate, args.tokens, args.rounds)
        return

    from backend import _native
    from backend.engine.loading import CachedModel
    from backend.gguf.model_file import read_model
    from backend.llama.api import Context
    from backend.methods.catalogue import METHODS
    from backend.methods.compose import composition, layout
    from backend.methods.slots import slots_of

    cached = CachedModel(read_model(args.model), n_thread=1)
    patch, method = cached.patch, METHODS["lru-overlapped"]
    patch.configure(
        layout(method, patch.shape, slots_of(args.rate, patch.shape.n_expert)),
        composition(method, patch.shape),
        _native.PatchOptions(n_thread=1, n_transfer_thread=1, max_token=8),
    )
    context = Context(
        cached.model,
        n_context=args.tokens + 8,
        n_ubatch=8,
        n_thread=1,
        callback=patch.callback,
        user_data=patch.user_data,
        n_output=1,
    )
    figures = []
    for _ in range(args.rounds):
        context.forget_from(0)
        patch.request_began()
        before = patch.times()
        for i in range(args.tokens):
            patch.begin_pass(_native.Phase.decode, [5 + 7 * i % 200])
            status = context.decode([5 + 7 * i % 200], i)
            assert patch.end_pass() and status == 0, patch.error
        after = patch.times()
        n_graph = after.n_graph - before.n_graph
        wave_us = (after.wave_us - before.wave_us) / n_graph
        graph_us = (after.graph_us - before.graph_us) / n_graph
        figures.append((wave_us - graph_us, wave_us, graph_us, n_graph / args.tokens))
    ours_us, wave_us, graph_us, n = min(figures[1:])
    print(
        f"{n:.1f} graphs a token; {wave_us:.1f} us each, {graph_us:.1f} in ggml, {ours_us:.1f} ours"
    )
    context.close()
    cached.close()


if __name__ == "__main__":
    main()
