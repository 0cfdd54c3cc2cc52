"""The client's side of the worker's pipe, without I/O.

Bytes and times come in; bytes to write, events and a deadline come out. The protocol consists of
the greeting, request numbers, the detection of a worker that hangs, and a sentence for each way in
which a worker fails. Two transports drive it: `backend.protocol.client` blocks,
`app.session.worker_link` uses Qt.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from backend.protocol import messages
from backend.protocol.messages import Message, request_id
from backend.protocol.worker_exit import describe_exit
from backend.system.memory import oom_kills
from backend.text import text

HELLO_LIMIT_S = 120.0
"""Limit for the worker's hello; after it the worker is given up."""
PING_S = 5.0
"""Time between two pings while a request is open."""
PONG_LIMIT_S = 30.0
"""Limit for the answer to a ping; after it the worker counts as hanging."""
PROGRESS_LIMIT_S = 120.0
"""Limit without a token or a step of loading or prefill; after it the worker counts as hanging."""

_STDERR_TAIL_BYTES = 16_384
_NO_MESSAGE = frozenset(("died", "hangs", "recovered"))
_OTHER = messages.Reading()
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class Event(NamedTuple):
    """An event at the worker's end.

    kind: the type of the message, or "died", "hangs" (values: a sentence) or "recovered". values:
    see messages.READINGS; an "error" has before them the type of its request, or "".
    """

    kind: str
    values: tuple[Any, ...] = ()
    message: Message | None = None


