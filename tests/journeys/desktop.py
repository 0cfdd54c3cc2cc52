"""A screen with a mouse, a keyboard and a session bus, for windows that a journey opens."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from journeys.at_spi import Accessibility, Node, What, matches

WAIT_S = 120.0
"""Only a failure waits so long."""
POLL_S = 0.1
SCREEN = "1400x900x24"
T = TypeVar("T")


class Lacks(AssertionError):
    """What was waited for did not come to pass."""


def until(is_so: Callable[[], T], what: str, limit_s: float = WAIT_S) -> T:
    """Wait until a condition holds. Return its value. Raise Lacks after the limit."""
    end_s = time.monotonic() + limit_s
    while True:
        began_s = time.monotonic()
        if found := is_so():
            return found
        if began_s > end_s:
            raise Lacks(f"It did not come to pass in {limit_s:.0f} s: {what}.")
        time.sleep(max(POLL_S, time.monotonic() - began_s))  # leaves the programs their time


class Screen:
    """A screen with a keyboard. `environment`: what a program needs to open its window there."""

    is_wine = True  # one that can be seen is of Linux

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="journeys-"))  # sockets need a short path
        self._processes: list[subprocess.Popen[str]] = []
        number = self._start(
            "Xvfb", "-displayfd", "1", "-screen", "0", SCREEN, "-fbdir", str(self._folder),
            "-nolisten", "tcp", "-noreset",
        )  # fmt: skip
        self.environment = {
            "DISPLAY": f":{number}",
            "XDG_RUNTIME_DIR": str(self._folder),
        }
        self._start("matchbox-window-manager", "-use_titlebar", "no", is_silent=True)

    def _start(self, *command: str, is_silent: bool = False) -> str:
        """Start a program. Return the first line that it prints, if it is one that prints."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder)}
        environment |= getattr(self, "environment", {})
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, text=True,
        )  # fmt: skip
        self._processes.append(process)
        assert process.stdout is not None
        if is_silent:
            return ""
        if not (line := process.stdout.readline().strip()):
            raise Lacks(f"{command[0]} does not start")
        return line

    def close(self) -> None:
        """End all that was started for it."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def picture(self, path: Path) -> None:
        """Write what the screen shows as a PNG file."""
        data = (self._folder / "Xvfb_screen0").read_bytes()
        head = struct.unpack(">25I", data[:100])  # the format of xwd
        size, width, height, line, n_colour = head[0], head[4], head[5], head[12], head[19]
        begin = size + 12 * n_colour
        rows = bytearray()
        for y in range(height):
            row = data[begin + y * line : begin + y * line + 4 * width]
            rgb = bytearray(3 * width)
            rgb[0::3], rgb[1::3], rgb[2::3] = row[2::4], row[1::4], row[0::4]
            rows += b"\0" + rgb

        def chunk(kind: bytes, body: bytes) -> bytes:
            check = zlib.crc32(kind + body)
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

        about = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        path.write_bytes(
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", about)
            + chunk(b"IDAT", zlib.compress(bytes(rows), 6)) + chunk(b"IEND", b"")
        )  # fmt: skip

    def wait_focus(self, title: str) -> None:
        """Wait until the keyboard belongs to a window whose title has these words."""

        def has_focus() -> bool:
            asked = ["xdotool", "getwindowfocus", "getwindowname"]
            done = subprocess.run(
                asked, env=self._for_xdotool, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            if title in done.stdout.decode():
                return True
            # No window manager hands the keyboard to a window of wine.
            asked = ["xdotool", "search", "--onlyvisible", "--name", title, "windowfocus"]
            return self.is_wine and not subprocess.run(asked, env=self._for_xdotool).returncode

        until(has_focus, f"a window named {title!r} has the keyboard")

    def press(self, *keys: str) -> None:
        """Press keys, such as ctrl+g."""
        self._hand("key", "--clearmodifiers", *keys)

    def type(self, text: str) -> None:
        """Type a text."""
        self._hand("type", "--delay", "4", "--", text)

    def put(self, kind: str, data: bytes) -> None:
        """Copy data of a MIME type, as another program does."""
        command = ["xclip", "-selection", "clipboard", "-t", kind]
        done = subprocess.run(
            command, input=data, env=self._for_xdotool,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,  # its child keeps the data
        )  # fmt: skip
        assert done.returncode == 0

    def taken(self) -> str:
        """Return the text that was copied."""
        command = ["xclip", "-selection", "clipboard", "-o", "-t", "UTF8_STRING"]
        return subprocess.run(
            command, env=self._for_xdotool, stdout=subprocess.PIPE, check=True, timeout=30
        ).stdout.decode()

    def _hand(self, *command: str) -> None:
        subprocess.run(["xdotool", *command], env=self._for_xdotool, check=True)

    @property
    def _for_xdotool(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **self.environment}


class Desktop(Screen):
    """A screen whose windows are seen as a screen reader sees them, and used by mouse, too.

    nameless: controls that were seen in two looks, can have the focus and have no name. In one look
    a control may be on its way in or out.
    """

    is_wine = False

    def __init__(self) -> None:
        super().__init__()
        self.nameless: set[str] = set()
        self._nameless_before: set[str] = set()  # of the last look
        self.environment["QT_LINUX_ACCESSIBILITY_ALWAYS_ON"] = "1"
        bus = self._start("dbus-daemon", "--session", "--nofork", "--print-address", "1")
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = bus
        self._seen = Accessibility(bus)

    def close(self) -> None:
        """End all that was started for it."""
        self._seen.close()
        super().close()

    # What is seen

    def windows(self) -> list[Node]:
        """Return the shown windows with the controls in them."""
        windows = self._seen.windows()
        nameless = {
            f"{node} in {windows[0].name!r}"
            for node in (node for window in windows for node in window.walk())
            if "focusable" in node.states and not node.name.strip() and node.role != "cell"
        }
        self.nameless |= nameless & self._nameless_before
        self._nameless_before = nameless
        return windows

    def nodes(self, role: str = "") -> list[Node]:
        """Return the shown controls, in the order of the screen reader."""
        return [node for window in self.windows() for node in window.walk() if role in node.role]

    def find_all(self, name: What, role: str = "") -> list[Node]:
        """Return the shown controls with this name, in the order of the screen reader."""
        found = [node for node in self.nodes(role) if matches(name, node.name)]
        self._seen.read_whole([one for node in found for one in node.walk()])
        return found

    def find(self, name: What, role: str = "", *, nth: int = 0) -> Node | None:
        """Return the shown control with this name; the last with nth -1. None if there is none."""
        found = self.find_all(name, role)
        return found[nth] if -len(found) <= nth < len(found) else None

    def words(self) -> str:
        """Return all words that are shown."""
        nodes = self.nodes()
        self._seen.read_whole(nodes)
        return "\n".join(node.words for node in nodes if node.words)

    def wait(self, name: What, role: str = "", *, nth: int = 0) -> Node:
        """Wait until a control is shown and can be used. Return it."""

        def found() -> Node | None:
            node = self.find(name, role, nth=nth)
            return node if node is not None and "enabled" in node.states else None

        return until(found, f"{role or 'a control'} named {name!r} that can be used is shown")

    def wait_words(self, what: What) -> str:
        """Wait until words are shown. Return all words that are shown then."""

        def found() -> str:
            words = self.words()
            is_there = what in words if isinstance(what, str) else what.search(words)
            return words if is_there else ""

        return until(found, f"the words {what!r} are shown")

    def wait_gone(self, name: What, role: str = "") -> None:
        """Wait until no such control is shown."""
        until(lambda: self.find(name, role) is None, f"{role or 'control'} {name!r} is gone")

    def tree(self) -> str:
        """Return all that is shown, a line for each control."""
        lines: list[str] = []

        def add(node: Node, depth: int) -> None:
            lines.append("  " * depth + str(node))
            for child in node.children:
                add(child, depth + 1)

        for window in self.windows():
            self._seen.read_whole(list(window.walk()))
            add(window, 0)
        return "\n".join(lines)

    # What a mouse does

    def click(self, name: What, role: str = "", *, nth: int = 0) -> None:
        """Click a control in its middle."""
        self._hand("mousemove", *self._place(name, role, nth), "click", "1")

    def drag(self, name: What, role: str, begin: float, end: float) -> None:
        """Drag within a control, from one share of its width to another."""
        self._hand("mousemove", *self._place(name, role, 0, begin), "mousedown", "1")
        self._hand("mousemove", *self._place(name, role, 0, end), "mouseup", "1")

    def _place(self, name: What, role: str, nth: int, share: float = 0.5) -> tuple[str, str]:
        """Return a place in a control, once it can be used, is in sight, and rests."""
        last = (0, 0, 0, 0)

        def rests() -> tuple[int, int, int, int]:
            nonlocal last
            before, node = last, self.wait(name, role, nth=nth)
            last = node.rect
            if node.rect != before or min(node.rect[2:]) <= 0:
                return (0, 0, 0, 0)
            self._seen.read_whole(node.around)
            for outer in node.around:
                if not outer.holds(node.centre):  # it is scrolled out of sight
                    is_below = node.centre[1] > outer.centre[1]
                    wheel = ("click", "5" if is_below else "4")
                    self._hand("mousemove", *map(str, outer.centre), *wheel)
                    return (0, 0, 0, 0)
            return node.rect

        x, y, width, height = until(
            lambda: rect if any(rect := rests()) else None, f"{name!r} rests at its place"
        )
        return str(x + round(width * share)), str(y + height // 2)

    def choose(self, button: What, item: What, *, nth: int = 0) -> None:
        """Open the menu of a button, and choose an item."""
        self.click(button, nth=nth)

        def is_open() -> bool:
            self.press("Down")  # the items are known once one has the focus
            return self.find(item, "menu item") is not None

        until(is_open, f"a menu has {item!r}")
        self.click(item, "menu item")
