"""The window by keys alone.

What it did is seen in its files, so that these journeys also go where nothing tells what it shows.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_hub import FakeHub

from journeys import models
from journeys.desktop import Screen, until
from journeys.fixtures import ROOT, WINDOW, Home
from journeys.models import Line

MAX = "Anna has a white dog called Max."
WHICH = "What is the name of the dog?"  # the model knows it from the turn before alone
PICTURES = ROOT / "build" / "journeys" / "pictures"
LIVE = {"waiting", "streaming"}
pytestmark = pytest.mark.night  # the others do the same by mouse, where windows can be seen
Message = tuple[str, str, str, str]
"""Role, text, how it ended, and what is attached and allowed, as JSON."""


class Keys:
    """A window of `outrider-app`, a keyboard, and the file of the chats."""

    def __init__(self, home: Home, screen: Screen, *arguments: object) -> None:
        self.home, self.screen = home, screen
        self._process: subprocess.Popen[bytes] = home.start("outrider-app", *arguments)
        screen.wait_focus(WINDOW)
        until((home.data / "chats.db").exists, "the window keeps chats")

    def until_model(self, path: Path) -> None:
        """Wait until a model was opened."""

        def last() -> str:
            with contextlib.suppress(OSError, ValueError):
                settings = json.loads(self.home.settings.read_text("utf-8"))
                return str(settings.get("last_model"))
            return ""

        until(lambda: last() == self.home.shown(path), f"{path.name} is the last model")

    def say(self, text: str) -> None:
        """Write a message and send it, without waiting for the answer."""
        n = len(self.messages())
        self.screen.press("ctrl+l")
        self.screen.type(text)

        def is_sent() -> bool:
            self.screen.press("Return")  # nothing comes of it until the model is loaded
            return ("user", text) in [one[:2] for one in self.messages()[n:]]

        until(is_sent, f"{text!r} is sent")

    def ask(self, text: str) -> str:
        """Send a message. Return the whole answer."""
        n = len(self.messages()) + 2
        self.say(text)
        return until(lambda: self.ended(n), f"there are {n} whole messages")[-1][1]

    def ended(self, n: int) -> Sequence[Message]:
        """Return the messages, if there are n and none is written any more."""
        found = self.messages()
        return found if len(found) == n and not LIVE & {one[2] for one in found} else ()

    def messages(self) -> list[Message]:
        """Return the messages of all chats, in the order in which they began."""
        copy = self.home.folder.parent / "chats of the window"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        with contextlib.suppress(OSError, sqlite3.DatabaseError):  # it is written meanwhile
            for path in self.home.data.glob("chats.db*"):  # the window may be under wine
                shutil.copy(path, copy)
            with contextlib.closing(sqlite3.connect(copy / "chats.db")) as chats:
                query = "SELECT role, content, ending, details FROM message ORDER BY id"
                return [(role, str(text), ending, details)
                        for role, text, ending, details in chats.execute(query)]  # fmt: skip
        return []

    def quit(self) -> list[Message]:
        """Leave the program, and wait until it has ended without a fault. Return the messages."""
        self.screen.press("ctrl+q")
        assert self.home.ended(self._process) == 0
        return self.messages()


def journey_a_model_and_a_chat_by_keys(home: Home, screen: Screen, hub: FakeHub) -> None:
    """A listed model comes from the hub and opens, and the next start goes on with the chat."""
    of_hub = models.small("Of the hub")
    for repository, file in models.listed():
        hub.repositories.setdefault(repository, {})[file] = of_hub
    keys = Keys(home, screen)

    def is_asked() -> bool:
        screen.press("ctrl+g")
        screen.press("Down", "Return")  # from the field to the suggested model
        return bool(hub.ranges())

    until(is_asked, "the hub was asked for a model")
    path = until(lambda: next(home.data.rglob("models/**/*.gguf"), None), "the model is there")
    assert path.read_bytes() == of_hub
    keys.until_model(path)
    keys.ask(MAX)
    assert "Max" in keys.ask(WHICH)
    before = keys.quit()
    keys = Keys(home, screen)
    keys.until_model(path)
    assert keys.messages() == before
    assert "Max" in keys.ask("How is the dog called?")
    PICTURES.mkdir(parents=True, exist_ok=True)
    screen.picture(PICTURES / "a_chat_by_keys.png")
    assert keys.quit()[: len(before)] == before


def journey_a_file_stop_and_close_by_keys(home: Home, screen: Screen, is_windows: bool) -> None:
    """A text is attached; an answer without an end is stopped, and left by a closed window."""
    if is_windows:
        pytest.skip("the dialog for files is wine's own, and has no title")
    text = home.write("notes.txt", b"The dog of Anna is called Max.\n")
    endless = models.scripted([Line("\n", ("Day ", "and ", "night. "), is_endless=True)])
    path = home.write("endless.gguf", endless)
    keys = Keys(home, screen, path)
    keys.until_model(path)
    screen.press("ctrl+u")
    screen.wait_focus("Attach")
    screen.type(home.shown(text))
    screen.press("Return")
    screen.wait_focus(WINDOW)
    keys.say("Go on.")
    until(lambda: len(keys.messages()) == 2, "the answer begins")
    screen.press("Escape")
    (asked, stopped) = until(lambda: keys.ended(2), "the answer was stopped")
    assert "notes.txt" in asked[3]
    assert stopped[2] == "stopped"
    keys.say("More.")
    until(lambda: len(keys.messages()) == 4, "the next answer begins")
    left = keys.quit()
    assert not LIVE & {one[2] for one in left}
    assert [one[0] for one in left] == 2 * ["user", "assistant"]
    keys = Keys(home, screen)
    keys.until_model(path)
    assert keys.quit() == left
