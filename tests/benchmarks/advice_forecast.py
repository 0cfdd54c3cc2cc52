"""Check the advice after an answer: repeat the answer with the recommended cache.

    python tests/benchmarks/advice_forecast.py [--links 20,50] [--rates 0.25] [--threads 1]

The embedded model runs behind a link throttled to some MB/s. It answers a question. Then it answers
the same question with the same seed, so with the same tokens, in a cache of the size that the
advice recommends. The program prints the forecast and the measured speed-up.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backend.engine.engine import Engine
from backend.engine.experiment import Experiment
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.simulation.advice import Question, advise
from backend.simulation.model import routers
from backend.system.paths import embedded_model
from backend.traces.trace import Trace
from backend.weights import lookup as learned
from backend.worker.advisor import Advisor
from backend.worker.answer_recorder import AnswerTraces

QUESTION = [{"role": "user", "content": "Tell me a long story about a soldier and the sea."}]
SAMPLING = Sampling(temperature=0.7, seed=3)


def main() -> int:
    """Ask, apply the advice and ask again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", default="20,50", help="MB/s, comma-separated")
    parser.add_argument("--rates", default="0.25")
    parser.add_argument("--methods", default="promoe,lru-overlapped")
    parser.add_argument("--more", type=int, default=8, help="slots of a layer that memory permits")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print("| link | method | cache | stall | recommended | forecast | measured | error |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for link in arguments.links.split(","):
        for method in arguments.methods.split(","):
            for rate in arguments.rates.split(","):
                config = EngineConfig(
                    cache_rate=float(rate), method=method, context_length=1024,
                    n_thread=arguments.threads,
                )  # fmt: skip
                print(row(config, float(link), arguments.more), flush=True)
    return 0


def row(config: EngineConfig, link_mb_per_s: float, n_more: int) -> str:
    """Return a line of the table."""
    experiment = Experiment(link_bytes_per_s=1e6 * link_mb_per_s)
    engine = Engine.open(embedded_model(), config, experiment=experiment)
    try:
        kept: list[Trace] = []
        traces = AnswerTraces(engine)
        traces.want(kept.append, inputs=True)
        before_s = answer(engine, traces)
        file = engine.file
        question = Question(**Advisor(engine).question())
        # So little memory that stalls remain afterwards: compute time alone is no forecast.
        slot_bytes = engine.cache.bytes // engine.cache.n_slot
        question = replace(question, spare_bytes=n_more * slot_bytes)
        found, _ = learned.load(file)
        advice = advise(
            question, kept[-1], learned=found, routers=list(routers(file, kept[-1].layers))
        )
        share = question.stall_s / (question.stall_s + question.compute_s)
        head = (
            f"| {link_mb_per_s:.0f} MB/s | {config.method} | {engine.cache.n_slot} of 32 | "
            f"{share:.0%} | "
        )
        if advice.cache is None:
            return f"{head}{advice.reason or 'nothing'} | | | |"
        engine.set_cache_rate(min((advice.cache.n_slot + 0.5) / 32, 1.0))
        engine.forget()
        times = before_s / answer(engine, traces)
        error = advice.cache.times / times - 1
        return (
            f"{head}{engine.cache.n_slot} of 32 | {advice.cache.times:.2f} | {times:.2f} | "
            f"{error:+.0%} |"
        )
    finally:
        engine.close()


def answer(engine: Engine, traces: AnswerTraces) -> float:
    """Answer the question. Return the seconds of a decoded token."""
    traces.begin()
    try:
        for _ in engine.answer(Request(None, SAMPLING, messages=QUESTION)):
            pass
    finally:
        traces.end()
    decoded = engine.decoded
    return (decoded.compute_s + decoded.stall_s + decoded.other_s) / decoded.n_token


if __name__ == "__main__":
    sys.exit(main())