class Connection:
    """A client's view of one worker process. `now_s` is a monotonic clock, in seconds.

    After any call, write `take_output()` and call `tick` at `deadline_s`. The event "died" is the
    last one; `is_over` is then true. Kill the process after it if it still runs.
    """

    def __init__(self, now_s: float) -> None:
        self.is_over = False
        self._decoder = messages.Decoder()
        self._output = bytearray()
        self._stderr = b""
        self._last_error = ""  # the last error without a request
        self._numbers = itertools.count(1)
        self._open: dict[int, str] = {}  # requests without their final message: number -> type
        self._pings: dict[int, float] = {}  # unanswered: number -> when
        self._greeted = False
        self._hello_due_s = now_s + HELLO_LIMIT_S
        self._ping_due_s = self._progress_s = now_s
        self._n_token_seen = 0
        self._hangs = False
        self._oom_kills = oom_kills()
        self.send("hello", version=messages.VERSION)

    # Out

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message that has no answer."""
        if not self.is_over:
            self._output += messages.encode({"type": kind, **fields})

    def request(self, kind: str, now_s: float, **fields: Any) -> int:
        """Send a request and return its number. Exactly one final message answers it."""
        number = next(self._numbers)
        self.send(kind, id=number, **fields)
        if not self.is_over:
            if not self._open:
                self._progress_s, self._ping_due_s = now_s, now_s + PING_S
            if kind == "generate":
                self._n_token_seen = 0
            self._open[number] = kind
        return number

    def stop(self) -> None:
        """Cancel the open loads and answers. Each still gets its final message."""
        for number, kind in self._open.items():
            if kind in ("load", "generate"):
                self.send("stop", id=number)

    def take_output(self) -> bytes:
        """Return the bytes to write and forget them."""
        data = bytes(self._output)
        self._output.clear()
        return data

    # In

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Take bytes from the worker's standard output."""
        if self.is_over:
            return []
        try:
            received, is_garbled = self._decoder.feed(data), False
        except messages.ProtocolError as error:
            received, is_garbled = error.messages, True
        events: list[Event] = []
        for message in received:
            try:
                events += self._take(message, now_s)
            except _UNREADABLE:
                is_garbled = True
                break
            if self.is_over:
                break
        if is_garbled:
            events += self.give_up(text("worker.garbled"))
        return events

    def receive_stderr(self, data: bytes) -> None:
        """Take bytes from the worker's standard error. Its end tells why a worker died."""
        self._stderr = (self._stderr + data)[-_STDERR_TAIL_BYTES:]

    @property
    def last_words(self) -> str:
        """The end of what the worker wrote to standard error."""
        return self._stderr.decode("utf-8", "replace")

    def process_failed_to_start(self, reason: str = "") -> list[Event]:
        """End the connection: the process did not start. reason: the system's, without a stop."""
        if not reason:
            return self.give_up(text("worker.not_started"))
        return self.give_up(text("worker.not_started_because", reason=f"{reason}."))

    def process_ended(self, returncode: int | None) -> list[Event]:
        """End the connection: the process ended, and its output was received.

        returncode: as for describe_exit.
        """
        if returncode == messages.EXIT_PROTOCOL and self._last_error:
            return self.give_up(self._last_error)
        before, now = self._oom_kills, oom_kills()
        had_memory = now is not None and now == before
        return self.give_up(describe_exit(returncode, self.last_words, had_memory))

    # The clock

    @property
    def deadline_s(self) -> float | None:
        """The time of the next call of `tick`; None: no call is needed at present."""
        due_s = [] if self._greeted or self.is_over else [self._hello_due_s]
        return min([*due_s, *([self._ping_due_s] if self._open else [])], default=None)

    def tick(self, now_s: float) -> list[Event]:
        """Give up a silent worker. Ping a busy worker and report whether it hangs."""
        if self.is_over:
            return []
        if not self._greeted and now_s >= self._hello_due_s:
            return self.give_up(text("worker.no_answer"))
        if not self._open or now_s < self._ping_due_s:
            return []
        events: list[Event] = []
        if self._pings and now_s - min(self._pings.values()) > PONG_LIMIT_S:
            events += self._judge(text("worker.silent", seconds=round(PONG_LIMIT_S)))
        elif now_s - self._progress_s > PROGRESS_LIMIT_S:
            minutes = round(PROGRESS_LIMIT_S / 60)
            events += self._judge(text("worker.no_progress", minutes=minutes))
        self._pings[number := next(self._numbers)] = now_s
        self._ping_due_s = now_s + PING_S
        self.send("ping", id=number)
        return events

    # Inside

    def _take(self, message: Message, now_s: float) -> Iterator[Event]:
        kind, number = message["type"], request_id(message)
        reading = messages.READINGS.get(kind, _OTHER)
        if kind in _NO_MESSAGE:
            raise ValueError("no worker says that")
        if not self._greeted:
            if kind != "hello":
                raise ValueError("the worker did not greet")
            if message["version"] != messages.VERSION:
                yield from self.give_up(text("worker.other_version"))
                return
            self._greeted = True
        if reading.is_progress:
            self._progress_s = now_s
            yield from self._judge()
        if kind == "pong" and self._pings.pop(number or 0, None) is not None:
            n_token = int(message.get("n_token") or 0)
            if n_token != self._n_token_seen:
                self._n_token_seen, self._progress_s = n_token, now_s
            if now_s - self._progress_s < PROGRESS_LIMIT_S:
                yield from self._judge()
            return
        values = reading.read(message)
        if kind == "error":
            if number is None:
                self._last_error = values[0]
            values = (self._open.get(number or 0, ""), *values)
        if reading.is_final:
            self._open.pop(number or 0, None)
            if not self._open:
                self._pings.clear()
                yield from self._judge()
        yield Event(kind, values, message)

    def _judge(self, fault: str = "") -> Iterator[Event]:
        """Report a change: the worker hangs, or (without a fault) it has recovered."""
        if bool(fault) != self._hangs:
            self._hangs = bool(fault)
            yield Event("hangs", (fault,)) if fault else Event("recovered")

    def give_up(self, sentence: str) -> list[Event]:
        """End the connection for another reason, one sentence."""
        if self.is_over:
            return []
        self.is_over = True
        self._open.clear()
        return [Event("died", (sentence,))]
