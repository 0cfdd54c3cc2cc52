"""Connects the worker to the learner, which it creates when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from backend.learning.consent import allowed, recordings_folder
from backend.protocol.errors import RequestError
from backend.protocol.messages import Message

if TYPE_CHECKING:
    from backend.engine.engine import Engine
    from backend.learning.supervisor import Learner
    from backend.protocol.status import LearningFacts
    from backend.worker.answer_recorder import AnswerTraces


class LearningDesk:
    """Creates the learner at the first request, or once the user has consented.

    Call its methods from any thread. tell: sends a message.
    """

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()  # guards all following attributes
        self._learner: Learner | None = None
        self._loaded: tuple[Engine, AnswerTraces] | None = None
        self._is_busy = False

    def serve(self, request: Message) -> None:
        """Answer a request about learning, even while the engine is busy. Raises RequestError."""
        learner = self._learner_made()
        if request["action"] not in learner.actions:
            raise RequestError(f"Unknown action {request['action'][:40]!a} of learning.")
        learner.act(request["action"], partial(self._say, request["id"]))

    def attach(self, engine: Engine, traces: AnswerTraces) -> None:
        """Note that a model was loaded."""
        with self._lock:
            self._loaded = engine, traces
            if (learner := self._learner) is not None:
                _attach(learner, engine, traces)
        if learner is None and allowed(recordings_folder()):
            self._learner_made()

    def detach(self) -> None:
        """Note that the model was unloaded."""
        with self._lock:
            self._loaded = None
            if self._learner is not None:
                self._learner.detach()

    def set_busy(self, yes: bool) -> None:
        """Note that the engine is busy, or idle."""
        with self._lock:
            self._is_busy = yes
            if self._learner is not None:
                self._learner.set_busy(yes)

    def close(self) -> None:
        """End the learner, if there is one."""
        if self._learner is not None:
            self._learner.close()

    def _learner_made(self) -> Learner:
        from backend.learning.supervisor import Learner  # native part: not at the worker's start

        with self._lock:
            if self._learner is None:
                self._learner = Learner(lambda state: self._say(None, state))
                self._learner.set_busy(self._is_busy)
                if self._loaded is not None:
                    _attach(self._learner, *self._loaded)
            return self._learner

    def _say(self, request_id: int | None, state: LearningFacts) -> None:
        self._tell({"type": "learning", "id": request_id, "state": state.to_json()})


def _attach(learner: Learner, engine: Engine, traces: AnswerTraces) -> None:
    learner.attach(engine.file, traces, lambda: engine.shape is not None)
