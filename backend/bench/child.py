"""The child process of one way to run a model: it opens the model and waits for its turns.

Standard input has a command on each line. The process answers each with a line of JSON on standard
output, and exits at the end of the input. `turns.Child` is the other side.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.bench.workload import Ids, Pass, Request, future, passes, random_tokens
from backend.engine.experiment import Experiment
from backend.engine.meter import Meter
from backend.memory.plan import KvCache, plan
from backend.protocol.settings import EngineConfig, Setup
from backend.system.memory import peak_rss_bytes, rss_bytes

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

COMMANDS = ("turn", "brief", "measure_link", "read_dense")
"""The commands to an open Runner."""
N_BRIEF = 24
"""Tokens of a brief measurement of decoding."""
LINK_S = 0.4
"""Duration of each measurement of the copies' bandwidth."""
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class Job:
    """The start message to a child. All fields are JSON."""

    kind: str
    """"outrider", "stock" (memory-mapped), "fastest" (resident, repacked), "resident" (in the
    file's layout) or "link" (measures copies only)."""
    model: str
    config: EngineConfig
    """Without the context, which follows from the requests."""
    n_round: int
    requests: list[list[int]]
    """The requests of a round: tokens of the prompt, and tokens decoded after it."""
    tokens: str = ""
    """The text to compute. Empty: random tokens."""
    n_expert_used: int = 0
    """Experts of a token with forced routing."""
    forced: str = ""
    """A .npy file with the experts of all rounds' tokens, [token, layer, k]. Empty: not forced."""
    accuracy: float | None = None
    lookahead: int = 1
    link_bytes_per_s: float = 0.0
    limit_s: float = 60.0
    """Stock llama.cpp abandons a prompt, or the tokens after it, after this time, because it may
    take very long."""
    join: str = ""
    """MemoryCap.join_path of the control group to join. Empty: none."""


