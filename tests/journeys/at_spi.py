"""What a window shows, as a screen reader gets it: AT-SPI over D-Bus."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jeepney import (
    DBusAddress,
    HeaderFields,
    MatchRule,
    MessageType,
    message_bus,
    new_method_call,
)
from jeepney.io.blocking import open_dbus_connection
from jeepney.low_level import Message

A11Y = "org.a11y.atspi."
REGISTRY = f"{A11Y}Registry"
ROOT = "/org/a11y/atspi"
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
    """One control or text. rect: (x, y, width, height) on the screen.

    The fields from the description on are read by Accessibility.read_whole().
    """

    bus: str
    path: str
    role: str = ""
    name: str = ""
    states: frozenset[str] = frozenset()
    description: str = ""
    text: str = ""
    value: float | None = None
    rect: tuple[int, int, int, int] = (0, 0, 0, 0)
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None

    @property
    def centre(self) -> tuple[int, int]:
        """The middle, on the screen."""
        x, y, width, height = self.rect
        return x + width // 2, y + height // 2

    def holds(self, place: tuple[int, int]) -> bool:
        """Return whether a place on the screen lies in it."""
        x, y, width, height = self.rect
        return x <= place[0] < x + width and y <= place[1] < y + height

    @property
    def around(self) -> list[Node]:
        """Return what it lies in, the innermost first."""
        return [] if self.parent is None else [self.parent, *self.parent.around]

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
        self._focused: Node | None = None
        rule = MatchRule(type="signal", interface=f"{A11Y}Event.Object", member="StateChanged")
        registry = DBusAddress(f"{ROOT}/registry", REGISTRY, REGISTRY)
        wanted = new_method_call(registry, "RegisterEvent", "s", ("object:state-changed:focused",))
        self._ask([message_bus.AddMatch(rule), wanted])

    def windows(self) -> list[Node]:
        """Return the shown windows of all programs, with the controls in them.

        Roles, names and states are read; read_whole() reads the rest. Qt lists no menus: one is
        found from its item with the focus.
        """
        programs = self._children([Node(REGISTRY, f"{ROOT}/accessible/root")])[0]
        found = [one for below in self._children(programs) for one in below]
        self._read(found)
        if self._focused is not None:
            (answer,) = self._ask([_property(self._focused, "Accessible", "Parent")])
            menus = [Node(*answer[0][1])] if answer else []
            self._read(menus)
            found += [menu for menu in menus if menu.role == "popup menu"]
            self._focused = self._focused if answer else None
        shown = level = [window for window in found if "showing" in window.states]
        while level:
            below = self._children(level)
            self._read([child for children in below for child in children])
            for node, children in zip(level, below, strict=True):
                node.children = [child for child in children if "showing" in child.states]
                for child in node.children:
                    child.parent = node
            level = [child for node in level for child in node.children]
        return shown

    def close(self) -> None:
        """Leave the bus."""
        self._connection.close()

    def _children(self, nodes: Sequence[Node]) -> list[list[Node]]:
        answers = self._ask([_call(node, "Accessible", "GetChildren") for node in nodes])
        return [[Node(*ref) for ref in (answer or ((),))[0]] for answer in answers]

    def _read(self, nodes: Sequence[Node]) -> None:
        """Read what tells nodes apart. A node that is gone meanwhile shows nothing."""
        states = self._ask([_call(node, "Accessible", "GetState") for node in nodes])
        for node, state in zip(nodes, states, strict=True):
            bits = state[0][0] | state[0][1] << 32 if state else 0
            node.states = frozenset(name for name, bit in STATES.items() if bits >> bit & 1)
        shown = [node for node in nodes if "showing" in node.states]
        roles = [_call(node, "Accessible", "GetRoleName") for node in shown]
        names = [_property(node, "Accessible", "Name") for node in shown]
        answers = self._ask(roles + names)
        for node, role, name in zip(shown, answers, answers[len(shown) :], strict=False):
            if role is None or name is None:
                node.states = frozenset()
            else:
                node.role, node.name = role[0], _plain(name[0][1])

    def read_whole(self, nodes: Sequence[Node]) -> None:
        """Read all else that is said of nodes."""
        asked = [_property(node, "Accessible", "Description") for node in nodes]
        asked += [_call(node, "Component", "GetExtents", "u", 0) for node in nodes]
        texts = [node for node in nodes if node.role.startswith(WITH_TEXT)]
        asked += [_call(node, "Text", "GetText", "ii", 0, -1) for node in texts]
        values = [node for node in nodes if node.role in WITH_VALUE]
        asked += [_property(node, "Value", "CurrentValue") for node in values]
        answers = iter(self._ask(asked))
        for node, answer in zip(nodes, answers, strict=False):
            node.description = _plain(answer[0][1]) if answer else ""
        for node, answer in zip(nodes, answers, strict=False):
            node.rect = tuple(answer[0]) if answer else (0, 0, 0, 0)
        for node, answer in zip(texts, answers, strict=False):
            text = _plain(answer[0]) if answer else ""
            node.text = text if text != node.name else ""
        for node, answer in zip(values, answers, strict=False):
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
                fields = message.header.fields
                serial = fields.get(HeaderFields.reply_serial)
                if message.body[:2] == ("focused", 1):
                    self._focused = Node(fields[HeaderFields.sender], fields[HeaderFields.path])
                number = waiting.pop(serial, -1)
                if number >= 0 and message.header.message_type is MessageType.method_return:
                    answers[number] = message.body
        return answers


def _plain(text: str) -> str:
    """Return a text with spaces where it has those that keep a number and its unit together."""
    return text.replace("\u00a0", " ")


def _call(node: Node, interface: str, method: str, signature: str = "", *body: object) -> Message:
    address = DBusAddress(node.path, node.bus, f"{A11Y}{interface}")
    return new_method_call(address, method, signature or None, body)


def _property(node: Node, interface: str, name: str) -> Message:
    address = DBusAddress(node.path, node.bus, "org.freedesktop.DBus.Properties")
    return new_method_call(address, "Get", "ss", (f"{A11Y}{interface}", name))
