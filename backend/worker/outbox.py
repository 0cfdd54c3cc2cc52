"""Writes the worker's messages in one thread, so that no other thread waits for the pipe.

There are three kinds of messages, which are sent in order. Ordered messages are sent at once, with
all that waits. A progress message replaces an unsent one of the same type, so a slow reader costs
no memory. Text is joined into batches. While an answer runs, a snapshot of the engine is taken
periodically, so that the map moves during a long prefill or a slow token, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from backend.protocol.chat import Delta
from backend.protocol.messages import Message, encode
from backend.system import faults
from backend.text import text

TEXT_PERIOD_S = 1 / 25
STATE_PERIOD_S = 1 / 5


_NOTHING = Delta()


@dataclass
class _Text:
    """The text that an answer gained since it was sent last."""

    raw: list[str] = field(default_factory=list)
    delta: Delta = _NOTHING
    tokens: list[int] = field(default_factory=list)


class Outbox:
    """Writes frames to a file descriptor in a separate thread. Use from any thread.

    on_end: called once from the writing thread when nothing can be written any more. It gets 0
    where the reader is gone, and 1 after an unexpected error.
    """

    def __init__(self, fd: int, on_end: Callable[[int], object]) -> None:
        self._fd = fd
        self._on_end = on_end
        self._changed = threading.Condition()
        self._ordered: deque[Message] = deque()
        self._latest: dict[str, Message] = {}
        self._due_s: dict[str, float] = {}
        self._answer_id = 0
        self._texts: dict[int, _Text] = {}  # by the numbers of answers that are computed together
        self._n_token = 0
        self._snapshot: Callable[[], list[Message]] | None = None
        self._busy = False
        self._closed = False
        self._thread = faults.Thread("outbox", self._write_all, failed=lambda _: on_end(1))
        self._thread.start()

    @property
    def n_token(self) -> int:
        """The tokens so far of the present answer, or of the last one."""
        return self._n_token

    def send(self, message: Message) -> None:
        """Send `message` at once, after all earlier ones."""
        with self._changed:
            self._latest.pop(message["type"], None)
            self._settle()
            self._ordered.append(message)
            self._changed.notify_all()

    def offer(self, message: Message) -> None:
        """Send `message` when its type is next due, unless a newer one replaces it first."""
        with self._changed:
            self._latest[message["type"]] = message
            self._changed.notify_all()

    def begin_answer(self, request_id: int, snapshot: Callable[[], list[Message]]) -> None:
        """Start counting the tokens of an answer.

        The writing thread calls `snapshot` every STATE_PERIOD_S until end_answer returns.
        """
        with self._changed:
            self._answer_id = request_id
            self._n_token = 0
            self._snapshot = snapshot
            self._due_s["snapshot"] = 0.0
            self._changed.notify_all()

    def add(
        self, answer: int, text: str = "", delta: Delta = _NOTHING, token_id: int | None = None
    ) -> None:
        """Add raw text, a delta and a token. answer: 0, or the number of one beside it."""
        with self._changed:
            written = self._texts.setdefault(answer, _Text())
            written.raw.append(text)
            written.delta = written.delta.then(delta)
            if token_id is not None:
                written.tokens.append(token_id)
                self._n_token += 1
            self._changed.notify_all()

    def end_answer(self) -> None:
        """Stop taking snapshots. The rest of the text is sent with the next message."""
        with self._changed:
            self._snapshot = None

    def drain(self, timeout_s: float) -> bool:
        """Wait until all ordered messages are written. Return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._ordered and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write the remaining messages and end the thread. Wait at most `timeout_s`."""
        with self._changed:
            self._settle()
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _settle(self) -> None:
        """Move waiting progress and text to the ordered messages. The caller holds the lock."""
        for kind in list(self._latest):
            self._take_latest(kind, time.monotonic())
        self._take_text(time.monotonic())

    def _take_latest(self, kind: str, now_s: float) -> None:
        self._ordered.append(self._latest.pop(kind))
        self._due_s[kind] = now_s + TEXT_PERIOD_S

    def _take_text(self, now_s: float) -> None:
        for answer, written in self._texts.items():
            own = {"type": "text", "n_token": self._n_token, "tokens": written.tokens}
            kind = {"type": "other_text", "answer": answer} if answer else own
            raw = {"id": self._answer_id, "text": "".join(written.raw)}
            self._ordered.append({**kind, **raw, **written.delta.to_json()})
        if self._texts:
            self._texts = {}
            self._due_s["text"] = now_s + TEXT_PERIOD_S

    def _take_due(self) -> float | None:
        """Move all due messages to the ordered messages. The caller holds the lock.

        Return the time when the next waiting message is due, or None where none waits.
        """
        now_s = time.monotonic()
        waiting: list[str] = []
        for kind in list(self._latest):
            if self._due_s.get(kind, 0.0) <= now_s:
                self._take_latest(kind, now_s)
            else:
                waiting.append(kind)
        if self._texts:
            if self._due_s.get("text", 0.0) <= now_s:
                self._take_text(now_s)
            else:
                waiting.append("text")
        if self._snapshot is not None and self._due_s.get("snapshot", 0.0) <= now_s:
            self._due_s["snapshot"] = now_s + STATE_PERIOD_S
            try:
                self._ordered += self._snapshot()
            except Exception as error:  # a failing snapshot must not end the answer
                faults.record("snapshot", error)
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
                self._on_end(0)
                return


def _frame(message: Message) -> bytes:
    """Encode `message`; if that fails, encode an error in its place."""
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
