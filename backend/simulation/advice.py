"""What would have made an answer faster: its own trace, simulated at other cache rates and methods.

The simulator replays what the model routed through the very core that ran
(backend.simulation.run), on a
machine whose speeds are those that this answer measured: its link from the bytes and the time in
which something was copied, its computing from the time that was not waited. What it then says the
present setting waits is compared with what was waited, and every other forecast is scaled by that
ratio; where the two are too far apart, nothing is forecast.

Runs as a program of its own, at the lowest priority (backend.worker.advisor starts it): standard
input names the question, standard output gets the answer, one JSON object each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
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
from backend.simulation.model import routers
from backend.simulation.run import Setting, run
from backend.traces.trace import DECODE, Trace, read_trace
from backend.weights import lookup as learned

N_TOKEN_MIN = 16
"""An answer with fewer decoded tokens says too little."""
WORTH = 1.05
"""Times as fast: less is not worth a change."""
NEARLY = 0.95
"""The smallest cache is recommended that reaches this share of the best speed."""
TRUSTED = (0.4, 2.5)
"""Measured waiting to simulated waiting of the same setting; outside, nothing is forecast."""
N_CACHE = 8
"""Cache sizes that are tried."""
ALTERNATIVES = ("promoe", "outrider", "outrider-recall", "lru-overlapped")
"""Methods that are tried. `auto` tries settings by itself, so that it needs no recommendation."""


@dataclass(frozen=True)
class Question:
    """One answer and what may be changed. Times are of its decoded tokens together.

    compute_s holds the unexplained rest as well. spare_bytes: memory that a larger cache may take.
    accuracy: share of the predicted experts that were used, None where nothing was predicted.
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
    time_s: float = 15.0,
) -> Advice:
    """Answer a question. `trace`: what was routed lately; its last request is the answer.

    Earlier requests of the trace fill the cache, as they did. Takes about `time_s` at most: what
    has not been simulated by then is left out.
    """
    total_s = question.compute_s + question.stall_s
    share = question.stall_s / total_s if total_s > 0 else 0.0
    decoded = (trace.phases == DECODE) & (trace.requests == trace.requests[-1])
    n_decoded = int(np.count_nonzero(decoded))
    if question.n_token < N_TOKEN_MIN or n_decoded < N_TOKEN_MIN or question.bytes_read <= 0:
        return Advice(share, reason="The answer was too short for a forecast.")
    deadline_s = time.monotonic() + time_s
    setting = Setting(
        trace,
        routers=routers or [],
        learned=learned,
        accuracy=question.accuracy,
        machine=machine(question, trace),
    )

    def waits(method: str, n_slot: int) -> tuple[float, int]:
        """Seconds that a token waits, and the bytes of the cache. Raises ValueError."""
        rate = rate_of(n_slot, trace.n_expert)
        result = next(iter(run(setting, [METHODS[method]], [rate])))
        if result.reason:
            raise ValueError(result.reason)
        assert result.pass_stall_us is not None
        return float(result.pass_stall_us[decoded].mean()) / 1e6, result.cache_bytes

    try:
        base_s, base_bytes = waits(question.method, question.n_slot)
    except ValueError as error:
        return Advice(share, reason=str(error))
    stall_s = question.stall_s / question.n_token
    compute_s = question.compute_s / question.n_token
    # Where nearly nothing is waited the ratio of two small figures means nothing, and nor do they.
    tiny_s = 0.02 * (compute_s + stall_s)
    scale = (stall_s + tiny_s) / (base_s + tiny_s)
    if not TRUSTED[0] <= scale <= TRUSTED[1]:
        return Advice(share, scale=scale, reason="What was measured is not what is simulated.")

    def option(method: str, n_slot: int) -> Option | None:
        if time.monotonic() > deadline_s:
            return None
        try:
            wait_s, n_byte = waits(method, n_slot)
        except ValueError:
            return None
        times = (compute_s + stall_s) / (compute_s + scale * wait_s)
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
    cache = next((c for c in sorted(caches, key=_n_slot) if c.times >= NEARLY * best), None)
    method = max(methods, key=lambda m: m.times, default=None)
    return Advice(
        share,
        cache if cache is not None and cache.times >= WORTH else None,
        method if method is not None and method.times >= WORTH else None,
        scale,
    )


def _n_slot(option: Option) -> int:
    return option.n_slot


def _sizes(n_slot: int, n_most: int) -> Iterator[int]:
    """Larger caches, the largest first, in even ratios."""
    sizes = np.geomspace(n_slot, max(n_most, n_slot), N_CACHE + 1)[1:]
    yield from sorted({round(size) for size in sizes if round(size) > n_slot}, reverse=True)


def machine(question: Question, trace: Trace) -> _native.Machine:
    """The machine that the answer met.

    Computing takes the time that was measured, split over the weights by their bytes: to decode is
    to read them. The link is one that brings what was read in the time in which it was busy.
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
    """Answer a request: {"question", "trace": path, "model": path}. Raises OSError, ValueError."""
    question = Question(**request["question"])
    trace = read_trace(Path(request["trace"]))
    file = read_model(Path(request["model"]))
    known, _ = learned.load(file)
    return advise(question, trace, learned=known, routers=list(routers(file, trace.layers)))


def main() -> int:
    """Answer the request on standard input."""
    if hasattr(os, "nice"):
        os.nice(19)
    try:
        advice = answer(json.load(sys.stdin))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(advice.to_json(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
