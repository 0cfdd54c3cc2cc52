"""The owner of an engine without a window: a thread that computes, and models on demand."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.server.turns import Embedder, Work
from backend.system import faults

_KEEP_S = 0.01  # between two pieces of the state that is written while no request runs
_LATE_S = 30.0  # until it is tried again to write what has to wait, as enough was written


class EngineThread:
    """A host (backend.server.turns) with a thread that runs the queued work for an engine.

    It owns the engine and closes it in the end. open_model: opens the model of a path. models: the
    paths of the models that a request may name. unload_after_s: seconds without work after which
    the engine is closed; the next request loads the model again. embedder: the small model beside
    it, which the caller closes. failed: gets the sentence about an error that ended the thread.
    """

    n_other = 0

    def __init__(
        self,
        engine: Any,
        open_model: Callable[[Path], Any] | None = None,
        models: Mapping[str, Path] | None = None,
        unload_after_s: float | None = None,
        embedder: Embedder | None = None,
        failed: faults.Failed = faults.no_place,
    ) -> None:
        self.embedder = embedder
        self._engine = engine
        self._name = str(engine.model.name)
        self._open_model = open_model
        self._paths = dict(models or {})
        own = Path(engine.model.path)
        if open_model is not None:
            same = [name for name, path in self._paths.items() if path.resolve() == own.resolve()]
            self._name = same[0] if same else self._name
            self._paths.setdefault(self._name, own)
        self._files = {self._name: own, **self._paths}
        self.unload_after_s = unload_after_s
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = faults.Thread("engine", self._run, failed=failed)
        self._thread.start()

    @property
    def model_name(self) -> str | None:
        """The name of the loaded model, or None."""
        return self._name if self._engine is not None else None

    @property
    def models(self) -> Sequence[str]:
        """The names of the models that a request may name."""
        return list(self._paths)

    def path_of(self, name: str) -> Path | None:
        """Return the file of a model, or None."""
        return self._files.get(name)

    def submit(self, work: Work) -> None:
        """Queue `work(engine)`."""
        self._work.put(work)

    def next_own(self, engine: Any) -> None:
        """Return no request: all are clients'."""

    def load(self, name: str) -> Any:
        """Load a model, or with "" the last one. Call it in the engine's thread."""
        assert self._open_model is not None
        self._unload()
        name = name or self._name
        self._engine = self._open_model(self._paths[name])
        self._name = name
        return self._engine

    def close(self) -> None:
        """Finish the queued work, end the thread and close the engine."""
        self._work.put(None)
        self._thread.join()
        self._unload()

    def stop(self) -> None:
        """Stop the answer in progress."""
        if (engine := self._engine) is not None:
            engine.stop()

    def _unload(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _run(self) -> None:
        keeps = False  # something of the conversation may not be on the drive
        worked_s = 0.0

        def serve(work: Work) -> None:
            nonlocal keeps, worked_s
            work(self._engine)
            worked_s = time.monotonic()
            if self._work.empty() and self._engine is not None:
                self._engine.idle()
                keeps = True

        def rest() -> None:
            """Write a piece of the conversation's state, or free memory that is no longer used."""
            nonlocal keeps
            idle_s = time.monotonic() - worked_s
            if keeps or (is_late() and idle_s < (self.unload_after_s or math.inf)):
                keeps = False
                keeps = self._engine is not None and self._engine.keep()
            else:
                self._unload()

        def is_late() -> bool:
            return self._engine is not None and self._engine.is_late

        # The clients have received the errors of their requests; the next request meets the others.
        while True:
            wait_s = _KEEP_S if keeps else self.unload_after_s
            if not keeps and is_late():
                wait_s = min(_LATE_S, wait_s or _LATE_S)
            try:
                work = self._work.get(timeout=wait_s)
            except queue.Empty:
                faults.guarded("upkeep", rest, faults.no_place)()
                continue
            if work is None:
                return
            faults.guarded("work", serve, faults.no_place)(work)
