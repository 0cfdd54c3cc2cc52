"""What leaves the worker: one thread writes, so that no other ever waits for the pipe.

Three kinds of message go out. Ordered ones are sent all, at once, in order. Of progress only the
newest unsent message matters, so a slow reader costs no memory. Text is joined into batches. While
an answer runs, a snapshot of the engine is taken on a clock of its own, so that the map also moves
during a long prefill or a slow token.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from backend.protocol.messages import Message, encode
from backend.text import text

TEXT_PERIOD_S = 1 / 25
STATE_PERIOD_S = 1 / 5


class Outbox:
    """Writes frames to a file descriptor from a thread of its own.

    All methods may be called from any thread. `on_broken` is called from the writing thread,
    once, when nobody reads any more.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._ordered: deque[Message] = deque()
        self._latest: dict[str, Message] = {}
        self._due_s: dict[str, float] = {}
        self._answer_id = 0
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._n_token = 0
        self._snapshot: Callable[[], list[Message]] | None = None
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="outbox", daemon=True)
        self._thread.start()

    @property
    def n_token(self) -> int:
        """Tokens of the present answer so far; of the last one when none runs."""
        return self._n_token

    def send(self, message: Message) -> None:
        """Send `message` at once, after those that were sent before it."""
        with self._changed:
            self._ordered.append(message)
            self._changed.notify_all()

    def settle(self) -> None:
        """Send at once what still waits for its period, so that a final message comes last."""
        with self._changed:
            self._settle()
            self._changed.notify_all()

    def offer(self, message: Message) -> None:
        """Send `message` when its type is next due, unless a newer one replaces it first."""
        with self._changed:
            self._latest[message["type"]] = message
            self._changed.notify_all()

    def begin_answer(self, request_id: int, snapshot: Callable[[], list[Message]]) -> None:
        """Start counting the tokens of an answer.

        `snapshot` is called from the writing thread, STATE_PERIOD_S apart, until end_answer
        returns.
        """
        with self._changed:
            self._answer_id = request_id
            self._n_token = 0
            self._snapshot = snapshot
            self._due_s["snapshot"] = 0.0
            self._changed.notify_all()

    def add_text(self, text: str, token_id: int | None) -> None:
        """Add text, which may be empty, of the present answer, and the token that it came with."""
        with self._changed:
            self._text.append(text)
            if token_id is not None:
                self._tokens.append(token_id)
                self._n_token += 1
            self._changed.notify_all()

    def end_answer(self) -> None:
        """Stop taking snapshots; the rest of the text is still sent."""
        with self._changed:
            self._snapshot = None
            self._settle()
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything ordered has been written; False when that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._ordered and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what is left, as far as `timeout_s` allows, and end the thread."""
        with self._changed:
            self._settle()
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _settle(self) -> None:
        """Move what waits for its period into the ordered messages. The lock is held."""
        for kind in list(self._latest):
            self._take_latest(kind, time.monotonic())
        self._take_text(time.monotonic())

    def _take_latest(self, kind: str, now_s: float) -> None:
        self._ordered.append(self._latest.pop(kind))
        self._due_s[kind] = now_s + TEXT_PERIOD_S

    def _take_text(self, now_s: float) -> None:
        if self._text:
            self._ordered.append(
                {
                    "type": "text",
                    "id": self._answer_id,
                    "text": "".join(self._text),
                    "n_token": self._n_token,
                    "tokens": self._tokens,
                }
            )
            self._text, self._tokens = [], []
            self._due_s["text"] = now_s + TEXT_PERIOD_S

    def _take_due(self) -> float | None:
        """Order everything that is due; the lock is held.

        Returns the time of the next that is not due yet, or None where nothing waits.
        """
        now_s = time.monotonic()
        waiting: list[str] = []
        for kind in list(self._latest):
            if self._due_s.get(kind, 0.0) <= now_s:
                self._take_latest(kind, now_s)
            else:
                waiting.append(kind)
        if self._text:
            if self._due_s.get("text", 0.0) <= now_s:
                self._take_text(now_s)
            else:
                waiting.append("text")
        if self._snapshot is not None:
            if self._due_s.get("snapshot", 0.0) <= now_s:
                self._due_s["snapshot"] = now_s + STATE_PERIOD_S
                try:
                    self._ordered += self._snapshot()
                except Exception:  # a map that fails must not silence the answer
                    traceback.print_exc()
                    self._snapshot = None
        if self._snapshot is not None:
            waiting.append("snapshot")
        return min((self._due_s[kind] for kind in waiting), default=None)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                next_s = self._take_due()
                while not self._ordered:
                    if self._closed:
                        return
                    self._changed.wait(
                        None if next_s is None else max(0.0, next_s - time.monotonic())
                    )
                    next_s = self._take_due()
                messages = list(self._ordered)
                self._ordered.clear()
                self._busy = True
            try:
                _write(self._fd, b"".join(_frame(message) for message in messages))
            except OSError:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
                self._on_broken()
                return


def _frame(message: Message) -> bytes:
    """Encode `message`, or an error in its place where it cannot be encoded."""
    try:
        return encode(message)
    except (ValueError, TypeError) as error:
        print(f"outbox: {message.get('type')!r} cannot be sent: {error}", file=sys.stderr)
        return encode(
            {
                "type": "error",
                "id": message.get("id"),
                "message": text("worker.unsendable"),
            }
        )


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
