"""The log of the window and its engine since the start, without personal text.

It holds states, versions, sizes and the engine's own sentences. It holds no prompts, answers or
titles of chats. Every path is cut to its last name.
"""

from __future__ import annotations

import time
from collections import deque

from app.session.engine import EngineSession
from backend.protocol.status import CacheFacts, ModelFacts
from backend.system.names import without_names

N_LINE = 400


class EventLog:
    """The last lines, oldest first."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=N_LINE)
        self._last = ""
        self._errors: deque[str] = deque(maxlen=20)

    def add(self, line: str, is_error: bool = False) -> None:
        """Add a line. Skip it if it repeats the last one."""
        line = without_names(line)
        if line == self._last and not is_error:
            return
        self._last = line
        stamped = f"{time.strftime('%H:%M:%S')} {line}"
        self._lines.append(stamped)
        if is_error:
            self._errors.append(stamped)

    @property
    def lines(self) -> list[str]:
        """Return all lines, oldest first."""
        return list(self._lines)

    @property
    def errors(self) -> list[str]:
        """Return the last error lines, oldest first."""
        return list(self._errors)


def follow(log: EventLog, engine: EngineSession) -> None:
    """Log an engine's states and failures, but nothing from chats."""
    link = engine.link

    def loaded(model: ModelFacts, cache: CacheFacts) -> None:
        log.add(
            f"{model.architecture}, {model.file_bytes} bytes, context {model.context_length}. "
            f"{cache.runs}"
        )

    def failed(request: str, sentence: str) -> None:
        log.add(f"{request} failed: {sentence}", is_error=True)

    log.add("The window was opened.")
    engine.state_changed.connect(lambda state: log.add(f"Engine: {state.value}"))
    link.hello.connect(lambda: log.add("The engine's process has started."))
    link.loaded.connect(loaded)
    link.configured.connect(loaded)
    link.cache_changed.connect(lambda cache: log.add(f"Cache: {cache.runs}"))
    link.error.connect(failed)
    link.refused.connect(lambda sentence: failed("load", sentence))
    link.died.connect(lambda sentence: log.add(sentence, is_error=True))
    link.hangs.connect(lambda sentence: log.add(sentence, is_error=True))
