"""One recording of each answer for whoever wants it: an engine has room for one recorder."""

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
"""Of one answer; what follows is not recorded."""

Listener = Callable[["Trace"], None]


@dataclass(frozen=True)
class _Wish:
    inputs: bool
    scores: bool


class AnswerTraces:
    """Records answers while anybody wants their traces. want() and unwant() from any thread.

    begin() and end() enclose an answer, in the engine's thread; listeners hear of a finished one
    in end(). Whatever was asked for by any of them is in the trace, as far as it can be had.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wishes: dict[Listener, _Wish] = {}
        self._recording: Recording | None = None

    def want(self, listener: Listener, *, inputs: bool = False, scores: bool = False) -> None:
        """From the next answer on tell `listener` of each; a later wish replaces an earlier."""
        self._wishes = {**self._wishes, listener: _Wish(inputs, scores)}

    def unwant(self, listener: Listener) -> None:
        """Tell it of no more."""
        self._wishes = {other: wish for other, wish in self._wishes.items() if other != listener}

    def begin(self) -> None:
        """An answer begins. Where llama.cpp runs unpatched there is nothing to record."""
        wishes = self._wishes.values()
        if not wishes or self._engine.shape is None:
            return
        from backend.engine.recording import Recording

        self._recording = Recording(
            self._engine,
            self._engine.file,
            inputs=any(wish.inputs for wish in wishes),
            scores=any(wish.scores for wish in wishes),
            max_bytes=KEPT_BYTES,
        )

    def end(self) -> None:
        """It is over, and as much as was answered is handed out."""
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
            except Exception:  # what somebody does with it is none of the answer's business
                traceback.print_exc()
