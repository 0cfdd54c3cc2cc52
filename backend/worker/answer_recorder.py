"""Records each answer once for all listeners, because an engine has room for one recorder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.system import faults

if TYPE_CHECKING:
    from backend.engine.engine import Engine
    from backend.engine.recording import Recording
    from backend.traces.trace import Trace

KEPT_BYTES = 48 << 20
"""Limit of one answer's trace; later tokens are not recorded."""

Listener = Callable[["Trace"], None]


@dataclass(frozen=True)
class _Wish:
    inputs: bool
    scores: bool


class AnswerTraces:
    """Records answers while there are listeners. Call want() and unwant() from any thread.

    The engine's thread calls begin() before an answer and end() after it; end() passes the trace to
    the listeners. The trace has everything that any listener wants, if the model provides it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wishes: dict[Listener, _Wish] = {}
        self._recording: Recording | None = None

    def want(self, listener: Listener, *, inputs: bool = False, scores: bool = False) -> None:
        """Pass each trace to `listener`, from the next answer on. Replace its earlier wish."""
        self._wishes = {**self._wishes, listener: _Wish(inputs, scores)}

    def unwant(self, listener: Listener) -> None:
        """Pass no more traces to `listener`."""
        self._wishes = {other: wish for other, wish in self._wishes.items() if other != listener}

    def begin(self) -> None:
        """Start recording an answer. Do nothing if llama.cpp runs unpatched."""
        wishes = self._wishes.values()
        if not wishes or self._engine.shape is None:
            return
        from backend.engine.recording import Recording  # native part: not at the worker's start

        self._recording = Recording(
            self._engine,
            self._engine.file,
            inputs=any(wish.inputs for wish in wishes),
            scores=any(wish.scores for wish in wishes),
            max_bytes=KEPT_BYTES,
        )

    def end(self, *, is_wanted: bool = True) -> None:
        """Stop recording and pass the trace, which may be incomplete, to the listeners.

        is_wanted: false if it is no sample of a conversation; nobody gets it.
        """
        recording, self._recording = self._recording, None
        if recording is None:
            return
        recording.close()
        if recording.n_token == 0 or not is_wanted:
            return
        trace = recording.trace({})
        for listener in list(self._wishes):
            # A listener's fault must not fail the answer.
            faults.guarded("trace", listener, faults.no_place)(trace)
