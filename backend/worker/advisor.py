"""The worker's part of the advice after an answer: keep traces, and ask another process.

Advice must not slow down answers. The simulation runs after the answer, at the lowest priority, and
ends as soon as another request needs the engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.system import children
from backend.system.memory import available_bytes

if TYPE_CHECKING:
    from backend.engine.engine import Engine
    from backend.traces.trace import Trace

KEPT_BYTES = 24 << 20
"""Limit for the kept traces: the last answer's and, if there is room, earlier ones."""
SPARE_SHARE = 0.8
"""Share of the free memory that an advised larger cache may take."""
LIMIT_S = 30.0

Advised = Callable[[dict[str, Any]], None]


class Advisor:
    """Advises on one loaded model. Use from the engine's thread; calls back from another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._traces: list[Trace] = []
        self._is_new = False  # whether the last trace belongs to the last answer
        self._lock = threading.Lock()  # guards _process and _n_asked
        self._process: subprocess.Popen[bytes] | None = None
        self._n_asked = 0

    @property
    def wants_inputs(self) -> bool:
        """Whether the layers' inputs for a whole context are small enough to keep."""
        if self._engine.shape is None:
            return False
        file = self._engine.file
        width = file.key("embedding_length", 0)
        token_bytes = 2 * file.n_moe_layer * (width if isinstance(width, int) else 0)
        return token_bytes * self._engine.n_context <= KEPT_BYTES

    def add(self, trace: Trace) -> None:
        """Add the trace of an answer. Keep earlier traces as far as there is room."""
        trace = replace(trace, scores=None)
        self._traces = [t for t in self._traces if t.n_embd == trace.n_embd]
        self._traces.append(trace)
        while len(self._traces) > 1 and sum(t.n_bytes for t in self._traces) > KEPT_BYTES:
            del self._traces[0]
        self._is_new = True

    def advise(self, advised: Advised) -> None:
        """Find what would have helped the last answer. `advised` gets the fields of a message."""
        is_new, self._is_new = self._is_new, False
        if is_new and self._engine.decoded.n_token > 0:
            arguments = (self.question(), list(self._traces), advised, self._n_asked)
            threading.Thread(target=self._ask, args=arguments, daemon=True).start()

    def cancel(self) -> None:
        """Cancel the simulation: a request needs the engine, or the client is gone."""
        with self._lock:
            self._n_asked += 1
            process, self._process = self._process, None
        if process is not None:
            process.kill()

    def forget(self) -> None:
        """Drop the traces, because the cache was emptied and earlier answers no longer count."""
        self.cancel()
        self._traces.clear()

    def question(self) -> dict[str, Any]:
        """Return the fields of a backend.simulation.advice.Question about the last answer."""
        engine, decoded = self._engine, self._engine.decoded
        return {
            "method": engine.cache.method,
            "n_slot": engine.cache.n_slot,
            "n_token": decoded.n_token,
            "compute_s": decoded.compute_s + decoded.other_s,
            "stall_s": decoded.stall_s,
            "link_busy_s": decoded.link_busy_s,
            "bytes_read": decoded.bytes_read,
            "spare_bytes": int(SPARE_SHARE * available_bytes()),
            "accuracy": engine.accuracy,
        }

    def _ask(
        self, question: dict[str, Any], traces: list[Trace], advised: Advised, number: int
    ) -> None:
        """Have another process answer, and pass on its answer, if any."""
        from backend.traces.trace import join  # heavy: numpy

        process = None
        try:
            with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
                path = Path(folder) / "answer.trace"
                join(traces).write(path)
                request = {
                    "question": question,
                    "trace": str(path),
                    "model": str(self._engine.file.path),
                }
                with self._lock:
                    if self._n_asked != number:
                        return
                    process = self._process = _start()
                found, _ = process.communicate(json.dumps(request).encode("ascii"), LIMIT_S)
            with self._lock:
                if self._n_asked == number and process.returncode == 0:
                    advised(json.loads(found))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"advice: {error}", file=sys.stderr)
            if process is not None:
                process.kill()


def _start() -> subprocess.Popen[bytes]:
    command = children.command("backend.simulation.advice")
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
