"""Records each answer once for all listeners, because an engine has only one recorder."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.engine.engine import Engine
    from backend.engine.recording import Recording
    from backend.traces.trace import Trace

KEPT_BYTES = 48 << 20
"""Limit for the trace of one answer; the rest of the answer is not recorded."""

Listener = Callable[["Trace"], None]


@dataclass(frozen=True)
class _Wish:
    inputs: bool
    scores: bool


class AnswerTraces:
    """Records answers while a listener wants their traces. want() and unwant() from any thread.

    The engine's thread calls begin() and end() around an answer; end() calls the listeners. The
    trace has all that any listener asked for, as far as it is available.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wishes: dict[Listener, _Wish] = {}
        self._recording: Recording | None = None

    def want(self, listener: Listener, *, inputs: bool = False, scores: bool = False) -> None:
        """Call `listener` for each answer from the next on. A later call replaces an earlier."""
        self._wishes = {**self._wishes, listener: _Wish(inputs, scores)}

    def unwant(self, listener: Listener) -> None:
        """Stop calling `listener`."""
        self._wishes = {other: wish for other, wish in self._wishes.items() if other != listener}

    def begin(self) -> None:
        """Begin to record an answer, unless llama.cpp runs unpatched or no listener wants it."""
        wishes = self._wishes.values()
        if not wishes or self._engine.shape is None:
            return
        from backend.engine.recording import Recording  # heavy: llama.cpp

        self._recording = Recording(
            self._engine,
            self._engine.file,
            inputs=any(wish.inputs for wish in wishes),
            scores=any(wish.scores for wish in wishes),
            max_bytes=KEPT_BYTES,
        )

    def end(self) -> None:
        """End the recording and pass its trace to the listeners."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        recording.close()
        if recording.n_token == 0:
            return
        trace = recording.trace({})
        for listener in list(self._wishes):
            try:
                listener(trace)
            except Exception:  # a listener's failure must not fail the answer
                traceback.print_exc()