class Runner:
    """Holds an open model, computes requests and measures the cost of every pass."""

    def __init__(self, job: Job) -> None:
        # Imports that load llama.cpp come after main has joined the control group.
        from backend import _native
        from backend.gguf.model_file import read_model

        self._job = job
        self._requests = [Request(*pair) for pair in job.requests]
        file = read_model(Path(job.model))
        self._forced: Any = None
        experiment = Experiment(link_bytes_per_s=job.link_bytes_per_s)
        if job.forced:
            ids = _load_ids(job.forced)
            if job.n_expert_used != file.n_expert_used:
                file = file.using(job.n_expert_used)
            used = file.n_used_by_moe_layer
            self._forced = _native.ForcedRouting(
                list(file.expert_tensors), file.n_expert, ids, n_used=used
            )
            coming = None
            if job.kind == "outrider":
                n_ubatch = job.config.setup.n_ubatch
                coming = future(ids, self._requests, n_ubatch, job.n_round, used)
            experiment = Experiment(
                self._forced, coming, job.accuracy, job.lookahead, job.link_bytes_per_s
            )
        self._file = file
        began_s = time.perf_counter()
        self._n_context = max(r.n_token for r in self._requests) + 8
        self._loaded = self._open(experiment)
        self._load_s = time.perf_counter() - began_s
        self._tokens = self._all_tokens()
        self._n_turn = 0
        self._first_token_s: float | None = None

    def _open(self, experiment: Experiment) -> Any:
        """Open the model. Return an object with `llama`, `context`, `patch` and `cache`."""
        from backend.engine.loaded_model import LoadedModel

        job = self._job
        if job.kind in ("outrider", "link"):
            config = replace(job.config, context_length=self._n_context)
            return LoadedModel(self._file, config, None, experiment)
        return _Stock(self._file, job, self._n_context, self._forced)

    def _all_tokens(self) -> list[int]:
        n = max(r.n_token for r in self._requests)
        model = self._loaded.llama
        if not self._job.tokens:
            return random_tokens(n, model.n_vocab)
        tokens: list[int] = model.tokenize(self._job.tokens, special=False, add_bos=model.adds_bos)
        while len(tokens) < n:
            tokens += tokens
        return tokens[:n]

    def facts(self) -> dict[str, Any]:
        """Return the properties of the open model and its planned memory."""
        cache = self._loaded.cache
        facts: dict[str, Any] = {"load_s": self._load_s}
        if cache is not None:
            n_ubatch = self._loaded.context.n_ubatch
            planned = plan(self._file, cache.n_slot, self._n_context, 0, KvCache(n_ubatch=n_ubatch))
            facts |= {
                "rate": cache.rate,
                "n_slot": cache.n_slot,
                "mode": cache.mode,
                "layout": cache.layout,
                "reason": cache.reason,
                "slab_bytes": cache.bytes,
                "plan_bytes": planned.total_bytes if cache.mode == "cached" else 0,
            }
        return facts

    def turn(self) -> dict[str, Any]:
        """Compute every request of the next round."""
        first, done = self._n_turn * sum(r.n_token for r in self._requests), []
        self._n_turn += 1
        for request in self._requests:
            done.append(self._compute(request, first))
            first += request.n_token
        return {
            "requests": done,
            "first_token_s": self._first_token_s,
            "rss_bytes": rss_bytes(),
            "peak_rss_bytes": peak_rss_bytes(),
        }

    def brief(self) -> dict[str, float]:
        """Decode a few tokens of the first request. Return the median time of one."""
        request = self._requests[0]
        self._loaded.context.forget_from(0)
        times_s = []
        for i in range(min(N_BRIEF, request.n_decode)):
            began_s = time.perf_counter()
            self._pass(Pass(request.n_prompt + i, 1, is_decode=True), 0, i)
            times_s.append(time.perf_counter() - began_s)
        return {"token_s": statistics.median(times_s)}

    def _compute(self, request: Request, first_row: int) -> dict[str, Any]:
        loaded = self._loaded
        loaded.context.forget_from(0)
        if loaded.patch is not None:
            loaded.patch.request_began()
        meter = Meter(loaded.patch)
        costs: list[dict[str, Any]] = []
        last_s = phase_s = start_s = time.perf_counter()
        was_decode, left_out = False, False
        n_done = 0  # computed tokens; positions stay contiguous if a prompt was abandoned
        for step in passes(request, self._job.config.setup.n_ubatch):
            if step.is_decode != was_decode:
                phase_s, was_decode, left_out = last_s, step.is_decode, False
            is_late = last_s - phase_s > self._job.limit_s
            if left_out or (is_late and loaded.patch is None and self._enough(costs, step)):
                left_out = True
                continue
            began_s = time.perf_counter()
            self._pass(step, first_row, n_done)
            n_done += step.n_token
            now_s = time.perf_counter()
            meter.add_pass(now_s - began_s, now_s - last_s, is_token=True)
            last_s = now_s
            costs.append(self._cost(step, meter))
            if step.position + step.n_token == request.n_prompt and self._first_token_s is None:
                self._first_token_s = self._load_s + now_s - start_s
        return {"n_prompt": request.n_prompt, "n_decode": request.n_decode, "passes": costs}

    @staticmethod
    def _enough(costs: list[dict[str, Any]], step: Pass) -> bool:
        n_done = sum(cost["is_decode"] == step.is_decode for cost in costs)
        return bool(n_done >= (2 if step.is_decode else 1))

    def _cost(self, step: Pass, meter: Meter) -> dict[str, Any]:
        if step.is_decode and hasattr(self._loaded, "observe"):
            self._loaded.observe(meter.token, meter.token_wave_s)
        return {
            **asdict(step),
            **{k: v for k, v in asdict(meter.token).items() if k not in ("n_token", "work")},
            "wave_s": meter.token_wave_s,
        }

    def _pass(self, step: Pass, first_row: int, position: int) -> None:
        from backend import _native

        loaded, patch = self._loaded, self._loaded.patch
        tokens = self._tokens[step.position : step.position + step.n_token]
        if self._forced is not None:
            self._forced.begin_pass(first_row + step.position, step.n_token)
        if patch is not None:
            phase = _native.Phase.decode if step.is_decode else _native.Phase.prefill
            patch.begin_pass(phase, tokens)
        status = loaded.context.decode(tokens, position)
        ended = patch is None or patch.end_pass()
        if status != 0 or not ended or (self._forced is not None and self._forced.error):
            why = patch.error if patch is not None else getattr(self._forced, "error", "")
            raise RuntimeError(f"A pass failed: {why or f'llama.cpp says {status}'}.")

    def measure_link(self) -> dict[str, float]:
        """Measure copies alone, of whole experts and of matrices. Return bytes per second."""
        patch = self._loaded.patch
        speeds = [patch.measure_link(LINK_S, by_chunk) for by_chunk in (False, True)]
        return {"whole_bytes_per_s": speeds[0], "chunk_bytes_per_s": speeds[1]}

    def read_dense(self) -> dict[str, float]:
        """Measure how long the drive takes to read all dense weights."""
        from backend.machines.measure import read_s

        ranges = _dense_ranges(self._file)
        seconds = sum(read_s(path, rows) for path, rows in ranges.items() if rows)
        return {"dense_read_s": seconds, "dense_bytes": float(self._file.dense_bytes)}

    def close(self) -> None:
        """Free the model."""
        self._loaded.close()


