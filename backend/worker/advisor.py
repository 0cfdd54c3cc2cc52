"""Asks for advice after an answer: keeps recent traces, and runs backend.simulation.advice.

The advice never slows an answer. The simulation starts after the answer, at a low priority,
and is killed when the engine is needed again.
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

from backend.protocol.status import Advice
from backend.system import children, faults
from backend.system.memory import available_bytes

if TYPE_CHECKING:
    from backend.engine.engine import Engine
    from backend.traces.trace import Trace

KEPT_BYTES = 24 << 20
"""Limit of the kept traces: the last answer's, and earlier ones while there is room."""
SPARE_SHARE = 0.8
"""Share of the free memory that the advice may give to a larger cache."""
_DELETE_S = 2.5

Advised = Callable[[dict[str, Any]], None]


class Advisor:
    """Belongs to one loaded model. Call it from the engine's thread.

    `advised` is called from another thread.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._traces: list[Trace] = []
        self._is_new = False  # whether the last trace is that of the answer just given
        self._lock = threading.Lock()  # guards the next two attributes
        self._process: subprocess.Popen[bytes] | None = None
        self._n_asked = 0
        self._asking: threading.Thread | None = None

    @property
    def wants_inputs(self) -> bool:
        """Whether the layers' inputs of a whole context fit KEPT_BYTES."""
        if self._engine.shape is None:
            return False
        file = self._engine.file
        width = file.key("embedding_length", 0)
        token_bytes = 2 * file.n_moe_layer * (width if isinstance(width, int) else 0)
        return token_bytes * self._engine.n_context <= KEPT_BYTES

    def add(self, trace: Trace) -> None:
        """Keep the trace of an answer. Drop the oldest traces beyond KEPT_BYTES."""
        trace = replace(trace, scores=None)
        self._traces = [t for t in self._traces if t.n_embd == trace.n_embd]
        self._traces.append(trace)
        while len(self._traces) > 1 and sum(t.n_bytes for t in self._traces) > KEPT_BYTES:
            del self._traces[0]
        self._is_new = True

    def advise(self, advised: Advised) -> None:
        """Ask for advice on the answer just given. `advised` gets the fields of a message."""
        is_new, self._is_new = self._is_new, False
        if is_new and self._engine.decoded.n_token > 0:
            arguments = (self.question(), list(self._traces), advised, self._n_asked)

            def failed(sentence: str) -> None:
                advised(Advice(0.0, fault=sentence).to_json())

            self._asking = faults.Thread("advice", self._ask, *arguments, failed=failed)
            self._asking.start()

    def cancel(self) -> None:
        """Kill the process: the engine is needed, or the advice is no longer wanted."""
        with self._lock:
            self._n_asked += 1
            process, self._process = self._process, None
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Cancel, and wait a moment until the trace is deleted."""
        self.cancel()
        if self._asking is not None:
            self._asking.join(_DELETE_S)

    def forget(self) -> None:
        """Drop the traces: the cache has other slots, so they do not describe its contents."""
        self.cancel()
        self._traces.clear()

    def question(self) -> dict[str, Any]:
        """Return the fields of a backend.simulation.advice.Question about the answer just given."""
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
        """Run backend.simulation.advice and pass its answer to `advised`, unless it fails.

        The process deletes the trace once it is read, because this one may be killed. It limits
        its own processor time; a busy machine may make it wait for long.
        """
        from backend.traces.trace import join  # native part: not at the worker's start

        try:
            with tempfile.TemporaryDirectory(
                prefix="outrider-", ignore_cleanup_errors=True
            ) as folder:
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
                found, _ = process.communicate(json.dumps(request).encode("ascii"))
            with self._lock:
                if self._n_asked != number:
                    return
            if process.returncode == 0:
                advised(json.loads(found))
            elif fault := faults.of_process(process.pid):
                advised(Advice(0.0, fault=fault).to_json())
        except (OSError, ValueError) as error:
            print(f"advice: {error}", file=sys.stderr)


def _start() -> subprocess.Popen[bytes]:
    command = children.command("backend.simulation.advice")
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
