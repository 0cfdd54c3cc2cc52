"""The worker's part in learning from chats: make the learner when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    """Owns the learner. Makes none for a user who never wants one. Use from any thread.

    send: sends a message.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # guards the fields below
        self._learner: Learner | None = None
        self._loaded: tuple[Engine, AnswerTraces] | None = None
        self._is_busy = False

    def serve(self, request: Message) -> None:
        """Answer a request about learning, also during an answer. Raises RequestError."""
        learner = self._made()
        if request["action"] not in learner.actions:
            raise RequestError(f"Unknown action {ascii(request['action'][:40])} of learning.")
        self._send_state(request["id"], learner.act(request["action"]))

    def attach(self, engine: Engine, traces: AnswerTraces) -> None:
        """Attach the learner to a loaded model."""
        with self._lock:
            self._loaded = engine, traces
            if (learner := self._learner) is not None:
                _teach(learner, engine, traces)
        if learner is None and allowed(recordings_folder()):
            self._made()

    def detach(self) -> None:
        """Detach the learner from the model that was closed."""
        with self._lock:
            self._loaded = None
            if self._learner is not None:
                self._learner.detach()

    def set_busy(self, yes: bool) -> None:
        """Tell the learner whether the engine has requests to serve."""
        with self._lock:
            self._is_busy = yes
            if self._learner is not None:
                self._learner.set_busy(yes)

    def close(self) -> None:
        """Close the learner."""
        if self._learner is not None:
            self._learner.close()

    def _made(self) -> Learner:
        from backend.learning.supervisor import Learner  # most workers never need it

        with self._lock:
            if self._learner is None:
                self._learner = Learner(lambda state: self._send_state(None, state))
                self._learner.set_busy(self._is_busy)
                if self._loaded is not None:
                    _teach(self._learner, *self._loaded)
            return self._learner

    def _send_state(self, request_id: int | None, state: LearningFacts) -> None:
        self._send({"type": "learning", "id": request_id, "state": state.to_json()})


def _teach(learner: Learner, engine: Engine, traces: AnswerTraces) -> None:
    learner.attach(engine.file, traces, lambda: engine.shape is not None)