def _dense_ranges(file: ModelFile) -> dict[Path, list[tuple[int, int]]]:
    """Return where the dense weights lie, by file: (offset, size) in bytes, neighbours joined."""
    found: dict[Path, list[tuple[int, int]]] = {path: [] for path in file.paths}
    for tensor in sorted(file.loaded_tensors, key=lambda t: (t.part, t.offset)):
        if not tensor.n_bytes:
            continue
        ranges = found[file.paths[tensor.part]]
        if ranges and tensor.offset - sum(ranges[-1]) < _PAGE_BYTES:
            first, _ = ranges.pop()
        else:
            first = tensor.offset
        ranges.append((first, tensor.offset + tensor.n_bytes - first))
    return found


class _Stock:
    """llama.cpp without a cache, with the attributes of a LoadedModel that Runner uses."""

    patch = None
    cache = None

    def __init__(self, file: Any, job: Job, n_context: int, forced: Any) -> None:
        from backend.engine import loading
        from backend.llama import api as llama

        if job.kind == "resident":
            self.llama = loading.load_native(file)
        else:
            # If a resident model were mapped, others that map the same file would use its pages.
            is_fastest = job.kind == "fastest"
            self.llama = loading.load_plain(file, repack=is_fastest, mapped=not is_fastest)
        self.context = llama.Context(
            self.llama,
            n_context=n_context,
            n_ubatch=min(job.config.setup.n_ubatch, n_context),
            n_thread=job.config.n_thread,
            callback=forced.callback if forced else None,
            user_data=forced.user_data if forced else None,
        )

    def close(self) -> None:
        self.context.close()
        self.llama.close()


def _load_ids(path: str) -> Ids:
    import numpy as np

    ids: Ids = np.ascontiguousarray(np.load(path), np.int32)
    return ids


def main() -> None:
    """Answer commands until the input ends."""
    job = Job(**json.loads(sys.argv[1]))
    given: dict[str, Any] = job.config  # type: ignore[assignment]
    job = replace(job, config=EngineConfig(**{**given, "setup": Setup(**given["setup"])}))
    if job.join:
        Path(job.join).write_text("0")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the libraries' own output goes to standard error

    runner: Runner | None = None
    for line in sys.stdin:
        try:
            answer: Any
            command = line.strip()
            if command == "open":
                runner = Runner(job)
                answer = runner.facts()
            else:
                assert runner is not None and command in COMMANDS
                answer = getattr(runner, command)()
        except Exception as error:  # report any failure to the parent process
            if os.environ.get("OUTRIDER_DEBUG"):
                raise
            answer = {"error": str(error) or type(error).__name__}
        print(json.dumps(answer), file=out, flush=True)
    if runner is not None:
        runner.close()


if __name__ == "__main__":
    main()
