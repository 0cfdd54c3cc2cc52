"""Forecasts which settings would have made an answer faster: simulates its trace with others.

The simulator replays the answer's trace through the engine's own core (backend.simulation.run). The
machine has the speeds that this answer measured. The link's speed is the bytes copied over the time
with a copy in flight; computing takes the time without stalls. The stall simulated for the present
setting is compared with the measured stall, and their ratio scales every other forecast. If the
ratio is too far from one, there is no forecast.

This is a program of its own, of a low priority, which backend.worker.advisor starts. It reads
the question from standard input and writes the answer to standard output, one JSON object each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend import _native
from backend.gguf.model_file import read_model
from backend.methods.catalogue import METHODS
from backend.methods.compose import NOTHING_LEARNED, Learned
from backend.methods.slots import rate_of
from backend.protocol.status import Advice, Option
from backend.simulation.model import routers, token_experts
from backend.simulation.run import Setting, run
from backend.system import faults
from backend.traces.reading import read_trace
from backend.traces.trace import DECODE, Trace
from backend.weights import lookup as learned

N_TOKEN_MIN = 16
"""An answer with fewer decoded tokens gets no forecast."""
WORTH = 1.05
"""A smaller speed-up is not worth a change."""
NEARLY = 0.95
"""The advice is the smallest cache that reaches this share of the best speed."""
TRUSTED = (0.4, 2.5)
"""Allowed ratio of measured to simulated stall in the same setting. Outside, no forecast."""
N_CACHE = 8
"""Number of cache sizes to try."""
ALTERNATIVES = ("promoe", "outrider", "outrider-recall", "lru-overlapped")
"""Methods to try. `auto` tries settings by itself and gets no advice on methods."""
LIMIT_S = 30.0
"""The process ends itself after this much processor time."""


@dataclass(frozen=True)
class Question:
    """The figures of one answer. Times are sums over its decoded tokens.

    compute_s includes the unexplained rest. spare_bytes: memory that a larger cache may take.
    accuracy: share of the predicted experts that were used; None without prediction.
    """

    method: str
    n_slot: int
    n_token: int
    compute_s: float
    stall_s: float
    link_busy_s: float
    bytes_read: int
    spare_bytes: int
    accuracy: float | None = None


def advise(
    question: Question,
    trace: Trace,
    *,
    learned: Learned = NOTHING_LEARNED,
    routers: list[Any] | None = None,
    token_experts: Sequence[Any] = (),
    time_s: float = 15.0,
) -> Advice:
    """Answer a question. `trace`: the recent routing; its last request is the answer.

    The earlier requests of the trace fill the cache, as in the live run. After `time_s` of
    processor time no further simulation begins.
    """
    total_s = question.compute_s + question.stall_s
    share = question.stall_s / total_s if total_s > 0 else 0.0
    decoded = (trace.phases == DECODE) & (trace.requests == trace.requests[-1])
    n_decoded = int(np.count_nonzero(decoded))
    if question.n_token < N_TOKEN_MIN or n_decoded < N_TOKEN_MIN or question.bytes_read <= 0:
        return Advice(share, reason="The answer was too short for a forecast.")
    deadline_s = time.process_time() + time_s
    setting = Setting(
        trace,
        routers=routers or [],
        token_experts=token_experts,
        learned=learned,
        accuracy=question.accuracy,
        machine=machine(question, trace),
    )

    def stall(method: str, n_slot: int) -> tuple[float, int]:
        """Return the stall of a token in seconds, and the bytes of the cache. Raise ValueError."""
        rate = rate_of(n_slot, trace.n_expert)
        result = next(iter(run(setting, [METHODS[method]], [rate])))
        if result.reason:
            raise ValueError(result.reason)
        assert result.pass_stall_us is not None
        return float(result.pass_stall_us[decoded].mean()) / 1e6, result.cache_bytes

    try:
        base_s, base_bytes = stall(question.method, question.n_slot)
    except ValueError as error:
        return Advice(share, reason=str(error))
    stall_s = question.stall_s / question.n_token
    compute_s = question.compute_s / question.n_token
    # The ratio of two tiny stalls means nothing; adding tiny_s to both brings it near one.
    tiny_s = 0.02 * (compute_s + stall_s)
    scale = (stall_s + tiny_s) / (base_s + tiny_s)
    if not TRUSTED[0] <= scale <= TRUSTED[1]:
        return Advice(share, scale=scale, reason="What was measured is not what is simulated.")

    def option(method: str, n_slot: int) -> Option | None:
        if time.process_time() > deadline_s:
            return None
        try:
            simulated_s, n_byte = stall(method, n_slot)
        except ValueError:
            return None
        times = (compute_s + stall_s) / (compute_s + scale * simulated_s)
        return Option(method, n_slot, rate_of(n_slot, trace.n_expert), n_byte, times)

    slot_bytes = base_bytes / max(question.n_slot, 1)
    n_most = question.n_slot + int(question.spare_bytes / slot_bytes)
    sizes = _sizes(question.n_slot, min(n_most, trace.n_expert))
    caches = [found for n_slot in sizes if (found := option(question.method, n_slot))]
    names = () if METHODS[question.method].adaptive else ALTERNATIVES
    methods = [
        found
        for name in names
        if name != question.method and (found := option(name, question.n_slot))
    ]
    best = max((c.times for c in caches), default=0.0)
    enough = (c for c in caches if c.times >= NEARLY * best)
    cache = min(enough, key=lambda c: c.n_slot, default=None)
    method = max(methods, key=lambda m: m.times, default=None)
    return Advice(
        share,
        cache if cache is not None and cache.times >= WORTH else None,
        method if method is not None and method.times >= WORTH else None,
        scale,
    )


def _sizes(n_slot: int, n_most: int) -> Iterator[int]:
    """Yield larger cache sizes in a geometric series, the largest first."""
    sizes = np.geomspace(n_slot, max(n_most, n_slot), N_CACHE + 1)[1:]
    yield from sorted({round(size) for size in sizes if round(size) > n_slot}, reverse=True)


def machine(question: Question, trace: Trace) -> _native.Machine:
    """Return the machine with the speeds of this answer.

    The measured computing time is divided among the weights by their bytes, because decoding is
    limited by reading them. The link copies the bytes read in the time that it was busy.
    """
    sizes = [sum(chunks) for chunks in trace.chunk_bytes]
    expert_bytes = sum(sizes) / len(sizes)
    about = trace.about
    dense_bytes = float(about.get("layer_dense_bytes", 0)) or expert_bytes
    output_bytes = float(about.get("output_bytes", 0))
    layer_bytes = dense_bytes + trace.n_expert_used * expert_bytes
    token_us = 1e6 * question.compute_s / question.n_token
    us_per_byte = token_us / (trace.n_layer * layer_bytes + output_bytes)
    busy_us = max(1e6 * question.link_busy_s, 1.0)
    return _native.Machine(
        link_bytes_per_us=question.bytes_read / busy_us,
        dense_us=dense_bytes * us_per_byte,
        expert_us=expert_bytes * us_per_byte,
        pass_us=output_bytes * us_per_byte,
    )


def answer(request: dict[str, Any]) -> Advice:
    """Answer a request: {"question", "trace": path, "model": path}. Raises OSError, ValueError.

    The trace is deleted, with its folder.
    """
    question = Question(**request["question"])
    path = Path(request["trace"])
    trace = read_trace(path)
    path.unlink()
    path.parent.rmdir()
    file = read_model(Path(request["model"]))
    known, _ = learned.load(file)
    return advise(
        question,
        trace,
        learned=known,
        routers=list(routers(file, trace.layers)),
        token_experts=token_experts(file, trace.layers),
    )


def _limit_processor_time() -> None:
    """End this process when it has used LIMIT_S of processor time."""

    def watch() -> None:
        while time.process_time() < LIMIT_S:
            time.sleep(1.0)
        os._exit(1)

    faults.Thread("time limit", watch, failed=lambda _: os._exit(1)).start()


def main() -> int:
    """Answer the request on standard input."""
    if hasattr(os, "nice"):
        os.nice(10)
    _limit_processor_time()
    try:
        advice = answer(json.load(sys.stdin))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(advice.to_json(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
