"""What a window shows, as a screen reader gets it: AT-SPI over D-Bus."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection
from jeepney.low_level import Message

A11Y = "org.a11y.atspi."
STATES = {
    "checked": 4, "enabled": 8, "expanded": 10, "focusable": 11, "focused": 12, "selected": 23,
    "showing": 25,
}  # fmt: skip
"""Bits of AT-SPI's states, of those that the journeys ask for."""
WITH_TEXT = ("text", "entry", "label", "paragraph", "document", "terminal")
WITH_VALUE = ("slider", "progress bar", "spin button")
N_CALL_MAX = 200  # under way at once; the sockets hold more
ANSWER_S = 30.0

What = str | re.Pattern[str]


@dataclass
class Node:
    """One control or text. rect: (x, y, width, height) on the screen."""

    bus: str
    path: str
    role: str = ""
    name: str = ""
    description: str = ""
    text: str = ""
    value: float | None = None
    states: frozenset[str] = frozenset()
    rect: tuple[int, int, int, int] = (0, 0, 0, 0)
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Yield this node and those below it, in the order of the screen reader."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def words(self) -> str:
        """Return all that is said of this node alone."""
        return "\n".join(part for part in (self.name, self.text, self.description) if part)

    def __str__(self) -> str:
        shown = f"{self.role} {self.name!r}"
        shown += f" text {self.text!r}" if self.text else ""
        shown += f" description {self.description!r}" if self.description else ""
        shown += f" value {self.value:g}" if self.value is not None else ""
        return f"{shown} at {self.rect} {' '.join(sorted(self.states - {'showing'}))}"


def matches(what: What, words: str) -> bool:
    """Return whether words are a text, or have a pattern in them."""
    return words == what if isinstance(what, str) else bool(what.search(words))


class Accessibility:
    """The accessibility bus of a session."""

    def __init__(self, session_bus: str) -> None:
        session = open_dbus_connection(session_bus)
        bus = DBusAddress("/org/a11y/bus", "org.a11y.Bus", "org.a11y.Bus")
        answer = session.send_and_get_reply(new_method_call(bus, "GetAddress"), timeout=ANSWER_S)
        session.close()
        self._connection = open_dbus_connection(answer.body[0])

    def windows(self) -> list[Node]:
        """Return the shown windows of all programs, with all that they show."""
        registry = Node("org.a11y.atspi.Registry", "/org/a11y/atspi/accessible/root")
        programs = self._children([registry])[0]
        found = [one for below in self._children(programs) for one in below]
        self._read(found)
        shown = level = [window for window in found if "showing" in window.states]
        while level:
            below = self._children(level)
            self._read([child for children in below for child in children])
            for node, children in zip(level, below, strict=True):
                node.children = [child for child in children if "showing" in child.states]
            level = [child for node in level for child in node.children]
        return shown

    def close(self) -> None:
        """Leave the bus."""
        self._connection.close()

    def _children(self, nodes: Sequence[Node]) -> list[list[Node]]:
        answers = self._ask([_call(node, "Accessible", "GetChildren") for node in nodes])
        return [[Node(*ref) for ref in (answer or ((),))[0]] for answer in answers]

    def _read(self, nodes: Sequence[Node]) -> None:
        """Read what is said of nodes. A node that is gone meanwhile shows nothing."""
        calls = []
        for node in nodes:
            calls += [
                _call(node, "Accessible", "GetState"),
                _call(node, "Accessible", "GetRoleName"),
                _property(node, "Accessible", "Name"),
                _property(node, "Accessible", "Description"),
                _call(node, "Component", "GetExtents", "u", 0),
            ]
        answers = iter(self._ask(calls))
        for node in nodes:
            state, role, name, description, rect = (next(answers) for _ in range(5))
            if state is None or role is None or name is None:
                continue
            bits = state[0][0] | state[0][1] << 32
            node.states = frozenset(name for name, bit in STATES.items() if bits >> bit & 1)
            node.role, node.name = role[0], name[0][1]
            node.description = description[0][1] if description else ""
            node.rect = tuple(rect[0]) if rect else node.rect
        self._read_contents([node for node in nodes if "showing" in node.states])

    def _read_contents(self, nodes: Sequence[Node]) -> None:
        texts = [node for node in nodes if node.role.startswith(WITH_TEXT)]
        values = [node for node in nodes if node.role in WITH_VALUE]
        asked = self._ask(
            [_call(node, "Text", "GetText", "ii", 0, -1) for node in texts]
            + [_property(node, "Value", "CurrentValue") for node in values]
        )
        for node, answer in zip(texts, asked, strict=False):
            node.text = answer[0] if answer and answer[0] != node.name else ""
        for node, answer in zip(values, asked[len(texts) :], strict=True):
            node.value = float(answer[0][1]) if answer else None

    def _ask(self, calls: Sequence[Message]) -> list[Any]:
        """Make calls together. Return the answers, in order; None for one that failed."""
        answers: list[Any] = [None] * len(calls)
        for begin in range(0, len(calls), N_CALL_MAX):
            waiting = {}
            for number in range(begin, min(begin + N_CALL_MAX, len(calls))):
                serial = next(self._connection.outgoing_serial)
                self._connection.send(calls[number], serial=serial)
                waiting[serial] = number
            end_s = time.monotonic() + ANSWER_S
            while waiting:
                message = self._connection.receive(timeout=end_s - time.monotonic())
                serial = message.header.fields.get(HeaderFields.reply_serial)
                number = waiting.pop(serial, -1)
                if number >= 0 and message.header.message_type is MessageType.method_return:
                    answers[number] = message.body
        return answers


def _call(node: Node, interface: str, method: str, signature: str = "", *body: object) -> Message:
    address = DBusAddress(node.path, node.bus, f"{A11Y}{interface}")
    return new_method_call(address, method, signature or None, body)


def _property(node: Node, interface: str, name: str) -> Message:
    address = DBusAddress(node.path, node.bus, "org.freedesktop.DBus.Properties")
    return new_method_call(address, "Get", "ss", (f"{A11Y}{interface}", name))
