"""A home that an older version has left is opened by this one, and one of a newer version, too."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub

from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.window import SECOND, Window

OLD = Path(__file__).parent / "data" / "old-home.tar.xz"
"""data/make_old_home.py made it with the programs of commit 19eeec0f."""
SAID = "Max is white, and he sleeps."
TWICE = "Max is white, is white, and he sleeps."


@pytest.fixture
def old(home: Home, hub: FakeHub) -> Path:
    """Put the old home in place of the empty one. Return its model, which the hub has, too."""
    with tarfile.open(OLD) as archive:
        archive.extractall(home.folder.parent, filter="data")
    for path in home.folder.rglob("*.json"):
        written = path.read_text("utf-8").replace("@HOME@", str(home.folder))
        path.write_text(written.replace("@HUB@", hub.url), "utf-8")
    (model,) = home.data.rglob("old.gguf")
    for job in kept(home, "downloads.json")["downloads"]:
        hub.repositories[job["source"]] = {job["files"][0]["name"]: model.read_bytes()}
    return model


def kept(home: Home, name: str) -> dict[str, Any]:
    """Return a file of the configuration."""
    return dict(json.loads((home.settings.parent / name).read_text("utf-8")))


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    """Return the files below a folder by their names. There is at least one."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern)}
    assert found
    return found


def messages(home: Home) -> list[tuple[Any, ...]]:
    """Return all messages of all chats, with their places in the branches."""
    with contextlib.closing(sqlite3.connect(home.data / "chats.db")) as chats:
        query = "SELECT id, chat_id, parent_id, role, content, figures FROM message ORDER BY id"
        return chats.execute(query).fetchall()


def journey_an_old_home(home: Home, desktop: Desktop, hub: FakeHub, old: Path) -> None:
    """Chats, branches, settings, model and predictor are as before; the download goes on."""
    settings, tools, said = kept(home, "settings.json"), kept(home, "tools.json"), messages(home)
    states = contents(home.data / "states", "*.state")
    recordings = contents(home.data / "recordings", "*.npz")
    predictors = contents(home.data / "predictors", "*")
    (part,) = home.data.rglob("*.part")
    n_part = part.stat().st_size

    window = Window(home, desktop)
    window.wait_model("old")
    desktop.wait("Engine settings by hand", "check box")
    until(lambda: window.answers() == [SAID], "the chat that was open is shown")
    assert desktop.wait("Message").text == "Not sent yet"
    desktop.click("Who is white?", "list item")
    asked = ["Who is white?", "What does Max do?"]
    until(lambda: window.questions() == asked and len(window.answers()) == 2, "the first chat")
    assert window.answers() == [SAID, SAID]
    desktop.wait(SECOND)
    window.ask("Once more?")

    desktop.press("ctrl+g")
    desktop.wait_words("97.7 KiB of 152 KiB")
    desktop.click(re.compile("^Resume: "))
    until(lambda: not part.exists(), "the download is complete")
    window.wait_model("Q4_K_M")  # it opens
    assert hub.ranges() == [f"bytes={n_part}-"]
    window.quit()

    after = {name: value for name, value in kept(home, "settings.json").items() if name in settings}
    moved = {"page", "open_chat", "last_model", "recent"}
    assert {name for name in settings if after.get(name) != settings[name]} <= moved
    assert kept(home, "tools.json") == tools
    assert messages(home)[: len(said)] == said
    # No program reads states of an earlier version: they are deleted, and the next turn writes new.
    assert not contents(home.data / "states", "*.state").items() & states.items()
    assert contents(home.data / "recordings", "*.npz").items() > recordings.items()
    assert contents(home.data / "predictors", "*") == predictors
    assert [path.read_bytes() for path in home.data.rglob("*.gguf")] == 2 * [old.read_bytes()]
    recording = home.data / "recordings" / max(recordings)
    compared = home.run("evaluate", old, "--trace", recording, "--predictors", "learned")
    assert "learned" in compared
    shutil.rmtree(home.data / "predictors")  # another answer without them: they were in use
    home.run("evaluate", old, "--trace", recording, "--predictors", "learned", status=2)


def journey_a_home_of_a_newer_version(home: Home, desktop: Desktop, old: Path) -> None:
    """Chats of a newer version are left as they are, and a sentence says so."""
    chats = home.data / "chats.db"
    with contextlib.closing(sqlite3.connect(chats)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {version + 1000}")
    before = messages(home)
    window = Window(home, desktop)
    desktop.wait_words("newer version")
    window.wait_model("old")
    assert window.ask("Who is white?") == SAID
    window.quit()
    assert messages(home) == before
    assert [path.name for path in home.data.glob("chats*") if path.suffix == ".db"] == [chats.name]
